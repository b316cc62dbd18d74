"""The call `list_connections`: who is connected to a server right now, over which protocol."""

from __future__ import annotations

from .... import limits
from ...declaration import wire
from ...kinds import BOOL, INT32, INT64, INT64_OR_NONE, TEXT, integer
from ...structs import RequestMessage, ResponseMessage, Struct, struct


@struct
class ListConnectionsRequest(RequestMessage):
    """Connections, the oldest first."""

    api = "list_connections"

    max_connections: int = wire(integer(0, limits.MAX_LISTED), default=limits.DEFAULT_LISTED)


@struct
class ListedConnection(Struct):
    """One connection. What a client has not said is empty, bytes that the system does not tell are -1."""

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

    api = "list_connections"

    connections: tuple[ListedConnection, ...] = wire([ListedConnection])
    left_out: int = wire(INT32, default=0)
