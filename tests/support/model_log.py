"""A log as a list: what every answer is compared with.

Batches are kept in full and every answer is a scan. `batches` is what lies in the files, also below the log start offset and
behind the high watermark; readers get neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import attrs
from triolog.protocol.types import NO_TIMESTAMP, Record

NewRecord = tuple[int, bytes | None, bytes | None]
"""Timestamp, key, value: a record before it has an offset."""


@attrs.frozen
class ModelBatch:
    records: tuple[Record, ...]
    gap_from: int | None = None
    """Where the gap starts that recovery covered with this control batch; None for what was appended."""

    @classmethod
    def at(cls, base_offset: int, records: Sequence[NewRecord], append_time: int | None) -> ModelBatch:
        """The batch that a log stores; under LogAppendTime every record has the time of the append."""
        return cls(
            tuple(
                Record(base_offset + delta, timestamp if append_time is None else append_time, key, value)
                for delta, (timestamp, key, value) in enumerate(records)
            )
        )

    @property
    def base_offset(self) -> int:
        return self.records[0].offset if self.gap_from is None else self.gap_from

    @property
    def next_offset(self) -> int:
        return self.records[-1].offset + 1


@attrs.define(eq=False)
class ModelLog:
    batches: list[ModelBatch] = attrs.field(factory=list)
    log_start_offset: int = 0
    high_watermark: int = 0
    log_end_offset: int = 0

    def copy(self) -> ModelLog:
        return attrs.evolve(self, batches=list(self.batches))

    def numbered(self, batches: Iterable[Sequence[NewRecord]], append_time: int | None = None) -> list[ModelBatch]:
        """What an append of these batches would store."""
        numbered: list[ModelBatch] = []
        offset = self.log_end_offset
        for records in batches:
            numbered.append(ModelBatch.at(offset, records, append_time))
            offset = numbered[-1].next_offset
        return numbered

    def append(self, batches: Iterable[ModelBatch]) -> None:
        for batch in batches:
            assert batch.base_offset == self.log_end_offset
            self.batches.append(batch)
            self.log_end_offset = batch.next_offset

    def truncate_to(self, offset: int) -> bool:
        """The batch that holds `offset` goes as a whole; the log ends at `offset` all the same."""
        if offset >= self.log_end_offset:
            return False
        self.batches = [batch for batch in self.batches if batch.next_offset <= offset]
        self._end_at(offset)
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self.batches.clear()
        self.log_start_offset = self.high_watermark = self.log_end_offset = offset

    def reopen(self, batches: Sequence[ModelBatch], active_base_offset: int) -> None:
        """Go on with what was found in the files: a gap at the end is forgotten, all of it is readable."""
        self.batches = list(batches)
        self.log_end_offset = max(active_base_offset, self.batches[-1].next_offset if self.batches else 0)
        self.high_watermark = self.log_end_offset

    def _end_at(self, offset: int) -> None:
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.high_watermark = min(self.high_watermark, offset)

    def readable(self) -> Iterator[Record]:
        for batch in self.batches:
            for record in batch.records if batch.gap_from is None else ():
                if self.log_start_offset <= record.offset < self.high_watermark:
                    yield record

    def batches_from(self, offset: int) -> list[ModelBatch]:
        """Batches below the high watermark, from the one that holds `offset` or is the first behind it."""
        return [batch for batch in self.batches if offset < batch.next_offset <= self.high_watermark]

    def first_at_or_after(self, timestamp: int) -> tuple[int, int]:
        """(timestamp, offset) of the first readable record with at least this timestamp, (-1, -1) when there is none."""
        for record in self.readable():
            if record.timestamp >= timestamp:
                return record.timestamp, record.offset
        return -1, -1

    def largest_timestamp(self) -> tuple[int, int]:
        """(timestamp, offset) of the first readable record with the largest timestamp; (-1, -1) when none has one."""
        largest = max((record.timestamp for record in self.readable()), default=NO_TIMESTAMP)
        return (-1, -1) if largest == NO_TIMESTAMP else self.first_at_or_after(largest)
