"""DescribeClientQuotas and AlterClientQuotas. What they lead to is in `server.access.quotas`. Source: ClientQuotasImage,
ClientQuotaControlManager, KIP-546."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from ....protocol.errors import InvalidRequestError, RequestError, UnsupportedVersionError
from ....protocol.kafka.messages.security import (
    AlterClientQuotasEntryData,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
    DescribeClientQuotasComponentData,
    DescribeClientQuotasEntryData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeClientQuotasValueData,
    QuotaEntityData,
)
from ...broker import ENTITY_TYPES, IP, QuotaEntity, check_quota, checked_entity
from ...loop.procedures import in_turns
from .door import Call, error_code, error_message

EXACT: Final = 0
DEFAULT: Final = 1
ANY: Final = 2
"""Types of matches."""
ENTITIES_PER_TURN: Final = 256
"""That are compared before others have their turn."""

Values = Mapping[str, float | None]
"""By key; None: to be removed."""
Named = tuple[tuple[str, str | None], ...]
"""An entity as it is named in a request, which may be wrong."""


# ---- DescribeClientQuotas --------------------------------------------------------------------------------------------------


async def describe_client_quotas(call: Call, body: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    """The quotas of all entities that have every part asked for, and no others if that is `strict`."""
    try:
        _check_filter(body.components)
    except RequestError as exc:
        return DescribeClientQuotasResponse(error_code=exc.code, error_message=exc.message, entries=None)
    found = [
        _entry(entity, values)
        async for entity, values in in_turns(list(call.broker.security.client_quotas().items()), ENTITIES_PER_TURN)
        if _matches(dict(entity), body)
    ]
    return DescribeClientQuotasResponse(error_message="", entries=found)


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


def _matches(parts: Mapping[str, str | None], body: DescribeClientQuotasRequest) -> bool:
    if body.strict and len(parts) != len(body.components):
        return False
    return all(
        each.entity_type in parts and (each.match_type == ANY or parts[each.entity_type] == each.match)
        for each in body.components
    )


def _entry(entity: QuotaEntity, values: Mapping[str, float]) -> DescribeClientQuotasEntryData:
    return DescribeClientQuotasEntryData(
        entity=[QuotaEntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        values=[DescribeClientQuotasValueData(key=key, value=value) for key, value in values.items()],
    )


# ---- AlterClientQuotas -----------------------------------------------------------------------------------------------------


async def alter_client_quotas(call: Call, body: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    """All changes of an entity are made, or none; in effect, and on the device, when this is answered. There is one answer for
    each entity, however often it is named."""
    counts = Counter([_named(entry) async for entry in in_turns(body.entries)])
    changes: dict[QuotaEntity, Values] = {}
    errors: dict[Named, RequestError | None] = {}
    async for entry in in_turns(body.entries):
        named = _named(entry)
        try:
            entity, values = _checked(entry, is_repeated=counts[named] > 1)
            changes[entity], errors[named] = values, None
        except RequestError as exc:
            errors[named] = exc.as_answer()
    if changes and not body.validate_only:
        try:
            await call.broker.security.alter_client_quotas(changes)
        except RequestError as exc:
            errors = {named: error or exc.as_answer() for named, error in errors.items()}
    return AlterClientQuotasResponse(entries=[_answered(named, error) for named, error in errors.items()])


def _named(entry: AlterClientQuotasEntryData) -> Named:
    return tuple(sorted({each.entity_type: each.entity_name for each in entry.entity}.items()))


def _checked(entry: AlterClientQuotasEntryData, *, is_repeated: bool) -> tuple[QuotaEntity, Values]:
    values = {op.key: None if op.remove else op.value for op in entry.ops}
    if is_repeated or len(values) < len(entry.ops):
        raise InvalidRequestError("an entity, or one of its keys, is there more than once")
    entity = checked_entity((each.entity_type, each.entity_name) for each in entry.entity)
    for key, value in values.items():
        if value is not None:
            check_quota(entity, key, value)
    return entity, values


def _answered(named: Named, error: RequestError | None) -> AlterClientQuotasResponseEntryData:
    return AlterClientQuotasResponseEntryData(
        error_code=error_code(error),
        error_message=error_message(error),
        entity=[QuotaEntityData(entity_type=kind, entity_name=name) for kind, name in named],
    )
