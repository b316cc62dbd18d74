from __future__ import annotations

import pytest
from confluent_kafka import KafkaError
from triolog.tools.forward.upstream import connection
from triolog.tools.forward.upstream.connection import Verdict, judge, words


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (KafkaError._FENCED, Verdict.FENCED),
        (KafkaError.INVALID_PRODUCER_EPOCH, Verdict.FENCED),
        (KafkaError.MSG_SIZE_TOO_LARGE, Verdict.REFUSED),
        (KafkaError.INVALID_RECORD, Verdict.REFUSED),
        (KafkaError.INVALID_TIMESTAMP, Verdict.REFUSED),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Verdict.TOPIC),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, Verdict.TOPIC),
        (KafkaError._UNKNOWN_PARTITION, Verdict.TOPIC),
        (KafkaError._TRANSPORT, Verdict.AGAIN),
        (KafkaError._AUTHENTICATION, Verdict.AGAIN),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, Verdict.AGAIN),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Verdict.AGAIN),
    ],
)
def test_a_code_has_its_verdict(code: int, expected: Verdict) -> None:
    assert judge(code) is expected


def test_numbers_are_those_of_the_library_and_an_error_is_one_line() -> None:
    assert {KafkaError._PURGE_INFLIGHT, KafkaError._PURGE_QUEUE} == connection.PURGED
    assert {KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE} <= connection.HOPELESS
    unknown = {connection.LOCAL_UNKNOWN_TOPIC, connection.LOCAL_UNKNOWN_PARTITION}
    assert {KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION} == unknown
    error = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, "not\n  allowed")
    assert words(error) == "not allowed (GROUP_AUTHORIZATION_FAILED)"
