"""The calls on client quotas: `describe_quotas`, `alter_quotas`. Whom they are for is in KIP-546."""

from __future__ import annotations

from typing import Final

from ... import limits
from ...errors import RequestError
from ..declaration import wire
from ..kinds import ERROR, NUMBER, name, note
from ..structs import RequestMessage, ResponseMessage, Struct, struct

MAX_PARTS: Final = 3
"""Above what an entity may have; which parts go together the server says."""
MAX_VALUES: Final = 100
MAX_KEY_CHARS: Final = 255


@struct
class QuotaPart(Struct):
    """`type` is `user`, `client-id` or `ip`; `name` None is the default of all that have no quota of their own."""

    type: str = wire(name(MAX_KEY_CHARS))
    name: str | None = wire(note())


@struct
class QuotaValue(Struct):
    """One limit, such as `producer_byte_rate`; to be removed when `value` is None."""

    key: str = wire(name(MAX_KEY_CHARS))
    value: float | None = wire(NUMBER, nullable=True)


@struct
class Quota(Struct):
    """What an entity is limited to, or which of its limits are to change."""

    entity: tuple[QuotaPart, ...] = wire([QuotaPart], max_count=MAX_PARTS)
    values: tuple[QuotaValue, ...] = wire([QuotaValue], max_count=MAX_VALUES)


@struct
class DescribeQuotasRequest(RequestMessage):
    """All quotas there are."""

    api = "describe_quotas"


@struct
class DescribeQuotasResponse(ResponseMessage):
    """By entity; nothing for one without a limit."""

    api = "describe_quotas"

    quotas: tuple[Quota, ...] = wire([Quota], max_count=limits.INT32_MAX)


@struct
class AlterQuotasRequest(RequestMessage):
    """Limits to set and to remove; each entity succeeds or fails alone, and is named once."""

    api = "alter_quotas"

    changes: tuple[Quota, ...] = wire([Quota])


@struct
class AlteredQuota(Struct):
    """What became of one entity's change."""

    entity: tuple[QuotaPart, ...] = wire([QuotaPart], max_count=MAX_PARTS)
    error: RequestError | None = wire(ERROR, default=None)


@struct
class AlterQuotasResponse(ResponseMessage):
    """One entry per change, in the same order."""

    api = "alter_quotas"

    entities: tuple[AlteredQuota, ...] = wire([AlteredQuota])
