"""Random histories: after any number of rounds a reader sees what a naive model says."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.types import CompressionType, Isolation, TimestampType
from triolog.server.config import LogConfig
from triolog.server.offline.compact_directory import compact

from tests.support.compaction import end_transaction, put_all
from tests.support.logs import DrivenLog, open_driven

KEYS = st.integers(0, 5)
VALUES = st.one_of(st.none(), st.integers(0, 9))
RECORDS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4)
PRODUCERS = st.integers(1, 3)

STEP = st.one_of(
    st.tuples(st.just("append"), RECORDS, st.sampled_from(CompressionType)),
    st.tuples(st.just("send"), PRODUCERS, RECORDS, st.sampled_from(CompressionType)),
    st.tuples(st.just("end"), PRODUCERS, st.booleans()),
    st.tuples(st.just("roll")),
    st.tuples(st.just("wait"), st.sampled_from([1, 60, 200])),
    st.tuples(st.just("clean"), st.sampled_from([24 * 11, 1 << 14])),
)

Record = tuple[int, bytes | None, bytes | None]
DELETE_RETENTION_MS = 100


@attrs.define
class History:
    """A log, and what was ever put into it."""

    driven: DrivenLog
    written: dict[int, Record] = attrs.field(factory=dict)
    aborted: set[int] = attrs.field(factory=set)
    open: dict[int, list[int]] = attrs.field(factory=dict)
    sequences: dict[int, int] = attrs.field(factory=dict)
    checkpoint: int | None = None

    def append(self, records: Sequence[tuple[int, int | None]], codec: CompressionType, **options: Any) -> list[int]:
        base = put_all(self.driven, records, timestamp=self.driven.clock(), compression_type=codec, **options)
        offsets = list(range(base, base + len(records)))
        for offset, (key, value) in zip(offsets, records, strict=True):
            self.written[offset] = offset, str(key).encode(), None if value is None else str(value).encode()
        return offsets

    def send(self, producer: int, records: Sequence[tuple[int, int | None]], codec: CompressionType) -> None:
        sequence = self.sequences.get(producer, 0)
        options = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence, "is_transactional": True}
        self.open.setdefault(producer, []).extend(self.append(records, codec, **options))
        self.sequences[producer] = sequence + len(records)

    def end(self, producer: int, commit: bool) -> None:
        offsets = self.open.pop(producer, None)
        if offsets is not None:
            end_transaction(self.driven, producer, commit=commit)
            if not commit:
                self.aborted.update(offsets)

    def roll(self) -> None:
        if self.driven.log.active.size:
            self.driven.roll()

    def wait(self, ms: int) -> None:
        self.driven.clock.advance(ms)

    def clean(self, map_bytes: int) -> None:
        self.driven.flush()
        before, ends = self.read(Isolation.READ_UNCOMMITTED), self.ends()
        done = compact(self.driven.fs, self.driven.log, self.checkpoint, map_bytes=map_bytes)
        self.driven.close_files()
        after = self.read(Isolation.READ_UNCOMMITTED)
        assert self.ends() == ends
        assert [record for record in before if record in set(after)] == after, "offsets or order changed"
        if done is not None:
            assert self.checkpoint is None or done.result.next_dirty_offset > self.checkpoint
            self.checkpoint = done.result.next_dirty_offset
            self.check_clean(after, done.chosen.first_dirty_offset, self.checkpoint)

    def ends(self) -> tuple[int, int, int]:
        log = self.driven.log
        return log.last_stable_offset, log.high_watermark, log.log_end_offset

    def check_clean(self, after: list[Record], first_dirty: int, end: int) -> None:
        """Below `end`, a key that stands in the part that was dirty stands once."""
        seen: set[bytes | None] = set()
        for offset, key, _ in reversed([record for record in after if record[0] < end]):
            if offset >= first_dirty or key in seen:
                assert key not in seen, f"{key!r} at {offset} is superseded"
            seen.add(key)

    def read(self, isolation: Isolation) -> list[Record]:
        """Records as a consumer shows them: aborted ones left out as it does it, from the list and the markers."""
        return [(record.offset, record.key, record.value) for record in self.driven.records(isolation)]

    def check_views(self) -> None:
        """Whoever starts at 0 ends with the last value of every key, under both isolation levels."""
        log = self.driven.log
        for isolation, end in (
            (Isolation.READ_UNCOMMITTED, log.high_watermark),
            (Isolation.READ_COMMITTED, log.last_stable_offset),
        ):
            found = self.read(isolation)
            assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
            assert all(self.written[record[0]] == record for record in found)
            committed = [record for record in found if record[0] not in self.aborted]
            if isolation is Isolation.READ_COMMITTED:
                assert committed == found
            expected = [self.written[offset] for offset in sorted(self.written) if offset < end and offset not in self.aborted]
            assert _state(committed) == _state(expected)


def _state(records: Sequence[Record]) -> dict[bytes | None, bytes]:
    """What a table made of the records holds: a tombstone takes its key out."""
    last = {key: value for _, key, value in records}
    return {key: value for key, value in last.items() if value is not None}


@given(
    steps=st.lists(STEP, max_size=40),
    segment_bytes=st.sampled_from([250, 500, 100_000]),
    timestamp_type=st.sampled_from(TimestampType),
)
def test_a_reader_sees_the_last_value_of_every_key_whatever_was_compacted(
    steps: list[Any], segment_bytes: int, timestamp_type: TimestampType
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        config = LogConfig(
            cleanup_policy=("compact",),
            segment_bytes=segment_bytes,
            index_interval_bytes=60,
            delete_retention_ms=DELETE_RETENTION_MS,
            message_timestamp_type=timestamp_type,
            message_timestamp_after_max_ms=10**12,
        )
        history = History(open_driven(directory, config=config))
        for name, *arguments in steps:
            getattr(history, name)(*arguments)
        history.check_views()
        for producer in list(history.open):
            history.end(producer, commit=True)
        history.roll()
        for _ in range(3):
            history.clean(1 << 14)
            history.wait(DELETE_RETENTION_MS)
            history.check_views()
        history.driven.log.drop_maps()
