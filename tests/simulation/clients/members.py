"""What members of consumer groups have in common, whichever protocol they speak: they live for a while, in which they are heard
of, read on from what the group has committed, and commit what they have read. Some take their time over it.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
import trio
from triolog.protocol.errors import ErrorCode
from triolog.protocol.types import TopicPartition

from tests.simulation.clients.readers import fetch, log_start
from tests.support.kafka_wire import ask

from ..groups.events import Commits, Committed, Dismissed, Heard, LetsGo, Resumes, TakesPlace, Told
from ..groups.lives import TOPICS
from ..history import Moved, Refused
from .inhabitant import KafkaConnection, KafkaInhabitant, Surroundings

BEAT_S: Final = 0.8
"""Between two turns of a member, about."""
SESSION_MS: Final = 4000
REBALANCE_MS: Final = 5000
"""Not below the session timeout: a member that was heard of has that time in any case."""
PATIENCE_S: Final = 7.0
"""For an answer: a join takes as long as a rebalance."""
OFFSETS_VERSION: Final = 9
NOBODY: Final = -1
FENCED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
REFUSED: Final = FENCED | {ErrorCode.REBALANCE_IN_PROGRESS}
"""Errors after which an offset is certainly not committed."""


@attrs.define(eq=False)
class Member(KafkaInhabitant):
    """Of a group of any kind."""

    member_id: str = ""
    epoch: int = NOBODY
    """Or generation. NOBODY: it is in no group."""
    until_ms: int = -1
    """See `events`."""

    @property
    def group(self) -> str:
        return self.who.split()[0]

    def me(self) -> dict[str, Any]:
        """What events of members begin with."""
        return {**self.now(), "group": self.group, "member": self.name, "epoch": self.epoch}

    @property
    def name(self) -> str:
        """Of the member in events."""
        return self.member_id


@attrs.define(eq=False)
class GroupMember(Member):
    owned: dict[TopicPartition, int | None] = attrs.field(factory=dict)
    """What it reads, and from where on; None: it has not asked yet."""
    uncommitted: set[TopicPartition] = attrs.field(factory=set)
    """Where it has read on since it has committed, or does not know whether that was kept."""
    commits: int = 0
    instance: str | None = None
    """The instance id of a static member."""
    is_fenced: bool = False
    """Another client has taken its place, as it was told. Its life is over."""
    away_ms: int | None = None
    """For so long it is to be away at its next turn."""

    def __attrs_post_init__(self) -> None:
        self.kafka = KafkaConnection(self.world, PATIENCE_S)

    @property
    def name(self) -> str:
        return self.instance or self.member_id

    async def live(self, for_ms: int, ends: str, instance: str | None = None, away_ms: int | None = None) -> None:
        """`away_ms`: a static member stops in the middle of its life, and returns after this time."""
        self.instance, self.is_fenced = instance, False
        began = trio.current_time()
        while trio.current_time() < began + for_ms / 1000 and not self.is_fenced:
            if away_ms is not None and trio.current_time() > began + for_ms / 2000:
                self.away_ms, away_ms = away_ms, None
            await self.maybe_go_away()
            await self.turn()
            await trio.sleep(self.rng.uniform(0.5, 1.5) * BEAT_S)
        if ends != "stay":
            self.lets_go(list(self.owned))
            if ends == "leave" and self.epoch != NOBODY:
                await self.leave()
            self.epoch, self.member_id, self.until_ms = NOBODY, "", -1
            await self.kafka.close()

    async def stay(self, is_over: trio.Event) -> None:
        """Live in a world in which nothing goes wrong, without delays."""
        while not is_over.is_set():
            await self.maybe_go_away()
            if await self.beat():
                for where in sorted(self.owned):
                    if where in self.owned and (await self.poll(where) or where in self.uncommitted):
                        await self.commit(where)
            await trio.sleep(BEAT_S)
        await self.kafka.close()

    async def maybe_go_away(self) -> None:
        """Stop without leaving the group, as a static member may. It returns without its member id."""
        if self.away_ms is None:
            return
        self.lets_go(list(self.owned))
        if self.epoch != NOBODY:
            await self.announce_return()
        await self.kafka.close()
        await trio.sleep(self.away_ms / 1000)
        self.epoch, self.member_id, self.until_ms, self.away_ms = NOBODY, "", -1, None

    async def announce_return(self) -> None:
        """Say that it goes and keeps its place."""

    def takes_place(self) -> None:
        """It is about to join."""
        if self.instance is not None and self.epoch == NOBODY:
            self.world.add(TakesPlace(**self.me()))

    async def turn(self) -> None:
        """Be heard of, and read some."""
        if not await self.beat() or not self.owned:
            return
        where = self.rng.choice(sorted(self.owned))
        if await self.poll(where):
            if self.rng.random() < 0.12:
                await trio.sleep(self.rng.choice((1, 3, 6)))
            if self.rng.random() < 0.8:
                await self.commit(where)

    async def beat(self) -> bool:
        """Be heard of, or join; whether it may read."""
        raise NotImplementedError

    async def leave(self) -> None:
        """Say that it goes. What it had it has let go of."""
        raise NotImplementedError

    def heard(self, begun_ms: int, until_ms: int) -> None:
        self.until_ms = max(self.until_ms, until_ms)
        self.world.add(Heard(**self.me(), begun_ms=begun_ms, until_ms=self.until_ms))

    def told(self, partitions: set[TopicPartition], until_ms: int) -> None:
        self.until_ms = max(self.until_ms, until_ms)
        self.owned = {where: self.owned.get(where) for where in sorted(partitions)}
        self.world.add(Told(**self.me(), partitions=tuple(self.owned), until_ms=self.until_ms))

    def lets_go(self, partitions: list[TopicPartition]) -> None:
        if partitions:
            self.world.add(LetsGo(**self.me(), partitions=tuple(sorted(partitions))))
            for where in partitions:
                del self.owned[where]

    def dismissed(self, error: ErrorCode, *, is_explained: bool = False) -> None:
        self.world.add(Dismissed(**self.me(), error=error.name, is_explained=is_explained))
        self.owned.clear()
        self.epoch, self.until_ms = NOBODY, -1
        if error is ErrorCode.FENCED_INSTANCE_ID:
            self.member_id, self.is_fenced = "", True

    async def poll(self, where: TopicPartition) -> bool:
        """Whether it has come further: by what it has read, or over damage that it was told of."""
        position = self.owned[where]
        if position is None:
            position = await self._resume(where)
            if position is None:
                return False
        fetched = await fetch(
            self.kafka, where, position, is_committed=True, max_bytes=self.rng.choice((500, 3000, 10**6)), max_wait_ms=0
        )
        if fetched is not None and fetched.error_code == ErrorCode.CORRUPT_MESSAGE:
            self.world.add(Refused(**self.now(), partition=where, is_committed=True, offset=position))
            self.world.add(Moved(**self.now(), partition=where, position=position + 1))
            self.owned[where] = position + 1
            self.uncommitted.add(where)
            return True
        if fetched is not None and fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            """The records were older than the retention time when they came: their producer's clock was in 1970."""
            start = await log_start(self.kafka, where)
            if start is not None:
                self.owned[where] = start
                self.world.add(Moved(**self.now(), partition=where, position=start, is_start=True))
            return False
        if fetched is None or fetched.error_code or fetched.next_position == position:
            return False
        self.owned[where] = fetched.next_position
        self.uncommitted.add(where)
        self.world.add(fetched.polled(self.now(), where, position, is_committed=True))
        return True

    async def _resume(self, where: TopicPartition) -> int | None:
        offset = await committed_offset(self.world, self.kafka, self.now, self.group, where, self.asks_as)
        if offset is not None:
            self.owned[where] = max(offset, 0)
            self.uncommitted.discard(where)
            self.world.add(Moved(**self.now(), partition=where, position=max(offset, 0)))
        return self.owned[where]

    @property
    def asks_as(self) -> tuple[str | None, int]:
        """Member and epoch, for those who ask for committed offsets."""
        return None, NOBODY

    async def commit(self, where: TopicPartition) -> None:
        offset = self.owned[where]
        assert offset is not None
        self.commits += 1
        said = {"number": self.commits, "partition": where, "offset": offset}
        self.world.add(Commits(**self.me(), **said))
        request = offset_commit(self.group, where, offset, self.member_id, self.epoch, self.instance)
        answer = await self.kafka.call(request, OFFSETS_VERSION)
        if answer is None:
            self.world.add(Committed(**self.me(), **said, is_kept=None))
            return
        error = ErrorCode(answer.topics[0].partitions[0].error_code)
        is_kept = True if not error else False if error in REFUSED else None
        self.world.add(Committed(**self.me(), **said, is_kept=is_kept, error=error.name))
        if is_kept:
            self.uncommitted.discard(where)
        self.was_refused(error)

    def was_refused(self, error: ErrorCode) -> None:
        """A commit was answered with this, or with none."""
        raise NotImplementedError


