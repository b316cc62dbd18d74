"""The calls on connections, clients and the server itself.

`hello` opens a connection and lists the server's calls and limits; `authenticate` logs a user in by SASL, one token a call (RFC
4616, RFC 5802). `list_connections` shows the open connections, `statistics` the server's counters since its start.
`describe_quotas` and `alter_quotas` are about client quotas (KIP-546).
"""

from __future__ import annotations

from typing import Any, Final

from ... import limits
from ...errors import RequestError
from ..kinds import (
    BINARY,
    BOOL,
    ERROR,
    INT32,
    INT64,
    INT64_OR_NONE,
    MAP,
    NUMBER,
    SECRET,
    TEXT,
    Body,
    Kind,
    describe_value,
    integer,
    name,
    names,
    note,
    unexpected,
)
from ..structs import RequestMessage, ResponseMessage, Struct, struct, wire

MAX_SOFTWARE_CHARS: Final = 255
SOFTWARE: Final = name(MAX_SOFTWARE_CHARS)
MAX_MECHANISM_CHARS: Final = 64
MECHANISM: Final = name(MAX_MECHANISM_CHARS)


def _read_apis(apis: dict[str, Any], key: str) -> dict[str, tuple[int, int]]:
    for api, versions in apis.items():
        if type(versions) is not list or [type(version) for version in versions] != [int, int]:
            raise unexpected(f"{key}[{describe_value(api)}]", versions, "[min: int, max: int]")
    return {api: (lowest, highest) for api, (lowest, highest) in apis.items()}


APIS: Final = Kind(expected="map", test="type({v}) is dict", read=_read_apis)


@struct
class HelloRequest(RequestMessage):
    """The first request of a connection. `client_id` names the client in logs and quotas, `software` its library."""

    client_id: str = wire(name(limits.MAX_CLIENT_ID_CHARS))
    software: str | None = wire(note(MAX_SOFTWARE_CHARS), default=None)


@struct
class HelloResponse(ResponseMessage):
    """The server, its calls as `{name: (min version, max version)}`, the limits a client keeps to, and how users log in; with
    no mechanisms nobody does."""

    server: str = wire(SOFTWARE)
    version: str = wire(SOFTWARE)
    node_id: int = wire(INT32)
    cluster_id: str = wire(SOFTWARE)
    apis: dict[str, tuple[int, int]] = wire(APIS)
    max_frame_bytes: int = wire(integer(1, limits.UINT32_MAX), default=limits.MAX_FRAME_BYTES)
    max_in_flight: int = wire(integer(1, limits.INT32_MAX), default=limits.MAX_IN_FLIGHT)
    sasl_mechanisms: tuple[str, ...] = wire(names(MAX_MECHANISM_CHARS), default=(), later=True)


@struct
class AuthenticateRequest(RequestMessage):
    """A token of the exchange that `mechanism` is; with another one it begins anew."""

    mechanism: str = wire(MECHANISM)
    data: bytes = wire(SECRET, shown=False)


@struct
class AuthenticateResponse(ResponseMessage):
    """The server's token. With `done` the user has logged in, for `session_lifetime_ms`, 0 for ever."""

    data: bytes = wire(BINARY, shown=False)
    done: bool = wire(BOOL)
    session_lifetime_ms: int = wire(INT64, default=0)


@struct
class ListConnectionsRequest(RequestMessage):
    """Connections, the oldest first."""

    max_connections: int = wire(integer(0, limits.MAX_LISTED), default=limits.DEFAULT_LISTED)


@struct
class ListedConnection(Struct):
    """A connection. Fields that the client has not sent are empty; byte counts that the system does not report are -1."""

    protocol: str = wire(TEXT)
    listener: str = wire(TEXT)
    peer: str = wire(TEXT)
    client_id: str = wire(TEXT)
    software_name: str = wire(TEXT)
    software_version: str = wire(TEXT)
    user: str = wire(TEXT)
    since_timestamp: int = wire(INT64_OR_NONE)
    requests: int = wire(INT64)
    requests_in_flight: int = wire(INT32)
    received_bytes: int = wire(INT64_OR_NONE)
    sent_bytes: int = wire(INT64_OR_NONE)
    is_encrypted: bool = wire(BOOL)
    is_throttled: bool = wire(BOOL)


@struct
class ListConnectionsResponse(ResponseMessage):
    """`left_out` are not told."""

    connections: tuple[ListedConnection, ...] = wire([ListedConnection])
    left_out: int = wire(INT32, default=0)


@struct
class StatisticsRequest(RequestMessage):
    """Everything, as it is now."""


@struct
class StatisticsResponse(ResponseMessage):
    """The map that docs/native-protocol.md lists. It is handed through: a newer server may say more, an older one less."""

    statistics: Body = wire(MAP)


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
    """A limit, such as `producer_byte_rate`; a request removes it when `value` is None."""

    key: str = wire(name(MAX_KEY_CHARS))
    value: float | None = wire(NUMBER, nullable=True)


@struct
class Quota(Struct):
    """The limits of an entity, or the changes to them."""

    entity: tuple[QuotaPart, ...] = wire([QuotaPart], max_count=MAX_PARTS)
    values: tuple[QuotaValue, ...] = wire([QuotaValue], max_count=MAX_VALUES)


@struct
class DescribeQuotasRequest(RequestMessage):
    """All quotas there are."""


@struct
class DescribeQuotasResponse(ResponseMessage):
    """By entity; nothing for one without a limit."""

    quotas: tuple[Quota, ...] = wire([Quota], max_count=limits.INT32_MAX)


@struct
class AlterQuotasRequest(RequestMessage):
    """Limits to set and to remove; each entity succeeds or fails alone, and is named once."""

    changes: tuple[Quota, ...] = wire([Quota])


@struct
class AlteredQuota(Struct):
    """The result of one entity's change."""

    entity: tuple[QuotaPart, ...] = wire([QuotaPart], max_count=MAX_PARTS)
    error: RequestError | None = wire(ERROR, default=None)


@struct
class AlterQuotasResponse(ResponseMessage):
    """The results of the changes, in the same order."""

    entities: tuple[AlteredQuota, ...] = wire([AlteredQuota])
