"""Records of share groups' state: bytes that Apache Kafka 4.3.1's generated classes wrote, damage."""

from __future__ import annotations

from typing import Final

import pytest
from triolog.protocol.coordinator import share_group_records
from triolog.protocol.errors import InvalidRecordError

PLACE: Final = {"group_id": "group", "topic_id": bytes(range(16)), "partition": 3}
SNAPSHOT: Final = share_group_records.ShareSnapshotKey(**PLACE)  # type: ignore[arg-type]
UPDATE: Final = share_group_records.ShareUpdateKey(**PLACE)  # type: ignore[arg-type]

KEYS: Final[list[tuple[share_group_records.ShareStateKey, str]]] = [
    (SNAPSHOT, "0000000567726f7570000102030405060708090a0b0c0d0e0f00000003"),
    (UPDATE, "0001000567726f7570000102030405060708090a0b0c0d0e0f00000003"),
]
VALUES: Final[list[tuple[share_group_records.ShareStateKey, share_group_records.ShareStateValue, str]]] = [
    (
        SNAPSHOT,
        share_group_records.ShareSnapshotValue(
            snapshot_epoch=2,
            state_epoch=5,
            leader_epoch=1,
            start_offset=100,
            delivery_complete_count=7,
            create_timestamp=11,
            write_timestamp=12,
            state_batches=[
                share_group_records.ShareStateBatch(first_offset=101, last_offset=107, delivery_state=2, delivery_count=1)
            ],
        ),
        "00000000000200000005000000010000000000000064000000000000000b000000000000000c020000000000000065000000000000006b020001"
        "0001000400000007",
    ),
    (
        SNAPSHOT,
        share_group_records.ShareSnapshotValue(
            snapshot_epoch=0,
            state_epoch=0,
            leader_epoch=0,
            start_offset=-1,
            create_timestamp=11,
            write_timestamp=12,
            state_batches=[],
        ),
        "0000000000000000000000000000ffffffffffffffff000000000000000b000000000000000c0100",
    ),
    (
        UPDATE,
        share_group_records.ShareUpdateValue(
            snapshot_epoch=2,
            leader_epoch=1,
            start_offset=-1,
            delivery_complete_count=0,
            state_batches=[
                share_group_records.ShareStateBatch(first_offset=1, last_offset=1, delivery_state=4, delivery_count=5)
            ],
        ),
        "00000000000200000001ffffffffffffffff02000000000000000100000000000000010400050001000400000000",
    ),
]


def test_keys_are_those_that_kafka_writes_and_others_are_left_alone() -> None:
    for key, written in KEYS:
        assert share_group_records.SHARE_STATE_RECORDS.encode_key(key).hex() == written
        assert share_group_records.SHARE_STATE_RECORDS.decode_key(bytes.fromhex(written)) == key
    assert share_group_records.SHARE_STATE_RECORDS.decode_key(b"\x00\x02whatever a newer program writes") is None


@pytest.mark.parametrize(("key", "value", "written"), VALUES, ids=lambda each: type(each).__name__)
def test_values_are_those_that_kafka_writes(
    key: share_group_records.ShareStateKey, value: share_group_records.ShareStateValue, written: str
) -> None:
    assert share_group_records.SHARE_STATE_RECORDS.encode_value(value).hex() == written
    assert share_group_records.SHARE_STATE_RECORDS.decode_value(key, bytes.fromhex(written)) == value


@pytest.mark.parametrize(("key", "value", "written"), VALUES, ids=lambda each: type(each).__name__)
def test_a_value_that_is_cut_or_longer_or_of_a_newer_program_is_refused(
    key: share_group_records.ShareStateKey, value: share_group_records.ShareStateValue, written: str
) -> None:
    data = bytes.fromhex(written)
    for size in range(len(data)):
        with pytest.raises(InvalidRecordError):
            share_group_records.SHARE_STATE_RECORDS.decode_value(key, data[:size])
    with pytest.raises(InvalidRecordError, match="ends at position"):
        share_group_records.SHARE_STATE_RECORDS.decode_value(key, data + b"\0")
    with pytest.raises(InvalidRecordError, match="newer program"):
        share_group_records.SHARE_STATE_RECORDS.decode_value(key, b"\0\1" + data[2:])
