"""Brokers inside a program: in a trio block, in a thread of their own, under asyncio; how they start, fail and stop."""

from __future__ import annotations

import asyncio
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import trio
import trio.testing
import triolog
from triolog.protocol.errors import RequestError, TopicAlreadyExistsError
from triolog.protocol.types import TopicPartition
from triolog.server.config.broker_config import Address
from triolog.server.embedded import LOCALHOST, MEMORY
from triolog.server.storage.disk.checkpoints import CLEAN_SHUTDOWN_FILE
from triolog.server.storage.errors import LogDirectoryError
from triolog.server.system.block_devices import lies_in_memory

from tests.support.brokers import PATIENCE_S
from tests.support.logs import START_MS

T = "topic"
SHARED_MEMORY = os.stat("/dev/shm" if os.path.isdir("/dev/shm") else "/")


@pytest.mark.skipif(not lies_in_memory(SHARED_MEMORY.st_dev), reason="needs /dev/shm in memory")
async def test_in_memory_no_read_takes_a_thread() -> None:
    async with triolog.open(MEMORY, native="127.0.0.1:0") as broker:
        await broker.create_topic(T)
        await broker.append(T, [(START_MS, None, b"a", ())])
        await broker.fetch(T)
        assert (await broker.offset_for_time(T, START_MS)).offset == 0
        disk = (await broker.core.statistics()).disk
        assert (disk.cold_reads, disk.cached_reads > 0) == (0, True)


async def test_durability_is_fsync_for_a_directory_of_yours_and_os_for_one_that_goes(tmp_path: Path) -> None:
    for path, given, expected in (
        (tmp_path, None, "fsync"),
        (None, None, "os"),
        (MEMORY, None, "os"),
        (tmp_path, "os", "os"),
        (None, "group:7", "group:7"),
    ):
        async with triolog.open(path, durability=given) as broker:
            await broker.create_topic(T)
            assert broker.core.topics.describe_config(T)["durability"] == (expected, "default")
            await broker.delete_topic(T)


async def test_many_brokers_live_in_one_process_each_on_a_port_of_its_own() -> None:
    async with (
        triolog.open(native="127.0.0.1:0") as first,
        triolog.open(native="127.0.0.1:0") as second,
        triolog.open() as third,
    ):
        assert first.native is not None
        assert second.native is not None
        assert third.native is None
        assert len({first.native.port, second.native.port, 0}) == 3
        await first.create_topic(T)
        assert second.topics() == []
        for broker in (first, second):
            stream = await trio.open_tcp_stream(broker.native.host, broker.native.port)
            await stream.aclose()


