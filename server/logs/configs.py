"""States of which every log directory has a copy: read at the start, written to all of them before a change counts.

Owner of the keys that were set while the server runs: of the server (`brokers.json`), of groups (`groups.json`), of
subscriptions to metrics of clients (`client-metrics.json`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, ClassVar, Final, Generic, Protocol, Self, TypeVar

import attrs
import trio

from ...protocol.errors import ErrorCode, InvalidRequestError, RequestError
from ...protocol.limits import MAX_RULE_NAME_CHARS
from ..config import LogConfig, check_sizes
from ..config.broker_keys import topic_defaults_of
from ..config.client_metrics_keys import Subscription, subscription
from ..config.group_keys import GROUP_KEYS, GroupConfig, group_config
from ..settings.broker_config import BrokerConfig
from ..storage.directory.log_directory import LogDirectory, is_passing
from ..storage.directory.state_files import BROKERS, CLIENT_METRICS, GROUPS, Overrides, OverridesFile
from ..storage.disk.filesystem import FileSystem
from ..storage.errors import FileTooLargeError, LogOfflineError, StorageError
from ..system.client_memory import Account, deep_bytes
from .log_manager import LogManager


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


Change = Callable[[Mapping[str, str]], Mapping[str, str]]
"""The keys of one name, and what they become."""


@attrs.define(eq=False, repr=False)
class OverrideTable:
    """Keys that were set while the server runs, by name. Created by `open`; every method belongs to the trio thread."""

    FILE: ClassVar[OverridesFile]
    WHAT: ClassVar[str]
    """In errors, and the account of the client's memory."""
    _manager: LogManager
    _copies: Copies[Overrides] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._copies = Copies(self._manager, self.WHAT, self.FILE.read, self.FILE.write, Overrides())

    @classmethod
    async def open(cls, manager: LogManager) -> Self:
        """Read what is stored and apply it. Raises CheckpointError, OSError, RequestError."""
        table = cls(manager)
        await table._copies.load()
        await table._apply(None)
        return table

    def overrides(self) -> Mapping[str, Mapping[str, str]]:
        """The keys that each name sets itself. Not to be changed."""
        return self._copies.state.overrides

    async def change(self, name: str, change: Change, *, validate_only: bool = False) -> None:
        """Replace the keys of `name`; durable and in effect when this returns. Raises RequestError."""
        self._check(name, change(self.overrides().get(name, {})))
        self._changed(self._copies.state, name, change)
        if not validate_only:
            await self._copies.change(lambda state: self._changed(state, name, change))
            await self._apply(name)

    def _check(self, name: str, keys: Mapping[str, str]) -> None:
        """Raises RequestError for a change that is not allowed."""
        check_sizes(keys, self.overrides().get(name, {}))

    def _changed(self, state: Overrides, name: str, change: Change) -> Overrides:
        """Raises RequestError for keys that cannot be set, and values that they cannot have."""
        raise NotImplementedError

    async def _apply(self, name: str | None) -> None:
        """Let the stored keys of `name` take effect; None: of all names, at the start."""
        raise NotImplementedError


ALL_BROKERS: Final = ""
"""The name whose keys hold for all nodes; those of one node come first."""


