"""Messages become records: topic, key, headers and timestamp. No sockets, no clock.

| record | source |
|---|---|
| topic, key, timestamp | the first map whose filter matches (see `settings.Map`) |
| value | the payload |
| headers | `mqtt.topic`, `mqtt.qos`, `mqtt.retain`, `mqtt.dup` where it is set; then the user properties |

A message without a record is a dead letter: the same headers, `triolog.error` with the reason, and as much of the payload as
the limit allows, with its size in `mqtt.payload.bytes` if that is not all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Final

import attrs

from .settings import IngestLink, Map, filled
from .topic_names import check_name

ERROR_HEADER: Final = "triolog.error"
MAX_REASON_BYTES: Final = 1000
DIGEST_BYTES: Final = 4
SECONDS_BELOW: Final = 10**11
"""A number below it is seconds since 1970: as milliseconds it would be a day before March 1973."""
MAX_TIMESTAMP_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""
OF_POSITIONS: Final = re.compile(r"triolog-ingest\..*\.positions")
FLAGS: Final = {True: b"true", False: b"false"}


@attrs.define(eq=False, repr=False)
class Message:
    """A message as it arrived."""

    topic: str
    payload: bytes
    arrived_ms: int
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    user_properties: Sequence[tuple[str, str]] = ()

    @property
    def digest(self) -> bytes:
        """Return a digest of topic and payload. It tells two messages with one packet id apart."""
        return blake2b(self.topic.encode() + b"\0" + self.payload, digest_size=DIGEST_BYTES).digest()


@attrs.define(eq=False, repr=False)
class Entry:
    """A record to store, and its origin: a message, or a line of a file."""

    message: Any
    topic: str
    value: bytes
    key: bytes | None
    timestamp_ms: int
    headers: list[tuple[str, bytes]]
    is_dead_letter: bool = False


def entry_of(link: IngestLink, message: Message) -> Entry:
    """Return the record of a message, or its dead letter."""
    try:
        return _mapped(link, message)
    except ValueError as exc:
        return dead_letter(link, message, str(exc))


def dead_letter(link: IngestLink, message: Message, reason: str, most_bytes: int | None = None) -> Entry:
    """Return the record that goes to the dead-letter topic. With `most_bytes` it has so much of the payload, and no user
    properties: the server has refused a larger one."""
    value, headers = message.payload[: link.max_payload_bytes], _headers(message)
    if most_bytes is not None:
        value, headers = value[:most_bytes], headers[: len(headers) - len(message.user_properties)]
    headers.append((ERROR_HEADER, cut_reason(reason)))
    if len(value) < len(message.payload):
        headers.append(("mqtt.payload.bytes", str(len(message.payload)).encode()))
    return Entry(message, link.dead_letter_topic, value, None, message.arrived_ms, headers, is_dead_letter=True)


def cut_reason(reason: str) -> bytes:
    """Return a reason as a header has it: valid UTF-8."""
    return reason.encode(errors="replace")[:MAX_REASON_BYTES].decode(errors="ignore").encode()


def pointed(document: Any, pointer: str) -> Any:
    """Return the value at a JSON pointer (RFC 6901). Raises ValueError."""
    for token in pointer.split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        try:
            document = document[int(name) if isinstance(document, list) and name.isdecimal() else name]
        except (KeyError, IndexError, TypeError, ValueError):
            raise ValueError(f"the payload has nothing at {pointer}") from None
    return document


def timestamp_of(value: Any) -> int:
    """Return milliseconds since 1970 for a value of JSON. Raises ValueError."""
    if isinstance(value, str):
        time = datetime.fromisoformat(value)
        timestamp_ms = round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
    elif isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_TIMESTAMP_MS:
        timestamp_ms = round(value * 1000 if value < SECONDS_BELOW else value)
    else:
        raise ValueError(f"{value!r:.100} is not a time")
    if not 0 <= timestamp_ms <= MAX_TIMESTAMP_MS:
        raise ValueError(f"the time {value!r:.100} is not in the years 1970 to 9999")
    return timestamp_ms


def _mapped(link: IngestLink, message: Message) -> Entry:
    found = next((each for each in link.map if each.matches(message.topic)), None)
    if found is None:
        raise ValueError(f"no map matches the topic {message.topic!r:.300}")
    if len(message.payload) > link.max_payload_bytes:
        raise ValueError(f"the payload has {len(message.payload)} bytes, above max_payload_bytes={link.max_payload_bytes}")
    key, timestamp_ms = _from_payload(found, message)
    topic = check_name(filled(found.topic, message.topic))
    if OF_POSITIONS.fullmatch(topic):  # a device may choose its MQTT topic
        raise ValueError(f"the topic {topic} has the positions of a link from files")
    return Entry(message, topic, message.payload, key, timestamp_ms, _headers(message))


def _from_payload(found: Map, message: Message) -> tuple[bytes | None, int]:
    """Return key and timestamp. The payload is parsed only for a pointer."""
    document: Any = None
    if found.timestamp is not None or (found.key or "").startswith("/"):
        try:
            document = json.loads(message.payload)
        except (ValueError, RecursionError) as exc:
            raise ValueError(f"the payload is not JSON: {exc}") from None
    timestamp_ms = message.arrived_ms if found.timestamp is None else timestamp_of(pointed(document, found.timestamp))
    if found.key is None:
        return None, timestamp_ms
    if not found.key.startswith("/"):
        return filled(found.key, message.topic).encode(), timestamp_ms
    value = pointed(document, found.key)
    if value is None or isinstance(value, dict | list):
        raise ValueError(f"the payload has no text or number at {found.key}")
    return (value if isinstance(value, str) else json.dumps(value)).encode(), timestamp_ms


def _headers(message: Message) -> list[tuple[str, bytes]]:
    headers = [
        ("mqtt.topic", message.topic.encode()),
        ("mqtt.qos", b"%d" % message.qos),
        ("mqtt.retain", FLAGS[message.retain]),
    ]
    if message.dup:
        headers.append(("mqtt.dup", FLAGS[True]))
    headers += ((name, value.encode()) for name, value in message.user_properties)
    return headers