def offset_commit(
    group: str, where: TopicPartition, offset: int, member_id: str = "", epoch: int = NOBODY, instance: str | None = None
) -> Any:
    part = {"partition_index": where.partition, "committed_offset": offset, "committed_metadata": None}
    topics = [{"name": where.topic, "partitions": [part]}]
    who = {"member_id": member_id, "generation_id_or_member_epoch": epoch, "group_instance_id": instance}
    return ask("OffsetCommit", group_id=group, **who, topics=topics)


async def committed_offset(
    world: Surroundings, kafka: KafkaConnection, now: Any, group: str, where: TopicPartition, who: tuple[str | None, int]
) -> int | None:
    """What a group has committed, which goes into the history; -1 for nothing, None: not known."""
    begun_ms = world.at_ms()
    topics = [{"name": where.topic, "partition_indexes": [where.partition]}]
    of_group = {"group_id": group, "member_id": who[0], "member_epoch": who[1], "topics": topics}
    answer = await kafka.call(ask("OffsetFetch", topics=None, groups=[of_group], require_stable=True), OFFSETS_VERSION)
    if answer is None or answer.groups[0].error_code:
        return None
    [found] = answer.groups[0].topics[0].partitions
    if found.error_code:
        return None
    world.add(Resumes(**now(), group=group, partition=where, offset=found.committed_offset, begun_ms=begun_ms))
    return int(found.committed_offset)


def everything(partitions: dict[str, int]) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for topic in TOPICS for number in range(partitions[topic])]
