"""DescribeClientQuotas and AlterClientQuotas: what Kafka 4.3.1 takes and refuses, and what is there afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest
from triolog.protocol.errors import ErrorCode

from tests.support import kafka_quotas as quotas
from tests.support.kafka_quotas import ADDRESS, ANY, CONNECTIONS, EXACT, PRODUCED, USER, altered, altering, asking, described
from tests.support.kafka_server import KafkaServer, kafka_server
from tests.support.kafka_stream import KafkaStream

DEFAULTS: quotas.Parts = [("user", None), ("client-id", None)]
STORED: list[tuple[quotas.Parts, quotas.Values]] = [
    (USER, [(PRODUCED, 1.0), (quotas.FETCHED, 2.0)]),
    (quotas.BOTH, [(quotas.PERCENT, 0.5)]),
    (DEFAULTS, [(quotas.MUTATIONS, 3.0)]),
    (ADDRESS, [(CONNECTIONS, 4.0)]),
]
NAMES = {"user": USER, "both": quotas.BOTH, "defaults": DEFAULTS, "address": ADDRESS}


async def found(client: KafkaStream, *components: tuple[str, int, str | None], strict: bool = False) -> set[str]:
    """Which of the stored entities are described."""
    answer = await client.call(asking(*components, strict=strict), 1)
    code, entries = described(answer)
    assert code == "NONE"
    by_parts = {frozenset(parts): name for name, parts in NAMES.items()}
    return {by_parts[each] for each in entries or ()}


@pytest.mark.parametrize("version", range(2))
async def test_quotas_are_described_as_they_were_set_also_after_a_restart(fast_path: Path, version: int) -> None:
    expected = "NONE", {frozenset(parts): dict(values) for parts, values in STORED}
    async with kafka_server(fast_path) as kafka, kafka.connected() as client:
        assert described(await client.call(asking(), version)) == ("NONE", None)
        assert set(altered(await client.call(altering(*STORED), version)).values()) == {"NONE"}
        assert described(await client.call(asking(), version)) == expected
    async with kafka_server(fast_path) as kafka, kafka.connected() as client:
        assert described(await client.call(asking(), version)) == expected
        assert kafka.broker.security.quotas.is_active
        await client.call(altering(*((parts, [(key, None) for key, _ in values]) for parts, values in STORED)), version)
        assert described(await client.call(asking(), version)) == ("NONE", None)
        assert not kafka.broker.security.quotas.is_active


DESCRIBED: list[tuple[quotas.Components, list[str], list[str]]] = [
    ([], ["user", "both", "defaults", "address"], []),
    ([("user", ANY, None)], ["user", "both", "defaults"], ["user"]),
    ([("user", EXACT, "u")], ["user", "both"], ["user"]),
    ([("user", quotas.DEFAULT, None)], ["defaults"], []),
    ([("client-id", ANY, None)], ["both", "defaults"], []),
    ([("client-id", EXACT, "other")], [], []),
    ([("user", ANY, None), ("client-id", EXACT, "c")], ["both"], ["both"]),
    ([("ip", ANY, None)], ["address"], ["address"]),
    ([("ip", EXACT, "1.2.3.4")], ["address"], ["address"]),
    ([("ip", quotas.DEFAULT, None)], [], []),
]
"""What is asked for -> which of the stored entities are described, loosely and strictly."""


async def test_entities_are_described_that_have_what_is_asked_for(client: KafkaStream) -> None:
    await client.call(altering(*STORED), 1)
    for components, loosely, strictly in DESCRIBED:
        assert await found(client, *components) == set(loosely), components
        assert await found(client, *components, strict=True) == set(strictly), components


SENSELESS: list[tuple[quotas.Components, str]] = [
    ([("group", EXACT, "x")], "UNSUPPORTED_VERSION"),
    ([("", EXACT, "x")], "INVALID_REQUEST"),
    ([("user", 7, "x")], "INVALID_REQUEST"),
    ([("user", EXACT, None)], "INVALID_REQUEST"),
    ([("user", quotas.DEFAULT, "x")], "INVALID_REQUEST"),
    ([("user", ANY, None), ("user", ANY, None)], "INVALID_REQUEST"),
    ([("user", ANY, None), ("ip", ANY, None)], "INVALID_REQUEST"),
]


async def test_a_question_that_makes_no_sense_is_refused(client: KafkaStream) -> None:
    for components, error in SENSELESS:
        answer = await client.call(asking(*components), 1)
        assert (ErrorCode(answer.error_code).name, answer.entries) == (error, None), components
        assert answer.error_message, components


NO_QUOTAS: list[tuple[quotas.Parts, quotas.Values]] = [
    ([], [(PRODUCED, 1.0)]),
    ([("group", "x")], [(PRODUCED, 1.0)]),
    ([("group", "x")], [(PRODUCED, None)]),
    ([("user", "")], [(PRODUCED, 1.0)]),
    ([("ip", "1.2.3.4"), ("user", "u")], [(CONNECTIONS, 1.0)]),
    ([("ip", "localhost")], [(CONNECTIONS, 1.0)]),
    (ADDRESS, [(PRODUCED, 1.0)]),
    (USER, [(CONNECTIONS, 1.0)]),
    (USER, [("bogus", 1.0)]),
    (USER, [("SCRAM-SHA-256", 1.0)]),
    (USER, [(PRODUCED, 0.0)]),
    (USER, [(quotas.PERCENT, -1.0)]),
    (USER, [(PRODUCED, 0.5)]),
    (USER, [(quotas.FETCHED, 1e300)]),
    (USER, [(quotas.PERCENT, float("nan"))]),
    (ADDRESS, [(CONNECTIONS, 2.0**31)]),
    (USER, [(PRODUCED, 1.0), ("bogus", 1.0)]),
    (USER, [(PRODUCED, 1.0), (PRODUCED, 2.0)]),
]


async def test_what_cannot_be_a_quota_is_refused_and_changes_nothing(client: KafkaStream) -> None:
    beside: quotas.Parts = [("user", "beside")]
    for parts, values in NO_QUOTAS:
        answer = await client.call(altering((parts, values), (beside, [(PRODUCED, 9.0)])), 1)
        assert altered(answer) == {frozenset(parts): "INVALID_REQUEST", frozenset(beside): "NONE"}, values
        assert described(await client.call(asking(), 1)) == ("NONE", {frozenset(beside): {PRODUCED: 9.0}}), values


async def test_an_entity_named_twice_is_refused_once_of_a_type_named_twice_the_last_name_counts(
    client: KafkaStream,
) -> None:
    answer = await client.call(
        altering((quotas.TWICE, [(PRODUCED, 5.0)]), (USER, [(PRODUCED, 1.0)]), (quotas.TWICE, [(quotas.FETCHED, 6.0)])), 1
    )
    assert altered(answer) == {frozenset(quotas.TWICE): "INVALID_REQUEST", frozenset(USER): "NONE"}
    assert len(answer.entries) == 2
    assert described(await client.call(asking(), 1)) == ("NONE", {frozenset(USER): {PRODUCED: 1.0}})
    answer = await client.call(altering(([("user", "a"), ("user", "b")], [(PRODUCED, 1.0)])), 1)
    assert altered(answer) == {frozenset({("user", "b")}): "NONE"}


async def test_to_remove_what_is_not_there_is_fine(client: KafkaStream) -> None:
    answer = await client.call(altering((USER, [("bogus", None), (PRODUCED, None)]), (ADDRESS, [])), 1)
    assert set(altered(answer).values()) == {"NONE"}


async def test_a_change_that_is_only_validated_is_not_made(client: KafkaStream) -> None:
    bodies = [(USER, [(PRODUCED, 1.0)]), (quotas.BOTH, [(PRODUCED, 0.0)])]
    answer = await client.call(altering(*bodies, validate_only=True), 1)
    assert list(altered(answer).values()) == ["NONE", "INVALID_REQUEST"]
    assert described(await client.call(asking(), 1)) == ("NONE", None)


async def test_changes_of_several_clients_at_once_are_all_kept(kafka: KafkaServer, client: KafkaStream) -> None:
    async with kafka.connected() as other:
        await client.send(altering((USER, [(PRODUCED, 1.0)])), 1)
        await other.send(altering((USER, [(quotas.FETCHED, 2.0)])), 1)
        await client.receive()
        await other.receive()
    assert described(await client.call(asking(), 1)) == ("NONE", {frozenset(USER): {PRODUCED: 1.0, quotas.FETCHED: 2.0}})
