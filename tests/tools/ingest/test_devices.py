"""Ten thousand devices on one Mosquitto, each with its own connection, and an ingest that is killed among their messages."""

from __future__ import annotations

import resource
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import attrs
import pytest
import trio
from triolog.protocol.limits import MIB

from tests.support.forked_servers import ServerForker
from tests.support.forwarding import until
from tests.support.mosquitto import needs_mosquitto
from tests.support.scripted_mqtt import text
from tests.support.server_process import memory_bytes
from tests.tools.ingest.test_sigkill import PATIENCE_S, Chain, chain

pytest.importorskip("paho.mqtt.client", reason="ingest needs paho-mqtt")
pytestmark = [pytest.mark.long, needs_mosquitto()]  # 10,000 connections

DEVICES: Final = 10_000
MESSAGES: Final = 3
"""Of each device; QoS 1."""
CONNECTING: Final = 64
"""At a time: Mosquitto's queue of connections that it has not accepted has 100 places."""
SPARE_FILES: Final = 500
PAYLOAD_BYTES: Final = 1000
MAX_GROWTH_BYTES: Final = 16 * MIB
"""Of ingest above an idle one: `receive_maximum` messages (500) and their copies, and not the 30 MB of all messages."""
CONNACK, PUBACK = b"\x20\x02\0\0", b"\x40\x02"


@contextmanager
def open_files(count: int) -> Iterator[None]:
    """Let this process and those that it starts open as many files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"needs {count} open files, and the hard limit (ulimit -Hn) is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@attrs.define(eq=False)
class Devices:
    """All devices. Owner: the task of `run`."""

    address: tuple[str, int]
    connected: int = 0
    idle_bytes: int = 0
    """Resident memory of ingest before the first message."""
    peak_bytes: int = 0
    """Of the killed ingest."""
    acknowledged: set[bytes] = attrs.field(factory=set)
    _connecting: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(CONNECTING))
    _all_connected: trio.Event = attrs.field(factory=trio.Event)
    _half_acknowledged: trio.Event = attrs.field(factory=trio.Event)

    async def run(self, made: Chain) -> None:
        """Connect all, let them publish, and kill ingest when half of the messages are acknowledged."""
        async with trio.open_nursery() as nursery:
            for number in range(DEVICES):
                nursery.start_soon(self._run_one, number)
            await self._all_connected.wait()
            self.idle_bytes = memory_bytes(made.ingest_pid)
            await self._half_acknowledged.wait()
            self.peak_bytes = memory_bytes(made.ingest_pid, "VmHWM")
            made.kill_ingest()
            made.start_ingest()

    async def _run_one(self, number: int) -> None:
        with closing(trio.socket.socket()) as connection:
            async with self._connecting:
                await connection.connect(self.address)
                await self._send(connection, 0x10, text("MQTT") + bytes((4, 2, 0, 0)) + text(f"device-{number}"))
                assert await self._receive(connection) == CONNACK
            self.connected += 1
            if self.connected == DEVICES:
                self._all_connected.set()
            await self._all_connected.wait()
            for packet_id in range(1, MESSAGES + 1):
                payload = (b"%d/%d" % (number, packet_id)).ljust(PAYLOAD_BYTES)
                name = text(f"devices/{number}")
                await self._send(connection, 0x32, name + struct.pack(">H", packet_id) + payload)
                assert await self._receive(connection) == PUBACK + struct.pack(">H", packet_id)
                self.acknowledged.add(payload)
                if len(self.acknowledged) == DEVICES * MESSAGES // 2:
                    self._half_acknowledged.set()
            await self._send(connection, 0xE0, b"")

    async def _send(self, connection: trio.socket.SocketType, head: int, body: bytes) -> None:
        """Send a packet, which is small enough for one write."""
        size = len(body)
        data = bytes((head, size) if size < 128 else (head, size & 127 | 128, size >> 7)) + body
        assert await connection.send(data) == len(data)

    async def _receive(self, connection: trio.socket.SocketType) -> bytes:
        """Return a packet of four bytes."""
        data = b""
        while len(data) < 4:
            some = await connection.recv(4 - len(data))
            assert some, "Mosquitto closed a connection"
            data += some
        return data


@pytest.mark.timeout(1800)
def test_nothing_is_lost_of_ten_thousand_devices_and_ingest_keeps_to_its_memory(
    tmp_path: Path, ingest_forker: ServerForker
) -> None:
    with open_files(DEVICES + SPARE_FILES), chain(tmp_path, ingest_forker, 1) as made:
        devices = Devices((made.broker.address.host, made.broker.address.port))
        trio.run(devices.run, made)
        assert (devices.connected, len(devices.acknowledged)) == (DEVICES, DEVICES * MESSAGES)
        until(lambda: devices.acknowledged <= made.stored().keys(), "all messages", PATIENCE_S)
        found, status = made.stored(), made.status()
        assert found.keys() == devices.acknowledged, "nothing but their messages"
        again = found.total() - len(found)
        assert again <= status["duplicates"], "a message that is stored again is reported"
        grown_bytes = [each - devices.idle_bytes for each in (devices.peak_bytes, memory_bytes(made.ingest_pid, "VmHWM"))]
        print(  # noqa: T201 - docs/edge.md has it
            f"{DEVICES:,} devices, {len(devices.acknowledged):,} messages with QoS 1, ingest killed once: none lost, {again:,} "
            f"stored twice, {status['duplicates']:,} reported as sent again; ingest grew by "
            f"{' and '.join(f'{each / MIB:.1f}' for each in grown_bytes)} MiB"
        )
        assert max(grown_bytes) <= MAX_GROWTH_BYTES
