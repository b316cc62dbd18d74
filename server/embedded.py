"""A broker inside a program: `open_broker` for trio programs, `BlockingBroker` for all others (asyncio too: it has a thread).

Both have the same calls, go through the same `Broker` as the listener, and listen on a port of the system's choice unless told
otherwise, so that clients in other processes can join. Many can live in one process. Without a path the data lies in a
temporary directory that is removed at the end; `MEMORY` puts that directory into memory where the system has such a place.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import attrs
import trio

from ..protocol.errors import InvalidConfigError, RequestError
from ..protocol.limits import MIB
from ..protocol.records.batch import iter_batches
from ..protocol.records.record import iter_records
from ..protocol.types import Bytes, Record, TopicPartition
from .broker import Broker, FetchPartition, PlainRecord, TopicDescription
from .broker_config import Address, BrokerConfig
from .broker_keys import SECURITY_KEYS
from .clock import NowMs, system_now_ms
from .config import Durability, LogConfig
from .control.blocking_views import BlockingClock, BlockingFaults, BlockingGroups, BlockingLog, BlockingRequests
from .control.clock import MovedClock
from .control.fault_views import FaultsView, RequestsView
from .control.groups_view import GroupsView
from .control.life import Life
from .control.log_view import LogView, Text
from .control.seed import Seed, Topics
from .listeners.opening import Addresses
from .storage.append import AppendResult
from .storage.segment_view import TimestampAndOffset

T = TypeVar("T")

MEMORY: Final = ":memory:"
LOCALHOST: Final = Address(host="127.0.0.1", port=0)

_SHARED_MEMORY: Final = "/dev/shm"


@attrs.define(eq=False)
class EmbeddedBroker:
    """A running broker, to be called from the trio thread that runs it."""

    life: Life
    path: str
    seed: Seed = attrs.field(factory=Seed)
    """What a new directory has."""
    faults: FaultsView = attrs.field(init=False)
    """What goes wrong; see docs/testing-with-triolog.md."""
    requests: RequestsView = attrs.field(init=False)
    """What Kafka clients asked for."""
    groups: GroupsView = attrs.field(init=False)
    """What groups have committed, and what upsets them."""
    _is_lasting: bool = False

    def __attrs_post_init__(self) -> None:
        self.faults = FaultsView(self.life.faults, self.life.disk_faults)
        self.requests = RequestsView(self.life.requests)
        self.groups = GroupsView(lambda: self.core, self.faults)

    @property
    def core(self) -> Broker:
        """The door that listeners use. Raises NotRunningError after a crash."""
        return self.life.core

    @property
    def native(self) -> Address | None:
        """Where the native protocol listens; None when it does not."""
        return self.life.addresses.native

    @property
    def kafka(self) -> Address | None:
        """Where Kafka's protocol listens; None when it does not."""
        return self.life.addresses.kafka

    @property
    def bootstrap_servers(self) -> str:
        """What Kafka clients are configured with. Raises RuntimeError without such a listener."""
        if self.kafka is None:
            raise RuntimeError('the broker has no listener for Kafka clients; open it with kafka=Address("127.0.0.1", 0)')
        return str(self.kafka)

    @property
    def clock(self) -> MovedClock:
        """The broker's wall clock; deadlines too, if trio runs by it (`trio.run(main, clock=...)`)."""
        return self.life.clock

    def log(self, topic: str) -> LogView:
        """The records of a topic."""
        return LogView(lambda: self.core, topic)

    # ---- life ------------------------------------------------------------------------------------------------------------

    async def crash(self) -> None:
        """End as by SIGKILL: connections are cut, nothing is flushed; `restart` recovers. The ports refuse connections."""
        await self.life.crash()

    async def stop(self) -> None:
        """Stop in order; the ports refuse connections until `restart`."""
        await self.life.stop()

    async def restart(self) -> None:
        """Start again on the same ports, after a crash or a stop, or stop and start."""
        await self.life.restart()

    async def reset(self) -> None:
        """Be as at the beginning: no records, topics, groups, transactions, faults, requests; then what was seeded. Clients
        are disconnected. Only for a directory that goes with the block. Raises RuntimeError."""
        if self._is_lasting:
            raise RuntimeError(f"reset() would delete {self.path}; it is for brokers without a path of yours")
        self.faults.clear()
        self.life.clock.reset()
        await self.life.wipe()
        self.requests.clear()
        await self.seed.put(self.core)

    async def snapshot(self, path: str | os.PathLike[str]) -> None:
        """Put a copy of all data into `path`, which is empty or not there; a broker can be opened on it."""
        await self.life.snapshot(Path(path))

    async def apply_retention(self) -> int:
        """Take out now what retention lets go, by the broker's clock; answers how many segments that were."""
        return await self.core.apply_retention()

    # ---- nodes -----------------------------------------------------------------------------------------------------------

    async def node_down(self, node: int) -> None:
        """Cut a node's connections and refuse new ones; what it leads goes to others. Raises ValueError, KeyError."""
        await self.life.node_down(node)

    async def node_up(self, node: int) -> None:
        """Let a node listen again, on the same port. Raises ValueError, KeyError."""
        await self.life.node_up(node)

    async def move_leader(self, topic: str, partition: int, node: int) -> int:
        """Let another node lead a partition; answers its leader epoch. Raises ValueError, KeyError, RequestError."""
        return await self.life.move_leader(topic, partition, node)

    def move_coordinator(self, name: str, node: int) -> None:
        """Let another node coordinate a group or a transactional id. Raises ValueError, KeyError."""
        self.life.move_coordinator(name, node)

    # ---- topics and records ----------------------------------------------------------------------------------------------

    async def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Make a topic; `config` has Kafka's topic keys. Raises RequestError."""
        await self.core.create_topic(name, partitions, config)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and its records. Raises RequestError."""
        await self.core.delete_topic(name)

    async def alter_config(self, name: str, changes: Mapping[str, str], deletes: Sequence[str] = ()) -> None:
        """Set topic keys, and let others follow the defaults again; in effect when this returns. Raises RequestError."""
        await self.core.alter_configs(name, changes, deletes)

    async def create_partitions(self, name: str, total: int) -> None:
        """Let a topic have `total` partitions, more than it has. Raises RequestError."""
        await self.core.create_partitions(name, total)

    async def delete_records(self, topic: str, before_offset: int = -1, *, partition: int = 0) -> int:
        """Delete the records below an offset (-1: all) and answer the first offset that is left. Raises RequestError."""
        return await self.core.delete_records(TopicPartition(topic, partition), before_offset)

    def topics(self) -> list[str]:
        """Names of all topics."""
        return list(self.core.topics())

    def describe_topic(self, name: str) -> TopicDescription:
        """Identity, overridden configuration, offsets and sizes. Raises RequestError."""
        return self.core.describe_topic(name)

    async def append(
        self, topic: str, records: Bytes | Sequence[PlainRecord | bytes], *, partition: int = 0, acks: int = -1
    ) -> AppendResult:
        """Append to a partition: whole record batches as bytes, or values, or (timestamp_ms, key, value, headers).

        Raises RequestError.
        """
        if isinstance(records, bytes | bytearray | memoryview):
            return await self.core.append(TopicPartition(topic, partition), records, acks=acks)
        plain = [record if isinstance(record, tuple) else (None, None, record, ()) for record in records]
        return await self.core.append(TopicPartition(topic, partition), plain, acks=acks)

    async def fetch(
        self, topic: str, offset: int = 0, *, partition: int = 0, max_bytes: int = MIB, max_wait_s: float = 0.0
    ) -> list[Record]:
        """Records from `offset` on, about `max_bytes` of them; waits up to `max_wait_s` for the first. Raises RequestError."""
        question = FetchPartition(TopicPartition(topic, partition), offset, max_bytes)
        answer = (await self.core.fetch([question], max_bytes=max_bytes, max_wait_s=max_wait_s))[0]
        if answer.fetched is None:
            assert answer.error is not None
            raise answer.error
        return [
            record
            for header, batch in iter_batches(answer.fetched.records)
            if not header.is_control
            for record in iter_records(batch, header)
            if record.offset >= offset
        ]

    async def offset_for_time(self, topic: str, timestamp_ms: int, *, partition: int = 0) -> TimestampAndOffset:
        """The first record with a timestamp >= `timestamp_ms` (-1 latest, -2 earliest, -3 max timestamp); offset -1: none."""
        return await self.core.offset_for_time(TopicPartition(topic, partition), timestamp_ms)

    async def offsets_for_times(
        self, questions: Sequence[tuple[TopicPartition, int]]
    ) -> list[TimestampAndOffset | RequestError]:
        """`offset_for_time` for many partitions at once, in the order asked."""
        return await self.core.offsets_for_times(questions)


@asynccontextmanager
async def open_broker(
    path: str | os.PathLike[str] | None = None,
    *,
    native: Address | None = LOCALHOST,
    kafka: Address | None = None,
    durability: str | None = None,
    config: Mapping[str, str] | None = None,
    lenient: bool = True,
    users: Mapping[str, str] | None = None,
    security: Mapping[str, Any] | None = None,
    now_ms: NowMs = system_now_ms,
    clock: MovedClock | None = None,
    topics: Topics = (),
    records: Mapping[str, Sequence[PlainRecord | Text]] | None = None,
    nodes: int = 1,
    emulate: str | None = None,
) -> AsyncIterator[EmbeddedBroker]:
    """A broker for the time of the block.

    `path`: its directory; None for a temporary one, MEMORY for one in memory. `native`, `kafka`: where to listen with which
    protocol, None for not at all. `durability`: `fsync` by default for a directory of yours, `os` for one that goes with
    the block. `config`: defaults of all topics. `lenient`: Kafka clients get what tests want instead of what Kafka refuses,
    such as topics with more replicas than there are nodes. `users`: who logs in to the Kafka listener with which password.
    `security`: other keys of that section of docs/operations.md. `topics`: names, or names with numbers of partitions, that
    are made when they are not there; `records`: what is appended to topics that are made. `clock`: the broker's, by default
    one that begins at `now_ms`. `nodes`: so many Kafka listeners look like a cluster. `emulate`: advertise what that version
    of Kafka does, such as "3.4". Raises StorageError, OSError or RequestError when it cannot start.
    """
    with _directory(path) as (directory, lasting):
        defaults = attrs.evolve(LogConfig(), durability=Durability.parse(durability or ("fsync" if lasting else "os")))
        settings = BrokerConfig(
            data_dirs=(directory,),
            native=native,
            topic_defaults=defaults.overlay(config or {}),
            lenient=lenient,
            durable=lasting,
            group_initial_rebalance_delay_ms=0,
            group_min_session_timeout_ms=1,
            group_consumer_heartbeat_interval_ms=100,
            **_security(users or {}, security or {}),
        )
        life_of = partial(Life, node_count=nodes, kafka_version=emulate)
        async with _living(life_of, settings, Addresses(native, kafka), clock or MovedClock(now_ms)) as life:
            seed = Seed.of(topics, records or {})
            await seed.put(life.core)
            yield EmbeddedBroker(life, directory, seed, is_lasting=lasting)


@asynccontextmanager
async def _living(
    life_of: Callable[..., Life], settings: BrokerConfig, wanted: Addresses, clock: MovedClock
) -> AsyncIterator[Life]:
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        life = life_of(settings, wanted, nursery, clock)
        try:
            await life.start()
            yield life
        except trio.Cancelled:
            raise
        except BaseException as exc:
            # Kept outside of the nursery, which would wrap it in a group.
            failure = exc
        finally:
            await life.stop()
            life.close()
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


def _security(users: Mapping[str, str], keys: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the broker. Raises InvalidConfigError."""
    said = {**({"kafka_security": "sasl_plaintext"} if users else {}), **keys}
    if unknown := sorted(set(said) - {key.name for key in SECURITY_KEYS}):
        raise InvalidConfigError(f"{unknown[0]} is none of {', '.join(key.name for key in SECURITY_KEYS)}")
    settings: dict[str, Any] = {"sasl_users": dict(users)}
    for key in SECURITY_KEYS:
        if key.name in said:
            try:
                settings[key.name] = key.read(said[key.name])
            except ValueError as exc:
                raise InvalidConfigError(f"{key.name}: {exc}") from exc
    return settings


