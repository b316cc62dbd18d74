"""Requests of and about members of share groups, and what a script knows of them: who has joined, whose session is where, which
records somebody has."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs
from triolog.protocol.kafka.messages.share_groups import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestTopic,
    ShareAcknowledgementBatch,
)

from tests.kafka.differential.group_steps import of_other_kinds
from tests.kafka.differential.symbols import Batch
from tests.kafka.differential.world import Step, World
from tests.support.kafka_wire import ask

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
ENDS: Final = (ACCEPT, RELEASE, REJECT, GAP)
WAIT_MS: Final = 120
"""Kafka hands a partition to the next fetch behind its answer to the one before: who does not wait may be told nothing."""
READY_MS: Final = 1_500
PLENTY: Final = 10_000
FIRST_WITH_RENEWALS: Final = 2
Part = tuple[str, int]
Batches = list[ShareAcknowledgementBatch]


def produce(world: Sharing) -> Step:
    topic = world.one_of(list(SHARED))
    batch = Batch(records=world.records(keyed=False, most=8), codec=world.codec())
    part = {"index": world.rng.randrange(SHARED[topic]), "records": batch}
    body = ask("Produce", acks=-1, timeout_ms=30_000, topic_data=[{"name": topic, "partition_data": [part]}])
    return world.step(body, lowest=3, highest=12)


def look_around(world: Sharing, reader: Reader) -> list[Step]:
    """Fetch what is empty, and end the session: a partition that nobody has read from is not ready at once in Kafka."""
    everything = [(topic, number) for topic, count in SHARED.items() for number in range(count)]
    topics = [_fetch_topic(world, *part, {}) for part in everything]
    body = _fetching(reader, 0, max_wait_ms=READY_MS, min_bytes=1, max_bytes=2**20, max_records=1, batch_size=1, topics=topics)
    return [world.reader_step(reader, body), end_session(world, reader)]


def end_session(world: Sharing, reader: Reader) -> Step:
    """What the member has is given back."""

    def learn(answer: Any) -> None:
        _learn_epoch(world, reader, -1, answer)

    return world.reader_step(reader, _fetching(reader, -1, max_bytes=0), learn=learn)


def _fetching(reader: Reader, epoch: int, **fields: Any) -> Any:
    return ask("ShareFetch", group_id=reader.group, member_id=reader.id, share_session_epoch=epoch, **fields)


def fetch(world: Sharing) -> Step:
    """A session begins, goes on, or ends; with what the member says of records before now and then."""
    reader = world.reader()
    epoch = world.mostly(reader.session_epoch, reader.session_epoch + 1, 0, -1, 77, usually=0.9)
    ends, begins = epoch == -1, epoch == 0
    named = _parts(world) if begins or world.chance(0.1) else []
    asleep = [part for part in named if world.key(reader, part) in world.asleep]
    if asleep:
        # One alone is waited for; with others Kafka is content with those that are ready.
        named = asleep[:1] if begins else [part for part in named if part not in asleep]
    said: dict[Part, Batches] = {}
    if reader.parts and world.chance(0.04 if begins else 0.25):
        part = world.one_of(list(reader.parts))
        # What is given back is under way beside the fetch in Kafka, which may see it or not.
        said[part] = _batches(world, reader, part, (ACCEPT, REJECT, GAP))
    forgotten = [part for part in reader.parts if not begins and part not in named and world.chance(0.05)]
    asked = dict.fromkeys([*reader.parts, *named]) if not begins else dict.fromkeys(named)
    is_single = len(asked) <= 1
    body = _fetching(
        reader,
        epoch,
        max_wait_ms=0 if ends else READY_MS if asleep else WAIT_MS,
        min_bytes=0 if ends else 1 if asleep else world.mostly(1, 0),
        max_bytes=0 if ends else 2**20,
        # Of several partitions Kafka divides what there may be; with room for all there is nothing to divide.
        max_records=0 if ends else world.mostly(world.one_of([1, 2, 3, 5, 8]), 40, PLENTY) if is_single else PLENTY,
        batch_size=world.mostly(world.one_of([1, 2, 5]), 500) if is_single else PLENTY,
        share_acquire_mode=world.one_of([0, 1]),
        topics=[_fetch_topic(world, topic, number, said) for topic, number in dict.fromkeys([*named, *said])],
        forgotten_topics_data=[{"topic_id": world.topics[topic].id, "partitions": [number]} for topic, number in forgotten],
    )

    def learn(answer: Any) -> None:
        _learn_epoch(world, reader, epoch, answer)
        if answer["error_code"]:
            return
        if begins:
            reader.parts = dict.fromkeys(named)
            world.asleep.difference_update(world.key(reader, part) for part in named)
        elif not ends:
            reader.parts = {part: None for part in [*reader.parts, *named, *said] if part not in forgotten}
        for part, answered in _answered(world, answer):
            if part in said and not answered["acknowledge_error_code"]:
                _forget_said(world, reader, part, said[part])
            held = world.taken.setdefault(world.key(reader, part), {})
            for each in answered["acquired_records"]:
                held |= dict.fromkeys(range(each["first_offset"], each["last_offset"] + 1), reader.id)
                world.lock(reader.group)

    return world.reader_step(reader, body, learn=learn)


def _parts(world: Sharing) -> list[Part]:
    """One partition, so that there can be limits; or several."""
    everything = [(topic, number) for topic, count in SHARED.items() for number in range(count)]
    if world.chance(0.03):
        return [("single", 99)]
    return world.rng.sample(everything, world.mostly(1, 2, 3, usually=0.75))


def _fetch_topic(world: Sharing, topic: str, number: int, said: dict[Part, Batches]) -> dict[str, Any]:
    partition = {"partition_index": number, "acknowledgement_batches": said.get((topic, number), [])}
    return {"topic_id": world.topics[topic].id, "partitions": [partition]}


def acknowledge(world: Sharing) -> Step:
    """Of one partition of the session, of two, of another."""
    reader = world.reader()
    epoch = world.mostly(reader.session_epoch, reader.session_epoch + 1, 0, -1, usually=0.94)
    renews = world.chance(0.15)
    kinds = (*ENDS, RENEW) if renews or world.chance(0.02) else ENDS
    holding = [part for part in reader.parts if world.held_by(reader, part)]
    parts = [world.one_of(holding)] if holding and world.chance(0.9) else world.rng.sample(_parts(world), 1)
    said = {part: _batches(world, reader, part, kinds) for part in parts}
    body = ask(
        "ShareAcknowledge",
        group_id=reader.group,
        member_id=reader.id,
        share_session_epoch=epoch,
        is_renew_ack=renews,
        topics=[_acknowledged_topic(world, topic, number, batches) for (topic, number), batches in said.items()],
    )

    def learn(answer: Any) -> None:
        _learn_epoch(world, reader, epoch, answer)
        for part, answered in _answered(world, answer):
            if not answered["error_code"] and part in said:
                _forget_said(world, reader, part, said[part])
                if renews:
                    world.lock(reader.group)

    return world.reader_step(reader, body, learn=learn, lowest=FIRST_WITH_RENEWALS if renews else 1)


def _acknowledged_topic(world: Sharing, topic: str, number: int, batches: Batches) -> dict[str, Any]:
    partition = {"partition_index": number, "acknowledgement_batches": batches}
    return {"topic_id": world.topics[topic].id, "partitions": [partition]}


def _batches(world: Sharing, reader: Reader, part: Part, kinds: tuple[int, ...]) -> Batches:
    """Of what the member has, in order; sometimes of what it has not, twice, out of order, with the wrong types."""
    held = world.held_by(reader, part)
    found: Batches = []
    while held and len(found) < 3 and (not found or world.chance(0.3)):
        start = world.rng.randrange(len(held))
        stop = start + 1
        while stop < len(held) and held[stop] == held[stop - 1] + 1 and world.chance(0.7):
            stop += 1
        found.append(_batch(world, held[start], held[stop - 1], kinds))
        held = held[stop:]
    if not found or world.chance(0.06):
        # Not below the start of the share-partition, of which Kafka may fail: a deviation.
        others = sorted(world.taken.get(world.key(reader, part), {}).keys() - set(world.held_by(reader, part)))
        somewhere = world.one_of(others) if others else 10_000
        found.append(_batch(world, somewhere, somewhere, kinds))
        found.sort(key=lambda batch: batch.first_offset)
    return _flawed(world, found) if world.chance(0.08) else found


def _batch(world: Sharing, first: int, last: int, kinds: tuple[int, ...]) -> ShareAcknowledgementBatch:
    count = 1 if world.chance(0.6) else last - first + 1
    types = [world.one_of(kinds) for _ in range(count)]
    return ShareAcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)


def _flawed(world: Sharing, batches: Batches) -> Batches:
    first = batches[0]
    start, stop, types = first.first_offset, first.last_offset, first.acknowledge_types
    made = ShareAcknowledgementBatch
    flaw = world.one_of(["twice", "backwards", "reversed", "none", "many", "type", "beyond"])  # below 0 is a deviation
    match flaw:
        case "twice":
            return [first, *batches]
        case "backwards":
            return [*batches, made(first_offset=start, last_offset=start, acknowledge_types=types[:1])]
        case "reversed":
            return [made(first_offset=start + 1, last_offset=start, acknowledge_types=types[:1])]
        case "none":
            return [made(first_offset=start, last_offset=stop, acknowledge_types=[])]
        case "many":
            return [made(first_offset=start, last_offset=stop, acknowledge_types=[ACCEPT] * (stop - start + 2))]
        case "type":
            kind = world.one_of([5, -1, -2, 127])
            return [made(first_offset=start, last_offset=stop, acknowledge_types=[kind])]
    return [made(first_offset=start, last_offset=stop + 50, acknowledge_types=[ACCEPT])]


NO_SESSION: Final = 122


def _learn_epoch(world: Sharing, reader: Reader, epoch: int, answer: Any) -> None:
    if answer["error_code"] == NO_SESSION:
        reader.forget_session()
    elif answer["error_code"] == 0:
        if epoch == -1:
            reader.forget_session()
            world.give_back_all(reader)
        else:
            reader.session_epoch = epoch + 1


def _answered(world: Sharing, answer: Any) -> list[tuple[Part, Any]]:
    names = {topic.id: name for name, topic in world.topics.items()}
    return [
        ((names[topic["topic_id"]], partition["partition_index"]), partition)
        for topic in answer["responses"]
        for partition in topic["partitions"]
        if topic["topic_id"] in names
    ]


def _forget_said(world: Sharing, reader: Reader, part: Part, batches: Batches) -> None:
    held = world.taken.get(world.key(reader, part), {})
    for batch in batches:
        types = batch.acknowledge_types
        for place, offset in enumerate(range(batch.first_offset, batch.last_offset + 1)):
            if types[place if len(types) > 1 else 0] != RENEW:
                held.pop(offset, None)


def drop(world: Sharing) -> Step:
    """A member's connection ends, and with it its session: what it had is there for others."""
    reader = world.reader()
    world.dropped.add(reader.id)
    world.give_back_all(reader)
    reader.forget_session()
    if not any(other.session_epoch for other in world.readers if other.group == reader.group):
        world.asleep.update((reader.group, topic, number) for topic, count in SHARED.items() for number in range(count))
    return fetch(world)


