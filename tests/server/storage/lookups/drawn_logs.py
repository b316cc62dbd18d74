"""Logs of given timestamps, and drawn ones: appends and rolls, any log start offset, any high watermark between two appends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
from hypothesis import strategies as st
from triolog.protocol.types import NO_TIMESTAMP
from triolog.server.config import LogConfig

from tests.support.logs import START_MS, DrivenLog, batch, open_driven

TIMES = st.one_of(st.just(NO_TIMESTAMP), st.integers(0, 40))
SIZES = st.just(5)
INTERVALS = st.integers(0, 300)


def log_of(directory: Path, *timestamps: int, **config: Any) -> DrivenLog:
    """A log with one batch per timestamp, counted from START_MS."""
    driven = open_driven(directory, config=LogConfig(**config))
    for timestamp in timestamps:
        driven.append(batch(START_MS + timestamp))
    return driven


@attrs.frozen
class DrawnLog:
    """`appends` are the timestamps of a batch, the size of its values, and whether a roll follows; the rest are shares."""

    appends: list[tuple[list[int], int, bool]]
    interval: int
    log_start: float
    readable: float
    was_clean: bool = False

    def written(self, directory: Path) -> tuple[DrivenLog, list[tuple[int, int, int]]]:
        """The log as it was appended to, and its ends: offset, base offset and size of the active segment."""
        driven = open_driven(directory, config=LogConfig(index_interval_bytes=self.interval, segment_index_bytes=60))
        ends = [(0, 0, 0)]
        for times, size, rolls in self.appends:
            driven.append(batch(*times, value=bytes(size)))
            if rolls:
                driven.roll()
            ends.append((driven.log.log_end_offset, driven.log.active.base_offset, driven.log.active.size))
        return driven, ends

    def opened(self, directory: Path) -> DrivenLog:
        return self.reopened(*self.written(directory))

    def reopened(self, driven: DrivenLog, ends: list[tuple[int, int, int]]) -> DrivenLog:
        if self.was_clean:
            driven.close()
        start = int(self.log_start * driven.log.log_end_offset)
        again = driven.reopen(was_clean=self.was_clean, log_start_offset=start)
        high_watermark = ends[int(self.readable * (len(ends) - 1))]
        if high_watermark[0] >= start:
            again.log.set_high_watermark(*high_watermark)
        return again


def drawn_logs(
    *, sizes: st.SearchStrategy[int] = SIZES, intervals: st.SearchStrategy[int] = INTERVALS
) -> st.SearchStrategy[DrawnLog]:
    append = st.tuples(st.lists(TIMES, min_size=1, max_size=4), sizes, st.booleans())
    return st.builds(DrawnLog, st.lists(append, max_size=25), intervals, st.floats(0, 1), st.floats(0, 1), st.booleans())
