"""Bytes that were cut, flipped, zeroed or added: what is kept is right, and what is answered is what a scan answers.

The log's own checks are the evidence: in an unclean start every byte of a scanned batch is covered by its CRC, except the first
17, which the neighbours tell. One bit costs one batch at most, and what is lost is reported. The last batch of a log has one
neighbour only: a base offset that grew by less than 2^24 looks like the gap that a truncation leaves. An index is derived: an
unclean start rebuilds it, a clean one takes it unless it contradicts itself or its log.
"""

from __future__ import annotations

import functools
import logging
import random
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

import attrs
import pytest
from triolog.protocol.errors import CorruptRecordError, RequestError
from triolog.protocol.records.batch import BatchHeader, check_batch, iter_batches, parse_header
from triolog.protocol.records.builder import build_batch
from triolog.protocol.records.record import iter_records
from triolog.protocol.types import CompressionType, Isolation, Record, TopicPartition
from triolog.server.config import LogConfig
from triolog.server.storage.disk.checkpoints import PARTITION_METADATA_FILE, encode_partition_metadata
from triolog.server.storage.disk.filesystem import CREATE
from triolog.server.storage.errors import StorageError
from triolog.server.storage.log.changes import raise_leader_epoch
from triolog.server.storage.log.gaps import OffsetGap
from triolog.server.storage.log.prepare import prepare_append, prepare_marker
from triolog.server.storage.log.retention import expire_segments
from triolog.server.storage.lookups.explain import explain_offset
from triolog.server.storage.lookups.fetch import fetch_batches

from tests.support import crash_fs, flipped_files
from tests.support.altered_files import EPOCHS, FACTS, altered
from tests.support.compaction import end_transaction
from tests.support.counts import LONG, by_tier, draws, tier
from tests.support.crash_fs import CrashFileSystem
from tests.support.inline_log import ORDERS, InlineLog
from tests.support.logs import START_MS, Clock, DrivenLog, batch, open_driven, untimed
from tests.support.model_log import ModelBatch, ModelLog, NewRecord, check_everything, check_indexes

DIRECTORY: Final = "/orders-0"
CONFIG: Final = LogConfig(segment_bytes=700, segment_index_bytes=96, index_interval_bytes=100)
NOW_MS: Final = 1_000
Image = Mapping[str, bytes]
"""Content of the partition's directory."""


def _open(fs: CrashFileSystem, *, was_clean: bool, recovery_point: int = 0, config: LogConfig = CONFIG) -> InlineLog:
    options = {"was_clean": was_clean, "recovery_point": recovery_point}
    return InlineLog.open_orders(fs, DIRECTORY, config, lambda: NOW_MS, **options)


@functools.cache
def _images() -> tuple[Image, Image, ModelLog, tuple[tuple[BatchHeader, int, str], ...]]:
    """The directory of a log of four segments killed, the same stopped, its model, and where in which file each batch lies."""
    fs, rng, model = CrashFileSystem(), random.Random(20), ModelLog()
    fs.make_directory(DIRECTORY)
    inline = _open(fs, was_clean=False)
    while len(inline.log.segments) < 4 or inline.log.active.size < 450:
        records: list[NewRecord] = [
            (rng.choice([-1, 5, rng.randrange(900)]), None, rng.randbytes(rng.randrange(30)))
            for _ in range(rng.randrange(1, 4))
        ]
        codec = rng.choice([CompressionType.NONE, CompressionType.NONE, *CompressionType])
        data = build_batch([(*record, ()) for record in records], compression_type=codec)
        inline.append([prepare_append(data, ORDERS, CONFIG, now_ms=NOW_MS)], sync=True)
        model.append(model.numbered([records]))
    places, headers = [], [header for header, _ in inline.stored()]
    for segment in inline.log.segments:
        position = 0
        while position < segment.size:
            places.append((headers[len(places)], position, segment.log.path))
            position += places[-1][0].size_bytes

    def image() -> Image:
        return {name: fs.content(f"{DIRECTORY}/{name}") for name in fs.list_directory(DIRECTORY)}

    killed = image()
    inline.close()
    return killed, image(), model, tuple(places)


