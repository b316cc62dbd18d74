"""FindCoordinator: which broker to ask about a group or a transactional id. Source: KIP-699 for several keys at once."""

from __future__ import annotations

from functools import partial
from typing import Final

from ....protocol.errors import ErrorCode
from ....protocol.kafka.messages.find_coordinator import (
    FindCoordinatorCoordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ...broker.procedures import Procedure, mapped
from .door import Call, Node

GROUP: Final = 0
TRANSACTION: Final = 1
FIRST_WITH_SEVERAL_KEYS: Final = 4
NOBODY: Final = Node(-1, "", -1)


def find_coordinator(call: Call, body: FindCoordinatorRequest) -> Procedure[FindCoordinatorResponse]:
    """This broker, for every group and every transactional id."""
    node = call.door.nodes(call.session)[0]
    keys = body.coordinator_keys if call.version >= FIRST_WITH_SEVERAL_KEYS else [body.key]
    found = yield from mapped(partial(_coordinator, node, body.key_type), keys)
    if call.version >= FIRST_WITH_SEVERAL_KEYS:
        return FindCoordinatorResponse(error_message=None, node_id=-1, host="", port=-1, coordinators=found)
    [only] = found
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
        coordinators=[],
    )


def _coordinator(node: Node, key_type: int, key: str) -> FindCoordinatorCoordinator:
    error, message = ErrorCode.NONE, None
    if key_type not in (GROUP, TRANSACTION):
        error, message, node = ErrorCode.INVALID_REQUEST, f"key type {key_type}: 0 is a group, 1 a transactional id", NOBODY
    return FindCoordinatorCoordinator(
        key=key, node_id=node.node_id, host=node.host, port=node.port, error_code=error, error_message=message
    )
