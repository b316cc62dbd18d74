"""What a script knows of the brokers: from it a request is drawn that means something. It learns from Kafka's answers."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import attrs
from triolog.protocol.types import CompressionType

from tests.kafka.differential.symbols import MADE_UP_ID, Batch, Symbol
from tests.support.kafka_wire import api_of
from tests.support.record_batches import RecordTuple

T = TypeVar("T")

NOON: Final = 1_700_000_000_000
"""About when records were made."""
ROLLING: Final = "small"
"""The topic whose segments end by time."""
TOPICS: Final = ("plain", "wide", "stamped", ROLLING, "packed", "compacted", "brief", "odd")
GROUPS: Final = ("readers", "writers", "others")
TRANSACTIONAL_IDS: Final = ("payments", "orders", "moves")
APPLICATIONS: Final = ("words", "pairs", "rows")
"""Streams groups."""
PROCESSES: Final = {"a": "p", "b": "q", "c": "q"}
"""Of their members. Among more than two that are loaded alike, who gets a task is a matter of Kafka's queues: a deviation."""
FENCE: Final = "fence"
"""A topic that stays, and of which scripts know nothing."""
STEADY: Final = "steady"
"""Another that stays, of three partitions, which an application reads."""
UNKNOWN: Final = "no-such-topic"


def forget(_: Any) -> None:
    """An answer that teaches nothing."""


@attrs.frozen(kw_only=True)
class Step:
    body: Any
    version: int
    learn: Callable[[Any], None] = forget
    """Called with Kafka's plain answer."""
    changes_metadata: bool = False
    transactional_id: str = ""
    """Whose markers are waited for."""
    internal_topics: tuple[str, ...] = ()
    """What a Streams application needs: made when the answer says that they are missing."""
    rolled: frozenset[Any] = frozenset()
    """Topics, by name and id, whose segments may differ."""
    connection: str = ""
    """Whose; "" is that of the script."""


@attrs.define(eq=False)
class Topic:
    name: str
    partitions: int
    id: Symbol | bytes = MADE_UP_ID
    ends: dict[int, int] = attrs.field(factory=dict)
    """Offsets that are known to be behind records."""
    may_have_rolled: bool = False
    """Kafka may have begun a segment for a batch that it then refused."""


@attrs.define(eq=False)
class Producer:
    """An id that a broker gave. `sent` are its last batches, by partition, without what Kafka said to them."""

    id: Symbol | int
    epoch: int
    transactional_id: str = ""
    sequences: dict[tuple[str, int], int] = attrs.field(factory=dict)
    sent: dict[tuple[str, int], list[Batch]] = attrs.field(factory=dict)
    may_be_open: bool = False
    """Whether a request was made since the last end that may have begun a transaction."""
    is_new_style: bool = True
    """Joins partitions by producing (KIP-890)."""


@attrs.define(eq=False)
class Group:
    """A group and the member that it has."""

    name: str
    member: Symbol | str = ""
    instance: str | None = None
    generation: int = -1
    protocol: str = "range"
    transactions: set[str] = attrs.field(factory=set)
    """Those that have committed offsets of the group and may not have ended."""


@attrs.define(eq=False)
class Instance:
    group: str
    id: str
    process: str
    epoch: int = 0
    """0: it has not joined."""
    active: list[Any] = attrs.field(factory=list)
    standby: list[Any] = attrs.field(factory=list)
    """Tasks, as it was told last."""

    def forget(self) -> None:
        self.epoch, self.active, self.standby = 0, [], []


@attrs.define(eq=False)
class Session:
    id: Symbol
    next_epoch: int
    version: int


