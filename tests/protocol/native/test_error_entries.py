from __future__ import annotations

import pytest
from hypothesis import given
from triolog.protocol import errors
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.native.kinds import FieldError, decode_error, encode_error

from tests.support.native_messages import ERRORS, MSGPACK_VALUES


@given(error=ERRORS)
def test_round_trip_keeps_code_and_message(error: RequestError | None) -> None:
    entry = encode_error(error)
    assert error == decode_error(None if entry is None else list(entry))


@pytest.mark.parametrize(
    "error",
    [
        errors.CorruptRecordError("m"),
        errors.OffsetOutOfRangeError("m"),
        errors.UnknownTopicOrPartitionError("m"),
        errors.TopicAlreadyExistsError("m"),
        errors.RequestTimedOutError("m"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_client_gets_the_class_that_the_server_raised(error: RequestError) -> None:
    entry = encode_error(error)
    assert entry is not None
    assert type(decode_error(list(entry))) is type(error)


def test_code_of_a_newer_server_becomes_unknown_server_error_and_stays_readable() -> None:
    error = decode_error([9999, "FROM_THE_FUTURE", "no idea"])
    assert error is not None
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert str(error) == "UNKNOWN_SERVER_ERROR: no idea (error 9999 FROM_THE_FUTURE, unknown to this client)"


@given(entry=MSGPACK_VALUES)
def test_anything_else_is_refused_with_its_type(entry: object) -> None:
    if entry is None or (isinstance(entry, list) and [type(part) for part in entry] == [int, str, str]):
        decode_error(entry)
    else:
        with pytest.raises(FieldError, match=r"error is .*, expected nil or"):
            decode_error(entry)
