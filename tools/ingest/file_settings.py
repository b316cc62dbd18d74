"""The settings of a link from files: the keys of an `[[ingest]]` table that has `files`."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import attrs

from ...server.config.key import bool_key, described, int_key, text
from ..forward.errors import SettingsError
from ..forward.settings.link_settings import read_name
from .topic_names import check_name

ROTATED: Final = ("*.gz", "*.xz", "*.zst", "*.bz2", "*.[0-9]", "*.[0-9][0-9]", "*-20[0-9][0-9][0-9][0-9][0-9][0-9]*")
"""Names that logrotate gives."""


def _patterns(value: Any) -> tuple[str, ...]:
    """A text, or a list of texts. Raises ValueError."""
    patterns = [value] if isinstance(value, str) else value
    if not isinstance(patterns, list | tuple) or not all(isinstance(each, str) and each for each in patterns):
        raise ValueError(f"{value!r} is not a list of paths")
    if any("\0" in each for each in patterns):
        raise ValueError("a path has no zero bytes")
    return tuple(patterns)


def _some(value: Any) -> tuple[str, ...]:
    if not (patterns := _patterns(value)):
        raise ValueError("no path")
    return patterns


@attrs.frozen(kw_only=True)
class FileLink:
    """Files whose lines become records."""

    name: str = attrs.field(metadata=described("string", read_name, "Name of the link, part of its transactional id."))
    files: tuple[str, ...] = attrs.field(
        metadata=described(
            "list", _some, "Paths, globs (`**` for folders at any depth) and directories, whose files are meant."
        )
    )
    topic: str = attrs.field(metadata=described("string", lambda value: check_name(text(value)), "Topic of the records."))
    exclude: tuple[str, ...] = attrs.field(
        default=ROTATED,
        metadata=described(
            "list",
            _patterns,
            "Globs of file names that are left out. A file that is renamed so while it is followed is still read to its end.",
            shown=" ".join(ROTATED),
        ),
    )
    max_line_bytes: int = int_key(
        900_000,
        "Largest line. A longer one goes to the dead-letter topic, cut to this size.",
        low=1,
        high=64 * 2**20,
        unit="bytes",
    )
    batch_bytes: int = int_key(1_000_000, "Lines that one transaction stores, about.", low=1, high=64 * 2**20, unit="bytes")
    poll_ms: int = int_key(250, "Pause after all files were read to their ends.", low=1, high=3_600_000, unit="ms")
    finish_s: int = int_key(
        5,
        "Time without a new line after which a rotated or deleted file is closed. A rest without a newline is then a line.",
        low=0,
        high=86_400,
        unit="s",
    )
    max_files: int = int_key(
        500, "Files that are followed at a time. Further ones wait, and the status names them.", low=1, high=100_000
    )
    create_topics: bool = bool_key(True, "Creation of missing topics.")
    dead_letter_topic: str = attrs.field(
        default="file-dead-letters",
        metadata=described(
            "string", lambda value: check_name(text(value)), "Topic for lines that cannot be stored, with the reason."
        ),
    )
    positions_topic: str | None = attrs.field(
        default=None,
        metadata=described(
            "string",
            lambda value: check_name(text(value)),
            "Compacted topic with the position in each file, of this link alone. Without it all files are read again.",
            shown="triolog-ingest.NAME.positions",
        ),
    )
    max_topics: ClassVar[int] = 3

    def __attrs_post_init__(self) -> None:
        if len({self.topic, self.dead_letter_topic, self.positions}) < 3:
            raise SettingsError(f"link {self.name}: topic, dead_letter_topic and positions_topic must differ")

    @property
    def positions(self) -> str:
        """Return the topic of the positions."""
        return self.positions_topic or f"triolog-ingest.{self.name}.positions"
