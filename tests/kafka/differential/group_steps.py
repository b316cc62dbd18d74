"""Requests about groups of one member, and their offsets."""

from __future__ import annotations

from typing import Any, Final

from tests.kafka.differential.symbols import MADE_UP_MEMBER
from tests.support.kafka_wire import ask

from .world import FENCE, GROUPS, Group, Step, World

LONG_MS: Final = 600_000
"""Nobody's session ends while a script runs."""


def _member(world: World, group: Group) -> Any:
    return world.mostly(group.member, MADE_UP_MEMBER, "", usually=0.93)


def _generation(world: World, group: Group) -> int:
    return world.mostly(group.generation, group.generation + 1, group.generation - 1, -1, usually=0.92)


def _instance(world: World, group: Group) -> str | None:
    return world.mostly(group.instance, None, "another-instance", usually=0.95)


def join(world: World) -> Step:
    """The member again, or a first one. A second member would be answered when the first one comes back: never."""
    group = world.groups[world.one_of(GROUPS)]
    protocol = world.mostly("range", "roundrobin", usually=0.7)
    joins_statically = group.member == "" and world.chance(0.3)
    instance = world.one_of(["instance-1", "instance-2"]) if joins_statically else group.instance
    member = world.mostly(group.member, MADE_UP_MEMBER, usually=0.95)
    body = ask(
        "JoinGroup",
        group_id=world.mostly(group.name, "", usually=0.98),
        session_timeout_ms=world.mostly(LONG_MS, 1, -1, 10**9, usually=0.95) if group.member == "" else LONG_MS,
        rebalance_timeout_ms=LONG_MS,
        member_id=member,
        group_instance_id=instance,
        protocol_type=world.mostly("consumer", "", "connect", usually=0.95),
        protocols=[{"name": protocol, "metadata": world.one_of([b"one", b"two"])}] if world.chance(0.97) else [],
        reason=world.mostly(None, "because"),
    )

    def learn(answer: Any) -> None:
        if answer.get("error_code") == 79:
            group.member, group.generation = answer["member_id"], -1
        elif answer.get("error_code") == 0:
            group.member, group.generation = answer["member_id"], answer["generation_id"]
            group.protocol, group.instance = answer["protocol_name"], instance

    # Before version 5 there are no instances, before version 1 no timeout of a rebalance but the session's.
    lowest = 5 if instance is not None else 1
    return world.step(body, lowest=lowest, learn=learn)


def sync(world: World) -> Step:
    group = world.groups[world.one_of(GROUPS)]
    assignments = [{"member_id": group.member, "assignment": world.one_of([b"all", b"none"])}]
    body = ask(
        "SyncGroup",
        group_id=group.name,
        generation_id=_generation(world, group),
        member_id=_member(world, group),
        group_instance_id=_instance(world, group),
        protocol_type=world.mostly("consumer", None, "connect"),
        protocol_name=world.mostly(group.protocol, None, "other"),
        assignments=assignments if world.chance(0.9) else [],
    )
    return world.step(body, lowest=3 if body.group_instance_id else 0)


def heartbeat(world: World) -> Step:
    group = world.groups[world.one_of(GROUPS)]
    body = ask(
        "Heartbeat",
        group_id=world.mostly(group.name, "no-such-group", "", usually=0.95),
        generation_id=_generation(world, group),
        member_id=_member(world, group),
        group_instance_id=_instance(world, group),
    )
    return world.step(body, lowest=3 if body.group_instance_id else 0)


def leave(world: World) -> Step:
    group = world.groups[world.one_of(GROUPS)]
    member, instance = _member(world, group), _instance(world, group)
    by_instance = instance is not None and world.chance(0.3)
    identity = {"member_id": "" if by_instance else member, "group_instance_id": instance, "reason": None}
    others = [{"member_id": MADE_UP_MEMBER}] if world.chance(0.1) else []
    body = ask("LeaveGroup", group_id=group.name, member_id=member, members=[identity, *others])

    def learn(answer: Any) -> None:
        # Who is thought to be gone and is not, keeps the next member waiting until his session ends.
        if not (by_instance or member == group.member):
            return
        told = [each["error_code"] for each in answer.get("members", ())[:1]]
        if not any([answer.get("error_code", -1), *told]):
            group.member, group.generation, group.instance = "", -1, None

    return world.step(body, lowest=3 if group.instance else 0, learn=learn)


def leave_now(world: World, group: Group) -> Step:
    """Without a mistake."""
    identity = {"member_id": group.member, "group_instance_id": group.instance, "reason": None}
    return world.step(ask("LeaveGroup", group_id=group.name, members=[identity]), lowest=3)


def delete_now(world: World) -> Step:
    return world.step(ask("DeleteGroups", groups_names=list(GROUPS)))


def describe_groups(world: World) -> Step:
    names = list(dict.fromkeys(world.group_name() for _ in range(2)))
    return world.step(ask("DescribeGroups", groups=names, include_authorized_operations=world.chance(0.3)))


