"""A session with an MQTT broker, by paho-mqtt: connects, subscribes, receives, and acknowledges only on request.

paho acknowledges QoS 2 before it hands a message over: it sends PUBREC on arrival, and keeps the message in memory until
PUBREL. A process that is killed in between would lose it. So two of its methods are replaced: PUBREC waits for `acknowledge`,
and PUBREL is reported. Messages are taken from where paho keeps them.

paho ends the connection at a text of a property with U+FEFF, which MQTT allows, or with NUL. The broker would send such a
message again at once, so one device could stop the link for good. So the function that reads these texts is replaced, too.
"""

from __future__ import annotations

import contextlib
import select
import ssl
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from ..client.tls import TlsConfig
from ..forward.errors import SettingsError, TryAgainError
from ..forward.pacing import Failure
from .mapping import Message
from .settings import IngestLink, Protocol

CONNECT_S: Final = 10.0
POLL_S: Final = 0.1
REPLACED: Final = ("_send_pubrec", "_handle_pubrel", "_in_messages", "_in_packet", "_reset_sockets")
TEXT_READER: Final = "readUTF"
NOT_KEPT: Final = 0x80
"""Reason codes from here on are refusals."""


class Broker:
    """Owner: the thread of one link."""

    def __init__(self, link: IngestLink, is_wanted: Callable[[], bool]) -> None:
        self.link: Final = link
        self.client_id: Final = link.own_client_id
        self.had_session = False
        """Whether the broker had kept the session."""
        self.refused: dict[str, str] = {}
        """Filter -> why the broker refused it."""
        self.granted_qos: int | None = None
        """The lowest of all filters; None: SUBACK has not arrived."""
        self._is_wanted = is_wanted
        self._messages: list[Message] = []
        self._released: list[int] = []
        self._deferred: list[int] = []
        self._ended: TryAgainError | None = None
        self._is_connected = False
        self._client: Any = self._make()

    def connect(self) -> None:
        """Connect and continue the session. Raises TryAgainError, SettingsError."""
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        link, more = self.link, {}
        if link.protocol is Protocol.MQTT_5:
            properties = Properties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = link.session_expiry_s
            properties.ReceiveMaximum = link.receive_maximum
            more = {"clean_start": False, "properties": properties}
        try:
            if link.user is not None:
                self._client.username_pw_set(link.user, None if link.password is None else link.password.read())
            if link.tls:
                self._client.tls_set_context(TlsConfig(ca_file=link.ca_file, certificate_file=link.cert_file).context())
            self._client.connect(link.broker.host, link.broker.port, link.keepalive_s, **more)
        except ssl.SSLCertVerificationError as exc:
            raise TryAgainError(f"{self}: {exc.verify_message}", Failure.REFUSED) from exc
        except (OSError, ValueError) as exc:
            raise TryAgainError(f"{self}: {exc}") from exc
        self._until(lambda: self._is_connected, "no response to CONNECT")

    def subscribe(self, *, is_first: bool) -> None:
        """Subscribe to the filters. Raises TryAgainError. `is_first`: of the process, whose filters may be new.

        The messages of the session come first. If they are more than is read at a time, SUBACK is after them, and `granted_qos`
        is set later.
        """
        from paho.mqtt.subscribeoptions import SubscribeOptions

        link = self.link
        filters = list(dict.fromkeys(each.filter for each in link.map))
        if link.protocol is Protocol.MQTT_5:
            handling = SubscribeOptions.RETAIN_SEND_IF_NEW_SUB if link.retained else SubscribeOptions.RETAIN_DO_NOT_SEND
            asked: Any = [(each, SubscribeOptions(qos=link.qos, retainHandling=handling)) for each in filters]
        elif self.had_session and not is_first:  # the broker would send all retained messages again
            return
        else:
            asked = [(each, link.qos) for each in filters]

        def subscribed(client: Any, data: Any, packet_id: int, codes: list[Any], properties: Any) -> None:
            if len(codes) != len(filters):
                raise TryAgainError(f"{self} answers a subscription to {len(filters)} filters with {len(codes)} codes")
            self.refused = {each: str(code) for each, code in zip(filters, codes, strict=True) if code.value >= NOT_KEPT}
            self.granted_qos = min((code.value for code in codes if code.value < NOT_KEPT), default=link.qos)

        self._client.on_subscribe = subscribed
        self._client.subscribe(asked)
        self._until(lambda: self.granted_qos is not None or self._is_full, "no response to SUBSCRIBE")

    def receive(self, timeout_s: float) -> tuple[list[Message], list[int]]:
        """Wait for messages and released packet ids, and return all that have arrived. Raises TryAgainError."""
        if not self._messages and not self._released:
            self._turn(timeout_s)
        messages, released = self._messages, self._released
        self._messages, self._released = [], []
        return messages, released

    def acknowledge(self, messages: Iterable[Message], released: Iterable[int]) -> None:
        """They are durable. Over a lost connection, which the next `receive` reports, the broker sends them again."""
        for message in messages:
            if message.qos == 1:
                self._client.ack(message.packet_id, 1)
            elif message.qos == 2:
                self._send_pubrec(message.packet_id)
        for packet_id in released:
            self._client.ack(packet_id, 2)

    def close(self) -> None:
        """Disconnect. The broker keeps the session."""
        with contextlib.suppress(OSError, ValueError):
            self._client.disconnect()
        self._client._reset_sockets()

    def __str__(self) -> str:
        return f"broker {self.link.broker}"

    # ---- inside --------------------------------------------------------------------------------------------------------

    def _make(self) -> Any:
        from paho.mqtt import client as paho
        from paho.mqtt import properties

        is_5 = self.link.protocol is Protocol.MQTT_5
        client: Any = paho.Client(
            paho.CallbackAPIVersion.VERSION2,
            self.client_id,
            clean_session=None if is_5 else False,
            protocol=paho.MQTTv5 if is_5 else paho.MQTTv311,
            manual_ack=True,
        )
        for name in REPLACED:
            if not hasattr(client, name):
                raise SettingsError(f"this version of paho-mqtt has no {name}: ingest cannot decide when to acknowledge")
        if not hasattr(properties, TEXT_READER):
            raise SettingsError(f"this version of paho-mqtt has no {TEXT_READER}: ingest cannot read every message")
        setattr(properties, TEXT_READER, _read_text)
        self._send_pubrec = client._send_pubrec
        client._send_pubrec, client._handle_pubrel = self._defer, self._note_release
        client.on_message, client.on_connect, client.on_disconnect = self._take, self._connected, self._disconnected
        return client

    @property
    def _is_full(self) -> bool:
        """Return whether as many packets have arrived as are read at a time."""
        return len(self._messages) + len(self._released) >= 2 * self.link.receive_maximum

    def _turn(self, timeout_s: float) -> None:
        """Wait for the socket, then read every packet that is there, up to as many messages as may be unacknowledged."""
        client = self._client
        stream = client.socket()
        if stream is not None:
            poll = select.poll()
            poll.register(stream, select.POLLIN | (select.POLLOUT if client.want_write() else 0))
            is_pending = self.link.tls and stream.pending()
            for _, events in poll.poll(0 if is_pending else timeout_s * 1000):
                if events & select.POLLOUT:
                    client.loop_write()
            before = -1
            while before < (now := len(self._messages) + len(self._released)) and not self._is_full:
                before = now
                client.loop_read()
                self._take_deferred()
            client.loop_misc()
        if client.socket() is None and not self._messages and not self._released:
            raise self._lost()

    def _lost(self) -> TryAgainError:
        return self._ended or TryAgainError(f"{self}: the connection is lost")

    def _until(self, is_done: Callable[[], bool], trouble: str) -> None:
        deadline = time.monotonic() + CONNECT_S
        while not is_done():
            if time.monotonic() > deadline or not self._is_wanted():
                raise TryAgainError(f"{self}: {trouble} within {CONNECT_S:g} s")
            self._turn(POLL_S)
            if self._client.socket() is None:  # the broker sends again the messages that have arrived
                raise self._lost()

    def _connected(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self._ended = TryAgainError(f"{self} refuses the connection: {reason}", Failure.REFUSED)
            return
        self.had_session = flags.session_present
        self._is_connected = True

    def _disconnected(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        self._ended = self._ended or TryAgainError(f"{self}: the connection is lost: {reason}")

    def _defer(self, packet_id: int) -> int:
        self._deferred.append(packet_id)
        return 0

    def _take_deferred(self) -> None:
        """Take the messages of QoS 2 that have arrived."""
        for packet_id in self._deferred:
            self._take(None, None, self._client._in_messages.pop(packet_id))
        self._deferred.clear()

    def _note_release(self) -> int:
        self._released.append(int.from_bytes(self._client._in_packet["packet"][:2], "big"))
        return 0

    def _take(self, client: Any, data: Any, received: Any) -> None:
        try:
            topic = received.topic
        except UnicodeDecodeError as exc:  # no broker may send it (MQTT-1.5.4-1); it is a dead letter
            topic = exc.object.decode(errors="backslashreplace")
        self._messages.append(
            Message(
                topic,
                bytes(received.payload),
                time.time_ns() // 1_000_000,
                received.qos,
                bool(received.retain),
                bool(received.dup),
                received.mid,
                getattr(received.properties, "UserProperty", ()),
            )
        )


def _read_text(buffer: bytes, most_bytes: int) -> tuple[str, int]:
    """Read the text of a property, in paho's place: any text, with the bytes escaped that are not UTF-8. Returns the number of
    bytes read, too."""
    from paho.mqtt.exception import MalformedPacket

    end = 2 + int.from_bytes(buffer[:2], "big")
    if end > most_bytes:
        raise MalformedPacket(f"a text of {end} bytes is longer than the {most_bytes} bytes of its properties")
    return bytes(buffer[2:end]).decode(errors="backslashreplace"), end
