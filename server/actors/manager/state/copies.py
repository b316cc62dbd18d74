"""A state of which every log directory has a copy: read at the start, written to all of them before a change counts."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Generic, Protocol, TypeVar

import attrs
import trio

from .....protocol.errors import ErrorCode, RequestError
from ....storage.directory.log_directory import LogDirectory, is_passing
from ....storage.disk.filesystem import FileSystem
from ....storage.errors import FileTooLargeError, LogOfflineError, StorageError
from ....system.client_memory import Account, deep_bytes
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
    """In errors, and of the account where its entries are charged."""
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
        self._account.clear()
        self._charge(None, newest)
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
            self._check_memory(changed)
            self._generation += 1  # also of a change that fails: some directory may have it
            changed = _with_generation(changed, self._generation)
            with trio.CancelScope(shield=True):
                await self._write(changed)
            before, self.state = self.state, changed
            self._charge(before, changed)

    @property
    def _account(self) -> Account:
        return self._manager.client_memory.account(self._what)

    def _check_memory(self, changed: S) -> None:
        """Raises POLICY_VIOLATION where the entries together grow by more than the client may have."""
        sizes = _changes(self.state, changed)
        more = sum(size - self._account.size_of(key) for key, size in sizes.items())
        if more > 0:
            self._account.check(None, more)

    def _charge(self, before: S | None, state: S) -> None:
        for key, size in _changes(before, state).items():
            if size:
                self._account.put(key, size)
            else:
                self._account.drop(key)

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


def _changes(before: Any, state: Any) -> dict[tuple[str, Hashable], int]:
    """Bytes by (field, key) of the entries that differ; 0 for those that are gone. An entry counts twice: here, and where it is
    in effect."""
    sizes: dict[tuple[str, Hashable], int] = {}
    for field in attrs.fields(type(state)):
        new, old = getattr(state, field.name), None if before is None else getattr(before, field.name)
        if isinstance(new, Mapping):
            old = old or {}
            sizes |= {(field.name, key): 2 * deep_bytes((key, each)) for key, each in new.items() if old.get(key) is not each}
            sizes |= {(field.name, key): 0 for key in old if key not in new}
        elif isinstance(new, frozenset):
            old = old or frozenset()
            sizes |= {(field.name, each): 2 * deep_bytes(each) for each in new - old}
            sizes |= {(field.name, each): 0 for each in old - new}
    return sizes


def _generation(state: Any) -> int:
    generation: int = state.generation
    return generation


def _with_generation(state: S, generation: int) -> S:
    changed: S = attrs.evolve(state, generation=generation)  # type: ignore[misc]
    return changed
