"""The page's own files, read once: scripts, styles, the icon. Their paths have a hash of all of them, so browsers keep them for
ever and never mix two versions."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import attrs

from ...server.listeners.http.access import HttpAnswer, HttpRequest

FOLDER: Final = Path(__file__).parent / "static"
SHELL: Final = "index.html"
MAX_TOTAL_BYTES: Final = 150_000
CONTENT_TYPES: Final[Mapping[str, str]] = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
FOR_EVER: Final = ("cache-control", "public, max-age=31536000, immutable")
HASH_CHARS: Final = 12
COMMENT: Final = re.compile(r"^[ \t]*(?://[^\n]*|/\*.*?\*/[ \t]*)$", re.MULTILINE | re.DOTALL)
"""One that has its lines for itself."""


class StaticFile(NamedTuple):
    content_type: str
    content: bytes
    compressed: bytes


@attrs.frozen
class StaticFiles:
    """All of them, by their path below the folder."""

    files: Mapping[str, StaticFile]
    digest: str

    @classmethod
    def read(cls, folder: Path = FOLDER) -> StaticFiles:
        """Blocking."""
        digest = hashlib.sha256()
        files = {}
        for path in sorted(folder.rglob("*")):
            if path.suffix in CONTENT_TYPES:
                name, content = path.relative_to(folder).as_posix(), _shipped(path.read_text(encoding="utf-8"))
                digest.update(b"%s\0%d\0%s" % (name.encode(), len(content), content))
                files[name] = StaticFile(CONTENT_TYPES[path.suffix], content, gzip.compress(content, mtime=0))
        return cls(files, digest.hexdigest()[:HASH_CHARS])

    @property
    def base(self) -> str:
        """The path below which they are."""
        return f"/static/{self.digest}/"

    @property
    def shell(self) -> str:
        """The page without its data."""
        return self.files[SHELL].content.decode()

    def answer(self, request: HttpRequest) -> HttpAnswer:
        """A file, or 404; also for a version that is no longer there."""
        found = self.files.get(request.path.removeprefix(self.base)) if request.path.startswith(self.base) else None
        if found is None:
            return HttpAnswer.text(404, "there is no such file")
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers = (FOR_EVER, ("content-encoding", "gzip"), ("vary", "accept-encoding"))
            return HttpAnswer(200, found.compressed, found.content_type, headers)
        return HttpAnswer(200, found.content, found.content_type, (FOR_EVER, ("vary", "accept-encoding")))


def _shipped(text: str) -> bytes:
    """Strip indentation and comment lines, a tenth of a file. This is safe because none of our strings has several lines."""
    lines = (line.strip() for line in COMMENT.sub("", text).splitlines())
    return "\n".join(filter(None, lines)).encode() + b"\n"