@attrs.define(eq=False, repr=False)
class BrokerConfigs(OverrideTable):
    """Keys of the server. They come before those that the server was started with, also after a restart, as in Kafka
    (DynamicBrokerConfig, KIP-226). By the number of a node, or under ALL_BROKERS."""

    FILE = BROKERS
    WHAT = "keys of the server"
    started_with: BrokerConfig = attrs.field(init=False)
    """Without the keys that were set since, except by a SIGHUP."""

    def __attrs_post_init__(self) -> None:
        OverrideTable.__attrs_post_init__(self)
        self.started_with = self._manager.config

    def configure(self, config: BrokerConfig) -> None:
        """Have another configuration (SIGHUP); what was set stays in effect."""
        self.started_with = attrs.evolve(config, topic_defaults=self.started_with.topic_defaults)
        self._manager.config = config

    def _check(self, name: str, keys: Mapping[str, str]) -> None:
        """`_changed` checks all."""

    def _changed(self, state: Overrides, name: str, change: Change) -> Overrides:
        changed = state.changed(name, change(state.overrides.get(name, {})))
        self._effective(changed.overrides)
        return changed

    def _effective(self, overrides: Mapping[str, Mapping[str, str]]) -> LogConfig:
        """The defaults of topics. Raises RequestError for keys that cannot be set, and values that they cannot have."""
        defaults = self.started_with.topic_defaults
        for name in sorted(overrides, key=lambda name: name != ALL_BROKERS):
            defaults = defaults.overlay(topic_defaults_of(overrides[name]))
        return defaults

    async def _apply(self, name: str | None) -> None:
        if name is not None or self.overrides():
            defaults = self._effective(self.overrides())
            self._manager.config = attrs.evolve(self._manager.config, topic_defaults=defaults)
            await self._manager.changes.follow_defaults(defaults)


MAX_SUBSCRIPTIONS: Final = 100
"""Each is looked at for each client."""


@attrs.define(eq=False, repr=False)
class ClientMetrics(OverrideTable):
    """Subscriptions to metrics of clients (KIP-714), by name."""

    FILE = CLIENT_METRICS
    WHAT = "subscriptions"
    subscriptions: Mapping[str, Subscription] = attrs.field(factory=dict)
    """By name. Not to be changed."""
    version: int = 0
    """Goes up with each change."""

    def _check(self, name: str, keys: Mapping[str, str]) -> None:
        if not name:
            raise InvalidRequestError("Subscription name can't be empty")
        if len(name) > MAX_RULE_NAME_CHARS:
            raise InvalidRequestError(
                f"the name of a subscription has at most {MAX_RULE_NAME_CHARS} characters, this one has {len(name)}"
            )
        OverrideTable._check(self, name, keys)
        subscription(keys)

    def _changed(self, state: Overrides, name: str, change: Change) -> Overrides:
        overrides = dict(change(state.overrides.get(name, {})))
        subscription(overrides)
        changed = state.changed(name, overrides)
        if len(changed.overrides) > MAX_SUBSCRIPTIONS:
            raise RequestError(f"there are at most {MAX_SUBSCRIPTIONS} subscriptions", ErrorCode.POLICY_VIOLATION)
        return changed

    async def _apply(self, name: str | None) -> None:
        self.subscriptions = {name: subscription(overrides) for name, overrides in self.overrides().items()}
        self.version += 1


@attrs.define(eq=False, repr=False)
class GroupConfigs(OverrideTable):
    """Configurations of groups, by group. A group need not exist to be configured, and its configuration stays when it is
    deleted, as in Kafka."""

    FILE = GROUPS
    WHAT = "configurations of groups"
    defaults: GroupConfig = attrs.field(init=False)
    """Of groups that set nothing else."""
    _known: dict[str, GroupConfig] = attrs.field(factory=dict)
    """Of the groups that have overrides."""

    def __attrs_post_init__(self) -> None:
        OverrideTable.__attrs_post_init__(self)
        self.defaults = default_group_config(self._manager.config)

    def of_group(self, group: str) -> GroupConfig:
        """Every key's value. Not to be changed."""
        return self._known.get(group, self.defaults)

    def _changed(self, state: Overrides, name: str, change: Change) -> Overrides:
        overrides = {key: text.strip() for key, text in change(state.overrides.get(name, {})).items()}
        group_config(self.defaults, overrides, lenient=self._manager.config.lenient)
        return state.changed(name, overrides)

    async def _apply(self, name: str | None) -> None:
        for group in self.overrides() if name is None else [name]:
            self._known.pop(group, None)
            if group in self.overrides():  # values that a lenient server accepted must not keep another one from starting
                self._known[group] = group_config(self.defaults, self.overrides()[group], lenient=True)


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
