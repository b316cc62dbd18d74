"""`clock.json`: the records whose timestamps do not say how old they are, because the clock was not trusted when they were
appended (our own; Kafka ignores plain files in a log directory). In every log directory beside `topics.json`, the copy with the
highest generation counts.

| field | |
|---|---|
| `generation` | ascends with each write |
| `suspended` | null, or `[floor_ms, from_ms]`: the clock is not trusted. The earliest plausible time, the first stamp |
| `episodes` | `[from_ms, dated_ms]`, ascending: everything that the server stamped in between happened before `dated_ms` |
| `ranges` | `[topic_id, partition, first_offset, end_offset, dated_ms]`, see `segments/undated`; -1 for an open end |

If it has `suspended`, all records of a log without an open range are undated: the log was created since. The server writes
the file when the clock loses or regains trust: at a start before records are appended, so no kill loses a mark. If the file
cannot be read, all records are undated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import attrs

from ....protocol.limits import INT64_MAX
from ..segments.undated import Undated, UndatedRange
from .state_files import decode_checked, encode_checked

CLOCK_FILE: Final = "clock.json"
MAX_EPISODES: Final = 64
_REMEDY: Final = "Without the file the server trusts the timestamps of all records"


LogKey = tuple[str, int]
"""Topic id and partition: another topic may have the same name later."""


class Episode(NamedTuple):
    """The server stamped this span of time, both ends inclusive, with a clock that it did not trust. It ended at `dated_ms`."""

    from_ms: int
    dated_ms: int


@attrs.frozen(kw_only=True)
class ClockState:
    """The contents of the file."""

    generation: int = 0
    suspended: tuple[int, int] | None = None
    episodes: tuple[Episode, ...] = ()
    ranges: Mapping[LogKey, Undated] = attrs.field(factory=dict)


UNREADABLE: Final = ClockState(suspended=(0, 0))
"""In place of a file that cannot be read."""


def encode_clock(state: ClockState) -> bytes:
    return encode_checked(
        {
            "generation": state.generation,
            "suspended": state.suspended,
            "episodes": state.episodes,
            "ranges": [
                [*key, first, *(-1 if value == INT64_MAX else value for value in (end, dated))]
                for key, ranges in sorted(state.ranges.items())
                for first, end, dated in ranges
            ],
        }
    )


def decode_clock(path: str, data: bytes) -> ClockState:
    """Raises CheckpointError naming the file and what is wrong with it."""
    return decode_checked(path, data, _state, remedy=_REMEDY)


def _state(document: dict[str, Any]) -> ClockState:
    ranges: dict[LogKey, Undated] = {}
    for topic_id, partition, *numbers in document["ranges"]:
        first, end, dated = (INT64_MAX if int(each) == -1 else int(each) for each in numbers)
        key = (str(topic_id), int(partition))
        ranges[key] = (*ranges.get(key, ()), UndatedRange(first, end, dated))
    suspended = document["suspended"]
    return ClockState(
        generation=int(document["generation"]),
        suspended=None if suspended is None else (int(suspended[0]), int(suspended[1])),
        episodes=tuple(Episode(int(from_ms), int(dated)) for from_ms, dated in document["episodes"]),
        ranges=ranges,
    )
