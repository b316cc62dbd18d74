"""Files of staged batches: what is appended to them, how they are checked, how they are read for a commit."""

from __future__ import annotations

import errno
from typing import Final

import pytest
from triolog.protocol.errors import CorruptRecordError, InvalidRequestError
from triolog.protocol.records.batch import check_batch, crc32c
from triolog.protocol.types import TopicPartition
from triolog.server.stages import stage_files
from triolog.server.storage.disk.checkpoints import random_uuid
from triolog.server.storage.disk.paths import STAGE_DIRECTORY

from tests.support.crash_fs import CrashFileSystem
from tests.support.logs import START_MS, batch

NAME: Final = stage_files.stage_name("query", 7)
PATH: Final = f"/data/{STAGE_DIRECTORY}/{NAME}/{stage_files.file_name('task', TopicPartition('t', 0), None)}"
NOTHING: Final = stage_files.StagedBytes(0, 0)
TWO: Final = batch(START_MS, START_MS)


@pytest.fixture
def fs() -> CrashFileSystem:
    made = CrashFileSystem()
    made.make_directory("/data")
    return made


def read(fs: CrashFileSystem, start: int, end: int, **options: int) -> stage_files.StagedChunk:
    settings = {"producer_id": 9, "producer_epoch": 3, "next_record": 0, "first_record": 0, "max_bytes": 10**6} | options
    return stage_files.read_stamped(fs, PATH, start, end, **settings)


def test_batches_come_one_behind_the_other_with_size_and_crc_of_all(fs: CrashFileSystem) -> None:
    first = stage_files.append_staged(fs, PATH, NOTHING, [TWO])
    second = stage_files.append_staged(fs, PATH, first, [TWO, TWO])
    assert second == stage_files.measure_staged(fs, PATH) == (3 * len(TWO), crc32c(TWO * 3))
    assert stage_files.append_staged(fs, PATH, None, [TWO]) == (4 * len(TWO), crc32c(TWO * 4))
    assert list(stage_files.find_staged(fs, "/data")) == [(NAME, PATH, 4 * len(TWO))]
    assert stage_files.check_staged(fs, PATH, stage_files.measure_staged(fs, PATH), "it") == (8, len(TWO))


def test_a_write_that_fails_leaves_the_file_as_it_was(fs: CrashFileSystem) -> None:
    staged = stage_files.append_staged(fs, PATH, NOTHING, [TWO])
    fs.fail_next("write", errno.ENOSPC, after_bytes=10)
    with pytest.raises(OSError, match="No space"):
        stage_files.append_staged(fs, PATH, staged, [TWO])
    assert stage_files.measure_staged(fs, PATH) == staged
    stage_files.append_staged(fs, PATH, staged, [TWO] * 2)
    assert stage_files.append_staged(fs, PATH, NOTHING, [TWO]) == stage_files.measure_staged(fs, PATH), (
        "what lies where nothing should is written over"
    )


def test_names_tell_versions_and_tasks_apart_and_hide_what_they_are_made_of() -> None:
    assert stage_files.stage_name("query", 1) != stage_files.stage_name("query", 11) != stage_files.stage_name("query1", 1)
    assert stage_files.version_of(stage_files.stage_name("../..", 11)) == 11
    assert (stage_files.version_of("else"), stage_files.version_of("x-y")) == (None, None)
    ids = (None, random_uuid(), random_uuid())
    places = [(TopicPartition("t", number), topic_id) for number in range(2) for topic_id in ids]
    names = {stage_files.file_name(task, *place) for task in ("a", "a/b") for place in places}
    assert len(names) == 12
    assert not any("/" in name for name in names)
    assert sum(name.startswith(stage_files.task_prefix("a")) for name in names) == 6


def test_another_size_or_crc_is_refused_and_a_batch_that_is_cut_off_whatever_its_crc(fs: CrashFileSystem) -> None:
    with pytest.raises(InvalidRequestError, match="it is not staged"):
        stage_files.check_staged(fs, PATH, NOTHING, "it")
    stage_files.append_staged(fs, PATH, NOTHING, [TWO])
    with pytest.raises(InvalidRequestError, match=r"it has .* bytes staged, 5 were named"):
        stage_files.check_staged(fs, PATH, stage_files.StagedBytes(5, 0), "it")
    with pytest.raises(CorruptRecordError, match="0x00000005 was named"):
        stage_files.check_staged(fs, PATH, stage_files.StagedBytes(len(TWO), 5), "it")
    staged = stage_files.append_staged(fs, PATH, NOTHING, [TWO, TWO[:-1]])
    with pytest.raises(CorruptRecordError, match=f"cut off at {len(TWO)} of {2 * len(TWO) - 1} bytes"):
        stage_files.check_staged(fs, PATH, staged, "it")