def _file_system(image: Image) -> CrashFileSystem:
    fs = CrashFileSystem()
    fs.make_directory(DIRECTORY)
    for name, content in image.items():
        fd = fs.open(f"{DIRECTORY}/{name}", CREATE)
        fs.write(fd, [content], 0)
        fs.close(fd)
    return fs


def _check_kept(inline: InlineLog, kept: list[ModelBatch], *, answers: bool = True) -> None:
    """Exactly these batches are stored; with `answers`, every question is answered from them."""
    assert [ModelBatch(records) for _, records in inline.stored()] == kept
    model = ModelLog()
    model.reopen(kept, inline.log.active.base_offset)
    assert all(gap.end_offset <= model.log_end_offset for gap in inline.log.gaps)
    assert inline.log.high_watermark == inline.log.recovery_point == inline.log.log_end_offset == model.log_end_offset
    check_indexes(inline)
    if answers:
        check_everything(inline.fs, attrs.evolve(inline.log.snapshot(), gaps=()), model)
    inline.close_descriptors()


def _active_name() -> str:
    return max(name for name in _images()[0] if name.endswith(".log"))


def _last_promised_base() -> int:
    """A recovery point from which only the active segment is scanned."""
    return int(_active_name().removesuffix(".log"))


def _sampled(positions: range, stride: int) -> Iterator[int]:
    """All of them in the long tier, every `stride`th (and the last) in the commit tier."""
    step = by_tier(commit=stride, merge=min(stride, 3), long=1)
    yield from positions[::step]
    if positions and (len(positions) - 1) % step:
        yield positions[-1]


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Thousands of recoveries each say what they cut."""
    caplog.set_level(logging.ERROR, "triolog.server.storage")


def _before(cut: int, name: str) -> list[ModelBatch]:
    """Without what a cut of that file has taken."""
    _, _, model, places = _images()
    return [
        batch
        for batch, (header, position, path) in zip(model.batches, places, strict=True)
        if not path.endswith(name) or position + header.size_bytes <= cut
    ]


@pytest.mark.parametrize("scan_all", [True, False])
def test_a_cut_at_every_byte_keeps_exactly_the_whole_batches_before_it(scan_all: bool) -> None:
    killed, _, _, places = _images()
    name = _active_name()
    ends = {position + header.size_bytes for header, position, path in places if path.endswith(name)}
    for cut in sorted({*_sampled(range(len(killed[name]) + 1), 7), *ends, *(end - 1 for end in ends)}):
        fs = _file_system({**killed, name: killed[name][:cut]})
        inline = _open(fs, was_clean=False, recovery_point=0 if scan_all else _last_promised_base())
        _check_kept(inline, _before(cut, name), answers=tier() == LONG or cut % 4 == 0)


def test_a_cut_in_an_earlier_segment_is_a_gap_and_later_ones_stay() -> None:
    killed, _, _, places = _images()
    _, name, *_ = sorted(name for name in killed if name.endswith(".log"))
    ends = [0, *(position + header.size_bytes for header, position, path in places if path.endswith(name))]
    for cut in _sampled(range(len(killed[name])), 16):
        inline = _open(_file_system({**killed, name: killed[name][:cut]}), was_clean=False)
        # Between two batches nothing is torn: that cannot be told from a log that always was so.
        end = max(position for position in ends if position <= cut)
        expected = [] if cut in ends else [f"{name}.corrupt-{end}" if any(killed[name][end:cut]) else "-"]
        assert [gap.file for gap in inline.log.gaps] == expected
        _check_kept(inline, _before(cut, name), answers=tier() == LONG or cut % 64 == 0)


@pytest.mark.merge
@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
@pytest.mark.parametrize("is_active", [False, True])
def test_a_flipped_byte_costs_its_batch_at_most(is_active: bool, mask: int) -> None:
    killed, _, model, places = _images()
    name = _active_name() if is_active else sorted(name for name in killed if name.endswith(".log"))[1]
    mine = [place for place in places if place[2].endswith(name)]
    for header, start, _ in mine:
        slot = [place[:2] for place in places].index((header, start))
        is_last = slot == len(places) - 1
        for position in [*range(start, start + 17), *_sampled(range(start + 17, start + header.size_bytes), 16)]:
            field = position - start
            if is_last and field < 12:
                continue  # see test_the_base_offset_of_the_last_batch
            damaged = bytearray(killed[name])
            damaged[position] ^= mask
            fs = _file_system({**killed, name: bytes(damaged)})
            inline = _open(fs, was_clean=False)
            is_lost = field >= 17
            kept = [batch for number, batch in enumerate(model.batches) if number != slot or not is_lost]
            if is_lost:
                file = f"{name}.corrupt-{start}"
                expected = OffsetGap(model.batches[slot].base_offset, model.batches[slot].next_offset, file)
                assert untimed(inline.log.gaps) == (() if is_last else (expected,))
                assert fs.content(f"{DIRECTORY}/{file}") == damaged[start : start + header.size_bytes]
            _check_kept(inline, kept, answers=tier() == LONG or position % 64 == 0)


@pytest.mark.merge
@pytest.mark.parametrize("was_clean", [False, True])
def test_a_flipped_bit_of_a_leader_epoch_hides_its_batch_at_most(was_clean: bool) -> None:
    """No checksum covers it. A scan restores it. A clean start does not scan everything, so that batch may stay damaged. The
    other ones are served after each of two starts."""
    killed, stopped, model, places = _images()
    image = stopped if was_clean else killed
    for slot, (_, position, path) in enumerate(places):
        for bit in _sampled(range(31), 6):
            name = path.rpartition("/")[2]
            damaged = bytearray(image[name])
            damaged[position + 15 - bit // 8] ^= 1 << bit % 8
            fs = _file_system({**image, name: bytes(damaged)})
            for start in range(2):
                inline = _open(fs, was_clean=was_clean, config=attrs.evolve(CONFIG, fetch_check_crcs=True))
                hidden = [number for number, each in enumerate(model.batches) if not _is_served(inline, each.base_offset)]
                assert hidden in ([], [slot]) if was_clean else not hidden, (slot, bit, start, hidden)
                inline.close()


def _is_served(inline: InlineLog, offset: int) -> bool:
    snapshot = inline.log.snapshot()
    try:
        fetched = inline.run(fetch_batches(snapshot, offset, 1, min_one_batch=True))
    except CorruptRecordError:
        return False
    return parse_header(fetched.records).base_offset == offset


def test_the_base_offset_of_the_last_batch() -> None:
    """Nothing follows it. Down, or up by 2^24 or more, cannot be: the rest looks like the gap of a truncation."""
    killed, _, model, places = _images()
    name, last = _active_name(), model.batches[-1]
    for bit in range(64):
        damaged = bytearray(killed[name])
        damaged[places[-1][1] + 7 - bit // 8] ^= 1 << bit % 8
        inline = _open(_file_system({**killed, name: bytes(damaged)}), was_clean=False)
        stored = [header.base_offset for header, _ in inline.stored()]
        assert stored[: len(places) - 1] == [batch.base_offset for batch in model.batches[:-1]], bit
        if last.base_offset >> bit & 1 or bit == 63:
            assert len(stored) == len(places) - 1, bit
        elif bit >= 24:
            assert stored[-1] == last.base_offset, bit
        inline.close_descriptors()


@pytest.mark.parametrize(
    "garbage",
    [
        lambda size: bytes(size),
        lambda size: b"\xff" * size,
        lambda size: random.Random(size).randbytes(size),
        lambda size: _images()[0][_active_name()][:size],
    ],
    ids=["zeros", "ones", "noise", "an older batch"],
)
def test_garbage_of_any_length_behind_the_last_batch_is_cut_off(garbage: Callable[[int], bytes]) -> None:
    killed, _, model, _ = _images()
    name = _active_name()
    for size in _sampled(range(1, 101), 7):
        fs = _file_system({**killed, name: killed[name] + garbage(size)})
        inline = _open(fs, was_clean=False, recovery_point=_last_promised_base())
        _check_kept(inline, model.batches, answers=tier() == LONG or size % 4 == 1)
        assert fs.content(f"{DIRECTORY}/{name}") == killed[name]
        kept = [fs.content(f"{DIRECTORY}/{each}") for each in fs.list_directory(DIRECTORY) if ".corrupt-" in each]
        assert kept == ([garbage(size)] if any(garbage(size)) else [])


def _damages(content: bytes, seed: int) -> Iterator[bytes | None]:
    """No file, nothing in it, every cut, flipped bytes, zeros, noise, and more than there was."""
    yield None
    for size in _sampled(range(len(content)), 5):
        yield content[:size]
    for position in _sampled(range(len(content)), 5):
        for mask in (0x01, 0x80):
            yield content[:position] + bytes([content[position] ^ mask]) + content[position + 1 :]
    yield bytes(len(content))
    yield random.Random(seed).randbytes(len(content))
    yield content + bytes(24)
    yield content[::-1]


def _producing() -> tuple[Image, Image, frozenset[Record]]:
    """The directory of a log with transactions, an aborted one among them, killed and stopped, and all its records."""
    fs = CrashFileSystem()
    fs.make_directory(DIRECTORY)
    inline = _open(fs, was_clean=False)
    for offset in range(0, 30, 3):
        data = build_batch(
            [(offset, b"k", bytes(30), ()), (offset + 1, b"k", b"v", ())],
            producer_id=7,
            producer_epoch=0,
            base_sequence=offset // 3 * 2,
            is_transactional=True,
        )
        inline.append([prepare_append(data, ORDERS, CONFIG, now_ms=NOW_MS)], sync=True)
        marker = prepare_marker(producer_id=7, producer_epoch=0, commit=offset % 2 == 0, coordinator_epoch=0, now_ms=NOW_MS)
        inline.append([marker], sync=True)
    killed = {name: fs.content(f"{DIRECTORY}/{name}") for name in fs.list_directory(DIRECTORY)}
    records = frozenset(record for _, records in inline.stored() for record in records)
    inline.close()
    return killed, {name: fs.content(f"{DIRECTORY}/{name}") for name in fs.list_directory(DIRECTORY)}, records


def _damages_of_any_file(image: Image, other: Image) -> Iterator[Image]:
    for seed, name in enumerate(sorted(image)):
        rest = {each: data for each, data in image.items() if each != name}
        for content in _damages(image[name], seed):
            yield rest if content is None else {**rest, name: content}
        if name in other:
            yield {**rest, name: other[name]}


@pytest.mark.merge
@pytest.mark.parametrize("was_clean", [True, False])
def test_whatever_happened_to_a_file_every_answer_is_right_or_a_named_error(was_clean: bool) -> None:
    """Cut at each length, emptied, flipped, zeroed, deleted, or taken from another partition. The topic has
    fetch.check.crcs, for a clean start does not look into segments."""
    killed, stopped, records = _producing()
    image, other = (stopped, _images()[1]) if was_clean else (killed, _images()[0])
    twins = {record for batch in _images()[2].batches for record in batch.records}
    checking = attrs.evolve(CONFIG, fetch_check_crcs=True)
    last = max(records)  # what is before the last batch tells less than neighbours, see test_the_base_offset_of_the_last_batch
    opened, errors = 0, list[str]()
    for number, damaged in enumerate(_damages_of_any_file(image, other)):
        if number % by_tier(commit=8, merge=3, long=1):
            continue
        fs = _file_system(damaged)
        try:
            inline = _open(fs, was_clean=was_clean, config=checking)
        except (StorageError, CorruptRecordError) as exc:
            errors.append(str(exc))
            continue
        opened += 1
        for record in _readable(inline):
            assert record in records or record in twins or record._replace(offset=last.offset) == last
        inline.log.check_invariant()
        inline.append([prepare_append(build_batch([(5, None, b"new", ())]), ORDERS, CONFIG, now_ms=NOW_MS)])
        inline.close_descriptors()
        assert fs.open_descriptors == 0
    assert opened > 10
    assert all(DIRECTORY in error for error in errors)


def _readable(inline: InlineLog) -> Iterator[Record]:
    offset = inline.log.log_start_offset
    while offset < inline.log.log_end_offset:
        before = offset
        try:
            fetched = inline.run(fetch_batches(inline.log.snapshot(), offset, 300, min_one_batch=True, skip_gaps=True))
            for header, batch in iter_batches(fetched.records):
                check_batch(batch, header)
                yield from iter_records(batch, header)
                offset = max(offset, header.next_offset)
        except RequestError:
            return
        if offset == before:
            return


TOPIC_DIRECTORY: Final = "/logs/topic-0"
PARTITION: Final = TopicPartition("topic", 0)
RETENTION_MS: Final = 1000
ALTERED_CONFIG: Final = LogConfig().overlay(
    {"index.interval.bytes": "100", "segment.index.bytes": "600", "retention.ms": str(RETENTION_MS), "segment.bytes": "100000"}
)
TIMES: Final = ((3, 1, 9, 2, 4, 5, 6, 0), (20, 21, 15, 22, 23, 40, 30, 31), (50, 51, 52, 41, 60, 55, 53, 54))
"""Of the records of each segment, after START_MS: the largest is not the last."""
KINDS: Final = (".index", ".timeindex", ".txnindex", ".snapshot", ".batches", EPOCHS, FACTS, PARTITION_METADATA_FILE)
TRANSACTION: Final = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
COMMITTED: Final = Isolation.READ_COMMITTED


class Stored(NamedTuple):
    """A log as it was left, and what a scan says of it."""

    fs: CrashFileSystem
    end_offset: int
    records: list[tuple[int, int]]
    """(offset, timestamp)."""
    committed: list[int]
    bases: list[int]
    producers: list[tuple[object, ...]]


@functools.cache
def stored() -> Stored:
    """Three segments with timestamps in disorder, an aborted transaction in each, and a new leader epoch in the second."""
    fs = CrashFileSystem()
    driven = open_driven(TOPIC_DIRECTORY, fs=fs, config=ALTERED_CONFIG, topic_partition=PARTITION)
    for number, times in enumerate(TIMES):
        for slot, time in enumerate(times):
            driven.append(batch(START_MS + time, value=b"v" * 20))
            if number == 1 and slot == 4:
                driven.run(raise_leader_epoch(driven.log))
                driven.run(raise_leader_epoch(driven.log))
        driven.append(batch(START_MS + times[0], producer_id=3, producer_epoch=0, base_sequence=number))
        driven.append(batch(START_MS + times[0], base_sequence=number, **TRANSACTION))
        end_transaction(driven, 7, commit=False)
        if number < 2:
            driven.roll()
    crash_fs.put(fs, f"{TOPIC_DIRECTORY}/{PARTITION_METADATA_FILE}", encode_partition_metadata(uuid.UUID(int=5000)))
    records = [(record.offset, record.timestamp) for record in driven.records()]
    committed = [record.offset for record in driven.records(COMMITTED)]
    bases = [segment.base_offset for segment in driven.log.segments]
    driven.close()
    fs.end_process()
    return Stored(fs, driven.log.log_end_offset, records, committed, bases, producers_of(driven))


def producers_of(driven: DrivenLog) -> list[tuple[object, ...]]:
    """Without times: Kafka's snapshot has one for a producer, and that may be of a marker."""
    return [
        (each.producer_id, each.epoch, each.current_txn_first_offset, [batch[:3] for batch in each.batches])
        for each in sorted(driven.log.producers.entries.values())
    ]


