"""Owner of what was set of the server's keys while it runs: in `brokers.json` in every log directory before it counts. It comes
before what the server was started with, also after a restart, as in Kafka (DynamicBrokerConfig, KIP-226)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Self

import attrs

from ....config import LogConfig
from ....config.broker_config import BrokerConfig
from ....config.log_config import topic_defaults_of
from ....storage.directory.state_files import BROKERS
from ..log_manager import LogManager
from .overrides import StoredOverrides

ALL_BROKERS: Final = ""
"""The name under which stands what holds for all nodes; what one node, by its number, says comes first."""


@attrs.define(eq=False, repr=False)
class BrokerConfigs(StoredOverrides):
    """See the module. Use `open`; every method belongs to the trio thread."""

    _manager: LogManager
    started_with: BrokerConfig
    """Without what was set since, but for a SIGHUP."""

    @classmethod
    async def open(cls, manager: LogManager) -> Self:
        """Raises CheckpointError, OSError, RequestError."""
        return await cls._open(manager, "keys of the server", BROKERS, manager, manager.config)

    def configure(self, config: BrokerConfig) -> None:
        """Have another configuration (SIGHUP); what was set stays in effect."""
        self.started_with = attrs.evolve(config, topic_defaults=self.started_with.topic_defaults)
        self._manager.config = config

    def _check(self, name: str, keys: Mapping[str, str], overrides: Mapping[str, Mapping[str, str]]) -> None:
        self._effective(overrides)

    def _effective(self, overrides: Mapping[str, Mapping[str, str]]) -> LogConfig:
        """The defaults of topics. Raises RequestError for keys that cannot be set, and values that they cannot have."""
        defaults = self.started_with.topic_defaults
        for name in sorted(overrides, key=lambda name: name != ALL_BROKERS):
            defaults = defaults.overlay(topic_defaults_of(overrides[name]))
        return defaults

    async def _follow(self, name: str) -> None:
        defaults = self._effective(self.overrides())
        self._manager.config = attrs.evolve(self._manager.config, topic_defaults=defaults)
        await self._manager.changes.follow_defaults(defaults)