def test_batches_are_read_with_a_producer_and_the_sequences_of_their_records(fs: CrashFileSystem) -> None:
    """Which start again behind the largest."""
    size, _ = stage_files.append_staged(fs, PATH, NOTHING, [TWO] * 5)
    chunk = read(fs, 0, size, next_record=10, max_bytes=2 * len(TWO))
    assert (chunk.position, chunk.next_record) == (2 * len(TWO), 14)
    rest = read(fs, chunk.position, size, next_record=chunk.next_record, first_record=16)
    assert (rest.position, rest.next_record) == (size, 20)
    headers = [header for header, _ in (*chunk.batches, *rest.batches)]
    assert {(header.producer_id, header.producer_epoch) for header in headers} == {(9, 3)}
    assert [header.base_sequence for header in headers] == [10, 12, 16, 18]
    for header, data in chunk.batches:
        check_batch(memoryview(data), header)
    late = read(fs, 0, 2 * len(TWO), next_record=2**31 - 2, first_record=0)
    assert [header.base_sequence for header, _ in late.batches] == [2**31 - 2, 0]


def test_a_batch_whose_bytes_changed_is_never_given_a_new_crc(fs: CrashFileSystem) -> None:
    size, _ = stage_files.append_staged(fs, PATH, NOTHING, [TWO[:-1] + b"?"])
    with pytest.raises(CorruptRecordError, match="carries CRC"):
        read(fs, 0, size)
    with pytest.raises(CorruptRecordError, match="no whole batch at 0"):
        read(fs, 0, size - 1)


def test_wanted_batches_are_copied_as_they_are_from_several_files(fs: CrashFileSystem) -> None:
    other, target = f"{PATH}2", f"{PATH}3"
    size, _ = stage_files.append_staged(fs, PATH, NOTHING, [TWO] * 150)
    more, _ = stage_files.append_staged(fs, other, NOTHING, [batch(START_MS)] * 3)
    sources = [(PATH, size), (other, more - len(batch(START_MS)))]
    staged, count = stage_files.copy_staged(fs, sources, target, lambda number: number != 4)
    assert count == 149 * 2 + 2
    assert staged == stage_files.measure_staged(fs, target)
    assert staged.size_bytes == 149 * len(TWO) + 2 * len(batch(START_MS))
    assert stage_files.check_staged(fs, target, staged, "it").records_count == count
    assert stage_files.copy_staged(fs, sources, f"{PATH}4", lambda number: False) == (NOTHING, 0)
    with pytest.raises(CorruptRecordError, match="no whole batches up to"):
        stage_files.copy_staged(fs, [(PATH, size - 1)], f"{PATH}5", lambda number: True)


def test_what_was_synced_is_on_the_device_and_after_a_failed_sync_once_it_is_named_as_doubtful(fs: CrashFileSystem) -> None:
    staged = stage_files.append_staged(fs, PATH, NOTHING, [TWO])
    fs.fail_next("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        stage_files.sync_staged(fs, "/data", NAME, [PATH])
    stage_files.sync_staged(fs, "/data", NAME, [PATH])
    assert fs.durable_content(PATH) == b""
    stage_files.sync_staged(fs, "/data", NAME, [PATH], {PATH: staged})
    assert fs.durable_content(PATH) == TWO
    with pytest.raises(CorruptRecordError, match="has not the bytes any more"):
        stage_files.sync_staged(fs, "/data", NAME, [PATH], {PATH: stage_files.StagedBytes(len(TWO), 5)})
    stage_files.append_staged(fs, PATH, staged, [TWO])
    stage_files.sync_staged(fs, "/data", NAME, [PATH])
    assert fs.durable_content(PATH) == TWO * 2


def test_an_empty_directory_goes_with_its_last_file(fs: CrashFileSystem) -> None:
    other = f"{PATH}2"
    for path in (PATH, other):
        stage_files.append_staged(fs, path, NOTHING, [TWO])
    stage_files.unlink_staged(fs, [PATH, f"{PATH}3"])
    assert list(stage_files.find_staged(fs, "/data")) == [(NAME, other, len(TWO))]
    stage_files.unlink_staged(fs, [other])
    assert fs.list_directory(f"/data/{STAGE_DIRECTORY}") == []
    assert list(stage_files.find_staged(fs, "/elsewhere")) == []
