"""Owner of what is wanted of clients' metrics (KIP-714): in `client-metrics.json` in every log directory before it counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Self

import attrs

from .....protocol.errors import ErrorCode, InvalidRequestError, RequestError
from .....protocol.limits import MAX_RULE_NAME_CHARS
from ....config import check_sizes
from ....config.client_metrics_keys import Subscription, subscription
from ....storage.directory.state_files import (
    ClientMetricsState,
    read_client_metrics,
    write_client_metrics,
)
from ..log_manager import LogManager
from .copies import Copies

MAX_SUBSCRIPTIONS: Final = 100
"""Each is looked at for each client."""


@attrs.define(eq=False, repr=False)
class ClientMetrics:
    """See the module. Use `open_client_metrics`; every method belongs to the trio thread."""

    _copies: Copies[ClientMetricsState]
    subscriptions: Mapping[str, Subscription] = attrs.field(factory=dict)
    """By name. Not to be changed."""
    version: int = 0
    """Goes up with each change."""

    @classmethod
    def of(cls, manager: LogManager) -> Self:
        return cls(Copies(manager, "subscriptions", read_client_metrics, write_client_metrics, ClientMetricsState()))

    async def load(self) -> None:
        """Read what is stored. Raises CheckpointError, OSError, RequestError."""
        await self._copies.load()
        self._apply()

    def overrides(self) -> Mapping[str, Mapping[str, str]]:
        """What each subscription says itself, by name. Not to be changed."""
        return self._copies.state.overrides

    async def change(
        self, name: str, change: Callable[[Mapping[str, str]], Mapping[str, str]], *, validate_only: bool = False
    ) -> None:
        """Replace what a subscription says; durable and in effect when this returns. Raises RequestError."""
        if not name:
            raise InvalidRequestError("Subscription name can't be empty")
        if len(name) > MAX_RULE_NAME_CHARS:
            raise InvalidRequestError(
                f"the name of a subscription has at most {MAX_RULE_NAME_CHARS} characters, this one has {len(name)}"
            )
        before = self.overrides().get(name, {})
        changed = change(before)
        check_sizes(changed, before)
        subscription(changed)
        if not validate_only:
            await self._copies.change(lambda state: _changed(state, name, change))
            self._apply()

    def _apply(self) -> None:
        self.subscriptions = {name: subscription(overrides) for name, overrides in self.overrides().items()}
        self.version += 1


def _changed(
    state: ClientMetricsState, name: str, change: Callable[[Mapping[str, str]], Mapping[str, str]]
) -> ClientMetricsState:
    overrides = dict(change(state.overrides.get(name, {})))
    subscription(overrides)
    changed = state.changed(name, overrides)
    if len(changed.overrides) > MAX_SUBSCRIPTIONS:
        raise RequestError(f"there are at most {MAX_SUBSCRIPTIONS} subscriptions", ErrorCode.POLICY_VIOLATION)
    return changed


async def open_client_metrics(manager: LogManager) -> ClientMetrics:
    """Raises CheckpointError, OSError, RequestError."""
    metrics = ClientMetrics.of(manager)
    await metrics.load()
    return metrics