@attrs.define(eq=False)
class World:
    """Owner: one script."""

    rng: random.Random
    versions: Mapping[int, tuple[int, int]]
    topics: dict[str, Topic] = attrs.field(factory=dict)
    producers: list[Producer] = attrs.field(factory=list)
    groups: dict[str, Group] = attrs.field(factory=lambda: {name: Group(name) for name in GROUPS})
    instances: list[Instance] = attrs.field(
        factory=lambda: [Instance(group, *each) for group in APPLICATIONS for each in PROCESSES.items()]
    )
    unseen: set[str] = attrs.field(factory=set)
    """Streams groups of which nobody has sent a heartbeat since their internal topics were made."""
    sessions: list[Session] = attrs.field(factory=list)
    append_times: list[Symbol] = attrs.field(factory=list)
    due: list[Step] = attrs.field(factory=list)
    """What has to be asked next."""

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def one_of(self, values: Sequence[T]) -> T:
        return self.rng.choice(values)

    def mostly(self, usual: T, *others: T, usually: float = 0.85) -> T:
        return usual if self.chance(usually) else self.rng.choice(others)

    def step(self, body: Any, *, lowest: int = 0, highest: int = 99, **fields: Any) -> Step:
        """A request in one of the versions that both brokers know."""
        first, last = self.versions[api_of(body).key]
        return Step(body=body, version=self.rng.randint(max(first, lowest), min(last, highest)), **fields)

    def topic_name(self, *, usually: float = 0.95) -> str:
        if self.topics and self.chance(usually):
            return self.one_of(sorted(self.topics))
        return self.one_of([UNKNOWN, *TOPICS])

    def topic_id(self, name: str) -> Symbol | bytes:
        return self.topics[name].id if name in self.topics and self.chance(0.97) else MADE_UP_ID

    def partition(self, name: str) -> int:
        count = self.topics[name].partitions if name in self.topics else 1
        return self.mostly(self.rng.randrange(count), count, -1, 99, usually=0.96)

    def offset(self, name: str, partition: int) -> int:
        end = self.topics[name].ends.get(partition, 0) if name in self.topics else 0
        return self.mostly(self.rng.randint(0, end), end, end + 1, end + 1000, -1, -2, 2**62, usually=0.8)

    def group_name(self) -> str:
        return self.mostly(self.one_of(GROUPS), "no-such-group", usually=0.95)

    def transactional_producer(self) -> Producer | None:
        found = [producer for producer in self.producers if producer.transactional_id]
        return self.one_of(found) if found else None

    def epoch(self, current: int) -> int:
        return self.mostly(current, current - 1, current + 1, -1, usually=0.93)

    def partitions_of(self, names: Sequence[str], most: int) -> dict[str, list[int]]:
        """Some partitions by topic, none of them twice."""
        chosen: dict[str, list[int]] = {}
        for name in dict.fromkeys(names):
            chosen[name] = list(dict.fromkeys(self.partition(name) for _ in range(self.rng.randint(1, most))))
        return chosen

    def topics_of(
        self, names: Sequence[str], most: int, partition: Callable[[str, int], dict[str, Any]], *, key: str = "name"
    ) -> list[dict[str, Any]]:
        """The same as a request has it: each partition with what it says of it."""
        return [
            {key: name, "partitions": [partition(name, number) for number in numbers]}
            for name, numbers in self.partitions_of(names, most).items()
        ]

    def may_begin(self, transactional_id: str) -> None:
        """A request is on its way that may open a transaction."""
        for producer in self.producers:
            producer.may_be_open = producer.may_be_open or producer.transactional_id == transactional_id

    def has_ended(self, transactional_id: str) -> None:
        """No transaction of that id is open."""
        for producer in self.producers:
            producer.may_be_open = producer.may_be_open and producer.transactional_id != transactional_id
        for group in self.groups.values():
            group.transactions.discard(transactional_id)

    def records(self, *, keyed: bool, most: int = 12) -> tuple[RecordTuple, ...]:
        start = NOON + self.rng.randrange(100_000)
        spread = self.one_of([0, 10, 10_000])
        return tuple(
            (
                self._timestamp(start + number, spread),
                self.one_of([b"a", b"b", b"key"]) if keyed or self.chance(0.5) else None,
                None if self.chance(0.1) else self.one_of([b"", b"value", bytes(self.rng.randrange(300))]),
                (("header", self.one_of([None, b"", b"x"])),) if self.chance(0.2) else (),
            )
            for number in range(self.rng.randint(1, most))
        )

    def _timestamp(self, near: int, spread: int) -> int:
        if self.chance(0.03):
            return self.one_of([-1, -1, 0, 1])
        return near + (self.rng.randint(-spread, spread) if spread else 0)

    def codec(self) -> CompressionType:
        return self.mostly(CompressionType.NONE, *CompressionType, usually=0.5)
