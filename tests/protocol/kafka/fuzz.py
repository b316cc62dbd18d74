"""Frames that nobody means well with, through a connection of Kafka's protocol.

The invariant: a frame is a request or ends in RemoteProtocolError, nothing else; and what was read as a request can be written
and is read again as the same.

    python -m tests.protocol.kafka.fuzz --inputs 10000000

Frames are drawn by chance: most are requests of ours, damaged. `tests.fuzzing` searches by coverage.
"""

from __future__ import annotations

import argparse
import struct
import sys
import time
from collections.abc import Callable
from random import Random
from typing import Final

import attrs
from triolog.protocol.errors import RemoteProtocolError
from triolog.protocol.kafka.connection import KafkaConnection, Request
from triolog.protocol.schema import codec
from triolog.protocol.schema.primitives import write_unsigned_varint

from tests.support.kafka_reading import next_request
from tests.support.kafka_values import MESSAGES, Message, random_value

VALUES_PER_MESSAGE: Final = 4
BYTES: Final = (0, 1, 2, 127, 128, 129, 254, 255)
PIECES: Final = (
    *(struct.pack(">h", number) for number in (-(2**15), -2, -1, 0, 1, 2**15 - 1)),
    *(struct.pack(">i", number) for number in (-(2**31), -2, -1, 0, 1, 2**16, 2**31 - 1)),
    *(struct.pack(">q", number) for number in (-(2**63), -1, 2**63 - 1)),
    *(write_unsigned_varint(number) for number in (0, 127, 128, 2**14, 2**21, 2**28, 2**31, 2**32 - 1)),
    b"\x80" * 6,
    b"\xff" * 10,
    b"\xed\xa0\x80",
    b"\x01\x00\x03abc",
)
"""What is put in or written over: lengths, counts and varints at their ends, broken text, a tagged field."""


class BrokenInvariantError(AssertionError):
    """An input that did what no input may do."""


def request_frame(message: Message, random: Random) -> bytes:
    """What a well-behaved client would send, without the frame's length."""
    body = random_value(message.cls, message.version, random)
    client = random.choice((b"\xff\xff", b"\0\0", b"\0\6client"))
    tags = random.choice((b"\0", b"\0", b"\1\7\2ab")) if message.flexible else b""
    header = struct.pack(">hhi", message.api.key, message.version, random.randrange(2**31)) + client + tags
    return header + b"".join(codec.write(body, message.version, flexible=message.flexible))


def seeds(random: Random) -> list[bytes]:
    """Requests of every API in every version."""
    requests = [message for message in MESSAGES if message.side == "request"]
    return [request_frame(message, random) for message in requests for _ in range(VALUES_PER_MESSAGE)]


@attrs.define(eq=False)
class Frames:
    """An endless supply of frames. Owner of its randomness, of which a seed repeats everything."""

    random: Random
    good: list[bytes]

    @classmethod
    def of(cls, seed: int) -> Frames:
        random = Random(seed)
        return cls(random, seeds(random))

    def draw(self) -> bytes:
        """Never empty: an empty frame is refused before anybody looks at it."""
        random = self.random
        kind = random.random()
        if kind < 0.05:
            return random.randbytes(random.randrange(1, 200))
        data = bytearray(random.choice(self.good))
        if kind < 0.15:  # a good header, then noise
            del data[random.randrange(8, 20) :]
            data += random.randbytes(random.randrange(1, 100))
        for _ in range(random.choice((1, 1, 2, 3, 8))):
            self._damage(data)
        return bytes(data) or b"\0"

    def _damage(self, data: bytearray) -> None:
        random = self.random
        at = int(random.random() * (len(data) + 1))
        kind = random.random()
        if kind < 0.3 and at < len(data):
            data[at] = random.choice(BYTES)
        elif kind < 0.4 and at < len(data):
            data[at] ^= 1 << int(random.random() * 8)
        elif kind < 0.6:
            data[at : at + random.choice((0, 0, 1, 2, 4))] = random.choice(PIECES)
        elif kind < 0.7:
            del data[at:]
        elif kind < 0.8:
            del data[at : at + int(random.random() * 9)]
        elif kind < 0.9:
            data[at:at] = data[at : at + int(random.random() * 40)]
        else:
            other = random.choice(self.good)
            data[at:] = other[int(random.random() * len(other)) :]


def feed(frame: bytes) -> Request | None:
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
    if again != data or stop != len(data):
        raise BrokenInvariantError(f"what was read is written as something else: {frame.hex()}")


def run(inputs: int, seed: int, say: Callable[[str], None] = lambda text: None) -> dict[str, int]:
    """How many were requests, how many were refused."""
    frames = Frames.of(seed)
    requests = 0
    started = time.perf_counter()
    for number in range(1, inputs + 1):
        requests += feed(frames.draw()) is not None
        if number % 1_000_000 == 0:
            say(f"{number} inputs, {requests} requests, {time.perf_counter() - started:.0f} s")
    return {"requests": requests, "refused": inputs - requests}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    say = sys.stderr.write
    found = run(chosen.inputs, chosen.seed, lambda text: say(f"{text}\n") and None)
    say(f"{found}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
