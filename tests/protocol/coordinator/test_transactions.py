"""Records of `__transaction_state`: bytes that Apache Kafka 4.1.0's generated classes wrote, damage.

`fuzzing/test_replay.py` writes and reads again what the same decoders have read."""

from __future__ import annotations

import attrs
import pytest
from triolog.protocol.coordinator import transactions
from triolog.protocol.errors import InvalidRecordError
from triolog.protocol.types import TopicPartition

KEY = "000000056d6f766572"
EMPTY = transactions.TransactionLogValue(producer_id=1000, producer_epoch=2, timeout_ms=60000, last_update_ms=1700000000000)
ONGOING = transactions.TransactionLogValue(
    producer_id=1000,
    producer_epoch=2,
    timeout_ms=60000,
    state=transactions.TransactionState.ONGOING,
    partitions=frozenset({TopicPartition("b", 1), TopicPartition("a", 3), TopicPartition("a", 0)}),
    last_update_ms=1700000000001,
    start_ms=1700000000000,
)
TAGGED = attrs.evolve(
    ONGOING,
    state=transactions.TransactionState.COMPLETE_COMMIT,
    partitions=frozenset(),
    previous_producer_id=999,
    next_producer_id=1001,
    client_version=2,
)
EMPTY_V0 = "000000000000000003e800020000ea6000ffffffff0000018bcfe56800ffffffffffffffff"
ONGOING_V0 = (
    "000000000000000003e800020000ea60010000000200016100000002000000000000000300016200000001000000010000018bcfe56801"
    "0000018bcfe56800"
)
EMPTY_V1 = "000100000000000003e800020000ea6000000000018bcfe56800ffffffffffffffff00"
ONGOING_V1 = "000100000000000003e800020000ea60010302610300000000000000030002620200000001000000018bcfe568010000018bcfe5680000"
TAGGED_V1 = (
    "000100000000000003e800020000ea6004010000018bcfe568010000018bcfe5680003000800000000000003e7010800000000000003e902020002"
)


def test_the_key_has_the_bytes_that_kafka_writes() -> None:
    assert transactions.encode_transaction_key("mover").hex() == KEY
    assert transactions.decode_transaction_key(bytes.fromhex(KEY)) == "mover"
    assert transactions.decode_transaction_key(bytes.fromhex("0001aabb")) is None, "another kind is left alone"


@pytest.mark.parametrize(("value", "data"), [(EMPTY, EMPTY_V0), (ONGOING, ONGOING_V0), (TAGGED, TAGGED_V1)])
def test_the_value_has_the_bytes_that_kafka_writes(value: transactions.TransactionLogValue, data: str) -> None:
    assert value.encode().hex() == data


WRITTEN = [(EMPTY_V0, EMPTY), (ONGOING_V0, ONGOING), (EMPTY_V1, EMPTY), (ONGOING_V1, ONGOING), (TAGGED_V1, TAGGED)]


@pytest.mark.parametrize(("data", "expected"), WRITTEN)
def test_both_versions_of_the_value_are_read(data: str, expected: transactions.TransactionLogValue) -> None:
    assert transactions.decode_transaction_value(bytes.fromhex(data)) == expected


@pytest.mark.parametrize(("data", "_"), WRITTEN)
def test_a_value_cut_anywhere_or_too_long_is_refused(data: str, _: object) -> None:
    whole = bytes.fromhex(data)
    for damaged in [*(whole[:size] for size in range(len(whole))), whole + b"\0"]:
        with pytest.raises(InvalidRecordError):
            transactions.decode_transaction_value(damaged)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("0002", "version 2"),
        (EMPTY_V0.replace("ea6000", "ea6006", 1), "state is 6"),
        (EMPTY_V0.replace("ffffffff", "7fffffff", 1), "claims 2147483647 elements"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_before_anything_is_allocated(data: str, why: str) -> None:
    with pytest.raises(InvalidRecordError, match=why):
        transactions.decode_transaction_value(bytes.fromhex(data))
