"""Owner of what groups were configured with: in `groups.json` in every log directory before it counts, and is answered. A group
need not be there to be configured, and its configuration stays when it is deleted, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import attrs

from ....config.group_keys import GroupConfig, default_group_config, group_config
from ....storage.directory.state_files import GROUPS
from ..log_manager import LogManager
from .overrides import StoredOverrides


@attrs.define(eq=False, repr=False)
class GroupConfigs(StoredOverrides):
    """See the module. Use `open`; every method belongs to the trio thread."""

    defaults: GroupConfig
    """Of groups that say nothing else."""
    _lenient: bool
    _known: dict[str, GroupConfig] = attrs.field(factory=dict)
    """Of the groups that have overrides."""

    @classmethod
    async def open(cls, manager: LogManager) -> Self:
        """Raises CheckpointError, OSError, InvalidConfigError."""
        lenient = manager.config.lenient
        return await cls._open(
            manager, "configurations of groups", GROUPS, default_group_config(manager.config, lenient=lenient), lenient
        )

    def of_group(self, group: str) -> GroupConfig:
        """Every key's value. Not to be changed."""
        return self._known.get(group, self.defaults)

    def _check(self, name: str, keys: Mapping[str, str], overrides: Mapping[str, Mapping[str, str]]) -> None:
        group_config(self.defaults, keys, lenient=self._lenient)

    async def _follow(self, name: str) -> None:
        self._known.pop(name, None)
        if name in self.overrides():  # what a lenient server has taken is no reason not to start
            self._known[name] = group_config(self.defaults, self.overrides()[name], lenient=True)
