"""A state of which every log directory has a copy: read at the start, written to all of them before a change counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import attrs
import trio

from .....protocol.errors import ErrorCode, RequestError
from ....storage.directory.log_directory import LogDirectory, is_passing
from ....storage.disk.filesystem import FileSystem
from ....storage.errors import FileTooLargeError, LogOfflineError, StorageError
from ..log_manager import LogManager


class Write(Protocol):
    def __call__(self, fs: FileSystem, directory: str, state: Any, /, *, durable: bool) -> None: ...


S = TypeVar("S")
"""A frozen attrs class with the field `generation`: of several copies the highest one counts."""


@attrs.define(eq=False, repr=False)
class Copies(Generic[S]):
    """See the module. Owner of the state; every method belongs to the trio thread."""

    _manager: LogManager
    _what: str
    """In errors."""
    _read: Callable[[FileSystem, str], S]
    """(file system, directory) -> its copy."""
    _write_one: Write
    state: S
    """Not to be changed; in the beginning what is there without any file."""
    _generation: int = 0
    _turn: trio.Lock = attrs.field(factory=trio.Lock)

    async def load(self) -> S:
        """Read what is stored. Raises CheckpointError, OSError."""
        states = await self._manager.disk.call(self._read_all)
        newest = max(states, key=_generation)
        self._generation = _generation(newest)
        self.state = newest
        if any(_generation(state) != self._generation for state in states):
            await self._write(newest)
        return newest

    def _read_all(self) -> list[S]:
        return [self._read(self._manager.fs, each.path) for each in self._manager.log_directories.live]

    async def change(self, change: Callable[[S], S]) -> None:
        """Replace the state by what `change` makes of it; durable when this returns. Raises RequestError, also what `change`
        raises: then it is as it was. Cancelled: it is done all the same."""
        async with self._turn:
            changed = change(self.state)
            if changed == self.state:
                return
            self._generation += 1  # also of a change that fails: some directory may have it
            changed = _with_generation(changed, self._generation)
            with trio.CancelScope(shield=True):
                await self._write(changed)
            self.state = changed

    async def _write(self, state: S) -> None:
        """Write to every directory in service: any of them may be the only one at the next start."""
        disk, directories = self._manager.disk, self._manager.log_directories
        try:
            directories.check_any()
            for directory in list(directories.live):
                try:
                    await disk.call(self._write_to, directory, state, at=directory.path)
                except OSError as exc:
                    if is_passing(exc):
                        raise
                    directories.fail(directory, exc)
        except FileTooLargeError as exc:
            raise RequestError(f"{self._what} cannot be stored: {exc}; delete some first", ErrorCode.POLICY_VIOLATION) from exc
        except (OSError, StorageError) as exc:
            raise LogOfflineError(
                f"{self._what} cannot be stored: {exc}; free space or check the device, then try again"
            ) from exc

    def _write_to(self, directory: LogDirectory, state: S) -> None:
        self._write_one(self._manager.fs, directory.path, state, durable=directory.durable)


def _generation(state: Any) -> int:
    generation: int = state.generation
    return generation


def _with_generation(state: S, generation: int) -> S:
    changed: S = attrs.evolve(state, generation=generation)  # type: ignore[misc]
    return changed
