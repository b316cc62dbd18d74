"""Who is connected to a server, as generators: requests out, answers in, as in `procedures`."""

from __future__ import annotations

from ....protocol.limits import DEFAULT_LISTED
from ....protocol.native.messages import ListConnectionsRequest, ListConnectionsResponse
from .topics import Procedure


def list_connections(max_connections: int = DEFAULT_LISTED) -> Procedure[ListConnectionsResponse]:
    """Connections of both protocols, and how many more there are."""
    response: ListConnectionsResponse = yield ListConnectionsRequest(max_connections)
    return response
