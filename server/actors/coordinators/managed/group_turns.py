"""One change of a group at a time, in the order in which they were asked for. A name is of one kind of group at a time, so all
coordinators of groups whose assignments the server makes share one `GroupTurns`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import trio


@attrs.define(eq=False, repr=False)
class _Turns:
    """The lock of one group's changes, kept while somebody holds it or waits for it."""

    lock: trio.Lock = attrs.field(factory=trio.Lock)
    users: int = 0


@attrs.define(eq=False, repr=False)
class GroupTurns:
    """See the module. Owner: the group coordinator."""

    _turns: dict[str, _Turns] = attrs.field(factory=dict)

    def __contains__(self, group: object) -> bool:
        """Whether somebody has a turn, or waits for one."""
        return group in self._turns

    @asynccontextmanager
    async def of(self, group: str) -> AsyncIterator[None]:
        """The group's turn for the time of the block."""
        turns = self._turns.setdefault(group, _Turns())
        turns.users += 1
        try:
            async with turns.lock:
                yield
        finally:
            turns.users -= 1
            if not turns.users:
                del self._turns[group]
