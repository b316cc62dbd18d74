"""Damaged bytes of every message in every served version. `tests.fuzzing` searches for other ones by coverage."""

from __future__ import annotations

import contextlib
import struct
from random import Random
from typing import Final

import pytest
from triolog.protocol.errors import RemoteProtocolError
from triolog.protocol.kafka.apis import APIS, ApiKey
from triolog.protocol.schema import codec
from triolog.protocol.schema.primitives import write_unsigned_varint

from tests.fuzzing import kafka_requests
from tests.fuzzing.kafka_requests import REQUESTS, request_frame
from tests.fuzzing.target import BrokenInvariantError
from tests.support.counts import counts, draws, seeds
from tests.support.kafka_values import MESSAGES, Message, random_value

LONGEST: Final = 600
"""Cuts of longer messages say nothing that those of shorter ones do not, and there are many."""
PIECES: Final = (
    *(struct.pack(">i", number) for number in (-(2**31), -2, -1, 0, 1, 2**16, 2**31 - 1)),
    *(write_unsigned_varint(number) for number in (0, 127, 128, 2**14, 2**28, 2**32 - 1)),
    *(b"\x80" * 6, b"\xff" * 10, b"\xed\xa0\x80", b"\x01\x00\x03abc"),
)
"""What is put in: lengths, counts and varints at their ends, broken text, a tagged field."""


def written(message: Message, random: Random) -> bytes:
    value = random_value(message.cls, message.version, random)
    return b"".join(codec.write(value, message.version, flexible=message.flexible))


def damaged(data: bytes, random: Random) -> bytes:
    """With other bytes, or some that are missing, repeated or put in."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 5))):
        at = random.randrange(len(changed) + 1)
        match random.randrange(8):
            case 0:
                del changed[at : at + random.randrange(9)]
            case 1:
                changed[at:at] = changed[at : at + random.randrange(40)]
            case 2:
                changed[at:at] = random.choice(PIECES)
            case _:
                changed[at : at + 1] = bytes([random.choice((0, 1, 127, 128, 255, random.randrange(256)))])
    return bytes(changed) or b"\0"


@pytest.mark.merge
def test_every_cut_of_a_message_is_refused() -> None:
    for message in MESSAGES:
        for seed in seeds(10):
            data = written(message, Random(seed))
            for stop in range(min(len(data), LONGEST)):
                with pytest.raises(RemoteProtocolError):
                    codec.read(message.cls, message.version, memoryview(data)[:stop], flexible=message.flexible)


def test_a_message_with_changed_bytes_is_read_or_refused() -> None:
    random = draws()
    for message in MESSAGES:
        for _ in range(counts(100)):
            if data := written(message, random):
                with contextlib.suppress(RemoteProtocolError):
                    codec.read(message.cls, message.version, memoryview(damaged(data, random)), flexible=message.flexible)


def test_a_request_with_changed_bytes_anywhere_is_one_that_can_be_repeated_or_refused() -> None:
    random = draws()
    read = [kafka_requests.feed(damaged(request_frame(each, random), random)) for each in REQUESTS for _ in range(counts(100))]
    assert len(read) // 20 < sum(read) < len(read) * 19 // 20, "bodies are hardly looked at, or hardly damaged"


def test_undamaged_frames_are_requests_of_all_apis() -> None:
    requests = [kafka_requests.read(frame) for frame in kafka_requests.seeds()]
    assert {request.api.key for request in requests if request} == set(APIS)


def test_a_broken_invariant_is_reported_with_its_input(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(*_: object) -> None:
        raise ZeroDivisionError("planted")

    frame = struct.pack(">hhih", ApiKey.LIST_GROUPS, 0, 1, -1)
    monkeypatch.setitem(APIS[ApiKey.LIST_GROUPS].readers, 0, planted)
    with pytest.raises(BrokenInvariantError, match=f"ZeroDivisionError instead of RemoteProtocolError for {frame.hex()}"):
        kafka_requests.feed(frame)
