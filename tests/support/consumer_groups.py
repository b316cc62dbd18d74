"""Groups whose assignments the server makes, driven by hand: topics that a test changes, a log of what was decided, members
that behave as real ones do.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, ClassVar, TypeVar

import attrs
from triolog.protocol.coordinator.consumer_group_records import CONSUMER_GROUP_RECORDS
from triolog.server.groups.assigned.groups import Plan
from triolog.server.groups.assigned.values import (
    NO_PARTITIONS,
    AssignedGroupSettings,
    HeartbeatAnswer,
    Partitions,
    TopicMetadata,
)
from triolog.server.groups.consumer.group import ConsumerGroup
from triolog.server.groups.consumer.groups import ConsumerGroups
from triolog.server.groups.consumer.member import ConsumerHeartbeat

T = TypeVar("T")

GROUP = "group"
REBALANCE_TIMEOUT_MS = 60_000


@attrs.define(eq=False)
class Topics:
    """The topics that there are."""

    found: dict[str, TopicMetadata] = attrs.field(factory=dict)
    version: int = 0
    _ids: itertools.count[int] = attrs.field(factory=lambda: itertools.count(1))

    def find(self, name: str) -> TopicMetadata | None:
        return self.found.get(name)

    def name_of(self, topic_id: bytes) -> str | None:
        return next((name for name, topic in self.found.items() if topic.topic_id == topic_id), None)

    def names(self) -> Iterable[str]:
        return list(self.found)

    def create(self, name: str, partitions: int) -> bytes:
        topic_id = next(self._ids).to_bytes(16)
        self.found[name] = TopicMetadata(topic_id, partitions)
        self.version += 1
        return topic_id

    def grow(self, name: str, partitions: int) -> None:
        self.found[name] = self.found[name]._replace(partitions=partitions)
        self.version += 1

    def delete(self, name: str) -> None:
        del self.found[name]
        self.version += 1

    def all_of(self, name: str) -> Partitions:
        topic_id, count = self.found[name]
        return frozenset((topic_id, number) for number in range(count))


@attrs.define(eq=False)
class DrivenGroups:
    """A coordinator without the coordinator: plans are committed at once, their records kept as bytes."""

    RECORDS: ClassVar[Any]
    """Encodes and decodes what is kept."""
    GROUP: ClassVar[str] = GROUP

    topics: Topics
    settings: AssignedGroupSettings = attrs.field(factory=AssignedGroupSettings)
    now_ms: int = attrs.field(default=0, kw_only=True)
    log: list[tuple[bytes, bytes | None]] = attrs.field(factory=list, kw_only=True)
    groups: Any = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.groups = self.new_groups()

    def new_groups(self) -> Any:
        raise NotImplementedError

    def answer(self, request: Any) -> Any:
        """To a heartbeat."""
        plan: Plan[Any] = self.groups.heartbeat(request, self.now_ms)
        self.commit(plan)
        assert plan.answer is not None
        return plan.answer

    def commit(self, plan: Any) -> None:
        self.keep(plan)
        self.groups.commit(plan, self.now_ms)

    def keep(self, plan: Any) -> None:
        self.log.extend(self.RECORDS.encode(record) for record in plan.records)

    def remove(self) -> None:
        self.keep(self.groups.plan_removal(self.GROUP))
        self.groups.forget(self.GROUP)

    def pass_time(self, until_ms: int) -> None:
        """Everything that comes due on the way."""
        while (deadline_ms := self.groups.next_deadline_ms) is not None and deadline_ms <= until_ms:
            self.now_ms = deadline_ms
            for key in self.groups.due(self.now_ms):
                plan = self.groups.expire(key, self.now_ms)
                if plan is not None:
                    self.commit(plan)
        self.now_ms = until_ms

    def restart(self) -> None:
        """As a new process would find it."""
        self.groups = self.replayed()
        self.groups.begin_sessions(self.now_ms)

    def replayed(self, log: Iterable[tuple[bytes, bytes | None]] | None = None) -> Any:
        groups = self.new_groups()
        for key_bytes, data in self.log if log is None else log:
            key = self.RECORDS.decode_key(key_bytes)
            assert key is not None
            groups.replay(key, None if data is None else self.RECORDS.decode_value(key, data))
        return groups

    def compact(self) -> None:
        """Keep the newest record of each key, where it is."""
        self.log = compacted(self.log)


def compacted(log: list[tuple[bytes, T]]) -> list[tuple[bytes, T]]:
    last = {key: place for place, (key, _) in enumerate(log)}
    return [entry for place, entry in enumerate(log) if last[entry[0]] == place]


@attrs.define(eq=False)
class Driven(DrivenGroups):
    RECORDS = CONSUMER_GROUP_RECORDS

    def new_groups(self) -> ConsumerGroups:
        return ConsumerGroups(self.settings, self.topics)

    @property
    def group(self) -> ConsumerGroup:
        found: ConsumerGroup | None = self.groups.find(GROUP)
        assert found is not None
        return found

    def heartbeat(self, request: ConsumerHeartbeat) -> HeartbeatAnswer:
        answer: HeartbeatAnswer = self.answer(request)
        return answer


@attrs.define(eq=False, kw_only=True)
class Consumer:
    """A member as a client is one: it gives up what is not in its assignment, and says so with its next heartbeat."""

    driven: Driven
    member_id: str
    instance_id: str | None = None
    topic_names: tuple[str, ...] | None = None
    topic_regex: str | None = None
    epoch: int = 0
    owned: Partitions = NO_PARTITIONS
    reported: Partitions | None = NO_PARTITIONS
    """What it has said last that it owns."""
    is_slow: bool = False
    """It takes its time over letting partitions go: `let_go` says when."""
    letting_go: Partitions = NO_PARTITIONS
    """It has been told to, and still reads them."""
    said: list[ConsumerHeartbeat] = attrs.field(factory=list)
    """Every heartbeat, the newest last."""

    @property
    def held(self) -> Partitions:
        """What it reads."""
        return self.owned | self.letting_go

    def let_go(self) -> None:
        self.letting_go = NO_PARTITIONS

    def give_up(self) -> None:
        """It was thrown out."""
        self.owned = self.letting_go = NO_PARTITIONS

    def join(self, **changes: object) -> HeartbeatAnswer:
        self.epoch = 0
        self.give_up()
        return self.say_all(**changes)

    def say_all(self, **changes: object) -> HeartbeatAnswer:
        """What a client sends that joins, or that did not get the last answer."""
        subscription = {"topic_names": self.topic_names, "topic_regex": self.topic_regex}
        return self._say(**{"rebalance_timeout_ms": REBALANCE_TIMEOUT_MS, "owned": self.held, **subscription, **changes})

    def beat(self, **changes: object) -> HeartbeatAnswer:
        """What a client sends from time to time: what it owns only when that is news."""
        is_news = not self.letting_go and self.owned != self.reported
        return self._say(**{"owned": self.owned if is_news else None, **changes})

    def leave(self, epoch: int = -1) -> None:
        self.driven.heartbeat(self._request(member_epoch=epoch))
        self.epoch = epoch
        self.give_up()

    def _say(self, **said: object) -> HeartbeatAnswer:
        request = self._request(**said)
        self.said.append(request)
        answer = self.driven.heartbeat(request)
        if request.owned is not None:
            self.reported = request.owned
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.letting_go = self.held - answer.assignment if self.is_slow else NO_PARTITIONS
            self.owned = answer.assignment
        return answer

    def _request(self, **said: object) -> ConsumerHeartbeat:
        request = ConsumerHeartbeat(
            group_id=GROUP, member_id=self.member_id, instance_id=self.instance_id, member_epoch=self.epoch
        )
        return attrs.evolve(request, **said)  # type: ignore[arg-type]


def settle(consumers: Iterable[Consumer], rounds: int = 30) -> None:
    """Heartbeats until nothing more changes."""
    everybody = list(consumers)
    for _ in range(rounds):
        before = [(each.epoch, each.owned, each.reported) for each in everybody]
        for each in everybody:
            each.beat()
        if before == [(each.epoch, each.owned, each.reported) for each in everybody]:
            return
    raise AssertionError(f"still moving after {rounds} rounds")
