"""The budget of descriptors: second chance, leases, and a thousand partitions on sixty-four descriptors."""

from __future__ import annotations

import os
from pathlib import Path

import trio
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.types import TopicPartition
from triolog.server.partitions.disk import READERS, WRITERS
from triolog.server.partitions.open_files import CLOSE_BACKLOG, DescriptorBudget
from triolog.server.storage.disk.diskops import FileHandle
from triolog.server.storage.indexes.index import OffsetIndex

from tests.support.brokers import running_broker, value, values_from
from tests.support.counts import counts
from tests.support.gate_fs import GateFileSystem
from tests.support.logs import START_MS


def opened(number: int) -> FileHandle:
    """A handle that says it is open."""
    return FileHandle(path=f"{number}.log", fd=1000 + number)


def filled(limit: int) -> tuple[DescriptorBudget, list[FileHandle]]:
    budget = DescriptorBudget(limit)
    files = [opened(number) for number in range(limit)]
    for file in files:
        assert budget.admit(file) == []
        file.used = False
    return budget, files


def test_the_first_idle_file_goes_and_a_used_one_has_a_second_chance() -> None:
    budget, files = filled(3)
    files[0].used = True
    assert budget.admit(opened(3)) == [1001]
    assert files[1].fd is None
    assert not files[0].used
    assert budget.admit(opened(4)) == [1002]
    assert budget.admit(opened(5)) == [1000]
    assert budget.held == 3
    budget, files = filled(3)
    files[1].fd = None
    files[0].used = files[2].used = True
    assert budget.admit(opened(3)) == [], "what was closed elsewhere makes space"
    assert budget.held == 3


def test_leased_files_stay_and_the_limit_is_passed_by_as_many() -> None:
    budget, files = filled(3)
    for file in files:
        file.leases = 1
    newcomer = opened(3)
    assert budget.admit(newcomer) == []
    assert budget.held == 4
    for file in files:
        file.leases = 0
    assert len(budget.admit(opened(4))) == 2
    assert budget.held == 3


def test_an_idle_map_is_dropped_and_closes_nothing() -> None:
    budget = DescriptorBudget(1)
    index = OffsetIndex("0.index", 0, 80)
    index.buffer = b"map"
    assert budget.admit(index) == []
    index.used = False
    assert budget.admit(opened(1)) == []
    assert index.buffer is None
    assert budget.held == 1


def test_clearing_gives_each_descriptor_once() -> None:
    budget, files = filled(2)
    budget.limit = 9
    budget.admit(files[0])
    index = OffsetIndex("0.index", 0, 80)
    index.buffer = b"map"
    budget.admit(index)
    assert sorted(budget.clear()) == [1000, 1001]
    assert budget.held == 0
    assert index.buffer is None
    assert [file.fd for file in files] == [None, None]


@given(st.integers(1, 5), st.lists(st.tuples(st.integers(0, 11), st.booleans()), max_size=60))
def test_open_files_are_never_more_than_the_limit_and_the_leases(limit: int, uses: list[tuple[int, bool]]) -> None:
    budget = DescriptorBudget(limit)
    files = [FileHandle(path=f"{number}.log") for number in range(12)]
    open_now: set[int] = set()
    for fresh, (number, is_leased) in enumerate(uses):
        file = files[number]
        if file.fd is None:
            file.fd = fresh
            open_now.add(fresh)
            closed = budget.admit(file)
            assert set(closed) <= open_now - {fresh}
            open_now -= set(closed)
            assert len(open_now) <= max(limit, sum(each.leases for each in files) + 1)
        file.used = True
        file.leases = int(is_leased)
        assert len(open_now) == budget.held == sum(each.fd is not None for each in files)


SLACK = 2 * WRITERS + READERS + 2 * CLOSE_BACKLOG
"""Files with leases, and evicted ones that wait to be closed or are being closed."""


async def test_a_thousand_partitions_live_on_sixty_four_descriptors(tmp_path: Path) -> None:
    partitions = [TopicPartition("many", number) for number in range(counts(1000))]
    topic = {"index.interval.bytes": "1", "segment.index.bytes": "240"}
    for restarted in (False, True):
        fs = GateFileSystem()
        before = len(os.listdir("/proc/self/fd"))
        async with running_broker(tmp_path, fs=fs, durable=False, topic=topic) as broker:
            broker.disk.budget.limit = 64
            if not restarted:
                await broker.topics.create("many", len(partitions))
            assert len(os.listdir("/proc/self/fd")) - before <= SLACK
            for turn in range(3 * restarted, 3 * restarted + 3):
                async with trio.open_nursery() as nursery:
                    for partition in partitions:
                        nursery.start_soon(broker.writer.append, partition, value(f"{partition} {turn}"))
                assert broker.disk.statistics().descriptors <= 64 + SLACK
            for partition in partitions:
                expected = [f"{partition} {turn}".encode() for turn in range(3 * restarted + 3)]
                assert await values_from(broker, partition) == expected
                assert await broker.reader.offset_for_time(partition, START_MS) == (START_MS, 0, 0)
                assert broker.disk.statistics().descriptors <= 64 + SLACK
                assert len(os.listdir("/proc/self/fd")) - before <= 64 + SLACK
        assert fs.open_paths == []
