"""Produces that the device holds up, over both protocols: answered when their timeout is over, forgotten with their
connection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from triolog.protocol.errors import ErrorCode
from triolog.protocol.native import messages

from tests.support.attackers import BothListeners, both_listeners
from tests.support.brokers import until
from tests.support.gate_fs import GateFileSystem
from tests.support.kafka_server import TOPIC, batch, produce_request

LONG_MS = 600_000


@asynccontextmanager
async def held_up(path: Path) -> AsyncIterator[BothListeners]:
    """A server whose device takes nothing within the block."""
    fs = GateFileSystem()
    async with both_listeners(path, fs=fs) as server:
        with fs.hold("write", ".log"):
            yield server


def native_produce(timeout_ms: int) -> messages.ProduceRequest:
    return messages.ProduceRequest((messages.ProducePartition(TOPIC, 0, batch("x")),), timeout_ms=timeout_ms)


async def test_a_kafka_produce_is_answered_when_its_timeout_is_over(tmp_path: Path) -> None:
    async with held_up(tmp_path) as server, server.kafka_client() as client:
        answer = await client.call(produce_request(batch("x"), timeout_ms=1), 9)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT


async def test_a_native_produce_is_answered_when_its_timeout_is_over(tmp_path: Path) -> None:
    async with held_up(tmp_path) as server, server.native_client() as client:
        with trio.fail_after(30):
            answer = await client.call(native_produce(1))
        assert answer.partitions[0].error.code is ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("protocol", ["kafka", "native"])
async def test_what_has_a_timeout_is_forgotten_with_its_connection(tmp_path: Path, protocol: str) -> None:
    async with held_up(tmp_path) as server:
        listener = server.kafka.listener if protocol == "kafka" else server.native
        deadlines = listener._reactor.deadlines
        if protocol == "kafka":
            async with server.kafka_client() as client:
                await client.send(produce_request(batch("x"), timeout_ms=LONG_MS), 9)
                await until(lambda: len(deadlines) == 1)
                await client.reset()
        else:
            async with server.native_client() as native:
                await native.send(native_produce(LONG_MS))
                await until(lambda: len(deadlines) == 1)
        listener.stop(0)
        await until(lambda: listener.connections == 0)
        assert len(deadlines) == 0
