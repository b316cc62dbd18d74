"""Damaged bytes of every message in every served version."""

from __future__ import annotations

import contextlib
from random import Random

import pytest
from triolog.protocol.errors import RemoteProtocolError
from triolog.protocol.schema import codec

from tests.support.counts import counts
from tests.support.kafka_values import MESSAGES, Message, random_value

LONGEST = 600
"""Cuts of longer messages say nothing that those of shorter ones do not, and there are many."""


def written(message: Message, random: Random) -> bytes:
    value = random_value(message.cls, message.version, random)
    return b"".join(codec.write(value, message.version, flexible=message.flexible))


def damaged(data: bytes, random: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 5))):
        changed[random.randrange(len(changed))] = random.choice((0, 1, 127, 128, 255, random.randrange(256)))
    return bytes(changed)


def test_every_cut_of_a_message_is_refused() -> None:
    for message in MESSAGES:
        for seed in range(counts(10)):
            data = written(message, Random(seed))
            for stop in range(min(len(data), LONGEST)):
                with pytest.raises(RemoteProtocolError):
                    codec.read(message.cls, message.version, memoryview(data)[:stop], flexible=message.flexible)


def test_a_message_with_changed_bytes_is_read_or_refused() -> None:
    random = Random(0)
    for message in MESSAGES:
        for _ in range(counts(100)):
            if data := written(message, random):
                with contextlib.suppress(RemoteProtocolError):
                    codec.read(message.cls, message.version, memoryview(damaged(data, random)), flexible=message.flexible)