def opened(fs: CrashFileSystem, *, was_clean: bool) -> DrivenLog:
    point = stored().end_offset if was_clean else stored().bases[-1]
    return open_driven(
        TOPIC_DIRECTORY,
        fs=fs,
        clock=Clock(START_MS),
        config=ALTERED_CONFIG,
        topic_partition=PARTITION,
        was_clean=was_clean,
        recovery_point=point,
    )


def check_served(driven: DrivenLog, case: str) -> None:
    """All records, and each lookup by time and by offset."""
    whole = stored()
    assert [(record.offset, record.timestamp) for record in driven.records()] == whole.records, case
    assert [record.offset for record in driven.records(COMMITTED)] == whole.committed, case
    assert producers_of(driven) == whole.producers, case
    check_explained(driven, case)
    every = scanned(driven)
    for time in sorted({each + more for _, each in every for more in (0, 1)}):
        expected = next((found for found in every if found[1] >= time), (-1, -1))
        assert driven.offset_for(time)[1::-1] == expected, f"{case}: {time - START_MS}"
    largest = max(time for _, time in every)
    assert driven.offset_for(-3)[1::-1] == next(found for found in every if found[1] == largest), case


def check_explained(driven: DrivenLog, case: str) -> None:
    """The explanation of a fetch from each offset ends where the fetch does."""
    for offset, _ in stored().records:
        walk = driven.run(explain_offset(driven.log.snapshot(), offset, lambda read: True))
        assert walk["answer"]["offset"] == offset, case


