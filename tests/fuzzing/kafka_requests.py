"""Requests of Kafka's protocol, without the length of their frame.

A frame is a request or ends in RemoteProtocolError, nothing else; a request that was read is written and read as the same.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from random import Random
from typing import Final

from triolog.protocol.errors import RemoteProtocolError
from triolog.protocol.kafka.connection import KafkaConnection, Request
from triolog.protocol.schema import codec

from tests.fuzzing.target import BrokenInvariantError, Target, require
from tests.support.in_steps import next_request
from tests.support.kafka_values import MESSAGES, Message, random_value

SEEDS_SEED: Final = 0
VALUES_PER_MESSAGE: Final = 4
REQUESTS: Final = [message for message in MESSAGES if message.side == "request"]


def request_frame(message: Message, random: Random) -> bytes:
    """What a well-behaved client would send, without the frame's length."""
    body = random_value(message.cls, message.version, random)
    client = random.choice((b"\xff\xff", b"\0\0", b"\0\6client"))
    tags = random.choice((b"\0", b"\0", b"\1\7\2ab")) if message.flexible else b""
    header = struct.pack(">hhi", message.api.key, message.version, random.randrange(2**31)) + client + tags
    return header + b"".join(codec.write(body, message.version, flexible=message.flexible))


def feed(data: bytes) -> bool:
    """See `Target.feed`. An empty frame is refused before anybody looks at it."""
    return bool(data) and read(data) is not None


def read(frame: bytes) -> Request | None:
    """The request that a frame is, or None when it was refused. Raises BrokenInvariantError."""
    connection = KafkaConnection()
    connection.receive_data(struct.pack(">i", len(frame)) + frame)
    try:
        request = next_request(connection)
    except RemoteProtocolError:
        return None
    except Exception as exc:
        raise BrokenInvariantError(f"{type(exc).__name__} instead of RemoteProtocolError for {frame.hex()}") from exc
    if request is None:
        raise BrokenInvariantError(f"a whole frame was not enough: {frame.hex()}")
    if request.body is not None:
        _check_repeatable(request, frame)
    return request


def _check_repeatable(request: Request, frame: bytes) -> None:
    version, flexible = request.version, request.api.is_flexible(request.version)
    try:
        data = b"".join(codec.write(request.body, version, flexible=flexible))
        body, stop = codec.read(request.api.request, version, memoryview(data), flexible=flexible)
        again = b"".join(codec.write(body, version, flexible=flexible))
    except Exception as exc:
        raise BrokenInvariantError(f"what was read cannot be written and read: {frame.hex()}") from exc
    require(again == data and stop == len(data), f"what was read is written as something else: {frame.hex()}")


def seeds() -> Iterator[bytes]:
    random = Random(SEEDS_SEED)
    for message in REQUESTS:
        for _ in range(VALUES_PER_MESSAGE):
            yield request_frame(message, random)


TARGET: Final = Target(
    name="kafka-requests",
    feed=feed,
    seeds=seeds,
    modules=("triolog.protocol.kafka.connection", "triolog.protocol.schema.codec", "triolog.protocol.schema.primitives"),
    max_bytes=1024,
)