UNKNOWN_GROUP = "no-such-group"


def heartbeat(world: Sharing) -> Step:
    """Join, stay, subscribe anew or leave, as a member does."""
    reader = world.one_of(world.readers)
    if not reader.topics:
        return join(world, reader)
    if world.chance(0.15):
        # Here a share session ends when its member leaves, in Kafka it does not: a deviation. Clients end it first.
        world.due.append(_leaves(world, reader))
        return end_session(world, reader)
    changes = world.chance(0.15)
    topics = _subscription(world) if changes else None
    body = _beat(reader, reader.member_epoch, topics)

    def learn(answer: Any) -> None:
        if not answer["error_code"]:
            reader.member_epoch = answer["member_epoch"]
            if topics:
                reader.topics = topics
                world.unsettled.add(reader.group)

    return world.step(body, learn=learn)


def join(world: Sharing, reader: Reader) -> Step:
    """Come in. Who is first reads everything: where a group has never begun, Kafka has an error now and nothing then."""
    topics = tuple(SHARED) if reader.group not in world.begun else _subscription(world)
    world.begun.add(reader.group)

    def learn(answer: Any) -> None:
        if not answer["error_code"]:
            reader.member_epoch, reader.topics = answer["member_epoch"], topics
            world.unsettled.add(reader.group)

    return world.step(_beat(reader, 0, topics), learn=learn)


