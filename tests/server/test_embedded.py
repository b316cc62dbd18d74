"""Brokers inside a program: in a trio block, in a thread of their own, under asyncio; how they start, fail and stop."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from triolog.protocol.errors import InvalidConfigError, RequestError, TopicAlreadyExistsError, UnknownTopicOrPartitionError
from triolog.protocol.types import TopicPartition
from triolog.server.embedded import LOCALHOST, MEMORY, BlockingBroker, EmbeddedBroker, open_broker
from triolog.server.settings.broker_config import Address
from triolog.server.storage.disk.checkpoints import CLEAN_SHUTDOWN_FILE
from triolog.server.storage.errors import LogDirectoryError
from triolog.server.system.memory_mounts import lies_in_memory

from tests.support.brokers import PATIENCE_S
from tests.support.logs import START_MS, Clock, batch

T = "topic"
SHARED_MEMORY = os.stat("/dev/shm" if os.path.isdir("/dev/shm") else "/")


async def use(broker: EmbeddedBroker) -> None:
    """Make a topic, append in every form, read back and look up."""
    await broker.create_topic(T, 2, {"segment.ms": "60000"})
    await broker.append(T, [b"a", (START_MS, b"k", b"b", (("h", None),))])
    await broker.append(T, batch(START_MS + 5, value=b"c"), partition=1)
    first, second = await broker.fetch(T)
    assert (first.value, second.key, second.value, second.headers) == (b"a", b"k", b"b", (("h", None),))
    assert [record.value for record in await broker.fetch(T, partition=1)] == [b"c"]
    assert await broker.fetch(T, 2) == []
    assert (await broker.offset_for_time(T, START_MS + 1, partition=1)).offset == 0
    answers = await broker.offsets_for_times([(TopicPartition(T, 1), START_MS + 6), (TopicPartition(T, 7), 0)])
    assert answers[0] == (-1, -1, -1)
    assert isinstance(answers[1], UnknownTopicOrPartitionError)
    assert broker.describe_topic(T).configs == {"segment.ms": "60000"}
    assert broker.topics() == [T]
    await broker.alter_config(T, {"retention.ms": "-1"}, ["segment.ms"])
    assert broker.describe_topic(T).configs == {"retention.ms": "-1"}
    await broker.create_partitions(T, 3)
    assert (await broker.append(T, [b"d"], partition=2)).base_offset == 0
    assert await broker.delete_records(T, 1) == 1
    assert [record.value for record in await broker.fetch(T, 1)] == [b"b"]
    assert await broker.delete_records(T) == 2
    await broker.delete_topic(T)
    assert broker.topics() == []


# ---- in a trio block -----------------------------------------------------------------------------------------------------


async def test_without_a_path_the_directory_goes_with_the_block() -> None:
    async with open_broker() as broker:
        assert Path(broker.path).is_dir()
        await use(broker)
    assert not Path(broker.path).exists()


async def test_in_memory_where_there_is_such_a_place() -> None:
    async with open_broker(MEMORY) as broker:
        await use(broker)
        if Path("/dev/shm").is_dir():
            assert broker.path.startswith("/dev/shm/")
    assert not Path(broker.path).exists()


@pytest.mark.skipif(not lies_in_memory(SHARED_MEMORY.st_dev), reason="needs /dev/shm in memory")
async def test_in_memory_no_read_takes_a_thread() -> None:
    async with open_broker(MEMORY) as broker:
        await broker.create_topic(T)
        await broker.append(T, [(START_MS, None, b"a", ())])
        await broker.fetch(T)
        assert (await broker.offset_for_time(T, START_MS)).offset == 0
        disk = (await broker.core.statistics()).disk
        assert (disk.cold_reads, disk.cached_reads > 0) == (0, True)


async def test_a_broker_tells_of_itself_in_numbers(tmp_path: Path) -> None:
    async with open_broker(tmp_path, durability="os") as broker:
        await broker.create_topic(T)
        await broker.append(T, [b"a", b"b"])
        told = await broker.statistics()
        assert (told.total.records, told.unsynced_records) == (2, 2)
        assert told.wear.longest_unsynced_ms >= told.total.unsynced_ms > 0
        assert [each.path for each in told.wear.directories] == [str(tmp_path)]


def test_a_blocking_broker_tells_of_itself_in_numbers() -> None:
    with BlockingBroker() as broker:
        broker.create_topic(T)
        assert broker.statistics().topic_count == 1


async def test_with_a_path_the_records_stay(tmp_path: Path) -> None:
    directory = tmp_path / "made" / "here"
    async with open_broker(directory) as broker:
        assert broker.path == str(directory)
        await broker.create_topic(T)
        await broker.append(T, [b"kept"])
    assert (directory / CLEAN_SHUTDOWN_FILE).exists()
    async with open_broker(str(directory)) as broker:
        assert [record.value for record in await broker.fetch(T)] == [b"kept"]


async def test_durability_is_fsync_for_a_directory_of_yours_and_os_for_one_that_goes(tmp_path: Path) -> None:
    for path, given, expected in (
        (tmp_path, None, "fsync"),
        (None, None, "os"),
        (MEMORY, None, "os"),
        (tmp_path, "os", "os"),
        (None, "group:7", "group:7"),
    ):
        async with open_broker(path, durability=given, native=None) as broker:
            await broker.create_topic(T)
            assert broker.core.topics.describe_config(T)["durability"] == (expected, "default")
            await broker.delete_topic(T)


async def test_defaults_of_all_topics_and_the_clock_are_the_callers() -> None:
    clock = Clock()
    async with open_broker(config={"message.timestamp.type": "LogAppendTime"}, now_ms=clock, native=None) as broker:
        await broker.create_topic(T)
        assert (await broker.append(T, [(1, None, b"x", ())])).log_append_time == START_MS
        clock.advance(50)
        assert (await broker.append(T, [b"y"])).log_append_time == START_MS + 50
        assert [record.timestamp for record in await broker.fetch(T)] == [START_MS, START_MS + 50]


async def test_many_brokers_live_in_one_process_each_on_a_port_of_its_own() -> None:
    async with open_broker() as first, open_broker() as second, open_broker(native=None) as third:
        assert first.native is not None
        assert second.native is not None
        assert third.native is None
        assert len({first.native.port, second.native.port, 0}) == 3
        await first.create_topic(T)
        assert second.topics() == []
        for broker in (first, second):
            stream = await trio.open_tcp_stream(broker.native.host, broker.native.port)
            await stream.aclose()


async def test_a_taken_port_is_an_error_of_the_system_and_nothing_stays(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = Address(host="127.0.0.1", port=taken.getsockname()[1])
        with pytest.raises(OSError, match="in use"):
            async with open_broker(tmp_path, native=address):
                pass
    async with open_broker(tmp_path):
        pass


async def test_a_second_broker_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    async with open_broker(tmp_path):
        with pytest.raises(LogDirectoryError, match="locked by"):
            async with open_broker(tmp_path):
                pass


@pytest.mark.parametrize("native", [None, Address(host="127.0.0.1", port=0)], ids=["no listener", "listener"])
@pytest.mark.parametrize(
    "error", [ZeroDivisionError, TopicAlreadyExistsError, KeyboardInterrupt, pytest.skip.Exception], ids=str
)
async def test_an_exception_of_the_block_comes_out_as_it_is(
    tmp_path: Path, native: Address | None, error: type[BaseException]
) -> None:
    raised = error("mine")

    async def block() -> None:
        async with open_broker(tmp_path, native=native):
            raise raised

    with pytest.raises(error) as found:
        await block()
    assert found.value is raised
    assert (tmp_path / CLEAN_SHUTDOWN_FILE).exists()


async def test_a_request_error_is_raised_through_the_block_as_it_is() -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="there is no topic 'gone'"):
        async with open_broker() as broker:
            await broker.fetch("gone")


async def test_a_cancelled_block_ends_in_a_clean_stop(tmp_path: Path) -> None:
    with trio.CancelScope() as scope:
        async with open_broker(tmp_path) as broker:
            await broker.create_topic(T)
            await broker.append(T, [b"kept"])
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert (tmp_path / CLEAN_SHUTDOWN_FILE).exists()
    async with open_broker(tmp_path, native=None) as broker:
        assert [record.value for record in await broker.fetch(T)] == [b"kept"]


async def test_a_start_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        async with open_broker(tmp_path):
            pytest.fail("cancelled blocks do not begin")
    assert scope.cancelled_caught
    async with open_broker(tmp_path):
        pass


async def test_settings_that_are_wrong_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="none of fsync"):
        async with open_broker(tmp_path / "a", durability="maybe"):
            pass
    with pytest.raises(InvalidConfigError, match=r"no\.such"):
        async with open_broker(tmp_path / "b", config={"no.such": "1"}):
            pass
    assert list(tmp_path.iterdir()) == []


async def test_a_fetch_can_wait_for_the_first_record() -> None:
    async with open_broker(native=None) as broker, trio.open_nursery() as nursery:
        await broker.create_topic(T)
        found: list[list[Any]] = []

        async def consume() -> None:
            found.append(await broker.fetch(T, max_wait_s=PATIENCE_S))

        nursery.start_soon(consume)
        await trio.testing.wait_all_tasks_blocked()
        await broker.append(T, [b"news"])
        with trio.fail_after(PATIENCE_S / 2):
            while not found:
                await trio.lowlevel.checkpoint()
        assert [record.value for record in found[0]] == [b"news"]


async def test_a_fetch_from_inside_a_batch_starts_at_its_offset() -> None:
    async with open_broker(native=None) as broker:
        await broker.create_topic(T)
        await broker.append(T, [b"0", b"1", b"2"])
        assert [(record.offset, record.value) for record in await broker.fetch(T, 1)] == [(1, b"1"), (2, b"2")]


# ---- in a thread of its own ------------------------------------------------------------------------------------------------


async def test_a_fork_begins_with_what_there_is_and_goes_its_own_way() -> None:
    async with open_broker(MEMORY, kafka=LOCALHOST, config={"retention.bytes": "5000"}, topics=["seeded"]) as broker:
        await broker.create_topic(T, 2, {"segment.ms": "60000"})
        await broker.append(T, [b"shared"], partition=1)
        await broker.groups.commit("g", {TopicPartition(T, 1): 1})
        broker.clock.advance(3600)
        broker.clock.freeze()
        async with broker.fork() as fork:
            assert fork.clock.now_ms() == broker.clock.now_ms()
            assert fork.describe_topic(T).configs == {"segment.ms": "60000"}
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
    async with open_broker(MEMORY, durability="fsync", topics=[T]) as broker, trio.open_nursery() as nursery:
        fault = broker.faults.disk("delay", operation="sync", path="*.log", delay_ms=3_600_000)
        nursery.start_soon(broker.append, T, [b"a"])
        assert await fault.wait_fired(timeout_s=PATIENCE_S) == 1
        with pytest.raises(TimeoutError, match=r"fired 1 times of 2 \(1 matched\)"):
            await fault.wait_fired(2, timeout_s=0)
        fault.release()
    assert (fault.matched, fault.fired) == (1, 1)


@pytest.mark.parametrize("call", ["remove", "clear"])
def test_a_rule_of_the_device_that_is_taken_away_lets_go(call: str) -> None:
    with BlockingBroker(MEMORY, durability="fsync", topics=[T]) as broker, ThreadPoolExecutor(1) as executor:
        fault = broker.faults.disk("delay", operation="sync", path="*.log", delay_ms=3_600_000)
        append = executor.submit(broker.append, T, [b"a"])
        assert fault.wait_fired(timeout_s=PATIENCE_S) == 1
        assert [each.fired for each in broker.faults.of_disk()] == [1]
        {"remove": fault.remove, "clear": broker.faults.clear}[call]()
        append.result(PATIENCE_S)
        assert broker.faults.of_disk() == []


async def test_a_device_that_is_full_when_the_block_ends_has_been_seen() -> None:
    """Rules go before the broker stops: nobody waits for what a stop does on a broken device, and it would raise."""
    async with open_broker(MEMORY, topics=[T]) as broker:
        broker.faults.disk("full")
    with BlockingBroker(MEMORY, topics=[T]) as blocking:
        blocking.faults.disk("error")
        with pytest.raises(RequestError):
            blocking.append(T, [b"a"])


def use_blocking(broker: BlockingBroker, topic: str = T) -> None:
    broker.create_topic(topic, 2, {"segment.ms": "60000"})
    assert broker.append(topic, [b"a", b"b"]).last_offset == 1
    assert broker.append(topic, batch(START_MS + 5, value=b"c"), partition=1).base_offset == 0
    assert [record.value for record in broker.fetch(topic, 1)] == [b"b"]
    assert broker.offset_for_time(topic, START_MS, partition=1).offset == 0
    assert broker.offsets_for_times([(TopicPartition(topic, 1), 0)])[0] == (START_MS + 5, 0, 0)
    assert broker.describe_topic(topic).configs == {"segment.ms": "60000"}
    assert topic in broker.topics()
    with pytest.raises(TopicAlreadyExistsError):
        broker.create_topic(topic)
    with pytest.raises(RequestError, match="no topic"):
        broker.fetch("gone")
    broker.alter_config(topic, {}, ["segment.ms"])
    assert broker.describe_topic(topic).configs == {}
    broker.alter_group_config(topic, {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "3"})
    broker.alter_group_config(topic, {"share.delivery.count.limit": "4"}, ["share.auto.offset.reset"])
    assert broker.call_now(lambda: dict(broker._target.core.group_configs.overrides()[topic])) == {
        "share.delivery.count.limit": "4"
    }
    with pytest.raises(RequestError, match=r"no\.such"):
        broker.alter_group_config("g", {"no.such": "1"})
    broker.create_partitions(topic, 4)
    assert len(broker.describe_topic(topic).partitions) == 4
    assert broker.delete_records(topic, 1) == 1
    broker.delete_topic(topic)
    assert topic not in broker.topics()


def test_a_blocking_broker_has_the_same_calls(tmp_path: Path) -> None:
    with BlockingBroker(tmp_path, native=None) as broker:
        assert (broker.path, broker.native) == (str(tmp_path), None)
        use_blocking(broker)
    assert (tmp_path / CLEAN_SHUTDOWN_FILE).exists()


def test_a_blocking_broker_is_called_from_many_threads() -> None:
    with BlockingBroker() as broker, ThreadPoolExecutor(8) as threads:
        assert broker.native is not None
        jobs = [threads.submit(use_blocking, broker, f"topic-{number}") for number in range(16)]
        for job in jobs:
            job.result(timeout=PATIENCE_S)
    with pytest.raises(RuntimeError, match="does not run"):
        broker.topics()


def test_threads_that_append_to_one_partition_share_its_offsets() -> None:
    with BlockingBroker(native=None) as broker, ThreadPoolExecutor(8) as threads:
        broker.create_topic(T)
        jobs = [threads.submit(broker.append, T, [f"{number}".encode()]) for number in range(200)]
        offsets = sorted(job.result(timeout=PATIENCE_S).base_offset for job in jobs)
        assert offsets == list(range(200))
        assert {record.value for record in broker.fetch(T)} == {f"{number}".encode() for number in range(200)}


def test_asyncio_programs_use_it_through_threads_or_directly() -> None:
    async def program() -> None:
        broker = BlockingBroker(native=None)
        await asyncio.to_thread(broker.start)
        try:
            await asyncio.to_thread(use_blocking, broker, "in-a-thread")
            use_blocking(broker, "direct")
            await asyncio.gather(*(asyncio.to_thread(use_blocking, broker, f"topic-{number}") for number in range(5)))
        finally:
            await asyncio.to_thread(broker.stop)

    asyncio.run(program())


async def test_a_blocking_broker_serves_threads_of_another_trio_program() -> None:
    broker = BlockingBroker(native=None)
    await trio.to_thread.run_sync(broker.start)
    await trio.to_thread.run_sync(use_blocking, broker)
    await trio.to_thread.run_sync(broker.stop)


def test_what_keeps_it_from_starting_is_raised_by_start(tmp_path: Path) -> None:
    with BlockingBroker(tmp_path, native=None):
        refused = BlockingBroker(tmp_path, native=None)
        with pytest.raises(LogDirectoryError, match="locked by"):
            refused.start()
        refused.stop()
        with pytest.raises(RuntimeError, match="does not run"):
            refused.topics()
    with pytest.raises(ValueError, match="none of fsync"), BlockingBroker(durability="maybe"):
        pass
    with pytest.raises(TypeError, match="colour"):
        BlockingBroker(colour="blue").start()


def test_it_can_be_stopped_twice_and_started_once() -> None:
    broker = BlockingBroker(native=None)
    broker.stop()
    broker.start()
    with pytest.raises(RuntimeError, match="started already"):
        broker.start()
    broker.stop()
    broker.stop()
    with pytest.raises(RuntimeError, match="started already"):
        broker.start()


def test_two_threads_may_stop_it_at_once() -> None:
    broker = BlockingBroker(native=None)
    broker.start()
    with ThreadPoolExecutor(2) as threads:
        for job in [threads.submit(broker.stop) for _ in range(2)]:
            job.result(timeout=PATIENCE_S)


CALLS: list[Callable[[BlockingBroker], object]] = [
    lambda broker: broker.native,
    lambda broker: broker.path,
    lambda broker: broker.topics(),
    lambda broker: broker.create_topic(T),
    lambda broker: broker.delete_topic(T),
    lambda broker: broker.alter_config(T, {}),
    lambda broker: broker.alter_group_config("g", {}),
    lambda broker: broker.create_partitions(T, 2),
    lambda broker: broker.delete_records(T),
    lambda broker: broker.describe_topic(T),
    lambda broker: broker.append(T, [b"x"]),
    lambda broker: broker.fetch(T),
    lambda broker: broker.offset_for_time(T, 0),
    lambda broker: broker.offsets_for_times([]),
]


@pytest.mark.parametrize("was_running", [False, True])
def test_a_broker_that_does_not_run_says_so_to_every_call(was_running: bool) -> None:
    broker = BlockingBroker(native=None)
    if was_running:
        broker.start()
        broker.stop()
    for call in CALLS:
        with pytest.raises(RuntimeError, match="the broker does not run"):
            call(broker)


def test_a_thread_that_waits_in_a_fetch_when_the_broker_stops_gets_an_error() -> None:
    broker = BlockingBroker(native=None)
    broker.start()
    broker.create_topic(T)
    outcomes: list[BaseException | list[Any]] = []

    def consume() -> None:
        try:
            outcomes.append(broker.fetch(T, max_wait_s=PATIENCE_S))
        except BaseException as exc:
            outcomes.append(exc)

    consumer = threading.Thread(target=consume)
    consumer.start()
    actor = broker._target.core._manager.topics.actor(TopicPartition(T, 0))
    while not len(actor.waiters):
        broker.topics()
    broker.stop()
    consumer.join(PATIENCE_S / 2)
    assert not consumer.is_alive()
    (outcome,) = outcomes
    assert isinstance(outcome, RuntimeError), repr(outcome)
    assert "the broker was stopped during the call" in str(outcome)


def test_an_exception_of_the_with_block_comes_out_and_the_broker_has_stopped(tmp_path: Path) -> None:
    def block() -> None:
        with BlockingBroker(tmp_path, native=None) as broker:
            broker.create_topic(T)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()
    assert (tmp_path / CLEAN_SHUTDOWN_FILE).exists()
