"""Owner of what is wanted of clients' metrics (KIP-714): in `client-metrics.json` in every log directory before it counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Self

import attrs

from .....protocol.errors import ErrorCode, InvalidRequestError, RequestError
from .....protocol.limits import MAX_RULE_NAME_CHARS
from ....config.client_metrics_keys import Subscription, subscription
from ....storage.directory.state_files import (
    CLIENT_METRICS,
)
from ..log_manager import LogManager
from .overrides import StoredOverrides

MAX_SUBSCRIPTIONS: Final = 100
"""Each is looked at for each client."""


@attrs.define(eq=False, repr=False)
class ClientMetrics(StoredOverrides):
    """See the module. Use `open`; every method belongs to the trio thread."""

    subscriptions: Mapping[str, Subscription] = attrs.field(factory=dict)
    """By name. Not to be changed."""
    version: int = 0
    """Goes up with each change."""

    @classmethod
    async def open(cls, manager: LogManager) -> Self:
        """Raises CheckpointError, OSError, RequestError."""
        return await cls._open(manager, "subscriptions", CLIENT_METRICS)

    def _check(self, name: str, keys: Mapping[str, str], overrides: Mapping[str, Mapping[str, str]]) -> None:
        if not name:
            raise InvalidRequestError("Subscription name can't be empty")
        if len(name) > MAX_RULE_NAME_CHARS:
            raise InvalidRequestError(
                f"the name of a subscription has at most {MAX_RULE_NAME_CHARS} characters, this one has {len(name)}"
            )
        subscription(keys)
        if len(overrides) > MAX_SUBSCRIPTIONS:
            raise RequestError(f"there are at most {MAX_SUBSCRIPTIONS} subscriptions", ErrorCode.POLICY_VIOLATION)

    async def _follow(self, name: str) -> None:
        others = {each: known for each, known in self.subscriptions.items() if each != name}
        keys = self.overrides().get(name)
        self.subscriptions = others if keys is None else {**others, name: subscription(keys)}
        self.version += 1
