"""Owner of what groups were configured with: in `groups.json` in every log directory before it counts, and is answered. A group
need not be there to be configured, and its configuration stays when it is deleted, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Self

import attrs

from ....config import check_sizes
from ....config.group_keys import GROUP_KEYS, GroupConfig, group_config
from ....settings.broker_config import BrokerConfig
from ....storage.directory.state_files import GroupsState, read_groups, write_groups
from ..log_manager import LogManager
from .copies import Copies


@attrs.define(eq=False, repr=False)
class GroupConfigs:
    """See the module. Use `open_group_configs`; every method belongs to the trio thread."""

    defaults: GroupConfig
    """Of groups that say nothing else."""
    _lenient: bool
    _copies: Copies[GroupsState]
    _known: dict[str, GroupConfig] = attrs.field(factory=dict)
    """Of the groups that have overrides."""

    @classmethod
    def of(cls, manager: LogManager) -> Self:
        copies = Copies(manager, "configurations of groups", read_groups, write_groups, GroupsState())
        return cls(default_group_config(manager.config), manager.config.lenient, copies)

    async def load(self) -> None:
        """Read what is stored. Raises CheckpointError, OSError, InvalidConfigError."""
        await self._copies.load()
        # What a lenient server has taken is no reason not to start.
        self._known = {
            group: group_config(self.defaults, overrides, lenient=True) for group, overrides in self.overrides().items()
        }

    def of_group(self, group: str) -> GroupConfig:
        """Every key's value. Not to be changed."""
        return self._known.get(group, self.defaults)

    def overrides(self) -> Mapping[str, Mapping[str, str]]:
        """What groups say themselves, by group. Not to be changed."""
        return self._copies.state.overrides

    async def change(
        self, group: str, change: Callable[[Mapping[str, str]], Mapping[str, str]], *, validate_only: bool = False
    ) -> None:
        """Replace a group's overrides; durable and in effect when this returns. Raises RequestError."""
        before = self.overrides().get(group, {})
        changed = change(before)
        check_sizes(changed, before)
        group_config(self.defaults, changed, lenient=self._lenient)
        if validate_only:
            return
        await self._copies.change(lambda state: self._changed(state, group, change))
        if group in self.overrides():
            self._known[group] = group_config(self.defaults, self.overrides()[group], lenient=True)
        else:
            self._known.pop(group, None)

    def _changed(self, state: GroupsState, group: str, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> GroupsState:
        overrides = {key: text.strip() for key, text in change(state.overrides.get(group, {})).items()}
        group_config(self.defaults, overrides, lenient=self._lenient)
        return state.changed(group, overrides)


def default_group_config(config: BrokerConfig) -> GroupConfig:
    """What the server's own keys say of all groups."""
    floor_ms = 0 if config.lenient else MIN_HEARTBEAT_INTERVAL_MS
    return {
        **{name: key.default for name, key in GROUP_KEYS.items()},
        "consumer.heartbeat.interval.ms": max(config.group_consumer_heartbeat_interval_ms, floor_ms),
        "consumer.session.timeout.ms": config.group_consumer_session_timeout_ms,
        "share.heartbeat.interval.ms": max(config.group_share_heartbeat_interval_ms, floor_ms),
        "share.session.timeout.ms": config.group_share_session_timeout_ms,
        "share.delivery.count.limit": config.group_share_delivery_count_limit,
        "share.record.lock.duration.ms": config.group_share_record_lock_duration_ms,
        "share.partition.max.record.locks": config.group_share_partition_max_record_locks,
        "streams.heartbeat.interval.ms": max(config.group_streams_heartbeat_interval_ms, floor_ms),
        "streams.session.timeout.ms": config.group_streams_session_timeout_ms,
        "streams.initial.rebalance.delay.ms": config.group_streams_initial_rebalance_delay_ms,
        "streams.num.standby.replicas": config.group_streams_num_standby_replicas,
    }


MIN_HEARTBEAT_INTERVAL_MS = 5_000
"""Kafka's group.consumer.min.heartbeat.interval.ms and its like. A lenient server may ask for more of them."""


async def open_group_configs(manager: LogManager) -> GroupConfigs:
    """Raises CheckpointError, OSError, InvalidConfigError."""
    configs = GroupConfigs.of(manager)
    await configs.load()
    return configs
