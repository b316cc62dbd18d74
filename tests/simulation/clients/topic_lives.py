"""A topic that an administrator deletes, creates again, grows and configures while clients write and read it by its id.

Each life of the topic has a name of its own in the history, by its topic id. So everything that the checker knows of partitions
holds for each life, and a record of one life in another is one that nobody sent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple

import attrs
import trio
from triolog.protocol.errors import ErrorCode, RequestError, TriologError
from triolog.protocol.types import LATEST_TIMESTAMP, TopicPartition
from triolog.server.listeners.kafka.door import NO_TOPIC_ID
from triolog.tools.client.admin import Admin

from tests.simulation.clients.inhabitant import KafkaConnection, KafkaInhabitant, Surroundings
from tests.simulation.clients.kafka_transactions import KafkaMover
from tests.simulation.clients.producers import PATIENCE_S, PRODUCE_BY_ID_VERSION, KafkaProducer
from tests.simulation.clients.readers import Native, fetch, log_start
from tests.simulation.clients.transactions import with_key
from tests.simulation.history import (
    Configured,
    Configures,
    Deleted,
    Moved,
    Refused,
    Seen,
    Trimmed,
    Trims,
)
from tests.simulation.lives import LIVING
from tests.support.kafka_wire import ask

METADATA_VERSION: Final = 12
PAUSE_S: Final = 0.2
STALE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


class Life(NamedTuple):
    """The topic as a client knows it."""

    name: str
    """In the history."""
    topic_id: bytes
    partitions: int

    @property
    def all_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, number) for number in range(self.partitions)]


async def look_up(world: Surroundings, kafka: KafkaConnection, now: Callable[[], dict[str, Any]]) -> Life | None:
    """The topic; None: it does not exist, or nobody knows."""
    begun_ms = world.at_ms()
    request = ask("Metadata", topics=[{"topic_id": bytes(16), "name": LIVING}], allow_auto_topic_creation=False)
    answer = await kafka.call(request, METADATA_VERSION)
    if answer is None or answer.topics[0].error_code:
        return None
    [topic] = answer.topics
    name = world.lives.name(bytes(topic.topic_id))
    world.add(Seen(**now(), topic=name, begun_ms=begun_ms))
    return Life(name, bytes(topic.topic_id), len(topic.partitions))


@attrs.define(eq=False)
class TopicOwner(Native):
    """The only one who changes the topic. A call without an answer is made again until it has one."""

    _life: Life | None = None
    _config: dict[str, str] = attrs.field(factory=dict)

    @property
    def _admin(self) -> Admin:
        return Admin(self.client)

    async def begin(self, partitions: int, config: Mapping[str, str]) -> None:
        """Create the topic if it does not exist."""
        if self._life is not None:
            return
        self._config = dict(config)
        self.world.lives.config = dict(config)
        kafka = KafkaConnection(self.world)
        while self._life is None:
            # It also exists for a moment while it is being deleted, and then no client finds it.
            create = partial(self._admin.create_topic, LIVING, partitions, config)
            await self._insist(create, ErrorCode.TOPIC_ALREADY_EXISTS)
            self._live(await look_up(self.world, kafka, self.now))
            await trio.sleep(PAUSE_S)
        await kafka.close()

    async def again(self, partitions: int, config: Mapping[str, str]) -> None:
        """Delete the topic and create it again."""
        if self._life is not None:
            await self._insist(lambda: self._admin.delete_topics(LIVING), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            self.world.add(Deleted(**self.now(), topic=self._life.name))
            self._live(None)
        await self.begin(partitions, config)

    async def grow(self, more: int) -> None:
        if self._life is None:
            return
        total = self._life.partitions + more
        await self._insist(lambda: self._admin.create_partitions(LIVING, total), ErrorCode.INVALID_PARTITIONS)
        self._live(self._life._replace(partitions=total))

    def _live(self, life: Life | None) -> None:
        self._life = life
        self.world.lives.partitions = () if life is None else life.all_partitions

    async def configure(self, config: Mapping[str, str]) -> None:
        if self._life is None:
            return
        self._config |= config
        said = {"topic": self._life.name, "config": dict(self._config)}
        self.world.add(Configures(**self.now(), **said))
        await self._insist(lambda: self._admin.alter_config(LIVING, config))
        self.world.add(Configured(**self.now(), **said))

    async def cut(self, partition: int, share: float) -> None:
        """Delete records."""
        if self._life is None:
            return
        where = TopicPartition(LIVING, partition % self._life.partitions)
        said = TopicPartition(self._life.name, where.partition)
        try:
            end = (await self._admin.offsets_for_times({where: LATEST_TIMESTAMP}))[where].offset
            before = int(end * share)
            self.world.add(Trims(**self.now(), partition=said, before_offset=before))
            await self._admin.delete_records({where: before})
        except TriologError:
            return
        self.world.add(Trimmed(**self.now(), partition=said, before_offset=before))

    async def _insist(self, call: Callable[[], Awaitable[Any]], *done: ErrorCode) -> None:
        """`done`: errors of a repeated call that had its effect before."""
        while True:
            try:
                await call()
                return
            except RequestError as exc:
                if exc.code in done:
                    return
            except TriologError:
                pass
            await trio.sleep(PAUSE_S)


@attrs.define(eq=False)
class Scribe(KafkaProducer):
    """Writes by topic id. It looks the topic up again when it was refused."""

    VERSION: ClassVar[int] = PRODUCE_BY_ID_VERSION

    _life: Life | None = None
    _lookups: KafkaConnection = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self._lookups = KafkaConnection(self.world)

    def name(self, number: int) -> str:
        return with_key(super().name(number), self.rng)

    async def write(self, partition: int, count: int, batches: int, is_fresh: bool) -> None:
        """`is_fresh`: it looks the topic up first."""
        deadline = trio.current_time() + PATIENCE_S
        if not await self._is_introduced(deadline):
            return
        if self._life is None or is_fresh:
            self._life = await look_up(self.world, self._lookups, self.now)
        life = self._life
        if life is None or not await self._is_introduced(deadline):
            return
        for _ in range(batches):
            self._take(TopicPartition(life.name, partition % life.partitions), count, deadline, life.topic_id)
        self._given.set()

    def _give_up(self, error: str) -> None:
        self._life = None
        super()._give_up(error)

    async def run(self, steps: list[Any]) -> None:
        try:
            await super().run(steps)
        finally:
            await self._lookups.close()


@attrs.define(eq=False)
class Binder(KafkaMover):
    """Transacts by topic id, also while the topic goes: a transaction whose topic was deleted has an end."""

    TRANSACTIONAL_ID = "binder"

    _life: Life | None = None

    async def bind(self, parts: list[dict[str, Any]], end: str, pause_ms: int) -> None:
        self._life = await look_up(self.world, self.kafka, self.now)
        if self._life is None:
            return
        wheres = [{**part, "partition": part["partition"] % self._life.partitions, "topic": LIVING} for part in parts]
        await self.transaction(wheres, end, pause_ms, is_careless=False)

    def _id(self, number: int) -> str:
        return with_key(super()._id(number), self.rng)

    async def _send(self, transaction: str, where: TopicPartition, count: int) -> ErrorCode | None:
        assert self._life is not None
        return await super()._send(transaction, TopicPartition(self._life.name, where.partition), count)

    async def _produce(self, where: TopicPartition, data: bytes, topic_id: bytes = NO_TOPIC_ID) -> Any | None:
        assert self._life is not None
        return await super()._produce(where, data, self._life.topic_id)


@attrs.define(eq=False)
class Visitor(KafkaInhabitant):
    """Reads on in each life, by topic id. The one with an odd number reads committed records."""

    _life: Life | None = None
    _positions: dict[TopicPartition, int] = attrs.field(factory=dict)

    @property
    def is_committed(self) -> bool:
        return self.who.endswith("1")

    async def visit(self, partition: int, max_bytes: int, is_fresh: bool) -> None:
        if self._life is None or is_fresh:
            self._life = await look_up(self.world, self.kafka, self.now)
        life, begun_ms = self._life, self.world.at_ms()
        if life is None:
            return
        where = TopicPartition(life.name, partition % life.partitions)
        position = self._positions.get(where, 0)
        how = {"is_committed": self.is_committed, "max_bytes": max_bytes, "topic_id": life.topic_id}
        fetched = await fetch(self.kafka, where, position, **how)  # type: ignore[arg-type]
        if fetched is None:
            return
        if fetched.error_code in STALE:
            self._life = None
        elif fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._go_to_start(life, where)
        elif fetched.error_code == ErrorCode.CORRUPT_MESSAGE:
            self.world.add(Refused(**self.now(), partition=where, offset=position, is_committed=self.is_committed))
            self._go_to(where, position + 1)
        elif not fetched.error_code:
            self._positions[where] = fetched.next_position
            self.world.add(Seen(**self.now(), topic=life.name, begun_ms=begun_ms))
            self.world.add(fetched.polled(self.now(), where, position, is_committed=self.is_committed))

    async def _go_to_start(self, life: Life, where: TopicPartition) -> None:
        """The answer names the topic, so it counts if the topic had the same id before and afterwards."""
        if await self._is_still(life):
            start = await log_start(self.kafka, where)
            if start is not None and await self._is_still(life):
                self._go_to(where, start, is_start=True)

    async def _is_still(self, life: Life) -> bool:
        found = await look_up(self.world, self.kafka, self.now)
        return found is not None and found.topic_id == life.topic_id

    def _go_to(self, where: TopicPartition, position: int, *, is_start: bool = False) -> None:
        self._positions[where] = position
        self.world.add(Moved(**self.now(), partition=where, position=position, is_start=is_start))
