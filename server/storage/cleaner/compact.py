"""A round of cleaning on the spot: for tools on a stopped directory, and for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from ....protocol.limits import MIB
from ..disk.diskops import drive
from ..disk.filesystem import FileSystem
from ..log.log import Log
from .clean import clean
from .job import CleanedGroup, CleaningResult
from .selection import LogToClean, choose, plan_round
from .swap import replace_group
from .swap_recovery import discard_cleaned

DEFAULT_MAP_BYTES: Final = 128 * MIB
"""Kafka's log.cleaner.dedupe.buffer.size."""


@attrs.frozen(kw_only=True)
class Compacted:
    """What a round on the spot did."""

    chosen: LogToClean
    result: CleaningResult
    groups: tuple[CleanedGroup, ...]


def compact(
    fs: FileSystem,
    log: Log,
    checkpoint: int | None,
    *,
    map_bytes: int = DEFAULT_MAP_BYTES,
    keep_on: Callable[[int], None] | None = None,
) -> Compacted | None:
    """Clean what can be cleaned of a log, due or not; None when nothing is dirty. `result.next_dirty_offset` is the checkpoint
    to keep. More rounds may follow when the map did not hold all keys: then it lies below `chosen.end_offset`.

    Raises what `clean` and `replace_group` raise; `.cleaned` files are deleted then.
    """
    now_ms = log.now_ms()
    chosen = drive(fs, choose(log, checkpoint, now_ms))
    if chosen.end_offset <= chosen.first_dirty_offset:
        return None
    job = plan_round(log, chosen, now_ms, map_bytes=map_bytes)
    groups: list[CleanedGroup] = []
    truncations = log.truncations
    work = clean(fs, job, keep_on=keep_on)
    try:
        while True:
            group = next(work)
            groups.append(group)
            if group.cleaned is not None:
                truncations = drive(fs, replace_group(log, job, group, truncations))
    except StopIteration as stop:
        result: CleaningResult = stop.value
        return Compacted(chosen=chosen, result=result, groups=tuple(groups))
    except Exception:
        work.close()
        discard_cleaned(fs, log.directory)
        raise
