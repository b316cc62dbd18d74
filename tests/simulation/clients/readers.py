"""Who reads: a consumer of everything or of what is committed, a group's offsets, lookups by time."""

from __future__ import annotations

import attrs
import trio
from triolog.protocol.errors import ErrorCode, TriologError
from triolog.protocol.types import TopicPartition
from triolog.tools.client.admin import Admin
from triolog.tools.client.connection import Client
from triolog.tools.client.procedures import groups as group_procedures

from ..history import CommitsOffset, LookedUp, Moved, OffsetCommitted, OffsetFetched, Polled, Refused
from ..script import Step
from .fetching import fetch
from .inhabitant import Inhabitant, KafkaConnection, native_client


@attrs.define(eq=False)
class Reader(Inhabitant):
    """Reads on from where it was. The one with an odd number reads what is committed."""

    _kafka: KafkaConnection = attrs.field(init=False)
    _positions: dict[TopicPartition, int] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self._kafka = KafkaConnection(self.world)

    @property
    def is_committed(self) -> bool:
        return self.who.endswith("1")

    async def poll(self, topic: str, partition: int, max_bytes: int) -> None:
        where = TopicPartition(topic, partition)
        position = self._positions.get(where, 0)
        fetched = await fetch(self._kafka, where, position, is_committed=self.is_committed, max_bytes=max_bytes)
        if fetched is None:
            return
        if fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            """The log was trimmed meanwhile, or what was read was lost."""
            await self._go_to_start(where)
        elif fetched.error_code == ErrorCode.CORRUPT_MESSAGE:
            self.world.add(Refused(**self.now(), partition=where, offset=position, is_committed=self.is_committed))
            self._go_to(where, position + 1)
        elif not fetched.error_code:
            self._positions[where] = fetched.next_position
            self.world.add(
                Polled(
                    **self.now(),
                    partition=where,
                    is_committed=self.is_committed,
                    position=position,
                    records=fetched.records,
                    next_position=fetched.next_position,
                )
            )

    async def _go_to_start(self, where: TopicPartition) -> None:
        async with native_client(self.world) as client:
            try:
                with trio.fail_after(5):
                    start = (await Admin(client).offsets_for_times({where: -2}))[where].offset
            except (TriologError, trio.TooSlowError):
                return
        self._go_to(where, start, is_start=True)

    async def rewind(self, topic: str, partition: int) -> None:
        """Whoever keeps a table of what is in a compacted topic begins with its first record."""
        where = TopicPartition(topic, partition)
        self._go_to(where, 0)
        await self.poll(topic, partition, max_bytes=10**6)

    def _go_to(self, where: TopicPartition, position: int, *, is_start: bool = False) -> None:
        self._positions[where] = position
        self.world.add(Moved(**self.now(), partition=where, position=position, is_start=is_start))

    async def run(self, steps: list[Step]) -> None:
        try:
            await super().run(steps)
        finally:
            await self._kafka.close()


@attrs.define(eq=False)
class Native(Inhabitant):
    """Whose calls are the native client's."""

    _client: Client | None = None

    @property
    def client(self) -> Client:
        assert self._client is not None
        return self._client

    async def run(self, steps: list[Step]) -> None:
        async with native_client(self.world) as client:
            self._client = client
            await super().run(steps)


@attrs.define(eq=False)
class Group(Native):
    """Commits offsets that only grow, whatever the partitions hold, and asks for them."""

    _next: int = 0

    async def commit(self, topic: str, partition: int) -> None:
        where = TopicPartition(topic, partition)
        self._next += 1
        said = {"group": self.who, "partition": where, "offset": self._next}
        self.world.add(CommitsOffset(**self.now(), **said))
        try:
            await self.client.run(group_procedures.commit_offsets(self.who, {where: self._next}))
        except TriologError:
            self.world.add(OffsetCommitted(**self.now(), **said, is_kept=None))
        else:
            self.world.add(OffsetCommitted(**self.now(), **said, is_kept=True))

    async def resume(self, topic: str, partition: int) -> None:
        where = TopicPartition(topic, partition)
        try:
            found = await self.client.run(group_procedures.fetch_offsets(self.who, [where], require_stable=True))
        except TriologError:
            return
        offset = found[where].offset if where in found else -1
        self.world.add(OffsetFetched(**self.now(), group=self.who, partition=where, offset=offset))


@attrs.define(eq=False)
class Looker(Native):
    """Asks for the first record at or after a time."""

    async def look(self, topic: str, partition: int, back_ms: int) -> None:
        where = TopicPartition(topic, partition)
        timestamp, begun_ms = self.world.now_ms() - back_ms, self.world.at_ms()
        try:
            answer = (await Admin(self.client).offsets_for_times({where: timestamp}))[where]
        except TriologError:
            return
        self.world.add(
            LookedUp(
                **self.now(),
                partition=where,
                timestamp=timestamp,
                begun_ms=begun_ms,
                offset=answer.offset,
                found_timestamp=answer.timestamp,
            )
        )