def list_groups(world: World) -> Step:
    states = world.mostly([], ["Stable"], ["Empty", "Dead"], ["stable"], ["Bogus"], usually=0.5)
    types = world.mostly([], ["classic"], ["consumer"], ["streams"], ["Bogus"], usually=0.6)
    return world.step(ask("ListGroups", states_filter=states, types_filter=types))


def anchor(world: World, name: str) -> Step:
    """An offset that stays as long as the group does. Without offsets and members, triolog has no group; Kafka has it until it
    next looks for what has expired."""
    partition = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
    topics = [{"name": FENCE, "partitions": [partition]}]
    return world.step(ask("OffsetCommit", group_id=name, topics=topics), highest=9)


def delete_groups(world: World) -> Step:
    # What transactions commit that are open goes with the group in Kafka; here they keep it: a deviation.
    names = [name for name in [world.group_name()] if name not in world.groups or not world.groups[name].transactions]

    def learn(answer: Any) -> None:
        for each in answer["results"]:
            if each["error_code"] == 0 and each["group_id"] in world.groups:
                world.groups[each["group_id"]] = Group(each["group_id"])
                world.due.append(anchor(world, each["group_id"]))

    return world.step(ask("DeleteGroups", groups_names=names), learn=learn)


def commit(world: World) -> Step:
    group = world.groups[world.one_of(GROUPS)]
    as_member = group.member != "" or world.chance(0.1)
    parts = world.partitions_of([world.topic_name() for _ in range(world.mostly(1, 2))], 2)
    # Kafka answers a topic once whose id is there twice: a deviation.
    ids = {world.topic_id(name): name for name in parts}
    topics = [
        {
            "name": name,
            "topic_id": topic_id,
            "partitions": [
                {
                    "partition_index": number,
                    "committed_offset": world.mostly(world.rng.randrange(100), 0, 2**62),
                    "committed_leader_epoch": world.mostly(-1, 0, 5),
                    "committed_metadata": world.mostly("", None, "note", "x" * 5000, usually=0.5),
                }
                for number in parts[name]
            ],
        }
        for topic_id, name in ids.items()
    ]
    body = ask(
        "OffsetCommit",
        group_id=group.name,
        generation_id_or_member_epoch=_generation(world, group) if as_member else -1,
        member_id=_member(world, group) if as_member else "",
        group_instance_id=_instance(world, group) if as_member else None,
        retention_time_ms=-1,
        topics=topics,
    )
    return world.step(body, lowest=7 if body.group_instance_id else 0)


def fetch_offsets(world: World) -> Step:
    """Of one group or, from version 8 on, of several."""
    asks_all = world.chance(0.3)
    parts = world.partitions_of([world.topic_name() for _ in range(2)], 3)
    # A partition of an id that is asked for twice is answered once: a deviation.
    ids = {world.topic_id(name): name for name in parts}
    first, *others = dict.fromkeys(world.group_name() for _ in range(world.mostly(1, 2)))
    groups = [
        {
            "group_id": name,
            "topics": None
            if asks_all
            else [{"name": topic, "topic_id": topic_id, "partition_indexes": parts[topic]} for topic_id, topic in ids.items()],
        }
        for name in (first, *others)
    ]
    topics = [{"name": topic, "partition_indexes": numbers} for topic, numbers in parts.items()]
    body = ask(
        "OffsetFetch", group_id=first, topics=None if asks_all else topics, groups=groups, require_stable=world.chance(0.3)
    )
    return world.step(body, lowest=2)


def delete_offsets(world: World) -> Step:
    topics = world.topics_of([world.topic_name()], 3, lambda _, number: {"partition_index": number})
    return world.step(ask("OffsetDelete", group_id=world.group_name(), topics=topics))


def of_other_kinds(world: World, group: str, topic: str, deleted: str) -> list[tuple[Any, int]]:
    """(request, lowest version) for a classic group, and for one whose assignments the server makes."""
    timeouts = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 60_000}
    protocols = [{"name": "range", "metadata": b""}]
    member = {"member_id": "consumer", "member_epoch": world.one_of([0, 1]), "rebalance_timeout_ms": 60_000}
    of_topic = {"name": deleted, "partitions": [{"partition_index": 0}]}
    return [
        (ask("JoinGroup", group_id=group, member_id="", protocol_type="consumer", protocols=protocols, **timeouts), 5),
        (ask("Heartbeat", group_id=group, generation_id=1, member_id="m"), 0),
        (ask("ConsumerGroupHeartbeat", group_id=group, subscribed_topic_names=[topic], topic_partitions=[], **member), 1),
        (ask("ConsumerGroupDescribe", group_ids=[group], include_authorized_operations=False), 0),
        (ask("DescribeGroups", groups=[group], include_authorized_operations=False), 0),
        (ask("OffsetDelete", group_id=group, topics=[of_topic]), 0),
    ]
