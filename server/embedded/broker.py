"""A running broker in a trio program: its life, and its calls with plain arguments."""

from __future__ import annotations

import math
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import attrs
import trio

from ...protocol.errors import RequestError
from ...protocol.following import Follow, Following, Start
from ...protocol.limits import MIB
from ...protocol.records.plain_records import WrongRecordsNamed, by_partition, check_records, keyed
from ...protocol.types import NO_OFFSET, AppendResult, Bytes, Record, TimestampAndOffset, TopicPartition, range_of
from ..broker import Broker, BrokerStatistics, PlainRecord, TopicDescription
from ..config.broker_config import Address, BrokerConfig
from ..fake.clock import MovedClock
from ..fake.life import EMBEDDED, Life, Seed, noted
from ..fake.token_issuer import TokenIssuer
from ..fake.views.fault_views import FaultsView, RequestsView
from ..fake.views.groups_view import GroupsView
from ..fake.views.log_view import LogView
from ..fake.views.share_groups_view import ShareGroupsView
from ..fake.views.streams_groups_view import StreamsGroupsView
from ..listeners.addresses import Addresses
from ..loop.procedures import perform
from .follow import ReadOn
from .living import LOCALHOST, directory_like, living
from .records import TIMEOUT_MS, Transaction, from_offset, partition_of, range_of_times

if TYPE_CHECKING:
    from ..fake.views.story import Story

T = TypeVar("T")


class Listening(Protocol):
    """A broker of any face."""

    @property
    def path(self) -> str: ...
    @property
    def native(self) -> Address | None: ...
    @property
    def kafka(self) -> Address | None: ...


def describe_broker(broker: Listening, *, is_running: bool = True) -> str:
    """The `repr` of a broker: where it is."""
    listeners = "".join(f" {name}={at}" for name, at in (("native", broker.native), ("kafka", broker.kafka)) if at is not None)
    return f"<{type(broker).__name__} {broker.path}{listeners}{'' if is_running else ', down'}>"


