"""Requests about members of share groups, their offsets, and groups of other kinds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from triolog.protocol.kafka.messages.share_groups import DescribeShareGroupOffsetsRequestTopic

from tests.support.kafka_asking import ask

from ..group_steps import of_other_kinds
from ..world import Step
from . import reading_steps
from .world import BRIEF, CLASSIC, RESTING, SHARED, STEADY, Reader, Sharing

UNKNOWN_GROUP = "no-such-group"


def heartbeat(world: Sharing) -> Step:
    """Join, stay, subscribe anew or leave, as a member does."""
    reader = world.one_of(world.readers)
    if not reader.topics:
        return join(world, reader)
    if world.chance(0.15):
        # Here a share session ends when its member leaves, in Kafka it does not: a deviation. Clients end it first.
        world.due.append(_leaves(world, reader))
        return reading_steps.end_session(world, reader)
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