def scanned(driven: DrivenLog) -> list[tuple[int, int]]:
    """(offset, timestamp) of each batch that the logs hold, markers as well: each has one record."""
    found = []
    for segment in driven.log.segments:
        data, at = driven.fs.content(segment.log.path), 0  # type: ignore[attr-defined]
        while at < len(data):
            header = parse_header(data, at)
            found.append((header.base_offset, header.max_timestamp))
            at += header.size_bytes
    return found


def check_deleted(fs: CrashFileSystem, case: str, *, was_clean: bool) -> None:
    """Retention takes the segments whose records are all too old, and no other."""
    whole = stored()
    for now_ms in (START_MS + RETENTION_MS + each for each in (9, 10, 40, 41)):
        driven = opened(fs.copy(), was_clean=was_clean)
        every = scanned(driven)
        driven.run(expire_segments(driven.log, now_ms))
        young = [offset for offset, time in every if now_ms - time <= RETENTION_MS]
        expected = max(base for base in whole.bases if base <= young[0])
        assert driven.log.log_start_offset == expected, f"{case}: at {now_ms - START_MS}"


def check_appends(driven: DrivenLog, case: str) -> None:
    """Appends go on behind the end, in an epoch that does not descend."""
    whole = stored()
    for number in range(6):
        answer = driven.append(batch(START_MS + 100 + number, value=b"w" * 40))
        assert answer.base_offset == whole.end_offset + number, case
    epochs = [parse_header(bytes(driven.read(offset).records)).partition_leader_epoch for offset, _ in whole.records]
    assert epochs == sorted(epochs), case
    latest = driven.log.leader_epoch
    assert latest >= epochs[-1], case
    data = bytes(driven.read(whole.end_offset).records)
    assert parse_header(data).partition_leader_epoch == latest, case


