"""Ports that are kept while nobody listens on them. What programs without trio call is what trio programs call. A broker's
clock that is moved. A reset is the same cluster on the same ports, and neither it nor a crash is news about the device. Kafka
clients stay connected over a reset."""

from __future__ import annotations

import inspect
import logging
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
import triolog
from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.messages.records import FetchTopic
from triolog.server.config.broker_config import Address
from triolog.server.embedded import MEMORY, BlockingBroker, EmbeddedBroker, aio, records
from triolog.server.fake import proxies
from triolog.server.fake.clock import MovedClock
from triolog.server.fake.ports import Ports
from triolog.server.fake.views import groups_view, log_view, share_groups_view, streams_groups_view
from triolog.server.fake.views.fault_views import FaultsView, FaultView, RequestsView

from tests.support.kafka_server import batch, fetch_of, fetch_partition, produce_request
from tests.support.kafka_stream import KafkaStream, connected
from tests.support.kafka_wire import ask
from tests.support.logs import START_MS, Clock


def listening(address: Address) -> socket.socket:
    """As trio's listeners are made."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address.host, address.port))
    listener.listen()
    return listener


def test_a_kept_port_refuses_connections_and_can_be_listened_on_again_and_again() -> None:
    ports = Ports()
    address = ports.keep(Address("127.0.0.1", 0))
    assert address is not None
    assert address.port
    for _ in range(3):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((address.host, address.port))
        with listening(address), socket.create_connection((address.host, address.port)):
            """Somebody is there."""
    ports.close()


def test_the_system_gives_a_kept_port_to_nobody_else() -> None:
    ports = Ports()
    kept = [ports.keep(Address("127.0.0.1", 0)) for _ in range(200)]
    assert len({address.port for address in kept if address is not None}) == 200
    ports.close()


@pytest.mark.parametrize("address", [None, Address("localhost", 0)])
def test_what_is_no_address_of_one_interface_is_left_as_it_is(address: Address | None) -> None:
    ports = Ports()
    assert ports.keep(address) == address
    ports.close()


def test_a_port_that_is_taken_is_left_to_whoever_listens_there() -> None:
    ports = Ports()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = Address("127.0.0.1", taken.getsockname()[1])
        assert ports.keep(address) == address
    ports.close()


PAIRS = (
    (EmbeddedBroker, aio.AioBroker, {"forked_into", "stop", "node_down", "node_up", "move_leader", "move_coordinator"}),
    (log_view.LogView, aio.AioLog, set()),
    (groups_view.GroupsView, aio.AioGroups, set()),
    (FaultView, aio.AioFault, set()),
    (FaultsView, aio.AioFaults, {"add_disk_rule"}),
    (RequestsView, aio.AioRequests, set()),
    (records.Transaction, aio.AioTransaction, set()),
    (EmbeddedBroker, BlockingBroker, {"forked_into", "start_schema_registry", "stop"}),
    (FaultView, proxies.BlockingFault, set()),
    (FaultsView, proxies.BlockingFaults, {"add_disk_rule"}),
    (RequestsView, proxies.BlockingRequests, set()),
    (log_view.LogView, proxies.BlockingLog, set()),
    (groups_view.GroupsView, proxies.BlockingGroups, set()),
    (share_groups_view.ShareGroupsView, proxies.BlockingShareGroups, {"as_json"}),
    (streams_groups_view.StreamsGroupsView, proxies.BlockingStreamsGroups, {"as_json"}),
    (MovedClock, proxies.BlockingClock, {"reset", "copy", "start_clock", "current_time", "deadline_to_sleep_time"}),
)
"""A class of the trio thread, the one that stands for it, and what only the first one has."""


@pytest.mark.parametrize(("target", "proxy", "inner"), PAIRS, ids=lambda each: getattr(each, "__name__", ""))
def test_a_proxy_has_each_public_method_of_its_target_with_its_parameters_and_words(
    target: Any, proxy: Any, inner: set[str]
) -> None:
    methods = {name: each for name, each in vars(target).items() if inspect.isfunction(each) and not name.startswith("_")}
    assert methods
    for name, method in methods.items():
        if name in inner:
            continue
        called = getattr(proxy, name)
        assert proxy.__module__ == aio.__name__ or not inspect.iscoroutinefunction(called), name
        assert parameters(called) == parameters(method), name
        assert inspect.getdoc(called), name


def parameters(method: Any) -> list[inspect.Parameter]:
    return list(inspect.signature(method).parameters.values())


def test_a_proxy_that_outlives_its_broker_says_that_the_broker_does_not_run() -> None:
    with triolog.blocking.open(topics=["t"], native="127.0.0.1:0") as broker:
        log, faults = broker.log("t"), broker.faults
    for call in (log.end_offsets, log.values, faults.clear, broker.topics):
        with pytest.raises(RuntimeError, match="is not running"):
            call()


def test_it_runs_as_the_wall_and_moves_when_told() -> None:
    wall = Clock()
    clock = MovedClock(wall)
    assert clock.now_ms() == START_MS
    clock.advance(1.5)
    assert clock.now_ms() == START_MS + 1500
    clock.reset()
    assert clock.now_ms() == START_MS
    with pytest.raises(ValueError, match="forward"):
        clock.advance(-1)


def test_frozen_it_stands_and_goes_on_from_there() -> None:
    times = [10, 20, 30, 40]
    clock = MovedClock(lambda: times[0])
    clock.freeze()
    times[0] = 500
    assert clock.now_ms() == 10
    clock.advance(0.005)
    assert clock.now_ms() == 15
    clock.unfreeze()
    assert clock.now_ms() == 15
    times[0] = 507
    assert clock.now_ms() == 22


@pytest.mark.parametrize("by_another_thread", [False, True])
def test_deadlines_of_trio_move_with_it(by_another_thread: bool) -> None:
    clock = MovedClock()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 3600)
            await trio.testing.wait_all_tasks_blocked()
            if by_another_thread:
                await trio.to_thread.run_sync(lambda: trio.from_thread.run_sync(clock.advance, 3601))
            else:
                clock.advance(3601)

    trio.run(main, clock=clock)


ANY_PORT = Address("127.0.0.1", 0)
T = "orders"


async def test_a_reset_keeps_cluster_id_and_ports() -> None:
    async with triolog.open(MEMORY, kafka=ANY_PORT, topics=[T], native="127.0.0.1:0") as broker:
        before = broker.core.cluster_id, broker.core.node_id, broker.kafka, broker.native
        await broker.append(T, [b"gone"])
        await broker.create_topic("gone")
        await broker.groups.commit("gone", {})
        for _ in range(2):
            await broker.reset()
            assert (broker.core.cluster_id, broker.core.node_id, broker.kafka, broker.native) == before
            assert (broker.topics(), await broker.fetch(T)) == ([T], [])
            await broker.append(T, [b"gone"])


async def test_a_client_that_connects_during_a_reset_waits_for_the_next_life() -> None:
    ports = Ports()
    address = ports.keep(ANY_PORT)
    assert address is not None
    (first,) = await ports.listen(address)
    with ports.held():
        await first.aclose()
        client = await trio.open_tcp_stream(*address)
        (second,) = await ports.listen(address)
        async with second, client, await second.accept() as accepted:
            await client.send_all(b"x")
            assert await accepted.receive_some(1) == b"x"
    with pytest.raises(OSError, match="all attempts to connect"):
        await trio.open_tcp_stream(*address)
    ports.close()


async def test_a_socket_that_nobody_listens_on_afterwards_is_closed() -> None:
    ports = Ports()
    address = ports.keep(ANY_PORT)
    assert address is not None
    (listener,) = await ports.listen(address)
    with ports.held():
        await listener.aclose()
    with pytest.raises(OSError, match="all attempts to connect"):
        await trio.open_tcp_stream(*address)
    with ports.held():  # what is closed is not held
        pass
    ports.close()


async def test_a_crash_says_of_no_partition_that_it_is_offline(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with triolog.open(tmp_path / "data", for_tests=True, topics={T: 3}) as broker:
        for number in range(3):
            async with broker.transaction("till") as transaction:
                await transaction.append(T, [b"a"], partition=number)
        await broker.crash()
        assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
        await broker.restart()
        assert len(await broker.log(T).fetch()) == 3


@pytest.mark.parametrize("nodes", [1, 2])
async def test_connections_of_kafka_clients_go_on_over_a_reset(nodes: int) -> None:
    async with (
        triolog.open(MEMORY, kafka=ANY_PORT, nodes=nodes, topics={T: 1}, native="127.0.0.1:0") as broker,
        AsyncExitStack() as stack,
    ):
        assert broker.kafka is not None
        addresses = [node[1:] for node in broker.life.nodes.addresses.values()] if broker.life.nodes else [broker.kafka]
        clients = [await stack.enter_async_context(connected(each)) for each in addresses]
        metadata = ask("Metadata", topics=[{"name": T}], allow_auto_topic_creation=False)
        ids = {broker.core.topics.id_of(T)}
        for _ in range(3):
            for client in clients:
                assert {each.topic_id for each in (await client.call(metadata, 12)).topics} == ids
            assert broker.life.protocols["kafka"].connections == len(clients)
            await broker.append(T, [b"gone"])
            await broker.reset()
            ids = {broker.core.topics.id_of(T)}
            assert await broker.fetch(T) == []


async def test_requests_that_wait_are_answered_by_a_reset_and_their_connections_go_on() -> None:
    async with triolog.open(MEMORY, kafka=ANY_PORT, topics={T: 1}, native="127.0.0.1:0") as broker:
        assert broker.kafka is not None
        async with connected(broker.kafka) as one, connected(broker.kafka) as two, connected(broker.kafka) as three:
            topic = FetchTopic(topic_id=broker.core.topics.id_of(T), partitions=[fetch_partition()])
            await one.send(fetch_of([topic], max_wait_ms=60_000, session_epoch=0), 13)
            broker.faults.add(api="Produce", hold=True)
            await two.send(produce_request(batch("held"), topic=T), 9)
            broker.faults.add(api="Heartbeat", delay_ms=60_000)
            await three.send(ask("Heartbeat", group_id="g", generation_id=1, member_id="m"), 3)
            await broker.requests.wait_for("Heartbeat", answered=False)
            await broker.requests.wait_for("Fetch", answered=False)
            await broker.requests.wait_for("Produce", answered=False)
            await broker.reset()
            assert (await one.receive()).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            [answer] = (await two.receive()).responses
            assert answer.partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (await three.receive()).error_code == ErrorCode.NOT_COORDINATOR
            beat = ask("Heartbeat", group_id="g", generation_id=1, member_id="m")
            for client in (one, two, three):
                assert (await client.call(beat, 3)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
            assert await broker.fetch(T) == []


async def test_a_connection_with_half_a_request_ends_with_a_reset() -> None:
    async with triolog.open(MEMORY, kafka=ANY_PORT, native="127.0.0.1:0") as broker:
        assert broker.kafka is not None
        async with await trio.open_tcp_stream(*broker.kafka) as client:
            await client.send_all(b"\0\0\0\x10half")
            while not broker.life.protocols["kafka"].received_bytes:
                await trio.lowlevel.checkpoint()
            await broker.reset()
            assert await KafkaStream(client).is_closed_by_server()
