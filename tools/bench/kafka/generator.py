"""The generator: the Go program in `peers/kafka`, franz-go's client, built once; and kfake, which is the same program.

franz-go because it sends more beside a server: into kfake 218 MB/s of 1,000 B and 100 MB/s of 100 B, against 178 and 58 of
librdkafka under confluent-kafka, which gets its records one by one under the interpreter's lock (2 cores, busy, 2026-11-22).
Every load is a process of its own that prints one JSON object.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs

from ..measuring.child import LoadFailedError
from .jars import SOURCES, PeerMissingError, built_in, locked

BUILD_TIMEOUT_S: Final = 600.0
LOAD_TIMEOUT_S: Final = 300.0
CLIENT: Final = "github.com/twmb/franz-go"
FAKE: Final = "github.com/twmb/franz-go/pkg/kfake"


@attrs.frozen
class Generator:
    """The built program."""

    path: str

    def run(self, load: str, address: str, **flags: object) -> dict[str, Any]:
        """Run a load; return its figures. Raises LoadFailedError."""
        command = [self.path, load, "-address", address]
        command += [f"-{name.replace('_', '-')}={_text(value)}" for name, value in flags.items()]
        run = subprocess.run(command, capture_output=True, text=True, timeout=LOAD_TIMEOUT_S, check=False)
        if run.returncode:
            raise LoadFailedError(f"{' '.join(command[1:])} ended with {run.returncode}: {run.stderr.strip()[-1000:]}")
        answer: dict[str, Any] = json.loads(run.stdout)
        return answer


@contextmanager
def serve_fake(generator: Generator) -> Iterator[tuple[str, int]]:
    """Run a kfake of one node; yield its address and process id."""
    pipe = subprocess.PIPE
    with subprocess.Popen([generator.path, "kfake"], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise LoadFailedError("kfake did not start")
            yield json.loads(line)["address"], process.pid
        finally:
            process.kill()


def version_in_go_mod(module: str) -> str:
    """Return the version of a module that the program is built with."""
    found = re.search(rf"{re.escape(module)} (v\S+)", (SOURCES / "go.mod").read_text(encoding="utf-8"))
    return "unknown" if found is None else found[1]


def build_generator() -> Generator:
    """Build the program of the present sources. Raises PeerMissingError."""
    go = shutil.which("go")
    if go is None:
        raise PeerMissingError("Go is not installed, so the generator (franz-go) cannot be built")
    sources = sorted(path for path in SOURCES.iterdir() if path.suffix == ".go" or path.name.startswith("go."))
    digest = hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in sources)).hexdigest()[:16]
    folder = built_in("bench-kafka")
    program = folder / f"generator-{digest}"
    with locked(folder / "lock"):
        if not program.is_file():
            _build(go, program)
            for older in folder.glob("generator-*"):
                if older != program:
                    older.unlink()
    return Generator(str(program))


def _build(go: str, program: Path) -> None:
    unfinished = program.with_name("unfinished")
    command = [go, "build", "-buildvcs=false", "-mod=readonly", "-p", "2", "-o", str(unfinished), "."]
    try:
        run = subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise PeerMissingError(f"the generator was not built within {BUILD_TIMEOUT_S:g} s") from None
    if run.returncode:
        raise PeerMissingError(f"the generator cannot be built (offline?): {run.stderr.strip()[-300:]}")
    unfinished.rename(program)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
