"""Groups and transactions against a naive model, across clean stops and kills."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
import trio
from hypothesis import example, given
from hypothesis import strategies as st
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker

from tests.support.brokers import TOPIC, running_broker
from tests.support.transactions import TransactionalProducer, committed_values

PARTITIONS: Final = (TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1))
IDS: Final = ("first", "second")
GROUPS: Final = ("red", "blue")
SMALL_FILES: Final = {"segment.index.bytes": "1200"}

Step = tuple[str, Any]

ids, groups, partitions = st.sampled_from(IDS), st.sampled_from(GROUPS), st.sampled_from(PARTITIONS)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("start"), ids),
        st.tuples(st.just("produce"), st.tuples(ids, partitions)),
        st.tuples(st.just("produce"), st.tuples(ids, partitions)),
        st.tuples(st.just("offset"), st.tuples(ids, groups, partitions)),
        st.tuples(st.just("end"), st.tuples(ids, st.booleans())),
        st.tuples(st.just("end"), st.tuples(ids, st.booleans())),
        st.tuples(st.just("zombie"), st.tuples(ids, partitions)),
        st.tuples(st.just("plain"), partitions),
        st.tuples(st.just("commit"), st.tuples(groups, partitions)),
        st.tuples(st.just("delete"), groups),
        st.tuples(st.just("restart"), st.sampled_from(["stop", "kill"])),
    ),
    max_size=40,
)


@attrs.define(eq=False)
class Transaction:
    """None: open; else whether it has committed."""

    outcome: bool | None = None


@attrs.define(eq=False)
class Instance:
    """One instance of a producer, as the model knows it."""

    producer: TransactionalProducer
    transaction: Transaction | None = None
    last_outcome: bool | None = None
    """Of its last transaction; None before the first."""


@attrs.define(eq=False)
class Model:
    """The broker, and what it ought to say."""

    broker: Broker
    number: int = 0
    logs: dict[TopicPartition, list[tuple[str, Transaction]]] = attrs.field(factory=lambda: {each: [] for each in PARTITIONS})
    offsets: dict[tuple[str, TopicPartition], list[tuple[int, Transaction]]] = attrs.field(factory=dict)
    current: dict[str, Instance] = attrs.field(factory=dict)
    zombies: dict[str, Instance] = attrs.field(factory=dict)

    def next(self) -> int:
        self.number += 1
        return self.number

    def visible(self, partition: TopicPartition) -> list[str]:
        found = []
        for text, transaction in self.logs[partition]:
            if transaction.outcome is None:
                break
            if transaction.outcome:
                found.append(text)
        return found

    def offset(self, group: str, partition: TopicPartition) -> int:
        return next((number for number, each in reversed(self.offsets.get((group, partition), [])) if each.outcome), -1)

    def has_open_offsets(self, group: str) -> bool:
        return any(each.outcome is None for (name, _), all_ in self.offsets.items() for _, each in all_ if name == group)

    async def check(self) -> None:
        for partition in PARTITIONS:
            assert await committed_values(self.broker, partition) == self.visible(partition)
        for group in GROUPS:
            expected = [(each, offset, "") for each in PARTITIONS if (offset := self.offset(group, each)) >= 0]
            assert await self.broker.offsets.fetch(group, None) == expected

    async def start(self, name: str) -> None:
        old = self.current.get(name)
        producer = await TransactionalProducer.start(self.broker, name)
        if old is not None:
            assert producer.producer_epoch > old.producer.producer_epoch
            if old.transaction is not None:
                old.transaction.outcome = False
            self.zombies[name] = old
        self.current[name] = Instance(producer)

    def joined(self, instance: Instance) -> Transaction:
        instance.transaction = instance.transaction or Transaction()
        return instance.transaction

    async def produce(self, name: str, partition: TopicPartition) -> None:
        if name in self.current:
            text, instance = str(self.next()), self.current[name]
            await instance.producer.produce(partition, text)
            self.logs[partition].append((text, self.joined(instance)))

    async def offset_in_transaction(self, name: str, group: str, partition: TopicPartition) -> None:
        if name in self.current:
            number, instance = self.next(), self.current[name]
            await instance.producer.commit_offset(group, partition, number)
            self.offsets.setdefault((group, partition), []).append((number, self.joined(instance)))

    async def end(self, name: str, commit: bool) -> None:
        if name not in self.current:
            return
        instance = self.current[name]
        call = instance.producer.commit if commit else instance.producer.abort
        if instance.transaction is None and instance.last_outcome is (not commit):
            await expect(ErrorCode.INVALID_TXN_STATE, call)
            return
        await call()
        await call()
        if instance.transaction is not None:
            instance.transaction.outcome = instance.last_outcome = commit
            instance.transaction = None

    async def zombie(self, name: str, partition: TopicPartition) -> None:
        if name in self.zombies:
            producer = self.zombies[name].producer
            await expect(ErrorCode.PRODUCER_FENCED, lambda: producer.produce(partition, "zombie"))
            await expect(ErrorCode.PRODUCER_FENCED, producer.commit)

    async def plain(self, partition: TopicPartition) -> None:
        text = str(self.next())
        await self.broker.writer.append(partition, [(None, None, text.encode(), ())])
        self.logs[partition].append((text, Transaction(outcome=True)))

    async def commit(self, group: str, partition: TopicPartition) -> None:
        number = self.next()
        assert await self.broker.offsets.commit(group, [(partition, number, None)]) == [None]
        self.offsets.setdefault((group, partition), []).append((number, Transaction(outcome=True)))

    async def delete(self, group: str) -> None:
        if self.has_open_offsets(group):
            await expect(ErrorCode.NON_EMPTY_GROUP, lambda: self.broker.groups.delete(group))
        elif all(self.offset(group, each) < 0 for each in PARTITIONS):
            await expect(ErrorCode.GROUP_ID_NOT_FOUND, lambda: self.broker.groups.delete(group))
        else:
            await self.broker.groups.delete(group)
            for partition in PARTITIONS:
                self.offsets.pop((group, partition), None)

    async def take(self, name: str, arguments: Any) -> None:
        step: Callable[..., Any] = {"offset": self.offset_in_transaction}.get(name) or getattr(self, name)
        await (step(*arguments) if type(arguments) is tuple else step(arguments))


async def expect(code: ErrorCode, call: Callable[[], Any]) -> None:
    with pytest.RaisesExc(RequestError, check=lambda error: error.code is code):
        await call()


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[Broker]:
    async with running_broker(directory, topic=SMALL_FILES) as broker:
        if TOPIC not in broker.topics.names():
            await broker.topics.create(TOPIC, len(PARTITIONS))
        yield broker


def lives(sequence: Sequence[Step]) -> list[tuple[list[Step], str]]:
    """The steps of each life of the server, and how it ends."""
    found: list[tuple[list[Step], str]] = [([], "stop")]
    for step in sequence:
        if step[0] == "restart":
            found[-1] = (found[-1][0], step[1])
            found.append(([], "stop"))
        else:
            found[-1][0].append(step)
    return found


async def play(sequence: Sequence[Step], root: Path) -> None:
    directory, model = root / "0", None
    for number, (taken, end) in enumerate(lives(sequence), 1):
        async with serving(directory) as broker:
            model = Model(broker) if model is None else model
            model.broker = broker
            for instance in (*model.current.values(), *model.zombies.values()):
                instance.producer.broker = broker
            await model.check()
            for name, arguments in taken:
                await model.take(name, arguments)
                await model.check()
            if end == "kill":
                shutil.copytree(directory, root / str(number))
        if end == "kill":
            directory = root / str(number)


BOTH: Final[list[Step]] = [
    ("start", "first"),
    *(("produce", ("first", each)) for each in PARTITIONS),
    ("offset", ("first", "red", PARTITIONS[0])),
]
"""A transaction that is left open."""


@given(steps)
@example([("start", "first"), ("produce", ("first", PARTITIONS[0])), ("restart", "kill"), ("end", ("first", True))])
@example(
    [("start", "first"), ("offset", ("first", "red", PARTITIONS[0])), ("commit", ("red", PARTITIONS[0])), ("start", "first")]
)
@example([*BOTH, ("end", ("first", True)), ("start", "first"), ("commit", ("blue", PARTITIONS[1])), ("restart", "kill")])
@example([*BOTH, ("end", ("first", False)), ("produce", ("first", PARTITIONS[0])), ("end", ("first", True))])
@example([("commit", ("red", PARTITIONS[0])), *BOTH, ("restart", "stop"), ("produce", BOTH[1][1]), ("end", ("first", True))])
@example(
    [*BOTH, ("restart", "stop"), ("start", "first"), ("commit", ("red", PARTITIONS[0])), ("delete", "red"), ("restart", "stop")]
)
def test_any_sequence_of_calls_gives_what_the_model_says(sequence: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as root:
        trio.run(play, sequence, Path(root))