@contextmanager
def _directory(path: str | os.PathLike[str] | None) -> Iterator[tuple[str, bool]]:
    if path is not None and path != MEMORY:
        yield str(Path(path).absolute()), True
        return
    parent = _SHARED_MEMORY if path == MEMORY and os.access(_SHARED_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="triolog-", dir=parent, ignore_cleanup_errors=True) as directory:
        yield directory, False


class BlockingBroker:
    """A broker for programs without trio: `with BlockingBroker() as broker`. It runs in a thread of its own.

    Takes what `open_broker` takes. The calls may come from any thread.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, **settings: Any) -> None:
        self._moved_clock = settings.pop("clock", None) or MovedClock(settings.pop("now_ms", system_now_ms))
        self._open: Callable[[], Any] = lambda: open_broker(path, clock=self._moved_clock, **settings)
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._stop: trio.Event | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._broker: EmbeddedBroker | None = None
        self._failure: BaseException | None = None

    # ---- life ----------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Start the thread and wait until the broker serves. Raises what keeps it from starting."""
        if self._thread is not None:
            raise RuntimeError("the broker was started already")
        self._thread = threading.Thread(target=self._run, name="triolog-broker", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def stop(self) -> None:
        """Stop in order and wait for it; stopping twice is fine."""
        if self._thread is None or not self._thread.is_alive():
            return
        if self._token is not None and self._stop is not None:
            self._token.run_sync_soon(self._stop.set)
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            trio.run(self._serve, clock=self._moved_clock)
        except BaseException as exc:
            self._failure = exc
        finally:
            self._broker = None
            self._ready.set()

    async def _serve(self) -> None:
        self._stop = trio.Event()
        self._token = trio.lowlevel.current_trio_token()
        async with self._open() as self._broker:
            self._ready.set()
            await self._stop.wait()

    def _running(self) -> EmbeddedBroker:
        if self._broker is None:
            raise RuntimeError("the broker does not run; use it inside `with BlockingBroker() as broker`") from self._failure
        return self._broker

    def _call(self, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        with self._until_stopped():
            return self._outside_of_trio(lambda: trio.from_thread.run(function, *arguments, trio_token=self._token))

    def _call_now(self, function: Callable[..., T], *arguments: Any) -> T:
        with self._until_stopped():
            return self._outside_of_trio(lambda: trio.from_thread.run_sync(function, *arguments, trio_token=self._token))

    def _outside_of_trio(self, call: Callable[[], T]) -> T:
        """Call it in this thread, or in one of its own where this one runs another trio program, a test: trio would refuse."""
        if not trio.lowlevel.in_trio_run() or trio.lowlevel.current_trio_token() is self._token:
            return call()
        with ThreadPoolExecutor(1, "triolog-call") as executor:
            return executor.submit(call).result()

    @contextmanager
    def _until_stopped(self) -> Iterator[None]:
        """A call that the stop overtakes ends with an error that has a meaning outside of trio."""
        try:
            yield
        except (trio.Cancelled, trio.RunFinishedError):
            raise RuntimeError("the broker was stopped during the call; its outcome is unknown") from self._failure

    # ---- calls, as EmbeddedBroker's --------------------------------------------------------------------------------------

    @property
    def native(self) -> Address | None:
        """Where the native protocol listens."""
        return self._running().native

    @property
    def kafka(self) -> Address | None:
        """Where Kafka's protocol listens."""
        return self._running().kafka

    @property
    def bootstrap_servers(self) -> str:
        """See EmbeddedBroker.bootstrap_servers."""
        return self._running().bootstrap_servers

    @property
    def path(self) -> str:
        """The directory with the data."""
        return self._running().path

    def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Run an async function in the broker's thread."""
        return self._call(function)

    def call_now(self, function: Callable[[], T]) -> T:
        """Run a function in the broker's thread."""
        return self._call_now(function)

    @property
    def faults(self) -> BlockingFaults:
        """See EmbeddedBroker.faults."""
        return BlockingFaults(lambda: self._running().faults, self)

    @property
    def requests(self) -> BlockingRequests:
        """See EmbeddedBroker.requests."""
        return BlockingRequests(lambda: self._running().requests, self)

    @property
    def groups(self) -> BlockingGroups:
        """See EmbeddedBroker.groups."""
        return BlockingGroups(lambda: self._running().groups, self)

    @property
    def clock(self) -> BlockingClock:
        """The broker's time, deadlines included."""
        return BlockingClock(self._moved_clock, self)

    def log(self, topic: str) -> BlockingLog:
        """See EmbeddedBroker.log."""
        return BlockingLog(self._running().log(topic), self)

    def crash(self) -> None:
        """See EmbeddedBroker.crash."""
        self._call(self._running().crash)

    def restart(self) -> None:
        """See EmbeddedBroker.restart."""
        self._call(self._running().restart)

    def reset(self) -> None:
        """See EmbeddedBroker.reset."""
        self._call(self._running().reset)

    def snapshot(self, path: str | os.PathLike[str]) -> None:
        """See EmbeddedBroker.snapshot."""
        self._call(self._running().snapshot, path)

    @contextmanager
    def fork(self, **settings: Any) -> Iterator[BlockingBroker]:
        """Another broker for the time of the block, with a copy of this one's data, on ports of its own."""
        with tempfile.TemporaryDirectory(prefix="triolog-fork-", ignore_cleanup_errors=True) as directory:
            self.snapshot(directory)
            given = {"kafka": None if self.kafka is None else LOCALHOST, "durability": "os", **settings}
            with BlockingBroker(directory, **given) as broker:
                yield broker

    def node_down(self, node: int) -> None:
        """See EmbeddedBroker.node_down."""
        self._call(self._running().node_down, node)

    def node_up(self, node: int) -> None:
        """See EmbeddedBroker.node_up."""
        self._call(self._running().node_up, node)

    def move_leader(self, topic: str, partition: int, node: int) -> int:
        """See EmbeddedBroker.move_leader."""
        return self._call(self._running().move_leader, topic, partition, node)

    def move_coordinator(self, name: str, node: int) -> None:
        """See EmbeddedBroker.move_coordinator."""
        self._call_now(self._running().move_coordinator, name, node)

    def apply_retention(self) -> int:
        """See EmbeddedBroker.apply_retention."""
        return self._call(self._running().apply_retention)

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """See EmbeddedBroker.create_topic."""
        self._call(self._running().create_topic, name, partitions, config)

    def delete_topic(self, name: str) -> None:
        """See EmbeddedBroker.delete_topic."""
        self._call(self._running().delete_topic, name)

    def alter_config(self, name: str, changes: Mapping[str, str], deletes: Sequence[str] = ()) -> None:
        """See EmbeddedBroker.alter_config."""
        self._call(self._running().alter_config, name, changes, deletes)

    def create_partitions(self, name: str, total: int) -> None:
        """See EmbeddedBroker.create_partitions."""
        self._call(self._running().create_partitions, name, total)

    def delete_records(self, topic: str, before_offset: int = -1, *, partition: int = 0) -> int:
        """See EmbeddedBroker.delete_records."""
        running = self._running()
        return self._call(lambda: running.delete_records(topic, before_offset, partition=partition))

    def topics(self) -> list[str]:
        """See EmbeddedBroker.topics."""
        return self._call_now(self._running().topics)

    def describe_topic(self, name: str) -> TopicDescription:
        """See EmbeddedBroker.describe_topic."""
        return self._call_now(self._running().describe_topic, name)

    def append(
        self, topic: str, records: Bytes | Sequence[PlainRecord | bytes], *, partition: int = 0, acks: int = -1
    ) -> AppendResult:
        """See EmbeddedBroker.append."""
        broker = self._running()

        async def call() -> AppendResult:
            return await broker.append(topic, records, partition=partition, acks=acks)

        return self._call(call)

    def fetch(
        self, topic: str, offset: int = 0, *, partition: int = 0, max_bytes: int = MIB, max_wait_s: float = 0.0
    ) -> list[Record]:
        """See EmbeddedBroker.fetch."""
        broker = self._running()

        async def call() -> list[Record]:
            return await broker.fetch(topic, offset, partition=partition, max_bytes=max_bytes, max_wait_s=max_wait_s)

        return self._call(call)

    def offset_for_time(self, topic: str, timestamp_ms: int, *, partition: int = 0) -> TimestampAndOffset:
        """See EmbeddedBroker.offset_for_time."""
        broker = self._running()

        async def call() -> TimestampAndOffset:
            return await broker.offset_for_time(topic, timestamp_ms, partition=partition)

        return self._call(call)

    def offsets_for_times(self, questions: Sequence[tuple[TopicPartition, int]]) -> list[TimestampAndOffset | RequestError]:
        """See EmbeddedBroker.offsets_for_times."""
        return self._call(self._running().offsets_for_times, questions)
