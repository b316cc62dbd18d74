"""Who writes with transactions: movers, two of which share an identity, and pipes, that read, write and commit exactly once."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import attrs
import trio
from triolog.protocol.errors import TriologError
from triolog.protocol.native.messages import TransactionProducer
from triolog.protocol.types import TopicPartition
from triolog.tools.client.connection import Client
from triolog.tools.client.procedures import groups as group_procedures
from triolog.tools.client.producer import Producer, SentRecord, open_producer
from triolog.tools.client.transaction import Transaction

from tests.simulation import history as h
from tests.simulation.clients.inhabitant import Inhabitant, KafkaConnection, native_client
from tests.simulation.clients.producers import KafkaProducer
from tests.simulation.clients.readers import fetch, fields_of
from tests.simulation.copies import copy_id
from tests.simulation.script import Step

OPTIONS: Final = {
    "delivery_timeout_ms": 8000,
    "request_timeout_ms": 3000,
    "max_block_ms": 8000,
    "transaction_timeout_ms": 6000,
    "linger_ms": 0,
}


@attrs.define(eq=False)
class Transactional(Inhabitant):
    """Has a producer, and another one when that was fenced or does not know."""

    _client: Client | None = None
    _transactions: int = 0
    _sent: int = 0
    _incarnation: int = 0
    _identity: TransactionProducer | None = None
    _on_their_way: dict[str, tuple[TopicPartition, SentRecord]] = attrs.field(factory=dict)

    @property
    def transactional_id(self) -> str:
        return self.who

    async def run(self, steps: list[Step]) -> None:
        left = deque(steps)
        async with native_client(self.world) as self._client:
            while left:
                await trio.sleep_until(left[0].at_ms / 1000)
                try:
                    await self._one_producer(self._client, left)
                except* TriologError:
                    await trio.sleep(0.2)

    async def _one_producer(self, client: Client, steps: deque[Step]) -> None:
        """As long as it is good. Raises TriologError, or a group of them."""
        async with open_producer(client, transactional_id=self.transactional_id, **OPTIONS) as producer:
            self._incarnation += 1
            self._identity = None
            self._introduced(producer)
            while steps:
                await trio.sleep_until(steps[0].at_ms / 1000)
                if not await self.one(producer, steps.popleft()):
                    return

    @property
    def _name(self) -> str:
        return f"{self.who}/{self._incarnation}"

    def _introduced(self, producer: Producer) -> None:
        """A producer takes another epoch by itself, too, where a call had to be repeated. One that is new may get an epoch that
        this inhabitant has had already: it was lost and is given out again."""
        assert producer._transactions is not None
        identity = producer._transactions.state.producer
        if identity != self._identity:
            self._identity = identity
            self.world.add(
                h.Introduced(
                    **self.now(),
                    transactional_id=self.transactional_id,
                    producer=self._name,
                    producer_id=identity.producer_id,
                    epoch=identity.producer_epoch,
                )
            )

    async def one(self, producer: Producer, step: Step) -> bool:
        """Do a step; whether the producer is still good."""
        raise NotImplementedError

    async def transact(
        self,
        producer: Producer,
        records: Sequence[tuple[TopicPartition, str]],
        *,
        end: str,
        pause_ms: int = 0,
        group: str = "",
        offsets: Mapping[TopicPartition, int] | None = None,
    ) -> bool:
        """One transaction. Whether its outcome is known."""
        async with trio.open_nursery() as nursery:
            known = await self._transact(
                nursery, producer, records, end=end, pause_ms=pause_ms, group=group, offsets=offsets or {}
            )
            nursery.cancel_scope.cancel()
        return known

    async def _transact(
        self,
        nursery: trio.Nursery,
        producer: Producer,
        records: Sequence[tuple[TopicPartition, str]],
        *,
        end: str,
        pause_ms: int,
        group: str,
        offsets: Mapping[TopicPartition, int],
    ) -> bool:
        self._transactions += 1
        name = f"{self.who} transaction {self._transactions}"
        transaction = producer.transaction()
        outcome: bool | None
        try:
            await transaction.begin()
            self._introduced(producer)
            for number, (where, identity) in enumerate(records):
                if number == len(records) // 2:
                    await trio.sleep(pause_ms / 1000)
                record = h.Sent(identity, self.a_timestamp())
                self.world.add(h.Send(**self.now(), partition=where, producer=self._name, records=(record,), transaction=name))
                key, value, headers = fields_of(identity)
                future = await producer.send(
                    where.topic, value, key=key, headers=headers, partition=where.partition, timestamp_ms=record.timestamp
                )
                self._on_their_way[identity] = where, future
                nursery.start_soon(self._await, identity, future)
            for where, offset in offsets.items():
                self.world.add(h.CommitsOffset(**self.now(), group=group, partition=where, offset=offset, transaction=name))
            if offsets:
                await transaction.send_offsets(group, offsets)
            if end == "abort":
                await transaction.abort()
                outcome = False
            else:
                await transaction.commit()
                outcome = True
        except TriologError:
            outcome = await self._abort(transaction)
        for identity in list(self._on_their_way):
            self._settle(identity)
        self._on_their_way.clear()
        self.world.add(h.Ended(**self.now(), transaction=name, is_committed=outcome))
        return outcome is not None

    async def _abort(self, transaction: Transaction) -> bool | None:
        try:
            await transaction.abort()
        except TriologError:
            return None
        return False

    async def _await(self, identity: str, future: SentRecord) -> None:
        with suppress(TriologError):
            await future
        self._settle(identity)

    def _settle(self, identity: str) -> None:
        """Say what became of a record, once that is known."""
        where, future = self._on_their_way.get(identity, (None, None))
        if where is None or future is None or not future.is_done:
            return
        del self._on_their_way[identity]
        try:
            metadata: Any = future.value()
        except TriologError as exc:
            self.world.add(h.GivenUp(**self.now(), ids=(identity,), error=repr(exc)))
        else:
            self.world.add(h.Acknowledged(**self.now(), partition=where, ids=(identity,), base_offset=metadata.offset))


@attrs.define(eq=False)
class Mover(Transactional):
    """Fences the other one, and is fenced by it."""

    @property
    def transactional_id(self) -> str:
        return "mover"

    async def one(self, producer: Producer, step: Step) -> bool:
        records = []
        for part in step.args["parts"]:
            for _ in range(part["count"]):
                records.append((TopicPartition(part["topic"], part["partition"]), f"{self.who}:{self._sent}"))
                self._sent += 1
        return await self.transact(producer, records, end=step.args["end"], pause_ms=step.args["pause_ms"])


@attrs.define(eq=False)
class Pipe(Transactional):
    """Copies what is committed in `in` to `out`, of every second partition, with its offsets."""

    _kafka: KafkaConnection = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._kafka = KafkaConnection(self.world)

    async def one(self, producer: Producer, step: Step) -> bool:
        assert self._client is not None
        mine = range(int(self.who[-1]), self.world.partitions["in"], 2)
        for number in mine:
            where = TopicPartition("in", number)
            try:
                found = await self._client.run(group_procedures.fetch_offsets("pipe", [where], require_stable=True))
            except TriologError:
                continue
            position = found[where].offset if where in found else 0
            fetched = await fetch(self._kafka, where, position, is_committed=True, max_bytes=2000)
            if fetched is None or fetched.error_code or fetched.next_position == position:
                continue
            transaction = f"{self.who} transaction {self._transactions + 1}"
            self.world.add(fetched.polled(self.now(), where, position, is_committed=True, transaction=transaction))
            out = TopicPartition("out", number % self.world.partitions["out"])
            copies = [(out, copy_id(record.id, transaction)) for record in fetched.records]
            offsets = {where: fetched.next_position}
            if not await self.transact(producer, copies, end=step.args["end"], group="pipe", offsets=offsets):
                return False
        return True


KEYS: Final = 5
TOMBSTONES: Final = 0.15


def with_key(name: str, rng: random.Random) -> str:
    """The id of a record that has a key."""
    tombstone = h.TOMBSTONE_MARK if rng.random() < TOMBSTONES else ""
    return f"{name}{h.KEY_MARK}k{rng.randrange(KEYS)}{tombstone}"


@attrs.define(eq=False)
class KeyedProducer(KafkaProducer):
    def name(self, number: int) -> str:
        return with_key(super().name(number), self.rng)


@attrs.define(eq=False)
class Keeper(Transactional):
    """Changes some keys at once, or takes that back."""

    async def one(self, producer: Producer, step: Step) -> bool:
        where = TopicPartition(step.args["topic"], step.args["partition"])
        names = [with_key(f"{self.who}:{self._sent + number}", self.rng) for number in range(step.args["count"])]
        self._sent += len(names)
        return await self.transact(producer, [(where, name) for name in names], end=step.args["end"])
