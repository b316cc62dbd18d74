"""FindCoordinator (key 10): which broker coordinates a group or a transactional id.

v1 key types: 0 groups, 1 transactional ids; v4 several keys at once (KIP-699); v6 share groups (KIP-932).
"""

from __future__ import annotations

from ...schema.fields import INT8, INT16, INT32, STRING, struct, wire
from ..apis import COORDINATOR_KEY


@struct
class FindCoordinatorRequest:
    key: str = wire(COORDINATOR_KEY, "0-3")
    key_type: int = wire(INT8, "1+")
    coordinator_keys: list[str] = wire([COORDINATOR_KEY], "4+")


@struct
class FindCoordinatorCoordinator:
    key: str = wire(COORDINATOR_KEY, "4+")
    node_id: int = wire(INT32, "4+")
    host: str = wire(STRING, "4+")
    port: int = wire(INT32, "4+")
    error_code: int = wire(INT16, "4+", default=0)
    error_message: str | None = wire(STRING, "4+", nullable="4+")


@struct
class FindCoordinatorResponse:
    throttle_time_ms: int = wire(INT32, "1+", default=0)
    error_code: int = wire(INT16, "0-3", default=0)
    error_message: str | None = wire(STRING, "1-3", nullable="1-3")
    node_id: int = wire(INT32, "0-3")
    host: str = wire(STRING, "0-3")
    port: int = wire(INT32, "0-3")
    coordinators: list[FindCoordinatorCoordinator] = wire([FindCoordinatorCoordinator], "4+")