def _leaves(world: Sharing, reader: Reader) -> Step:
    def learn(answer: Any) -> None:
        if not answer["error_code"]:
            reader.member_epoch, reader.topics = 0, ()
            world.unsettled.add(reader.group)

    return world.step(_beat(reader, -1, None), learn=learn)


def _subscription(world: Sharing) -> tuple[str, ...]:
    return world.one_of([("single",), ("double",), ("single", "double"), ("double", "no-such-topic")])


def _beat(reader: Reader, epoch: int, topics: Sequence[str] | None, **more: Any) -> Any:
    names = None if topics is None else list(topics)
    given = {"group_id": reader.group, "member_id": reader.id, **more}
    return ask("ShareGroupHeartbeat", member_epoch=epoch, subscribed_topic_names=names, **given)


def odd_heartbeat(world: Sharing) -> Step:
    reader = world.one_of(world.readers)
    wrong_epochs = [reader.member_epoch + 1, reader.member_epoch + 7, -2, -3]
    body = world.one_of(
        [
            *(_beat(reader, epoch, None) for epoch in wrong_epochs),
            _beat(reader, reader.member_epoch or 1, None, group_id=""),
            _beat(reader, reader.member_epoch or 1, None, member_id="nobody"),
            _beat(reader, -1, None, member_id="nobody"),
            _beat(reader, 3, None, group_id=UNKNOWN_GROUP),
            _beat(reader, -1, None, group_id=UNKNOWN_GROUP),
            _beat(reader, 0, None, member_id="without-topics"),
            _beat(reader, 0, [], member_id="without-topics"),
            _beat(reader, 0, ["single"], rack_id=""),
            _beat(reader, 0, ["single"], member_id=""),
            _beat(reader, 0, ["single"], member_id="m" * 37),
            _beat(reader, 0, ["single"], group_id=CLASSIC),
            _beat(reader, 5, None, group_id=CLASSIC),
            _beat(reader, -1, None, group_id=CLASSIC),
            _beat(reader, 5, None, group_id=RESTING),
        ]
    )
    return world.step(body)


