"""Subscriptions to clients' metrics (KIP-714): what Kafka 4.3.1 takes and refuses, and what is there afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest
from triolog.protocol.errors import InvalidConfigError
from triolog.server.config.client_metrics_keys import MATCHED, subscription

from tests.support.client_metrics import ALTERATIONS, DESCRIPTIONS, altered, altering, described, describing, setting
from tests.support.kafka_server import kafka_server

INVALID, WRONG = "INVALID_REQUEST", "INVALID_CONFIG"
ANSWERS = [
    *("NONE", "NONE", WRONG, WRONG, WRONG, "NONE"),
    *(INVALID, "NONE", INVALID, WRONG, INVALID, WRONG, WRONG, WRONG, WRONG, "NONE", WRONG),
    *("NONE", INVALID, "NONE", "NONE", "NONE", "NONE"),
]


async def test_what_is_taken_and_refused_is_what_kafka_does(fast_path: Path) -> None:
    async with kafka_server(fast_path, lenient=False) as kafka, kafka.connected() as client:
        assert [altered(await client.call(body, 1)) for body in ALTERATIONS] == [[name] for name in ANSWERS]
        found = [described(await client.call(body, version)) for body, version in DESCRIPTIONS]
    assert found[0] == [
        ("NONE", [("interval.ms", "300000", 5), ("match", "", 5), ("metrics", "org.apache.kafka.producer.,x", 7)])
    ]
    assert found[2] == [("NONE", [("metrics", "org.apache.kafka.producer.,x", 7)])]
    assert found[3] == [(INVALID, [])]
    assert found[4] == found[5] == [(16, name) for name in ("empty", "last", "some", "wrong")]


async def test_a_subscription_is_there_after_a_restart_until_its_keys_are_deleted(fast_path: Path) -> None:
    expected = [("NONE", [("interval.ms", "1000", 7), ("match", "", 5), ("metrics", "*", 7)])]
    async with kafka_server(fast_path) as kafka, kafka.connected() as client:
        await client.call(setting("all", metrics="*", interval_ms="1000"), 1)
        assert described(await client.call(describing("all"), 4)) == expected
    async with kafka_server(fast_path) as kafka, kafka.connected() as client:
        assert described(await client.call(describing("all"), 4)) == expected
        assert list(kafka.broker.client_metrics.subscriptions) == ["all"]
        await client.call(altering("all", ("metrics", 1, None), ("interval.ms", 1, None)), 1)
        assert kafka.broker.client_metrics.subscriptions == {}


def test_a_client_is_chosen_by_all_its_parts_that_are_asked_for() -> None:
    wanted = subscription({"match": "client_id=a.*, client_software_name=librdkafka"})
    assert wanted.matches({"client_id": "abc", "client_software_name": "librdkafka"})
    assert not wanted.matches({"client_id": "abc", "client_software_name": "java"})
    assert not wanted.matches({"client_id": "xabc", "client_software_name": "librdkafka"}), "the whole of a part has to match"
    assert not wanted.matches({})
    assert subscription({}).matches({})
    assert {part for part in MATCHED if subscription({"match": f"{part}=1"}).matches({part: "1"})} == set(MATCHED)


def test_an_expression_has_a_limit() -> None:
    with pytest.raises(InvalidConfigError, match="Illegal client matching pattern"):
        subscription({"match": f"client_id={'a' * 256}"})
