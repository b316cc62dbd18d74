"""States of which every log directory has a copy: read at the start, written to all of them before a change counts.

Owner of the keys that were set while the server runs: of the server and features (`brokers.json`), of groups (`groups.json`),
of subscriptions to metrics of clients (`client-metrics.json`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, Generic, Protocol, Self, TypeVar

import attrs
import trio

from ...protocol.errors import ErrorCode, InvalidConfigError, InvalidRequestError, InvalidTopicError, RequestError
from ...protocol.limits import MAX_RULE_NAME_CHARS
from ..config import LogConfig, check_sizes
from ..config.broker_config import BrokerConfig
from ..config.log_config import topic_defaults_of
from ..config.resource_keys import (
    DEAD_LETTER_TOPIC,
    GroupConfig,
    Subscription,
    default_group_config,
    group_config,
    subscription,
)
from ..storage.directory.log_directory import LogDirectory
from ..storage.directory.state_files import BROKERS, CLIENT_METRICS, GROUPS, Overrides, OverridesFile, SecurityState
from ..storage.disk.filesystem import FileSystem
from ..storage.disk.paths import check_topic_name
from ..storage.errors import FileTooLargeError, LogOfflineError, StorageError
from ..system.client_memory import Account, deep_bytes
from .log_manager import LogManager


class Write(Protocol):
    def __call__(self, fs: FileSystem, directory: str, state: Any, /, *, durable: bool) -> None: ...


S = TypeVar("S", Overrides, SecurityState)
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
        states = await self._manager.disk.call_briefly(self._read_all)
        newest = max(states, key=lambda state: state.generation)
        self._generation = newest.generation
        self.state = newest
        self._account.clear()
        self._charge(None, newest)
        if any(state.generation != self._generation for state in states):
            await self._write(newest)
        return newest

    def _read_all(self) -> list[S]:
        return [self._read(self._manager.disk.fs, each.path) for each in self._manager.log_directories.live]

    async def change(self, change: Callable[[S], S]) -> None:
        """Replace the state by what `change` makes of it; durable when this returns. Raises RequestError, also what `change`
        raises: then it is as it was. Cancelled: it is done all the same."""
        async with self._turn:
            changed = change(self.state)
            if changed == self.state:
                return
            self._check_memory(changed)
            self._generation += 1  # also of a change that fails: some directory may have it
            changed = attrs.evolve(changed, generation=self._generation)
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
        fs = self._manager.disk.fs

        def write(directory: LogDirectory) -> None:
            self._write_one(fs, directory.path, state, durable=directory.durable)

        try:
            await self._manager.log_directories.write_each(write)
        except FileTooLargeError as exc:
            raise RequestError(f"cannot store {self._what}: {exc}. Delete some first", ErrorCode.POLICY_VIOLATION) from exc
        except (OSError, StorageError) as exc:
            raise LogOfflineError(f"cannot store {self._what}: {exc}. Free space or check the device, then try again") from exc


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
        """Return the overrides by the name of the resource. Callers must not change them."""
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
        """Check that `keys` may be set under `name`; `overrides` is the result of the change. Raises RequestError."""
        raise NotImplementedError

    async def _follow(self, name: str) -> None:
        """Let be in effect what is set now under a name."""
        raise NotImplementedError


ALL_BROKERS: Final = ""
"""The name under which stands what holds for all nodes; what one node, by its number, says comes first."""
FEATURES: Final = "features"
"""The name under which stand the levels of features (KIP-584) that are not at their highest."""


@attrs.define(eq=False, repr=False)
class BrokerConfigs(StoredOverrides):
    """See the module. Use `open`; every method belongs to the trio thread."""

    _manager: LogManager
    started_with: BrokerConfig
    """Without what was set since, but for a SIGHUP."""
    levels: Mapping[str, int] = attrs.field(factory=dict)
    """Of features that are not at their highest; 0: it is disabled. Not to be changed."""

    @classmethod
    async def open(cls, manager: LogManager) -> Self:
        """Raises CheckpointError, OSError, RequestError."""
        return await cls._open(manager, "keys of the server", BROKERS, manager, manager.config)

    def configure(self, config: BrokerConfig) -> None:
        """Have another configuration (SIGHUP); what was set stays in effect."""
        self.started_with = attrs.evolve(config, topic_defaults=self.started_with.topic_defaults)
        self._manager.config = config

    @property
    def generation(self) -> int:
        """Return a number that goes up with each change."""
        return self._copies.state.generation

    async def set_levels(self, levels: Mapping[str, int | None]) -> None:
        """Set levels of features; None: the highest. Durable and in effect when this returns. Raises RequestError."""

        def change(before: Mapping[str, str]) -> Mapping[str, str]:
            kept = {name: text for name, text in before.items() if name not in levels}
            return kept | {name: str(level) for name, level in levels.items() if level is not None}

        await self.change(FEATURES, change)

    def _check(self, name: str, keys: Mapping[str, str], overrides: Mapping[str, Mapping[str, str]]) -> None:
        if name == FEATURES:
            _levels(keys)
        else:
            self._effective(overrides)

    def _effective(self, overrides: Mapping[str, Mapping[str, str]]) -> LogConfig:
        """The defaults of topics. Raises RequestError for keys that cannot be set, and values that they cannot have."""
        defaults = self.started_with.topic_defaults
        for name in sorted(overrides.keys() - {FEATURES}, key=lambda name: name != ALL_BROKERS):
            defaults = defaults.overlay(topic_defaults_of(overrides[name]))
        return defaults

    async def _follow(self, name: str) -> None:
        if name == FEATURES:
            self.levels = _levels(self.overrides().get(FEATURES, {}))
            return
        defaults = self._effective(self.overrides())
        self._manager.config = attrs.evolve(self._manager.config, topic_defaults=defaults)
        await self._manager.changes.follow_defaults(defaults)


def _levels(keys: Mapping[str, str]) -> dict[str, int]:
    """Raises InvalidConfigError."""
    try:
        return {name: int(text) for name, text in keys.items()}
    except ValueError as exc:
        raise InvalidConfigError(f"brokers.json has a level of a feature that is not a number: {exc}") from exc


MAX_SUBSCRIPTIONS: Final = 100
"""Each is looked at for each client."""


@attrs.define(eq=False, repr=False)
class ClientMetrics(StoredOverrides):
    """See the module. Use `open`; every method belongs to the trio thread."""

    subscriptions: Mapping[str, Subscription] = attrs.field(factory=dict)
    """By name. Not to be changed."""
    version: int = 0
    """Goes up with each change."""

    @classmethod
    async def open(cls, manager: LogManager) -> Self:
        """Raises CheckpointError, OSError, RequestError."""
        return await cls._open(manager, "subscriptions", CLIENT_METRICS)

    def _check(self, name: str, keys: Mapping[str, str], overrides: Mapping[str, Mapping[str, str]]) -> None:
        if not name:
            raise InvalidRequestError("Subscription name can't be empty")
        if len(name) > MAX_RULE_NAME_CHARS:
            raise InvalidRequestError(
                f"the name of a subscription has at most {MAX_RULE_NAME_CHARS} characters, this one has {len(name)}"
            )
        subscription(keys)
        if len(overrides) > MAX_SUBSCRIPTIONS:
            raise RequestError(f"at most {MAX_SUBSCRIPTIONS} subscriptions are allowed", ErrorCode.POLICY_VIOLATION)

    async def _follow(self, name: str) -> None:
        others = {each: known for each, known in self.subscriptions.items() if each != name}
        keys = self.overrides().get(name)
        self.subscriptions = others if keys is None else {**others, name: subscription(keys)}
        self.version += 1


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
        values = group_config(self.defaults, keys, lenient=self._lenient)
        if keys.get(DEAD_LETTER_TOPIC):
            try:
                check_topic_name(values[DEAD_LETTER_TOPIC])
            except InvalidTopicError as exc:
                raise InvalidConfigError(f"group configuration {DEAD_LETTER_TOPIC}: {exc.message}") from exc

    async def _follow(self, name: str) -> None:
        self._known.pop(name, None)
        if name in self.overrides():  # what a lenient server has taken is no reason not to start
            self._known[name] = group_config(self.defaults, self.overrides()[name], lenient=True)
