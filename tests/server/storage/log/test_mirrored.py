"""A mirror's log against its source: any history of batches, producers, transactions, epochs and holes is copied byte for byte,
over power cuts, and the state of the producers is that of the source."""

from __future__ import annotations

import random
from typing import Any

import attrs
import pytest
from triolog.protocol.errors import CorruptRecordError, ErrorCode, ExpectedOffsetError, RequestError
from triolog.protocol.records.batch import STAMP, iter_batches
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import AppendResult, Isolation
from triolog.server.config import LogConfig
from triolog.server.storage.disk.diskops import compute
from triolog.server.storage.log.changes import raise_leader_epoch, truncate_fully_and_start_at, truncate_to
from triolog.server.storage.log.mirrored import begin_leader_epoch, prepare_mirrored
from triolog.server.storage.log.prepare import PreparedAppend, prepare_append, prepare_marker
from triolog.server.storage.lookups.fetch import fetch_batches

from tests.support.crash_fs import CrashFileSystem
from tests.support.inline_log import ORDERS, InlineLog, make_on_device

SOURCE, MIRROR = "/source/orders-0", "/mirror/orders-0"
CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=100)
NOW_MS = 1_000


def opened(directory: str, config: LogConfig = CONFIG, fs: CrashFileSystem | None = None, **options: Any) -> InlineLog:
    fs = fs or CrashFileSystem(page_bytes=64)
    make_on_device(fs, directory)
    return InlineLog.open_orders(fs, directory, config, lambda: NOW_MS, **options)


def all_bytes(inline: InlineLog, offset: int, max_bytes: int = 2**20) -> bytes:
    found = inline.run(fetch_batches(inline.log.snapshot(), offset, max_bytes, min_one_batch=True))
    return bytes(found.records)


def mirrored(inline: InlineLog, records: bytes, *, sync: bool = False) -> None:
    """What the copier does with a response of the source."""
    log = inline.log
    for append in compute(prepare_mirrored(records, ORDERS, log.config, end_offset=log.log_end_offset)):
        first = append.batches[0][0]
        inline.run(begin_leader_epoch(log, first.partition_leader_epoch, first.base_offset))
        (answer,) = inline.append([append], sync=sync)
        assert isinstance(answer, AppendResult), answer
    log.high_watermark_to_end()


@attrs.define
class Source:
    """A log with plain, idempotent and transactional batches, and epochs that rise."""

    rng: random.Random
    inline: InlineLog = attrs.field(factory=lambda: opened(SOURCE))
    sequences: dict[int, int] = attrs.field(factory=dict)
    open: set[int] = attrs.field(factory=set)

    def step(self) -> None:
        pid = self.rng.randrange(4)
        if pid == 0:
            self._append([(NOW_MS, b"k", bytes(self.rng.randrange(90)), ())] * self.rng.randint(1, 3))
        elif pid in self.open and self.rng.random() < 0.4:
            self.open.discard(pid)
            commit = self.rng.random() < 0.5
            end = prepare_marker(producer_id=pid, producer_epoch=0, commit=commit, coordinator_epoch=0, now_ms=NOW_MS)
            self.inline.append([end])
        else:
            is_transactional = pid > 1
            self.open |= {pid} if is_transactional else set()
            sequence = self.sequences.get(pid, 0)
            self.sequences[pid] = sequence + 1
            options = {"producer_id": pid, "producer_epoch": 0, "base_sequence": sequence}
            self._append([(NOW_MS, b"k", b"v", ())], is_transactional=is_transactional, **options)
        if self.rng.random() < 0.1:
            self.inline.run(raise_leader_epoch(self.inline.log))
        self.inline.log.high_watermark_to_end()

    def _append(self, records: list[Any], **options: Any) -> None:
        batch = build_batch(records, **options)
        (answer,) = self.inline.append([prepare_append(batch, ORDERS, CONFIG, now_ms=NOW_MS)])
        assert isinstance(answer, AppendResult), answer


def assert_copy(copy: InlineLog, source: InlineLog) -> None:
    ours, theirs = copy.log, source.log
    assert all_bytes(copy, 0) == all_bytes(source, 0)[: len(all_bytes(copy, 0))]
    if ours.log_end_offset != theirs.log_end_offset:
        return
    assert all_bytes(copy, 0) == all_bytes(source, 0)
    assert ours.last_stable_offset == theirs.last_stable_offset
    assert ours.producers.entries == theirs.producers.entries
    assert ours.producers.ongoing == theirs.producers.ongoing
    for offset in range(theirs.log_end_offset):
        assert ours.leader_epochs.epoch_for_offset(offset) == theirs.leader_epochs.epoch_for_offset(offset)
    end = ours.last_stable_offset
    if end:
        committed = [
            each.run(
                fetch_batches(each.log.snapshot(), 0, 2**20, min_one_batch=True, isolation=Isolation.READ_COMMITTED)
            ).aborted
            for each in (copy, source)
        ]
        assert committed[0] == committed[1]