@attrs.define(eq=False, repr=False)
class EmbeddedBroker:
    """A running broker, to be called from the trio thread that runs it."""

    life: Life
    path: str
    seed: Seed = attrs.field(factory=Seed)
    """What a new directory has."""
    metrics: Address | None = None
    """Where /metrics, /livez and /readyz are answered; None where they are not."""
    faults: FaultsView = attrs.field(init=False)
    """What goes wrong; see docs/testing-with-triolog.md."""
    requests: RequestsView = attrs.field(init=False)
    """What Kafka clients asked for."""
    groups: GroupsView = attrs.field(init=False)
    """What groups have committed, and what upsets them."""
    share_groups: ShareGroupsView = attrs.field(init=False)
    """What share groups have begun in partitions, and who has it until when."""
    streams_groups: StreamsGroupsView = attrs.field(init=False)
    """What applications of Kafka Streams consist of, who runs which tasks, and what is wrong."""
    _is_lasting: bool = False
    _calls_by_key: int = 0

    def __attrs_post_init__(self) -> None:
        self.faults = FaultsView(self.life.faults, self.life.disk_faults)
        self.requests = RequestsView(self.life.requests)
        self.groups = GroupsView(lambda: self.core, self.faults)
        self.share_groups = ShareGroupsView(lambda: self.core)
        self.streams_groups = StreamsGroupsView(lambda: self.core)

    def __repr__(self) -> str:
        return describe_broker(self, is_running=self.life.is_running)

    @property
    def core(self) -> Broker:
        """The door that listeners use. Raises NotRunningError after a crash."""
        return self.life.core

    @property
    def native(self) -> Address | None:
        """Return the address of the native listener; None without one."""
        return self.life.addresses.native

    @property
    def kafka(self) -> Address | None:
        """Return the address of the Kafka listener; None without one."""
        return self.life.addresses.kafka

    @property
    def bootstrap_servers(self) -> str:
        """Return the address for `bootstrap.servers` of Kafka clients. Raises RuntimeError without such a listener."""
        if self.kafka is None:
            raise RuntimeError('the broker has no listener for Kafka clients. Open it with kafka="127.0.0.1:0"')
        return str(self.kafka)

    @property
    def clock(self) -> MovedClock:
        """The broker's wall clock; deadlines too, if trio runs by it (`trio.run(main, clock=...)`)."""
        return self.life.clock

    @property
    def tokens(self) -> TokenIssuer:
        """The issuer of the tokens with which users log in by OAUTHBEARER. Raises RuntimeError without one."""
        if self.life.tokens is None:
            raise RuntimeError("the broker issues no tokens; open it for tests with oauth=True")
        return self.life.tokens

    async def start_schema_registry(self) -> str:
        """Start the schema registry on a port of 127.0.0.1, unless it is started, and return its URL (extra `registry`).

        It speaks Confluent's REST API and keeps schemas in the topic `_schemas`. It serves until the broker's block ends, also
        after `restart` and `reset`. Raises InvalidConfigError without the packages of the extra.
        """
        return f"http://{await self.life.serve_registry(LOCALHOST)}"

    def log(self, topic: str) -> LogView:
        """The records of a topic."""
        return LogView(lambda: self.core, topic, lambda: self.life.odd_logs)

    def story(self, *, client_id: str | None = None, group: str | None = None) -> Story:
        """Tell in sentences what Kafka clients did, as far as the last 4,096 requests say: `print(broker.story())`.
        `client_id`, `group`: only of these; names may have `*` and `?`."""
        from ..fake.views.story import story_of  # most tests do not ask

        return story_of(self.life.requests, client_id=client_id, group=group)

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
        """Be as at the beginning: no records, topics, groups, transactions, faults, requests; then what was seeded. Kafka
        clients without a login or TLS stay connected. Only for a directory that goes with the block. Raises RuntimeError."""
        if self._is_lasting:
            raise RuntimeError(f"reset() would delete {self.path}. It is for brokers without a path of yours")
        await self.life.reset(self.seed.put)

    async def snapshot(self, path: str | os.PathLike[str]) -> None:
        """Put a copy of all data into `path`, which is empty or not there; a broker can be opened on it."""
        await self.life.snapshot(Path(path))

    @asynccontextmanager
    async def fork(self) -> AsyncIterator[EmbeddedBroker]:
        """Another broker for the time of the block, with what this one has now: data, settings and time. It has ports of its
        own, no clients, and no faults; from then on each goes its own way. Raises NotRunningError."""
        with directory_like(self.path) as directory:
            async with open_fork(await self.forked_into(directory)) as fork:
                yield fork

    async def forked_into(self, directory: str) -> Fork:
        """Put what a fork begins with into an empty directory; `open_fork` opens it."""
        life = self.life
        _ = life.core
        await life.snapshot(Path(directory), durable=False)
        config = attrs.evolve(
            life.config,
            data_dirs=(directory,),
            durable=False,
            kafka_advertised=None,
            metrics=None,
            schema_registry=None,
        )
        ports = Addresses(*(None if each is None else Address(each.host, 0) for each in (self.native, self.kafka)))
        clock = life.clock.copy()
        tokens = None if life.tokens is None else life.tokens.copy(clock.now_ms)
        life_of = partial(Life, node_count=life.node_count, kafka_version=life.kafka_version, tokens=tokens)
        return Fork(directory, config, ports, life_of, clock, self.seed)

    async def apply_retention(self) -> int:
        """Apply retention now, by the broker's clock, and answer how many segments were taken out."""
        return await self.core.logs.apply_retention()

    async def statistics(self) -> BrokerStatistics:
        """Everything in numbers: topics, lags, the loss window, syncs, what reaches the disks and how long they last."""
        return await self.core.statistics()

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
        await self._noted("create_topic", [name], self.core.topics.create(name, partitions, config))

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and its records. Raises RequestError."""
        await self._noted("delete_topic", [name], self.core.topics.delete(name))

    async def alter_config(self, name: str, changes: Mapping[str, str], deletes: Sequence[str] = ()) -> None:
        """Set topic keys, and let others follow the defaults again; in effect when this returns. Raises RequestError."""
        names = [f"{name}: {key}" for key in (*changes, *deletes)]
        await self._noted("alter_config", names, self.core.topics.alter_configs(name, changes, deletes))

    async def alter_group_config(self, group: str, changes: Mapping[str, str], deletes: Sequence[str] = ()) -> None:
        """Set keys of a group, which need not be there yet, and let others follow the defaults again; in effect when this
        returns. Raises RequestError."""
        gone = frozenset(deletes)
        changing = self.core.group_configs.change(
            group, lambda before: {key: value for key, value in before.items() if key not in gone} | dict(changes)
        )
        await self._noted("alter_group_config", [f"group {group}: {key}" for key in (*changes, *deletes)], changing)

    async def create_partitions(self, name: str, total: int) -> None:
        """Let a topic have `total` partitions, more than it has. Raises RequestError."""
        await self._noted("create_partitions", [name], self.core.topics.create_partitions(name, total))

    async def delete_records(self, topic: str, before_offset: int = -1, *, partition: int = 0) -> int:
        """Delete the records below an offset (-1: all) and answer the first offset that is left. Raises RequestError."""
        deleting = self.core.logs.delete_records(TopicPartition(topic, partition), before_offset)
        return await self._noted("delete_records", [f"{topic}-{partition}"], deleting)

    async def _noted(self, call: str, names: Sequence[str], change: Awaitable[T]) -> T:
        return await noted(self.core, EMBEDDED, call, names, change)

    def topics(self) -> list[str]:
        """Names of all topics."""
        return list(self.core.topics.names())

    def describe_topic(self, name: str) -> TopicDescription:
        """Identity, overridden configuration, offsets and sizes. Raises RequestError."""
        return self.core.topics.describe(name)

    async def append(
        self,
        topic: str,
        records: Bytes | Sequence[PlainRecord | bytes],
        *,
        key: bytes | None = None,
        partition: int | None = None,
        acks: int = -1,
        expected_offset: int | None = None,
    ) -> AppendResult:
        """Append to a partition: whole record batches as bytes, or values, or (timestamp_ms, key, value, headers).

        `key`: the key of values that are no tuples. `partition`: by default the one that Kafka's clients choose for `key`.
        Without a key all records go into partition 0, also tuples with keys of their own: use `append_by_key` to spread them as
        Kafka's clients do. `expected_offset`: only if the partition ends there; else ExpectedOffsetError, which says where it
        does. All records are stored or none. Cancelled before the append is enqueued nothing has happened; after that the
        outcome is unknown. Raises RequestError; TypeError for what is no record, which says where.
        """
        where = TopicPartition(topic, partition or 0 if key is None else partition_of(self.core, topic, key, partition))
        if isinstance(records, bytes | bytearray | memoryview):
            return await self.core.writer.append(where, records, acks=acks, expected_offset=expected_offset)
        with WrongRecordsNamed(topic, records):
            return await self.core.writer.append(where, keyed(records, key), acks=acks, expected_offset=expected_offset)

    async def append_by_key(self, topic: str, records: Sequence[PlainRecord | bytes]) -> dict[int, AppendResult]:
        """Append each record to the partition that Kafka's clients choose for its key; those without one go to one partition
        together, to the next with each call. Answers what was stored in which partition. All records of one partition are
        stored or none. Raises RequestError, of one partition, when the others have been answered; TypeError for what is no
        record, and then nothing is stored."""
        check_records(topic, records)
        partitions = self.core.topics.partition_count(topic)
        self._calls_by_key += 1
        parts = by_partition(records, partitions, self._calls_by_key % partitions)
        results: dict[int, AppendResult] = {}
        errors: list[RequestError] = []

        async def append(partition: int, part: list[PlainRecord]) -> None:
            try:
                results[partition] = await self.core.writer.append(TopicPartition(topic, partition), part)
            except RequestError as exc:
                errors.append(exc)

        async with trio.open_nursery() as nursery:
            for partition, part in parts.items():
                nursery.start_soon(append, partition, part)
        if errors:
            raise errors[0]
        return {partition: results[partition] for partition in sorted(results)}

    async def fetch(
        self,
        topic: str,
        offset: int | None = None,
        *,
        partition: int = 0,
        start_timestamp: int | None = None,
        end_timestamp: int | None = None,
        committed_only: bool = True,
        max_bytes: int = MIB,
        max_wait_s: float = 0.0,
    ) -> list[Record]:
        """Records from `offset` on (by default 0), about `max_bytes` of them; waits up to `max_wait_s` for the first. To read
        on, fetch from one after the last record's offset. An empty list means that the partition has no more records.

        `committed_only`: leave out records of aborted transactions, and stop before the first open one. With False all records
        up to the high watermark come.

        With one of the timestamps (ms) only the records of that range of times, `end_timestamp` exclusive, in the order of
        their offsets, by default from the log start on. They are not waited for. Raises RequestError.
        """
        where, times = TopicPartition(topic, partition), range_of(start_timestamp, end_timestamp)
        if times is not None:
            first = NO_OFFSET if offset is None else offset
            return await range_of_times(self.core, where, first, times, max_bytes, committed_only=committed_only)
        return await from_offset(self.core, where, offset or 0, max_bytes, max_wait_s, committed_only=committed_only)

    async def offset_for_time(self, topic: str, timestamp_ms: int, *, partition: int = 0) -> TimestampAndOffset:
        """The first record with a timestamp >= `timestamp_ms` (-1 latest, -2 earliest, -3 max timestamp); offset -1: none."""
        return await self.core.reader.offset_for_time(TopicPartition(topic, partition), timestamp_ms)

    async def offsets_for_times(
        self, questions: Sequence[tuple[TopicPartition, int]]
    ) -> list[TimestampAndOffset | RequestError]:
        """`offset_for_time` for many partitions at once, in the order asked."""
        return await perform(self.core.reader.offsets_for_times(questions))

    def follow(
        self,
        topics: str | Sequence[str],
        *,
        group: str | None = None,
        start: Start = "earliest",
        start_offset: int | None = None,
        start_timestamp: int | None = None,
        committed_only: bool = True,
        max_bytes: int = MIB,
        max_wait_s: float = math.inf,
    ) -> Follow:
        """The records of all partitions of topics, one by one, for ever: `async for record in broker.follow("readings")`.

        `group`: go on where it has committed; each record, and the follow, can commit for it. A follow is no member of its
        group: two of them both get everything. Where the group has committed nothing, or there is none: from `start` (of every
        partition: earliest or latest as it is at the first record that is asked for), `start_offset`, or the first record at or
        after `start_timestamp` (ms). `committed_only`: leave out what transactions have aborted, and do not overtake open ones.
        `max_bytes`: size of one read. `max_wait_s`: end when nothing has come for so long; 0: at the end of what there is.

        Partitions that come later are read from their beginning. Where records were deleted it goes on behind them; a topic
        that is deleted ends it with UnknownTopicOrPartitionError. Raises RequestError, ValueError.
        """
        following = Following(
            topics=(topics,) if isinstance(topics, str) else tuple(topics),
            group=group,
            start=start,
            start_offset=start_offset,
            start_timestamp=start_timestamp,
            committed_only=committed_only,
            max_bytes=max_bytes,
            max_wait_s=max_wait_s,
        )
        return Follow(ReadOn(lambda: self.core, following), self.groups.commit)

    def transaction(self, transactional_id: str, *, timeout_ms: int = TIMEOUT_MS) -> Transaction:
        """A transaction: `async with broker.transaction("copier") as transaction`. Who has the id besides is fenced off when it
        begins. One that is open for longer than `timeout_ms` is aborted."""
        return Transaction(lambda: self.core, transactional_id, timeout_ms)


@attrs.frozen
class Fork:
    """The parts that a fork of the broker begins with."""

    directory: str
    config: BrokerConfig
    ports: Addresses
    life_of: Callable[..., Life]
    clock: MovedClock
    seed: Seed


@asynccontextmanager
async def open_fork(fork: Fork) -> AsyncIterator[EmbeddedBroker]:
    """The fork for the time of the block. Raises what keeps it from starting."""
    async with living(fork.life_of, fork.config, fork.ports, fork.clock) as running:
        yield EmbeddedBroker(running.life, fork.directory, fork.seed)