def describe(world: Sharing) -> Step:
    names = world.rng.sample([STEADY, BRIEF, RESTING, CLASSIC, UNKNOWN_GROUP], 2)
    return world.step(ask("ShareGroupDescribe", group_ids=names, include_authorized_operations=world.chance(0.3)))


def described(world: Sharing, group: str) -> Step:
    """One group, of which everything is settled."""
    return world.step(ask("ShareGroupDescribe", group_ids=[group], include_authorized_operations=False))


def list_groups(world: Sharing) -> Step:
    types = world.mostly(["share"], ["Share", "classic"], [], ["consumer"], usually=0.5)
    states = world.mostly([], ["Stable"], ["Empty"], ["Dead"], usually=0.6)
    return world.step(ask("ListGroups", states_filter=states, types_filter=types), lowest=4)


def _group(world: Sharing) -> str:
    return world.one_of([STEADY, BRIEF, RESTING, RESTING, RESTING, CLASSIC, UNKNOWN_GROUP])


def describe_offsets(world: Sharing) -> Step:
    groups = [
        {
            "group_id": name,
            "topics": world.mostly(
                None, [_described_topic(topic) for topic in world.rng.sample([*SHARED, "no-such-topic"], 2)], usually=0.5
            ),
        }
        for name in dict.fromkeys(_group(world) for _ in range(world.mostly(1, 2)))
    ]
    return world.step(ask("DescribeShareGroupOffsets", groups=groups))


def _described_topic(name: str) -> DescribeShareGroupOffsetsRequestTopic:
    """All partitions. Of one that there is not, Kafka says so when it has tried for half a minute."""
    return {"topic_name": name, "partitions": list(range(SHARED.get(name, 1)))}


def alter_offsets(world: Sharing) -> Step:
    group = world.mostly(RESTING, STEADY, CLASSIC, "", usually=0.8)
    topics = [
        {
            "topic_name": name,
            "partitions": [
                {"partition_index": number, "start_offset": world.mostly(3, 0, 10**6)} for number in range(SHARED[name])
            ],
        }
        for name in world.rng.sample(list(SHARED), world.mostly(1, 2))
    ]
    if world.chance(0.2):
        other = {"partition_index": 0, "start_offset": 1}
        topics.append({"topic_name": "no-such-topic", "partitions": [other]})
    return world.step(ask("AlterShareGroupOffsets", group_id=group, topics=topics))


def delete_offsets(world: Sharing) -> Step:
    names = world.rng.sample([*SHARED, "no-such-topic"], world.mostly(1, 2))
    topics = [{"topic_name": name} for name in names]
    group = world.mostly(RESTING, STEADY, CLASSIC, UNKNOWN_GROUP, "", usually=0.8)
    return world.step(ask("DeleteShareGroupOffsets", group_id=group, topics=topics))


def delete_groups(world: Sharing) -> Step:
    names = [world.mostly(RESTING, STEADY if world.joined(STEADY) else RESTING, UNKNOWN_GROUP, usually=0.7)]
    return world.step(ask("DeleteGroups", groups_names=names))


def commit(world: Sharing, group: str) -> Step:
    part = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    topics = [{"name": "single", "partitions": [part]}]
    return world.step(ask("OffsetCommit", group_id=group, topics=topics), highest=9)