def drawn(kind: str) -> list[tuple[str, str, bytes | None]]:
    """Alterations of the files of a kind: path, what was done, new content."""
    fs = stored().fs
    every = [
        (path, what, content)
        for path in fs.tree()
        if path.endswith(kind) and fs.content(path)
        for what, content in (*altered(path.rpartition("/")[2], fs.content(path)), *flipped_files.damages(fs.content(path)))
    ]
    if tier() == LONG:
        return every
    return draws(len(kind)).sample(every, min(len(every), by_tier(commit=12, merge=60, long=0)))


def with_file(path: str, content: bytes | None) -> CrashFileSystem:
    fs = stored().fs.copy()
    if content is None:
        fs.unlink(path)
    else:
        crash_fs.put(fs, path, content)
    return fs


@pytest.mark.merge
@pytest.mark.parametrize("was_clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("kind", KINDS)
def test_altered_files_change_nothing_that_is_served_deleted_or_appended(kind: str, was_clean: bool) -> None:
    whole = stored()
    for path, what, content in drawn(kind):
        case = f"{path}: {what}"
        fs = with_file(path, content)
        check_deleted(fs, case, was_clean=was_clean)
        driven = opened(fs, was_clean=was_clean)
        check_served(driven, case)
        check_appends(driven, case)
        assert driven.offset_for(START_MS + 103).offset == whole.end_offset + 3, case
        driven.close()
        again = driven.reopen(was_clean=True, recovery_point=driven.log.log_end_offset)
        offsets = [offset for offset, _ in whole.records] + list(range(whole.end_offset, whole.end_offset + 6))
        assert again.offsets() == offsets, case


@pytest.mark.parametrize("kind", [".index", ".timeindex", ".txnindex"])
def test_without_checksums_too_altered_files_change_nothing_that_is_deleted_or_appended(kind: str) -> None:
    """As where Kafka wrote the files. A lookup by time may go astray then."""
    for path, what, content in drawn(kind):
        case = f"{path}: {what}"
        fs = with_file(path, content)
        fs.unlink(f"{TOPIC_DIRECTORY}/{FACTS}")
        check_deleted(fs, case, was_clean=True)
        driven = opened(fs, was_clean=True)
        assert [(record.offset, record.timestamp) for record in driven.records()] == stored().records, case
        check_explained(driven, case)
        check_appends(driven, case)
        driven.append(batch(base_sequence=3, **TRANSACTION))
        end_transaction(driven, 7, commit=False)
        driven.close()
