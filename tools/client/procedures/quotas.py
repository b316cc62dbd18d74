"""Client quotas as generators: requests out, answers in, as in `procedures`."""

from __future__ import annotations

from collections.abc import Mapping

from ....protocol.native.messages import AlterQuotasRequest, DescribeQuotasRequest, Quota, QuotaPart, QuotaValue
from .topics import Procedure, checked

Entity = Mapping[str, str | None]
"""`user`, `client-id` or `ip` -> its name; None is the default."""


def describe_quotas() -> Procedure[list[tuple[dict[str, str | None], dict[str, float]]]]:
    """Every entity that is limited, and to what."""
    response = yield DescribeQuotasRequest()
    return [
        (
            {part.type: part.name for part in quota.entity},
            {each.key: each.value for each in quota.values if each.value is not None},
        )
        for quota in response.quotas
    ]


def alter_quotas(entity: Entity, values: Mapping[str, float | None]) -> Procedure[None]:
    """Set limits of an entity, and remove those that are None; all of them or none. Raises RequestError."""
    parts = tuple(QuotaPart(kind, name) for kind, name in entity.items())
    response = yield AlterQuotasRequest((Quota(parts, tuple(QuotaValue(*each) for each in values.items())),))
    checked(response.entities)


def check_may_change() -> Procedure[None]:
    """Raises CLUSTER_AUTHORIZATION_FAILED unless the user may alter configurations of the server. Changes nothing: a request
    without changes needs the right as any other."""
    response = yield AlterQuotasRequest(())
    checked(response.entities)