def other_kind(world: Sharing) -> Step:
    group = world.one_of([STEADY, BRIEF])
    if not world.joined(group):
        return describe(world)
    asked = of_other_kinds(world, group, "single", "single")
    asked.append((ask("OffsetFetch", group_id=group, topics=None, groups=[{"group_id": group}]), 8))
    if world.chance(0.15):
        return commit(world, group)
    body, lowest = world.one_of(asked)
    return world.step(body, lowest=lowest)


STEADY, BRIEF, RESTING, CLASSIC = "steady", "brief", "resting", "classic"
"""A group whose locks outlast the script, one whose locks do not, one that never has members, one of another kind."""
LOCK_MS: Final = {STEADY: 3_600_000, BRIEF: 2_500}
SHARED: Final = {"single": 1, "double": 2}
"""Topics and their partitions."""
LIMIT_S: Final = LOCK_MS[BRIEF] / 1000 / 3
"""No lock of `BRIEF` is older than that when something is asked of it: it would end between two answers."""
SLACK_S: Final = 1.0
CYCLE, OF_BRIEF = 75, 15
"""Of so many requests so many are of members of `BRIEF`: their locks end while others ask."""

Key = tuple[str, str, int]
"""Group, topic, partition."""


@attrs.define(eq=False)
class Reader:
    group: str
    id: str
    topics: tuple[str, ...] = ()
    """Subscribed to; none: it has not joined."""
    member_epoch: int = 0
    session_epoch: int = 0
    """Of the next request; 0: there is no session."""
    parts: dict[tuple[str, int], None] = attrs.field(factory=dict)
    """Of the session."""

    def forget_session(self) -> None:
        self.session_epoch = 0
        self.parts.clear()


@attrs.define(eq=False)
class Sharing(World):
    """Owner: one script."""

    readers: list[Reader] = attrs.field(
        factory=lambda: [Reader(group, f"{group}-{name}") for group in (STEADY, BRIEF) for name in "abc"]
    )
    taken: dict[Key, dict[int, str]] = attrs.field(factory=dict)
    """Offsets that were given to somebody, and to whom."""
    begun: set[str] = attrs.field(factory=set)
    """Groups that have had a member."""
    unsettled: set[str] = attrs.field(factory=set)
    """Groups whose members have changed."""
    asleep: set[Key] = attrs.field(factory=set)
    """What nobody has read since the last connection of the group ended: Kafka makes it ready when somebody does."""
    dropped: set[str] = attrs.field(factory=set)
    """Members whose connections are to end."""
    turn: int = 0
    """Which request of the script is drawn."""
    _locked: tuple[float, float] | None = None
    """When the first and the last lock of `BRIEF` began."""

    def joined(self, group: str) -> list[Reader]:
        return [reader for reader in self.readers if reader.group == group and reader.topics]

    def reader(self) -> Reader:
        """One of the group whose turn it is."""
        group = BRIEF if self.turn % CYCLE < OF_BRIEF else STEADY
        return self.one_of([reader for reader in self.readers if reader.group == group])

    def reader_step(self, reader: Reader, body: Any, **more: Any) -> Step:
        return self.step(body, connection=reader.id, **more)

    def key(self, reader: Reader, part: tuple[str, int]) -> Key:
        return (reader.group, *part)

    def held_by(self, reader: Reader, part: tuple[str, int]) -> list[int]:
        return sorted(offset for offset, who in self.taken.get(self.key(reader, part), {}).items() if who == reader.id)

    def give_back_all(self, reader: Reader) -> None:
        for held in self.taken.values():
            for offset in [offset for offset, who in held.items() if who == reader.id]:
                del held[offset]

    def lock(self, group: str) -> None:
        """Somebody was given records, or may keep them for longer."""
        if group == BRIEF:
            now = time.monotonic()
            self._locked = (self._locked[0] if self._locked else now, now)

    def let_locks_pass(self, step: Step, sleep: Callable[[float], None]) -> None:
        """Wait until no lock of `BRIEF` is left, if one might end soon and the answer is about them."""
        if self._locked is None or time.monotonic() - self._locked[0] < LIMIT_S or not _is_about_locks(step):
            return
        sleep(max(0.0, self._locked[1] + LOCK_MS[BRIEF] / 1000 + SLACK_S - time.monotonic()))
        self._locked = None
        for key in [key for key in self.taken if key[0] == BRIEF]:
            del self.taken[key]


def _is_about_locks(step: Step) -> bool:
    """Of `BRIEF`: what its members fetch and acknowledge, and how far it has come."""
    if isinstance(step.body, DescribeShareGroupOffsetsRequest):
        return any(group.group_id == BRIEF for group in step.body.groups)
    return step.connection.startswith(BRIEF)
