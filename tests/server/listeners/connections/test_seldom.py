"""However many connections a peer makes to have them ended, the log has a few lines of them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

import pytest
import trio
from triolog.server.listeners.connections.counters import AGAIN_S, LINES, Seldom

from tests.support.attackers import both_listeners
from tests.support.kafka_server import batch, kafka_server, produce_request
from tests.support.kafka_stream import connected
from tests.support.kafka_wire import frame

TIMES: Final = 3 * LINES
NONSENSE: Final = b"\xff" * 8
REFUSED: Final = frame(produce_request(batch("x"), partition=1000, acks=0), 9, 1)
"""It has no answer, so that its connection ends."""


async def end(address: tuple[str, int], data: bytes) -> None:
    async with connected(address) as client:
        await client.send_raw(data)
        while await client.stream.receive_some():
            """The last word of the native protocol."""


@pytest.mark.parametrize(
    ("protocol", "data"),
    [("kafka", NONSENSE), ("kafka", REFUSED), ("native", NONSENSE)],
    ids=["Kafka nonsense", "acks 0", "native nonsense"],
)
async def test_ends_of_one_kind_are_said_a_few_times(
    fast_path: Path, protocol: str, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "triolog")
    async with both_listeners(fast_path) as server:
        for _ in range(TIMES):
            await end(server.kafka.address if protocol == "kafka" else server.native_address, data)
        assert server.admission.counters(protocol).refused == TIMES
    said = [record for record in caplog.records if "is disconnected: " in record.getMessage()]
    assert len(said) == TIMES
    assert [record.levelno for record in said] == [logging.WARNING] * LINES + [logging.DEBUG] * (TIMES - LINES)


async def test_ends_of_another_kind_are_said_beside_the_first_ones(fast_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "triolog")
    async with kafka_server(fast_path) as server:
        for data in [NONSENSE] * TIMES + [REFUSED]:
            await end(server.address, data)
    assert sum("is disconnected: " in message for message in caplog.messages) == LINES + 1
    assert "acks=0 failed" in caplog.text


async def test_a_long_client_id_does_not_hide_why_its_connection_ended(
    fast_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Found by drawn requests: the line was cut before its reason."""
    caplog.set_level(logging.WARNING, "triolog")
    async with both_listeners(fast_path) as server:
        await end(server.kafka.address, frame(produce_request(batch("x"), partition=1000, acks=0), 9, 1, "c" * 20_000))
    [said] = [message for message in caplog.messages if "is disconnected: " in message]
    assert "acks=0 failed" in said


async def test_a_minutes_first_line_says_what_was_left_out(autojump_clock: object, caplog: pytest.LogCaptureFixture) -> None:
    logger, seldom = logging.getLogger("triolog.test"), Seldom()
    for _ in range(TIMES):
        seldom.warn(logger, "a", "ended")
    await trio.sleep(AGAIN_S)
    for _ in range(2):
        seldom.warn(logger, "a", "again")
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == ["ended"] * LINES + [f"again ({TIMES - LINES} more like it were not said)", "again"]
