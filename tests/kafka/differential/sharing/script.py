"""A script about share groups: as many requests as wanted, drawn by a seed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import attrs
from triolog.protocol.kafka.messages.share_groups import (
    DescribeShareGroupOffsetsRequest,
    ShareFetchRequest,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)

from tests.kafka.differential.answers import differences
from tests.kafka.differential.script import LAST, Difference
from tests.kafka.differential.sharing import steps
from tests.kafka.differential.sharing.steps import BRIEF, CLASSIC, LOCK_MS, SHARED, Sharing
from tests.kafka.differential.sides import DEADLINE_S, Late, Side
from tests.kafka.differential.world import Step, Topic
from tests.support.kafka_admin import GROUP_TYPE, NO_ID, SET, alter_incrementally, create_topics, new_topic
from tests.support.kafka_wire import KafkaWire, ask

WEIGHTS: Final[Mapping[Callable[[Sharing], Step], int]] = {
    steps.produce: 10,
    steps.fetch: 30,
    steps.acknowledge: 28,
    steps.drop: 1,
    steps.heartbeat: 6,
    steps.odd_heartbeat: 4,
    steps.describe: 3,
    steps.list_groups: 2,
    steps.describe_offsets: 5,
    steps.alter_offsets: 3,
    steps.delete_offsets: 2,
    steps.delete_groups: 1,
    steps.other_kind: 3,
}
CONFIG: Final = {
    "share.auto.offset.reset": "earliest",
    "share.session.timeout.ms": "3600000",  # nobody's session ends while a script runs
    "share.heartbeat.interval.ms": "5000",
}
BEHIND_S: Final = 0.01
"""Kafka lets go of partitions behind the answer to a fetch; the next one is given what it may have then."""
SETTLED_S: Final = 0.3
"""What a member had is given back behind the answer, or when the end of its connection is noticed."""


@attrs.define(eq=False)
class SharingScript:
    """One run against both. Owner: who runs it, who also closes it."""

    seed: int
    ours: Side
    kafka: Side
    world: Sharing
    _done: list[Step] = attrs.field(factory=list)
    _connections: dict[str, tuple[Side, Side]] = attrs.field(factory=dict)
    """Of members: triolog's, Kafka's."""

    @classmethod
    def of(cls, seed: int, ours: Side, kafka: Side) -> SharingScript:
        mine, theirs = ours.versions(), kafka.versions()
        shared = {key: (max(mine[key][0], theirs[key][0]), min(mine[key][1], theirs[key][1])) for key in mine if key in theirs}
        return cls(seed, ours, kafka, Sharing(random.Random(f"sharing {seed}"), shared))

    def close(self) -> None:
        for member in list(self._connections):
            self._drop(member)

    def run(self, count: int) -> Iterator[Difference]:
        """So many requests, behind those that make topics and let everybody join."""
        for side in (self.kafka, self.ours):
            self._prepare(side)
        yield from self._take(steps.commit(self.world, CLASSIC))
        for reader in self.world.readers:
            yield from self._take(steps.join(self.world, reader))
        for group in LOCK_MS:
            for step in steps.look_around(self.world, self.world.joined(group)[0]):
                yield from self._take(step)
        for turn, make in enumerate(self.world.rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=count)):
            self.world.turn = turn
            yield from self._take(make(self.world))

    def _prepare(self, side: Side) -> None:
        side.prepare()
        for name, count in SHARED.items():
            side.wire.call(create_topics(new_topic(name, count, configs={"retention.ms": "-1"})), 7)
            self.world.topics[name] = Topic(name, count)
        for group, lock_ms in LOCK_MS.items():
            configs = {**CONFIG, "share.record.lock.duration.ms": str(lock_ms)}
            changes = [(key, SET, value) for key, value in configs.items()]
            [result] = side.wire.call(alter_incrementally((GROUP_TYPE, group, changes)), 1).responses
            assert not result.error_code, result
        side.settle_metadata()
        asked = [{"topic_id": NO_ID, "name": name} for name in SHARED]
        for topic in side.ask(ask("Metadata", topics=asked, allow_auto_topic_creation=False), 12)["topics"]:
            self.world.topics[topic["name"]].id = topic["topic_id"]

    def _take(self, step: Step) -> Iterator[Difference]:
        self.world.let_locks_pass(step, time.sleep)
        if self.world.dropped:
            groups = {member.partition("-")[0] for member in self.world.dropped}
            for member in self.world.dropped:
                self._drop(member)
            self.world.dropped.clear()
            self._let_settle(groups)
        self._done.append(step)
        if isinstance(step.body, ShareFetchRequest):
            time.sleep(BEHIND_S)
        ours, kafka = self._sides(step.connection)
        theirs = kafka.ask(step.body, step.version)
        mine = ours.ask(_without_wait(step.body), step.version) if not isinstance(theirs, Late) else "not asked"
        if not isinstance(theirs, Late) and not isinstance(mine, Late):
            excuse(step, mine, theirs)
        places = tuple(differences(mine, theirs))
        if places:
            number = len(self._done) - 1
            before = tuple(self._done[-LAST - 1 : -1])
            yield Difference(seed=self.seed, number=number, step=step, places=places, ours=mine, theirs=theirs, before=before)
        step.learn(theirs)
        if getattr(step.body, "share_session_epoch", 0) == -1:
            self._let_settle([step.body.group_id])
        while self.world.due:
            yield from self._take(self.world.due.pop())
        while self.world.unsettled:
            group = self.world.unsettled.pop()
            for side in (self.kafka, self.ours):
                self._settle(side, group)
            yield from self._take(steps.described(self.world, group))

    def _sides(self, member: str) -> tuple[Side, Side]:
        if member == "":
            return self.ours, self.kafka
        if member not in self._connections:
            self._connections[member] = (_another(self.ours), _another(self.kafka))
        return self._connections[member]

    def _drop(self, member: str) -> None:
        for side in self._connections.pop(member, ()):
            side.close()

    def _let_settle(self, groups: Iterable[str]) -> None:
        """Until Kafka has stored what was given back: what it reads goes the way of what it writes, one behind the other."""
        time.sleep(SETTLED_S)
        for _ in range(2):
            for group in groups:
                asked = [{"group_id": group, "topics": None}]
                self.kafka.wire.call(ask("DescribeShareGroupOffsets", groups=asked), 1)

    def _settle(self, side: Side, group: str) -> None:
        """Heartbeats until every member has what it is to have."""
        readers = self.world.joined(group)
        wanted = {(topic, n) for reader in readers for topic in reader.topics for n in range(SHARED.get(topic, 0))}
        deadline = time.monotonic() + DEADLINE_S
        while True:
            asked = ask("ShareGroupDescribe", group_ids=[group], include_authorized_operations=False)
            [told] = side.wire.call(asked, 1).groups
            epochs = {member.member_id: member.member_epoch for member in told.members}
            epochs_told = {told.assignment_epoch, *epochs.values()}
            if not epochs or (epochs_told == {told.group_epoch} and wanted == _assigned(told)):
                break
            assert time.monotonic() < deadline, told
            for member, epoch in epochs.items():
                beat = ask("ShareGroupHeartbeat", group_id=group, member_id=member, member_epoch=epoch)
                side.wire.call(beat, 1)
        for reader in readers:
            reader.member_epoch = epochs[reader.id]


def _without_wait(body: Any) -> Any:
    """Here a fetch is given at once what it would be given when its time is over: nothing comes meanwhile."""
    return attrs.evolve(body, max_wait_ms=0) if isinstance(body, ShareFetchRequest) else body


def _assigned(group: Any) -> set[tuple[str, int]]:
    return {
        (topic.topic_name, number)
        for member in group.members
        for topic in member.assignment.topic_partitions
        for number in topic.partitions
    }


def _another(side: Side) -> Side:
    """A connection beside it, which knows the same names."""
    return Side(side.address, KafkaWire.connect(side.address), side.reading)


def excuse(step: Step, ours: Any, theirs: Any) -> None:
    if isinstance(step.body, ShareGroupHeartbeatRequest):
        ours["assignment"] = theirs["assignment"]
    if isinstance(step.body, ShareFetchRequest):
        _leave_out_nothing(ours)
        _leave_out_nothing(theirs)
        _excuse_unasked_acknowledgements(ours, theirs)
    if isinstance(step.body, DescribeShareGroupOffsetsRequest):
        _excuse_starts(ours, theirs)
    if isinstance(step.body, ShareGroupDescribeRequest):
        for one, two in zip(ours["groups"], theirs["groups"], strict=True):
            _excuse_order(one, two)
            _excuse_who_has_which(one, two)


def _leave_out_nothing(answer: Any) -> None:
    """Kafka tells some partitions of which there is nothing to tell."""
    for topic in answer["responses"]:
        topic["partitions"] = [each for each in topic["partitions"] if _says_something(each)]
    answer["responses"] = [topic for topic in answer["responses"] if topic["partitions"]]


def _excuse_unasked_acknowledgements(ours: Any, theirs: Any) -> None:
    """Beside a partition whose records are acknowledged, Kafka tells twice of one that there is not."""
    for mine, other in zip(ours["responses"], theirs["responses"], strict=False):
        for one, two in zip(mine["partitions"], other["partitions"], strict=False):
            if one["error_code"] == two["error_code"] == two["acknowledge_error_code"] and not one["acknowledge_error_code"]:
                two["acknowledge_error_code"] = 0


def _says_something(partition: Any) -> bool:
    return bool(partition["error_code"] or partition["acknowledge_error_code"] or partition["acquired_records"])


def _excuse_starts(ours: Any, theirs: Any) -> None:
    """When locks end, Kafka stores the start of before, and of what is done with behind it all, some or nothing."""
    for mine, other in zip(ours["groups"], theirs["groups"], strict=True):
        if mine["group_id"] != BRIEF or len(mine["topics"]) != len(other["topics"]):
            continue
        for topic, same in zip(mine["topics"], other["topics"], strict=True):
            for one, two in zip(topic["partitions"], same["partitions"], strict=True):
                behind = one["start_offset"] - two["start_offset"]
                if behind > 0 and two["start_offset"] >= 0 and 0 <= two["lag"] - one["lag"] <= behind:
                    two["start_offset"], two["lag"] = one["start_offset"], one["lag"]


def _excuse_order(*sides: Any) -> None:
    """Members, and the topics of each, come in the order of Kafka's hash maps."""
    for group in sides:
        group["members"].sort(key=lambda member: repr(member["member_id"]))
        for member in group["members"]:
            member["subscribed_topic_names"].sort()


def _excuse_who_has_which(ours: Any, theirs: Any) -> None:
    """Kafka gives out partitions in the order of the hashes of their topics' ids, which are chosen by chance."""
    if _assigned_in(ours) == _assigned_in(theirs) and len(ours["members"]) == len(theirs["members"]):
        for one, two in zip(ours["members"], theirs["members"], strict=True):
            one["assignment"] = two["assignment"]


def _assigned_in(group: Any) -> set[tuple[str, int]]:
    return {
        (topic["topic_name"], number)
        for member in group["members"]
        for topic in member["assignment"]["topic_partitions"]
        for number in topic["partitions"]
    }
