"""Control records: what is accepted as one, and what the types are."""

from __future__ import annotations

import pytest
from triolog.protocol.errors import InvalidRecordError
from triolog.protocol.records.control import ControlRecordType, control_record_type, coordinator_epoch


def test_a_known_type_is_read_from_the_key_also_of_a_later_version_and_a_longer_one() -> None:
    for control_type in (member for member in ControlRecordType if member >= 0):
        assert control_record_type(bytes((0, 0, 0, control_type))) is control_type
    for key in ("00000007", "00007fff", "0000ffff"):
        assert control_record_type(bytes.fromhex(key)) is ControlRecordType.UNKNOWN
    assert control_record_type(bytes.fromhex("7fff0001ffff")) is ControlRecordType.COMMIT
    assert coordinator_epoch(bytes.fromhex("000900000007ff")) == 7


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", bytes.fromhex("ffff0000")])
def test_a_short_key_or_a_negative_version_is_invalid(key: bytes | None) -> None:
    with pytest.raises(InvalidRecordError, match="control record key"):
        control_record_type(key)


@pytest.mark.parametrize("value", [None, b"", bytes(5), bytes.fromhex("ffff00000000")])
def test_a_short_value_or_a_negative_version_of_it_is_invalid(value: bytes | None) -> None:
    with pytest.raises(InvalidRecordError, match="end transaction marker value"):
        coordinator_epoch(value)
