"""The native calls on client quotas: values in, values out."""

from __future__ import annotations

from ....protocol.errors import InvalidRequestError, RequestError
from ....protocol.native import messages
from ...broker import Broker, QuotaEntity, check_quota, checked_entity
from ...loop.procedures import in_turns


async def describe_quotas(broker: Broker, message: messages.DescribeQuotasRequest) -> messages.DescribeQuotasResponse:
    found = [
        messages.Quota(
            tuple(messages.QuotaPart(*part) for part in entity), tuple(messages.QuotaValue(*each) for each in values.items())
        )
        async for entity, values in in_turns(list(broker.security.client_quotas().items()))
    ]
    return messages.DescribeQuotasResponse(tuple(found))


async def alter_quotas(broker: Broker, message: messages.AlterQuotasRequest) -> messages.AlterQuotasResponse:
    """All changes that are right are made together; in effect, and on the device, when this returns."""
    changes: dict[QuotaEntity, dict[str, float | None]] = {}
    answers: list[messages.AlteredQuota] = []
    async for quota in in_turns(message.changes):
        error = None
        try:
            entity = checked_entity((each.type, each.name) for each in quota.entity)
            if entity in changes:
                raise InvalidRequestError("an entity is there more than once")
            changes[entity] = _checked(entity, quota)
        except RequestError as exc:
            error = exc.as_answer()
        answers.append(messages.AlteredQuota(quota.entity, error))
    if changes:
        await broker.security.alter_client_quotas(changes)
    return messages.AlterQuotasResponse(tuple(answers))


def _checked(entity: QuotaEntity, quota: messages.Quota) -> dict[str, float | None]:
    values = {each.key: each.value for each in quota.values}
    if len(values) < len(quota.values):
        raise InvalidRequestError("a key is there more than once")
    for key, value in values.items():
        if value is not None:
            check_quota(entity, key, value)
    return values
