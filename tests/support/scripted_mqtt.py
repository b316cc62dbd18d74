"""An MQTT 5 broker that does what a test says, packet by packet, and a link that stores its messages.

A real broker marks no new message as sent again, and does not send one packet id twice. This one does.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import triolog
from triolog.server.embedded import BlockingBroker
from triolog.tools.forward.memory import Wishes
from triolog.tools.ingest.ingest import Ingest
from triolog.tools.ingest.settings import INGEST
from triolog.tools.ingest.store import Store

from tests.support.forwarding import ANY_PORT, FOR_EVER, PATIENCE_S

CONNECT, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBSCRIBE, PINGREQ, DISCONNECT = 1, 3, 4, 5, 6, 7, 8, 12, 14
LINK: Final = "plant"
TOPIC: Final = "readings"
FILTER: Final = "sensors/+/temperature"
MQTT_TOPIC: Final = "sensors/7/temperature"


class Packet(NamedTuple):
    kind: int
    body: bytes

    @property
    def packet_id(self) -> int:
        return int.from_bytes(self.body[:2], "big")


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">H", len(data)) + data


def number_of(size: int) -> bytes:
    """A variable byte integer (MQTT, section 1.5.5)."""
    data = b""
    while True:
        size, byte = size >> 7, size & 127
        data += bytes((byte | (128 if size else 0),))
        if not size:
            return data


class Peer:
    """A connection of the link."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        stream.settimeout(PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._stream.close()

    def greet(
        self, *, session: bool = False, reason: int = 0, granted: int | None = None, early: Sequence[bytes] = ()
    ) -> Packet:
        """Accept the connection and the subscription, or refuse one of them. Returns CONNECT. `early`: messages of the session
        that the link has to acknowledge before SUBACK is sent."""
        connect = self.accept_session(session=session, reason=reason)
        if reason == 0:
            asked = self.expect(SUBSCRIBE)
            count = (len(asked.body) - 3) // (2 + len(FILTER) + 1)
            code = asked.body[-1] & 3 if granted is None else granted
            for packet_id, payload in enumerate(early, 1):
                self.publish(payload, packet_id)
            for packet_id in range(1, len(early) + 1):
                assert self.expect(PUBACK).packet_id == packet_id
            self._send(0x90, asked.body[:2] + b"\0" + bytes((code,)) * count)
        return connect

    def accept_session(self, *, session: bool = True, reason: int = 0) -> Packet:
        """Accept the connection, or refuse it. Returns CONNECT."""
        connect = self.expect(CONNECT)
        self._send(0x20, bytes((session, reason, 0)))
        return connect

    def publish(
        self,
        payload: bytes,
        packet_id: int = 0,
        *,
        topic: str | bytes = MQTT_TOPIC,
        qos: int = 1,
        dup: bool = False,
        retain: bool = False,
        user: Sequence[tuple[str, str]] = (),
    ) -> None:
        properties = b"".join(b"\x26" + text(name) + text(value) for name, value in user)
        name = text(topic) if isinstance(topic, str) else struct.pack(">H", len(topic)) + topic
        number = struct.pack(">H", packet_id) if qos else b""
        self._send(0x30 | dup << 3 | qos << 1 | retain, name + number + number_of(len(properties)) + properties + payload)

    def release(self, packet_id: int) -> None:
        self._send(0x62, struct.pack(">H", packet_id))

    def expect(self, kind: int) -> Packet:
        """Return the next packet, which is of this kind."""
        found = self.next()
        assert found is not None, f"the link closed the connection instead of sending packet {kind}"
        assert found.kind == kind, f"packet {found.kind} came, and not {kind}"
        return found

    def next(self) -> Packet | None:
        """Return the next packet; None when the connection is closed. Pings are answered on the way."""
        while (head := self._read(1)) is not None:
            size = shift = 0
            while True:
                [byte] = self._read(1) or b"\0"
                size |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    break
            packet = Packet(head[0] >> 4, self._read(size) or b"")
            if packet.kind == DISCONNECT:
                return None
            if packet.kind != PINGREQ:
                return packet
            self._send(0xD0, b"")
        return None

    @property
    def is_silent(self) -> bool:
        """Whether nothing has arrived that was not read."""
        return not select.select([self._stream], [], [], 0)[0]

    def _read(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            try:
                some = self._stream.recv(size - len(data))
            except ConnectionResetError:
                return None
            if not some:
                return None
            data += some
        return data

    def _send(self, head: int, body: bytes) -> None:
        self._stream.sendall(bytes((head,)) + number_of(len(body)) + body)


class ScriptedBroker:
    """Owner of the listening socket."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(PATIENCE_S)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listening.getsockname()[1]}"

    def accept(self) -> Peer:
        return Peer(self._listening.accept()[0])

    def greeted(self, **how: Any) -> Peer:
        """Accept a connection and its subscription."""
        peer = self.accept()
        peer.greet(**how)
        return peer

    def close(self) -> None:
        self._listening.close()

    def link(self, server: BlockingBroker, **settings: Any) -> Ingest:
        """A link from this broker, as `link_from`."""
        return link_from(self.address, server, **settings)


def link_from(broker: str, server: BlockingBroker, **settings: Any) -> Ingest:
    """A link; `settings` are keys of an `[[ingest]]` table, or of its only map."""
    assert server.native is not None
    own = {key: settings.pop(key) for key in ("filter", "topic", "key", "timestamp") if key in settings}
    table = {"name": LINK, "broker": broker, "map": [{"filter": FILTER, "topic": TOPIC, **own}], **settings}
    where = (server.native.host, server.native.port)
    return Ingest(INGEST.read_link("the test", table), lambda link: Store(link, where, None, None), Wishes())


@contextlib.contextmanager
def scripted(**options: Any) -> Iterator[tuple[ScriptedBroker, BlockingBroker]]:
    """A scripted broker, and a server in this process with these options."""
    with (
        contextlib.closing(ScriptedBroker()) as broker,
        triolog.blocking.open(native=ANY_PORT, config=FOR_EVER, **options) as server,
    ):
        yield broker, server