@pytest.mark.parametrize("listener", ["native", "metrics"])
async def test_a_taken_port_is_an_error_of_the_system_and_nothing_stays(tmp_path: Path, listener: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = Address(*taken.getsockname())
        with pytest.raises(OSError, match="in use"):
            async with triolog.open(tmp_path, **{listener: address}):  # type: ignore[arg-type]
                pass
    async with triolog.open(tmp_path, native="127.0.0.1:0"):
        """It is free."""


@pytest.mark.parametrize("native", [None, Address(host="127.0.0.1", port=0)], ids=["no listener", "listener"])
@pytest.mark.parametrize(
    "error", [ZeroDivisionError, TopicAlreadyExistsError, KeyboardInterrupt, pytest.skip.Exception], ids=str
)
async def test_an_exception_leaves_the_block_as_it_is(
    tmp_path: Path, native: Address | None, error: type[BaseException]
) -> None:
    raised = error("mine")

    async def block() -> None:
        async with triolog.open(tmp_path, native=native):
            raise raised

    with pytest.raises(error) as found:
        await block()
    assert found.value is raised
    assert (tmp_path / CLEAN_SHUTDOWN_FILE).exists()


async def test_a_fork_begins_with_what_there_is_and_goes_its_own_way() -> None:
    async with triolog.open(
        MEMORY, kafka=LOCALHOST, config={"retention.bytes": "5000"}, topics=["seeded"], native="127.0.0.1:0"
    ) as broker:
        await broker.create_topic(T, 2, {"segment.ms": "60000"})
        await broker.append(T, [b"shared"], partition=1)
        await broker.groups.commit("g", {TopicPartition(T, 1): 1})
        broker.clock.advance(3600)
        broker.clock.freeze()
        async with broker.fork() as fork:
            assert fork.clock.now_ms() == broker.clock.now_ms()
            assert fork.describe_topic(T).config == {"segment.ms": "60000"}
            assert await fork.groups.committed("g") == {TopicPartition(T, 1): 1}
            assert fork.core.config.topic_defaults.retention_bytes == 5000
            assert {fork.native, fork.kafka}.isdisjoint({broker.native, broker.kafka})
            await fork.append(T, [b"fork"], partition=1)
            await broker.append(T, [b"original"], partition=1)
            fork.clock.advance(1)
            assert await fork.log(T).values(1) == [b"shared", b"fork"]
            await fork.reset()
            assert fork.topics() == ["seeded"]
            path = fork.path
        assert await broker.log(T).values(1) == [b"shared", b"original"]
        assert not os.path.exists(path)


async def test_a_rule_of_the_device_is_waited_for_and_let_go() -> None:
    """The sync would take an hour."""
    async with (
        triolog.open(MEMORY, durability="fsync", topics=[T], native="127.0.0.1:0") as broker,
        trio.open_nursery() as nursery,
    ):
        fault = broker.faults.disk("delay", operation="sync", path="*.log", delay_ms=3_600_000)
        nursery.start_soon(broker.append, T, [b"a"])
        assert await fault.wait_fired(timeout_s=PATIENCE_S) == 1
        with pytest.raises(TimeoutError, match=r"fired 1 times of 2 \(1 matched\)"):
            await fault.wait_fired(2, timeout_s=0)
        assert [each.fired for each in broker.faults.of_disk()] == [1]
        fault.remove()
        assert broker.faults.of_disk() == []
    assert (fault.matched, fault.fired) == (1, 1)


async def test_a_device_that_is_full_when_the_block_ends_has_been_seen() -> None:
    """Rules go before the broker stops: nobody waits for what a stop does on a broken device, and it would raise."""
    async with triolog.open(MEMORY, topics=[T], native="127.0.0.1:0") as broker:
        broker.faults.disk("full")
    with triolog.blocking.open(MEMORY, topics=[T], native="127.0.0.1:0") as blocking:
        blocking.faults.disk("error")
        with pytest.raises(RequestError):
            blocking.append(T, [b"a"])
        assert [each.fired > 0 for each in blocking.faults.of_disk()] == [True]
        blocking.faults.clear()
        assert blocking.faults.of_disk() == []


@pytest.mark.merge
def test_a_blocking_broker_is_called_from_many_threads() -> None:
    def use(topic: str) -> int:
        broker.create_topic(topic)
        assert broker.append(topic, [b"a", b"b"]).last_offset == 1
        assert [record.value for record in broker.fetch(topic, 1)] == [b"b"]
        return broker.append("shared", [topic.encode()]).base_offset

    async def in_asyncio() -> list[int]:
        others = await asyncio.gather(*(asyncio.to_thread(use, f"asyncio-{number}") for number in range(5)))
        return [use("asyncio"), *others]

    async def in_trio() -> int:
        return await trio.to_thread.run_sync(use, "trio")

    names = [f"topic-{number}" for number in range(100)]
    with triolog.blocking.open(topics=["shared"]) as broker:
        with ThreadPoolExecutor(8) as threads:
            offsets = [*threads.map(use, names, timeout=PATIENCE_S)]
        offsets += [*asyncio.run(in_asyncio()), trio.run(in_trio)]
        assert sorted(offsets) == list(range(107))
        assert {record.value for record in broker.fetch("shared")} >= {name.encode() for name in names}


def test_what_keeps_it_from_starting_is_raised_by_start(tmp_path: Path) -> None:
    with triolog.blocking.open(tmp_path):
        refused = triolog.blocking.open(tmp_path)
        with pytest.raises(LogDirectoryError, match="holds the lock"):
            refused.start()
        refused.stop()
        with pytest.raises(RuntimeError, match="is not running"):
            refused.topics()


def test_it_can_be_stopped_twice_also_at_once_and_started_once() -> None:
    broker = triolog.blocking.open()
    broker.stop()
    broker.start()
    with pytest.raises(RuntimeError, match="already started"):
        broker.start()
    with ThreadPoolExecutor(2) as threads:
        for job in [threads.submit(broker.stop) for _ in range(2)]:
            job.result(timeout=PATIENCE_S)
    broker.stop()
    with pytest.raises(RuntimeError, match="already started"):
        broker.start()


CALLS: dict[str, tuple[object, ...]] = {
    **dict.fromkeys(("create_topic", "delete_topic", "delete_records", "describe_topic", "fetch"), (T,)),
    "topics": (),
    "alter_config": (T, {}),
    "alter_group_config": ("g", {}),
    "append": (T, [b"x"]),
    "create_partitions": (T, 2),
    "offset_for_time": (T, 0),
    "offsets_for_times": ([],),
}


@pytest.mark.parametrize("was_running", [False, True])
def test_a_broker_that_does_not_run_says_so_to_every_call(was_running: bool) -> None:
    broker = triolog.blocking.open()
    if was_running:
        broker.start()
        broker.stop()
    for name, arguments in CALLS.items():
        with pytest.raises(RuntimeError, match="the broker is not running"):
            getattr(broker, name)(*arguments)
    for name in ("native", "path"):
        with pytest.raises(RuntimeError, match="the broker is not running"):
            getattr(broker, name)


def test_a_thread_that_waits_in_a_fetch_when_the_broker_stops_gets_an_error() -> None:
    with ThreadPoolExecutor(1) as threads, triolog.blocking.open(topics=[T]) as broker:
        fetch = threads.submit(broker.fetch, T, max_wait_s=PATIENCE_S)
        actor = broker._target.core._manager.topics.actor(TopicPartition(T, 0))
        while not len(actor.waiters):
            broker.topics()
        broker.stop()
        with pytest.raises(RuntimeError, match="the broker was stopped during the call"):
            fetch.result(PATIENCE_S / 2)
