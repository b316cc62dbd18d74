"""Configuration that changes while the server runs: of the server itself, of groups, of subscriptions to client metrics.

Each kind has a file in every log directory. A change counts once the files are written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Self

import attrs

from ....config import check_sizes
from ....storage.directory.state_files import Overrides, OverridesFile
from ..log_manager import LogManager
from .copies import Copies

Change = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Makes of what a resource overrides what it is to override."""


@attrs.define(eq=False, repr=False)
class StoredOverrides:
    """Use `open`; every method belongs to the trio thread."""

    _copies: Copies[Overrides]

    @classmethod
    async def _open(cls, manager: LogManager, what: str, file: OverridesFile, *state: object) -> Self:
        """`what`: in errors; `state`: the further fields. Raises CheckpointError, OSError, RequestError."""
        stored = cls(Copies(manager, what, file.read, file.write, Overrides()), *state)
        await stored._copies.load()
        for name in stored.overrides():
            await stored._follow(name)
        return stored

    def overrides(self) -> Mapping[str, Mapping[str, str]]:
        """What is set, by the name of the resource. Not to be changed."""
        return self._copies.state.overrides

    async def change(self, name: str, change: Change, *, validate_only: bool = False) -> None:
        """Replace what is set under a name; durable and in effect when this returns. Raises RequestError."""
        before = self.overrides().get(name, {})
        check_sizes(change(before), before)
        self._changed(self._copies.state, name, change)
        if not validate_only:
            await self._copies.change(lambda state: self._changed(state, name, change))
            await self._follow(name)

    def _changed(self, state: Overrides, name: str, change: Change) -> Overrides:
        keys = change(state.overrides.get(name, {}))
        self._check(name, keys, state.changed(name, keys).overrides)
        return state.changed(name, {key: text.strip() for key, text in keys.items()})

    def _check(self, name: str, keys: Mapping[str, str], overrides: Mapping[str, Mapping[str, str]]) -> None:
        """Whether `keys` may be set under `name`; with them all of these are. Raises RequestError."""
        raise NotImplementedError

    async def _follow(self, name: str) -> None:
        """Let be in effect what is set now under a name."""
        raise NotImplementedError