@pytest.mark.merge
@pytest.mark.parametrize("seed", range(12))
def test_a_mirror_equals_its_source_after_any_history_and_any_power_cut(seed: int) -> None:
    rng = random.Random(seed)
    source, copy = Source(rng), opened(MIRROR)
    copy.log.mirror_of = "source:9092"
    for _ in range(60):
        for _ in range(rng.randint(1, 4)):
            source.step()
        end = copy.log.log_end_offset
        mirrored(copy, all_bytes(source.inline, end, rng.randint(1, 900)), sync=rng.random() < 0.5)
        if rng.random() < 0.15:
            promised = copy.log.recovery_point
            copy = opened(MIRROR, fs=copy.fs.crash(rng), recovery_point=copy.log.recovery_point)  # type: ignore[attr-defined]
            copy.log.mirror_of = "source:9092"
            assert copy.log.log_end_offset >= promised
        if rng.random() < 0.1:
            bounds = [0, *(header.next_offset for header, _ in iter_batches(all_bytes(copy, 0)))]
            copy.run(truncate_to(copy.log, rng.choice(bounds)))
            copy.log.high_watermark_to_end()
        assert_copy(copy, source.inline)
    while copy.log.log_end_offset < source.inline.log.log_end_offset:
        mirrored(copy, all_bytes(source.inline, copy.log.log_end_offset, 900))
    assert_copy(copy, source.inline)
    assert len(copy.log.segments) > 3


def at(offset: int, *, epoch: int = 0, size: int = 1, count: int = 1) -> bytes:
    """A batch as the log of another server has it."""
    batch = bytearray(build_batch([(NOW_MS, b"k", bytes(size), ())] * count))
    ((header, _),) = iter_batches(batch)
    batch[: STAMP.size] = STAMP.pack(offset, header.batch_length, epoch)
    return bytes(batch)


def test_holes_and_a_log_start_of_the_source_stay() -> None:
    copy = opened(MIRROR)
    copy.log.mirror_of = "source:9092"
    copy.run(truncate_fully_and_start_at(copy.log, 1_000))
    records = at(1_002, epoch=3) + at(1_007, epoch=3) + at(1_010, epoch=4)
    mirrored(copy, records, sync=True)
    assert (copy.log.log_start_offset, copy.log.log_end_offset) == (1_000, 1_011)
    assert all_bytes(copy, 1_000) == records
    again = opened(MIRROR, fs=copy.fs.crash(random.Random(1)), recovery_point=1_011, log_start_offset=1_000)  # type: ignore[attr-defined]
    assert all_bytes(again, 1_000) == records
    assert (again.log.log_end_offset, again.log.leader_epoch) == (1_011, 4)


def test_a_batch_above_segment_bytes_of_an_earlier_configuration_of_the_source_is_stored() -> None:
    copy = opened(MIRROR)
    copy.log.mirror_of = "source:9092"
    records = at(0) + at(1, size=2_000) + at(2)
    mirrored(copy, records)
    assert all_bytes(copy, 0) + all_bytes(copy, 1) + all_bytes(copy, 2) == records
    assert [segment.base_offset for segment in copy.log.segments] == [0, 1, 2]


def test_what_a_source_cannot_have_is_refused() -> None:
    two = at(0) + at(1)
    flipped = bytearray(two)
    flipped[-1] ^= 1
    with pytest.raises(CorruptRecordError, match="carries CRC"):
        compute(prepare_mirrored(bytes(flipped), ORDERS, CONFIG, end_offset=0))
    with pytest.raises(CorruptRecordError, match="orders-0: the source returned offsets 0 to 0 for a log that ends at 2"):
        compute(prepare_mirrored(at(1) + at(0, count=1), ORDERS, CONFIG, end_offset=0))
    assert compute(prepare_mirrored(two, ORDERS, CONFIG, end_offset=2)) == []
    (append,) = compute(prepare_mirrored(two + at(2)[:30], ORDERS, CONFIG, end_offset=1))
    assert [header.base_offset for header, _ in append.batches] == [1]


def test_a_mirror_refuses_every_other_append_and_another_log_refuses_a_mirrored_one() -> None:
    copy = opened(MIRROR)
    ours = prepare_append(build_batch([(NOW_MS, b"k", b"v", ())]), ORDERS, CONFIG, now_ms=NOW_MS)
    marker = prepare_marker(producer_id=1, producer_epoch=0, commit=True, coordinator_epoch=0, now_ms=NOW_MS)
    (theirs,) = compute(prepare_mirrored(at(0), ORDERS, CONFIG, end_offset=0))

    def answer(append: PreparedAppend) -> RequestError:
        (found,) = copy.append([append])
        assert isinstance(found, RequestError), found
        return found

    assert answer(theirs).code is ErrorCode.FENCED_LEADER_EPOCH
    copy.log.mirror_of = "source:9092"
    for each in (ours, marker, ours._replace(expected_offset=0)):
        refused = answer(each)
        assert refused.code is ErrorCode.POLICY_VIOLATION
        assert "orders-0 is a mirror of source:9092 and read-only" in refused.message
    (later,) = compute(prepare_mirrored(at(0, epoch=9), ORDERS, CONFIG, end_offset=0))
    assert answer(later).code is ErrorCode.UNKNOWN_LEADER_EPOCH
    (elsewhere,) = compute(prepare_mirrored(at(5), ORDERS, CONFIG, end_offset=5))
    assert isinstance(answer(elsewhere), ExpectedOffsetError)
    assert copy.log.log_end_offset == 0
