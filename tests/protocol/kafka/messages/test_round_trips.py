from __future__ import annotations

from itertools import product
from random import Random

import pytest
from triolog.protocol.schema import codec

from tests.support.counts import counts
from tests.support.kafka_values import SIDES, random_value, without_absent


@pytest.mark.parametrize("name", SIDES)
def test_fields_that_a_version_lacks_are_left_out_and_read_as_their_defaults(name: str) -> None:
    for message, seed in product(SIDES[name], range(counts(30))):
        value = random_value(message.cls, message.version, Random(seed), absent_too=True)
        data = b"".join(codec.write(value, message.version, flexible=message.flexible))
        read = codec.read(message.cls, message.version, memoryview(data), flexible=message.flexible)
        assert read == (without_absent(value, message.version), len(data)), message
