"""Owner of what was set of the server's keys while it runs: in `brokers.json` in every log directory before it counts. It comes
before what the server was started with, also after a restart, as in Kafka (DynamicBrokerConfig, KIP-226)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Self

import attrs

from ....config import LogConfig
from ....config.broker_keys import topic_defaults_of
from ....settings.broker_config import BrokerConfig
from ....storage.directory.state_files import BROKERS, Overrides
from ..log_manager import LogManager
from .copies import Copies

ALL_BROKERS: Final = ""
"""The name under which stands what holds for all nodes; what one node says comes first."""


@attrs.define(eq=False, repr=False)
class BrokerConfigs:
    """See the module. Use `open_broker_configs`; every method belongs to the trio thread."""

    _manager: LogManager
    started_with: BrokerConfig
    """Without what was set since, but for a SIGHUP."""
    _copies: Copies[Overrides]

    @classmethod
    def of(cls, manager: LogManager) -> Self:
        return cls(manager, manager.config, Copies(manager, "keys of the server", BROKERS.read, BROKERS.write, Overrides()))

    async def load(self) -> None:
        """Read what is stored, and let it be in effect. Raises CheckpointError, OSError, RequestError."""
        await self._copies.load()
        if self.overrides():
            await self._follow()

    def overrides(self) -> Mapping[str, Mapping[str, str]]:
        """What was set, by the number of a node or under ALL_BROKERS. Not to be changed."""
        return self._copies.state.overrides

    async def change(
        self, name: str, change: Callable[[Mapping[str, str]], Mapping[str, str]], *, validate_only: bool = False
    ) -> None:
        """Replace what is set under `name`; durable and in effect for all topics when this returns. Raises RequestError."""
        self._changed(self._copies.state, name, change)
        if not validate_only:
            await self._copies.change(lambda state: self._changed(state, name, change))
            await self._follow()

    def configure(self, config: BrokerConfig) -> None:
        """Have another configuration (SIGHUP); what was set stays in effect."""
        self.started_with = attrs.evolve(config, topic_defaults=self.started_with.topic_defaults)
        self._manager.config = config

    def _changed(self, state: Overrides, name: str, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> Overrides:
        changed = state.changed(name, change(state.overrides.get(name, {})))
        self._effective(changed.overrides)
        return changed

    def _effective(self, overrides: Mapping[str, Mapping[str, str]]) -> LogConfig:
        """The defaults of topics. Raises RequestError for keys that cannot be set, and values that they cannot have."""
        defaults = self.started_with.topic_defaults
        for name in sorted(overrides, key=lambda name: name != ALL_BROKERS):
            defaults = defaults.overlay(topic_defaults_of(overrides[name]))
        return defaults

    async def _follow(self) -> None:
        defaults = self._effective(self.overrides())
        self._manager.config = attrs.evolve(self._manager.config, topic_defaults=defaults)
        await self._manager.changes.follow_defaults(defaults)


async def open_broker_configs(manager: LogManager) -> BrokerConfigs:
    """Raises CheckpointError, OSError, RequestError."""
    configs = BrokerConfigs.of(manager)
    await configs.load()
    return configs
