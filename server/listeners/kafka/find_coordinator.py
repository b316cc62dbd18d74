"""FindCoordinator: which broker to ask about a group or a transactional id. Source: KIP-699 for several keys at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ....protocol.errors import ErrorCode
from ....protocol.kafka.messages.groups import (
    FindCoordinatorCoordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ..connections.in_turns import in_turns
from .door import Call, Node

GROUP: Final = 0
TRANSACTION: Final = 1
FIRST_WITH_SEVERAL_KEYS: Final = 4
KEYS_AT_ONCE: Final = 16
"""Of a request that is answered without a turn of the scheduler."""
NOBODY: Final = Node(-1, "", -1)


def find_coordinator_at_once(call: Call, body: FindCoordinatorRequest) -> FindCoordinatorResponse | None:
    """`find_coordinator` for few keys."""
    keys = _keys(call, body)
    if len(keys) > KEYS_AT_ONCE:
        return None
    return _response(call, [_coordinator(call, key, body.key_type) for key in keys])


async def find_coordinator(call: Call, body: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """This broker, for every group and every transactional id."""
    return _response(call, [_coordinator(call, key, body.key_type) async for key in in_turns(_keys(call, body))])


def _keys(call: Call, body: FindCoordinatorRequest) -> Sequence[str]:
    return body.coordinator_keys if call.version >= FIRST_WITH_SEVERAL_KEYS else [body.key]


def _response(call: Call, found: list[FindCoordinatorCoordinator]) -> FindCoordinatorResponse:
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


def _coordinator(call: Call, key: str, key_type: int) -> FindCoordinatorCoordinator:
    error, message, node = ErrorCode.NONE, None, NOBODY
    if key_type not in (GROUP, TRANSACTION):
        error, message = ErrorCode.INVALID_REQUEST, f"key type {key_type}: 0 is a group, 1 a transactional id"
    else:
        node = call.door.nodes(call.session)[0]
    return FindCoordinatorCoordinator(
        key=key, node_id=node.node_id, host=node.host, port=node.port, error_code=error, error_message=message
    )
