"""DescribeClientQuotas and AlterClientQuotas: there are none, and nobody is told otherwise."""

from __future__ import annotations

import pytest
from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.messages.admin.quotas import (
    AlterClientQuotasEntityData,
    AlterClientQuotasEntryData,
    AlterClientQuotasOpData,
    AlterClientQuotasRequest,
    DescribeClientQuotasComponentData,
    DescribeClientQuotasRequest,
)

from tests.support.kafka_admin import error_names
from tests.support.kafka_server import KafkaServer
from tests.support.kafka_stream import KafkaStream

EXACT, DEFAULT, ANY = range(3)
Component = tuple[str, int, str | None]


def asking(*components: Component) -> DescribeClientQuotasRequest:
    asked = [
        DescribeClientQuotasComponentData(entity_type=kind, match_type=match_type, match=match)
        for kind, match_type, match in components
    ]
    return DescribeClientQuotasRequest(components=asked, strict=False)


@pytest.mark.parametrize("version", range(2))
@pytest.mark.parametrize(
    "components",
    [
        [],
        [("user", EXACT, "alice")],
        [("user", ANY, None), ("client-id", DEFAULT, None)],
        [("ip", EXACT, "127.0.0.1")],
    ],
    ids=str,
)
async def test_there_are_no_quotas(kafka: KafkaServer, client: KafkaStream, version: int, components: list[Component]) -> None:
    answer = await client.call(asking(*components), version)
    assert (answer.error_code, answer.entries) == (0, [])


@pytest.mark.parametrize(
    ("components", "error"),
    [
        ([("group", EXACT, "x")], "UNSUPPORTED_VERSION"),
        ([("", EXACT, "x")], "INVALID_REQUEST"),
        ([("user", 7, "x")], "INVALID_REQUEST"),
        ([("user", EXACT, None)], "INVALID_REQUEST"),
        ([("user", DEFAULT, "x")], "INVALID_REQUEST"),
        ([("user", ANY, None), ("user", ANY, None)], "INVALID_REQUEST"),
        ([("user", ANY, None), ("ip", ANY, None)], "INVALID_REQUEST"),
    ],
    ids=str,
)
async def test_a_question_that_makes_no_sense_is_refused(
    kafka: KafkaServer, client: KafkaStream, components: list[Component], error: str
) -> None:
    answer = await client.call(asking(*components), 1)
    assert (ErrorCode(answer.error_code).name, answer.entries) == (error, None)
    assert answer.error_message


@pytest.mark.parametrize("version", range(2))
async def test_a_quota_can_be_removed_and_not_be_set(kafka: KafkaServer, client: KafkaStream, version: int) -> None:
    cases: list[tuple[list[tuple[str, str | None]], list[tuple[str, bool]], str]] = [
        ([("user", "alice")], [("producer_byte_rate", True)], "NONE"),
        ([("user", "alice")], [], "NONE"),
        ([("user", None), ("client-id", "app")], [("producer_byte_rate", False)], "UNSUPPORTED_VERSION"),
        ([("group", "x")], [("producer_byte_rate", True)], "INVALID_REQUEST"),
        ([], [("producer_byte_rate", True)], "INVALID_REQUEST"),
    ]
    entries = [
        AlterClientQuotasEntryData(
            entity=[AlterClientQuotasEntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            ops=[AlterClientQuotasOpData(key=key, value=1.0, remove=remove) for key, remove in ops],
        )
        for entity, ops, _ in cases
    ]
    answer = await client.call(AlterClientQuotasRequest(entries=entries, validate_only=False), version)
    assert error_names(answer.entries) == [error for _, _, error in cases]
    assert [[(each.entity_type, each.entity_name) for each in entry.entity] for entry in answer.entries] == [
        entity for entity, _, _ in cases
    ]
