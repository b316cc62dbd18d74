"""DescribeClientQuotas and AlterClientQuotas. There are no quotas: none are described, to remove one is fine, and to set one is
refused, because nothing would be throttled. Source: ClientQuotasImage, ClientQuotaControlManager, KIP-546."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from ....protocol.errors import InvalidRequestError, RequestError, UnsupportedVersionError
from ....protocol.kafka.messages.admin.quotas import (
    AlterClientQuotasEntryData,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
    DescribeClientQuotasComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from ..connections.in_turns import in_turns
from .door import Call, error_code, error_message

IP: Final = "ip"
ENTITY_TYPES: Final = ("user", "client-id", IP)
EXACT: Final = 0
DEFAULT: Final = 1
ANY: Final = 2
"""Types of matches."""


def describe_client_quotas(_call: Call, body: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    """No quotas, if the request is valid."""
    try:
        _check_filter(body.components)
    except RequestError as exc:
        return DescribeClientQuotasResponse(error_code=exc.code, error_message=exc.message, entries=None)
    return DescribeClientQuotasResponse(error_message=None, entries=[])


def _check_filter(components: Sequence[DescribeClientQuotasComponentData]) -> None:
    counts = Counter(component.entity_type for component in components)
    for component in components:
        kind = component.entity_type
        if not kind:
            raise InvalidRequestError("an entity type is empty")
        if kind not in ENTITY_TYPES:
            raise UnsupportedVersionError(f"entity type {kind!r}: there are {', '.join(ENTITY_TYPES)}")
        if counts[kind] > 1:
            raise InvalidRequestError(f"entity type {kind} is there more than once")
        if component.match_type not in (EXACT, DEFAULT, ANY):
            raise InvalidRequestError(f"match type {component.match_type}: 0 is exact, 1 the default, 2 any")
        if (component.match is None) == (component.match_type == EXACT):
            raise InvalidRequestError(f"entity type {kind}: a name belongs to match type 0, exact, and to no other")
    if IP in counts and len(counts) > 1:
        raise InvalidRequestError("addresses are not combined with users and client ids")


async def alter_client_quotas(_call: Call, body: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    """Each entry succeeds or fails alone."""
    return AlterClientQuotasResponse(entries=[_altered(entry) async for entry in in_turns(body.entries)])


def _altered(entry: AlterClientQuotasEntryData) -> AlterClientQuotasResponseEntryData:
    error: RequestError | None = None
    try:
        _check_entry(entry)
    except RequestError as exc:
        error = exc.as_answer()
    return AlterClientQuotasResponseEntryData(
        error_code=error_code(error),
        error_message=error_message(error),
        entity=[
            AlterClientQuotasResponseEntityData(entity_type=each.entity_type, entity_name=each.entity_name)
            for each in entry.entity
        ],
    )


def _check_entry(entry: AlterClientQuotasEntryData) -> None:
    if not entry.entity:
        raise InvalidRequestError("an entry names no user, client id or address")
    for each in entry.entity:
        if each.entity_type not in ENTITY_TYPES:
            raise InvalidRequestError(f"entity type {each.entity_type!r}: there are {', '.join(ENTITY_TYPES)}")
    if keys := [op.key for op in entry.ops if not op.remove]:
        raise UnsupportedVersionError(f"{', '.join(keys)}: there are no quotas here, nothing is throttled")
