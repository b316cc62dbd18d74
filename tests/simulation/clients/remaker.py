"""Who deletes a topic and creates it again under its name, and who writes to it by its name meanwhile.

Nothing of one life of the topic is in the next. That is judged on the spot: by its name alone a client does not know to which
life a record went, so the history cannot say it. `topic_lives` has a topic whose clients name its id.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs
import trio
from triolog.protocol.errors import ErrorCode, RequestError, TriologError
from triolog.protocol.native.messages import ProducePartition, ProduceRequest
from triolog.protocol.records.builder import build_batch
from triolog.protocol.records.record import iter_records
from triolog.protocol.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition
from triolog.server.broker import Broker
from triolog.tools.client.admin import Admin
from triolog.tools.client.producer import Producer, SentRecord, open_producer

from tests.simulation.clients.inhabitant import Inhabitant, native_client
from tests.simulation.clients.readers import Native
from tests.simulation.history import Happened, Wrong
from tests.simulation.script import Step
from tests.support.brokers import batches_from

ACKS_ALL: Final = -1
TIMEOUT_MS: Final = 5000
NEVER: Final = float("inf")


@attrs.define(eq=False)
class Remaker(Native):
    """Its group has the same name in every life."""

    _life: int = 0
    _is_there: bool | None = False
    """None: it is to be deleted, and whether it was nobody knows."""
    _sent: int = 0
    _acknowledged: dict[str, int] = attrs.field(factory=dict)
    """Of this life: where each record is."""
    _trimmed: int = 0
    """Up to where deletions of this life were asked for."""
    _commits: bool = False
    """Whether an offset of this life was, or may have been, committed."""
    _asked_at: float = NEVER
    """When the creation of this life was first requested: also a request without an answer may have created it."""
    _creation: tuple[float, float] = (0.0, 0.0)
    """The same, and when it was answered."""

    @property
    def _where(self) -> TopicPartition:
        return TopicPartition(f"remade-{self.who.split()[1]}", 0)

    @property
    def _admin(self) -> Admin:
        return Admin(self.client)

    async def fill(self, count: int, share: float) -> None:
        """Some records, and some of them deleted."""
        try:
            if self._is_there is None:
                await self._delete()
            if not self._is_there:
                await self._create()
            await self._look()
            for _ in range(count):
                await self._produce()
            await self._trim(share)
            self._commits = True
            await self._admin.commit_group_offsets(self.who, {self._where: count})
        except TriologError as exc:
            self.world.add(Happened(**self.now(), what=f"fill: {exc!r}"))

    async def remake(self, count: int, share: float) -> None:
        if self._is_there:
            self._is_there = None
        await self.fill(count, share)

    async def _create(self) -> None:
        self._asked_at = min(self._asked_at, trio.current_time())
        try:
            await self._admin.create_topic(self._where.topic, 1, {"segment.bytes": "700", "file.delete.delay.ms": "2000"})
        except RequestError as exc:
            if exc.code is not ErrorCode.TOPIC_ALREADY_EXISTS or "is being deleted" in exc.message:
                raise
        self._is_there, self._creation = True, (self._asked_at, trio.current_time())

    async def _delete(self) -> None:
        try:
            await self._admin.delete_topics(self._where.topic)
        except RequestError as exc:
            if exc.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        self._life, self._is_there, self._trimmed, self._commits = self._life + 1, False, 0, False
        self._asked_at = NEVER
        self._acknowledged.clear()

    async def _produce(self) -> None:
        self._sent += 1
        name = f"{self.who}:{self._life}:{self._sent}"
        part = ProducePartition(*self._where, build_batch([(self.a_timestamp(), None, name.encode(), ())]))
        response = await self.client.produce(ProduceRequest((part,), ACKS_ALL, TIMEOUT_MS, None))
        assert response is not None
        [answer] = response.partitions
        if answer.error is not None:
            raise answer.error
        self._acknowledged[name] = answer.base_offset

    async def _trim(self, share: float) -> None:
        before = int(share * (max(self._acknowledged.values(), default=-1) + 1))
        if before > self._trimmed:
            self._trimmed = before
            await self._admin.delete_records({self._where: before})

    async def _look(self) -> None:
        first = (await self._admin.offsets_for_times({self._where: EARLIEST_TIMESTAMP}))[self._where].offset
        end = (await self._admin.offsets_for_times({self._where: LATEST_TIMESTAMP}))[self._where].offset
        self._judge(first, end)
        found = await self._admin.group_offsets(self.who, [self._where])
        if found and not self._commits:
            self._wrong(f"has inherited the committed offset {found[self._where].offset}")

    def _judge(self, first: int, end: int) -> None:
        if first > self._trimmed:
            self._wrong(f"begins at {first}, and was trimmed to {self._trimmed}")
        last = max(self._acknowledged.values(), default=-1)
        if end <= last and self.world.script.durability == "fsync":
            self._wrong(f"ends at {end}, and offset {last} was acknowledged")

    async def judge_records(self, broker: Broker, namers: Iterable[Namer]) -> None:
        """Judge the records at the end: they are of this life, and all that was acknowledged is there unless a loss may have
        taken it."""
        if not self._is_there:
            return
        snapshot = broker.reader.snapshot(self._where)
        self._judge(snapshot.log_start_offset, snapshot.log_end_offset)
        found = [
            bytes(record.value or b"").decode()
            async for header, batch, _ in batches_from(broker, self._where, snapshot.log_start_offset)
            for record in iter_records(batch, header)
            if not header.is_control and record.offset >= snapshot.log_start_offset  # a control batch covers a gap
        ]
        names = set(found)
        if len(names) < len(found):
            self._wrong(f"has records twice: {sorted(found)}")
        of_others = {name: sent for namer in namers for name, sent in namer.sent.items()}
        mine = f"{self.who}:{self._life}:"
        if strange := [name for name in names if not (name.startswith(mine) or self._may_be_here(of_others.get(name)))]:
            self._wrong(f"is in its life {self._life}, and has {sorted(strange)}")
        kept = {name for name, offset in self._acknowledged.items() if offset >= snapshot.log_start_offset}
        kept |= {
            name
            for name, sent in of_others.items()
            if sent.began > self._creation[1] and sent.offset >= snapshot.log_start_offset
        }
        if self.world.script.durability == "fsync" and (lost := kept - names):
            self._wrong(f"has lost {sorted(lost)}")

    def _may_be_here(self, sent: NamedRecord | None) -> bool:
        """Whether a record may have come to this life: nobody was told before its creation that it is stored."""
        return sent is not None and not sent.answered < self._creation[0]

    def _wrong(self, said: str) -> None:
        self.world.add(Wrong(**self.now(), kind="remade", detail=f"{self._where} {said}"))


@attrs.define
class NamedRecord:
    began: float
    answered: float = NEVER
    """When it was acknowledged."""
    offset: int = -1


@attrs.define(eq=False)
class Namer(Inhabitant):
    """The product's own producer, idempotent, which knows the topic by its name and does not wait for acknowledgements."""

    sent: dict[str, NamedRecord] = attrs.field(factory=dict)
    _producer: Producer | None = None
    _nursery: trio.Nursery | None = None

    async def run(self, steps: list[Step]) -> None:
        async with (
            native_client(self.world) as client,
            open_producer(client, delivery_timeout_ms=15_000, request_timeout_ms=4000, max_block_ms=4000) as self._producer,
            trio.open_nursery() as self._nursery,
        ):
            await super().run(steps)

    async def name(self, topic: str, count: int) -> None:
        assert self._producer is not None
        assert self._nursery is not None
        for _ in range(count):
            name = f"{self.who}:{len(self.sent)}"
            record = self.sent[name] = NamedRecord(trio.current_time())
            try:
                future = await self._producer.send(topic, name.encode(), partition=0, timestamp_ms=self.a_timestamp())
            except TriologError as exc:
                self.world.add(Happened(**self.now(), what=f"{name}: {exc!r}"))
            else:
                self._nursery.start_soon(self._await, record, future)

    async def _await(self, record: NamedRecord, future: SentRecord) -> None:
        try:
            metadata = await future
        except TriologError as exc:
            self.world.add(Happened(**self.now(), what=f"name: {exc!r}"))
        else:
            record.answered, record.offset = trio.current_time(), metadata.offset
