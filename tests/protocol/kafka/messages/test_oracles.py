"""Bytes and declarations of every message in every served version, against two libraries made from Kafka's schemas."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest
from triolog.protocol.schema import codec

from tests.support.counts import seeds
from tests.support.kafka_oracles import NEWER, ORACLES, WITHOUT_KAFKA_PYTHON, WITHOUT_KIO, declared_here
from tests.support.kafka_values import MESSAGES, random_value, without_absent


def test_every_message_has_an_oracle_and_nearly_every_one_has_both() -> None:
    unknown = {name: {message for message in MESSAGES if not oracle.knows(message)} for name, oracle in ORACLES.items()}
    newer = {message for message in MESSAGES if (message.api.name, message.version) in NEWER}
    assert len(newer) == 2 * len(NEWER)
    assert {(message.api.name, message.version) for message in unknown["kio"] - newer} == WITHOUT_KIO
    assert {message.api.name for message in unknown["kafka-python"] - newer} == WITHOUT_KAFKA_PYTHON
    assert unknown["kio"] & unknown["kafka-python"] == newer


@pytest.mark.parametrize("name", ORACLES)
def test_both_write_the_same_bytes_and_each_reads_them_as_the_value(name: str) -> None:
    oracle = ORACLES[name]
    for message, seed in product(filter(oracle.knows, MESSAGES), seeds(30)):
        value = random_value(message.cls, message.version, Random(seed), oracle.choose)
        theirs = oracle.encode(message, value)
        assert b"".join(codec.write(value, message.version, flexible=message.flexible)) == theirs, message
        assert oracle.decode(message, theirs) == value, message
        read = codec.read(message.cls, message.version, memoryview(theirs), flexible=message.flexible)
        assert read == (value, len(theirs)), message


@pytest.mark.parametrize("name", ORACLES)
def test_fields_are_declared_as_in_kafkas_schema(name: str) -> None:
    oracle = ORACLES[name]
    for message in filter(oracle.knows, MESSAGES):
        assert declared_here(message.cls, message.version) == oracle.declared(message), message


def test_fields_that_a_version_lacks_are_left_out_and_read_as_their_defaults() -> None:
    for message, seed in product(MESSAGES, seeds(30)):
        value = random_value(message.cls, message.version, Random(seed), absent_too=True)
        data = b"".join(codec.write(value, message.version, flexible=message.flexible))
        read = codec.read(message.cls, message.version, memoryview(data), flexible=message.flexible)
        assert read == (without_absent(value, message.version), len(data)), message
