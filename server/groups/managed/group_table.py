"""All groups of one kind whose assignments the server makes: found by name, read from the log, timed."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator
from typing import Any, ClassVar, Generic, TypeVar

import attrs

from ..timers import Timers
from .drafting import RecordedGroup

G = TypeVar("G", bound=RecordedGroup[Any, Any])
T = TypeVar("T", bound=Hashable)


@attrs.define(eq=False, repr=False)
class GroupTable(Generic[G, T]):
    """See the module. Owner of the groups; `T`: the keys of their timers. Who extends it makes `begin_sessions` and
    `expire`."""

    METADATA_KEY: ClassVar[type[Any]]
    """The key of a group's own record, without which there is no group."""

    _groups: dict[str, G] = attrs.field(factory=dict, init=False)
    timers: Timers[T] = attrs.field(factory=Timers, init=False)

    def _new_group(self, group_id: str) -> G:
        """One that nobody has joined."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self._groups)

    def __contains__(self, group_id: object) -> bool:
        return group_id in self._groups

    def find(self, group_id: str) -> G | None:
        """Not to be changed."""
        return self._groups.get(group_id)

    def groups(self) -> Collection[G]:
        return self._groups.values()

    # ---- time ------------------------------------------------------------------------------------------------------------

    @property
    def next_deadline_ms(self) -> int | None:
        """When `due` has to be called; None: not before something else happens."""
        return self.timers.next_deadline()

    @property
    def earliest_deadline_ms(self) -> int | None:
        """Before it nothing has to be done, as it is known without looking for `next_deadline_ms`."""
        return self.timers.earliest

    def due(self, now_ms: int) -> Iterator[T]:
        """What has come due; each is to be given to `expire`, when the group's turn comes."""
        while (key := self.timers.pop_due(now_ms)) is not None:
            yield key

    # ---- the log ---------------------------------------------------------------------------------------------------------

    def replay(self, key: Any, value: Any) -> None:
        """A record of the log. `begin_sessions` comes when all of them are read."""
        if isinstance(key, self.METADATA_KEY) and value is None:
            # The last one of a removal; the others may have been compacted away, or be those of a group that came before.
            self._groups.pop(key.group_id, None)
            return
        group = self._groups.get(key.group_id)
        if group is None:
            if value is None:
                return
            group = self._groups[key.group_id] = self._new_group(key.group_id)
        group.put(key, value)

    def forget(self, group_id: str) -> None:
        """Its removal is in the log."""
        del self._groups[group_id]
