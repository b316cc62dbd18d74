"""A reset is the same cluster on the same ports, and neither it nor a crash is news about the device."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import trio
from triolog.server.embedded import MEMORY, Address, open_broker
from triolog.server.fake.ports import Ports

ANY_PORT = Address("127.0.0.1", 0)
T = "orders"


async def test_a_reset_keeps_cluster_id_and_ports() -> None:
    async with open_broker(MEMORY, kafka=ANY_PORT, topics=[T]) as broker:
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
    async with open_broker(tmp_path / "data", native=None, for_tests=True, topics={T: 3}) as broker:
        for number in range(3):
            async with broker.transaction("till") as transaction:
                await transaction.append(T, [b"a"], partition=number)
        await broker.crash()
        assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
        await broker.restart()
        assert len(await broker.log(T).records()) == 3
