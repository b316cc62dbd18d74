"""Requests about groups of Kafka Streams applications: their members, tasks and topics."""

from __future__ import annotations

from typing import Any, Final

from triolog.protocol.kafka.messages.streams_groups import StreamsGroupCopartitionGroup

from tests.kafka.differential.symbols import MADE_UP_MEMBER
from tests.support.kafka_admin import DELETE, GROUP_TYPE, SET, alter_incrementally, delete_topics
from tests.support.kafka_wire import ask
from tests.support.streams_members import internal, part, topology

from .group_steps import of_other_kinds
from .world import APPLICATIONS, FENCE, GROUPS, STEADY, Instance, Step, World

STANDBYS: Final = "streams.num.standby.replicas"
MISSING_INTERNAL_TOPICS: Final = 3
TIMEOUT_MS: Final = 600_000
TOPOLOGIES: Final = {
    "words": topology(
        part("0", source_topics=["plain"], repartition_sink_topics=["words-by-key"]),
        part(
            "1",
            repartition_source_topics=[internal("words-by-key")],
            state_changelog_topics=[internal("words-counts"), internal("words-dates")],
        ),
    ),
    "pairs": topology(
        part(
            "0",
            source_topics=["plain", "stamped"],
            state_changelog_topics=[internal("pairs-joined")],
            copartition_groups=[StreamsGroupCopartitionGroup(source_topics=[0, 1])],
        )
    ),
    "rows": topology(part("0", source_topics=[STEADY], state_changelog_topics=[internal("rows-kept")])),
}
INTERNAL: Final = {"words": ("words-by-key", "words-counts", "words-dates"), "pairs": ("pairs-joined",), "rows": ("rows-kept",)}


def misses_internal_topics(answer: Any) -> bool:
    statuses = answer.get("status") if isinstance(answer, dict) else None
    return any(status["status_code"] == MISSING_INTERNAL_TOPICS for status in statuses or ())


def heartbeat(world: World) -> Step:
    """Join, stay, give tasks up, leave; now and then with another epoch, or with tasks that one has not got."""
    instance = world.one_of(world.instances)
    if instance.epoch == 0 or world.chance(0.03):
        return _join(world, instance)
    if world.chance(0.06):
        return _leave(world, instance)
    epoch = world.mostly(instance.epoch, instance.epoch - 1, instance.epoch + 1, 1, usually=0.9)
    owned = _owned(world, instance) if world.chance(0.7) else {}
    return _beat(world, instance, epoch, shutdown_application=world.chance(0.01), **owned)


def _owned(world: World, instance: Instance) -> dict[str, Any]:
    """What it was told to run, most often."""
    active = instance.active
    if world.chance(0.06):
        active = [{"subtopology_id": world.one_of(["0", "1", "7"]), "partitions": [world.rng.randrange(5)]}]
    elif world.chance(0.1):
        active = []
    return {"active_tasks": active, "standby_tasks": instance.standby, "warmup_tasks": []}


def _join(world: World, instance: Instance) -> Step:
    # Kafka fails at members with endpoints while topics that they read are missing: a deviation.
    has_endpoint = instance.group == "rows" and world.chance(0.5)
    named = {"user_endpoint": {"host": instance.id, "port": 1}} if has_endpoint else {}
    return _beat(
        world,
        instance,
        0,
        topology=TOPOLOGIES[instance.group],
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        rebalance_timeout_ms=TIMEOUT_MS,
        process_id=instance.process,
        **named,
    )


def _leave(world: World, instance: Instance) -> Step:
    return _beat(world, instance, -1)


def _beat(world: World, instance: Instance, epoch: int, **fields: Any) -> Step:
    body = _body(instance, epoch, **fields)

    def learn(answer: Any) -> None:
        if answer["error_code"] in (25, 110) and epoch == instance.epoch:  # unknown, fenced
            instance.forget()
        if answer["error_code"]:
            return
        if epoch == -1:
            instance.forget()
            return
        instance.epoch = answer["member_epoch"]
        (world.unseen.add if misses_internal_topics(answer) else world.unseen.discard)(instance.group)
        if answer["active_tasks"] is not None:
            instance.active, instance.standby = _tasks(answer["active_tasks"]), _tasks(answer["standby_tasks"])

    return world.step(body, learn=learn, internal_topics=INTERNAL[instance.group])


def _body(instance: Instance, epoch: int, **fields: Any) -> Any:
    said = {"group_id": instance.group, "member_id": instance.id, "endpoint_information_epoch": 0, **fields}
    return ask("StreamsGroupHeartbeat", member_epoch=epoch, **said)


def _tasks(told: Any) -> list[dict[str, Any]]:
    return [{"subtopology_id": each["subtopology_id"], "partitions": each["partitions"]} for each in told]


def odd_heartbeat(world: World) -> Step:
    instance = world.one_of(world.instances)
    epoch = instance.epoch or 1
    classic = world.groups[world.one_of(GROUPS)]
    joins: dict[str, Any] = {
        "topology": TOPOLOGIES[instance.group],
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
        "rebalance_timeout_ms": TIMEOUT_MS,
        "process_id": "p",
    }
    other = topology(part("0", source_topics=["wide"]))
    asked = [
        _body(instance, epoch, member_id=MADE_UP_MEMBER),
        _body(instance, -1, member_id=MADE_UP_MEMBER),
        _body(instance, epoch, group_id="no-such-group"),
        _body(instance, -1, group_id="no-such-group"),
        _body(instance, epoch, group_id=""),
        _body(instance, epoch, member_id=""),
        _body(instance, epoch, instance_id="i"),
        _body(instance, epoch, rack_id=""),
        _body(instance, epoch, active_tasks=[]),
        _body(instance, epoch, topology=other),
        _body(instance, -2),
        _body(instance, 0, **{**joins, "topology": None}),
        _body(instance, 0, **{**joins, "standby_tasks": None}),
        _body(instance, epoch, group_id=classic.name),
        _body(instance, -1, group_id=classic.name),
    ]
    if any(each.epoch for each in world.instances if each.group == instance.group):
        asked.append(_body(instance, 0, **{**joins, "topology": other}))
    if classic.member != "" and classic.generation > 0:
        asked.append(_body(instance, 0, **joins, group_id=classic.name))
    return world.step(world.one_of(asked))


def describe(world: World) -> Step:
    names = world.rng.sample([*APPLICATIONS, *APPLICATIONS, GROUPS[0], "no-such-group"], 2)
    return world.step(
        ask("StreamsGroupDescribe", group_ids=list(dict.fromkeys(names)), include_authorized_operations=world.chance(0.3))
    )


def _member(world: World, instance: Instance) -> tuple[str, int]:
    if world.chance(0.15):
        return "", -1
    return world.mostly(instance.id, MADE_UP_MEMBER, usually=0.95), instance.epoch + world.mostly(0, -1, 1, -2, usually=0.6)


def commit(world: World) -> Step:
    instance = world.one_of(world.instances)
    member, epoch = _member(world, instance)
    name = world.one_of(["plain", "stamped", STEADY, "wide"])
    topics = [
        {
            "name": name,
            "topic_id": world.topic_id(name),
            "partitions": [
                {"partition_index": number, "committed_offset": world.rng.randrange(9), "committed_metadata": ""}
                for number in world.rng.sample(range(3), world.mostly(1, 2))
            ],
        }
    ]
    body = ask(
        "OffsetCommit",
        group_id=instance.group,
        generation_id_or_member_epoch=epoch,
        member_id=member,
        retention_time_ms=-1,
        topics=topics,
    )
    return world.step(body, lowest=world.mostly(9, 2))


def fetch_offsets(world: World) -> Step:
    instance = world.one_of(world.instances)
    member, epoch = _member(world, instance)
    # A partition of an id that is asked for twice is answered once: a deviation.
    ids = {world.topic_id(name): name for name in ("plain", "stamped")}
    topics = [{"name": name, "topic_id": topic_id, "partition_indexes": [0, 1]} for topic_id, name in ids.items()]
    group = {
        "group_id": instance.group,
        "member_id": member or None,
        "member_epoch": epoch,
        "topics": topics if world.chance(0.5) else None,
    }
    return world.step(ask("OffsetFetch", group_id="", topics=None, groups=[group], require_stable=False), lowest=9)


def _group(world: World) -> str:
    return world.one_of(APPLICATIONS)


def configure(world: World) -> Step:
    return world.step(_configuring(_group(world), world.one_of(["0", "1", "1", None])), changes_metadata=True)


def _configuring(group: str, standbys: str | None) -> Any:
    change = (STANDBYS, DELETE if standbys is None else SET, standbys)
    return alter_incrementally((GROUP_TYPE, group, [change]))


def delete_group(world: World) -> Step:
    return world.step(ask("DeleteGroups", groups_names=[_group(world)]))


def delete_internal_topics(world: World) -> Step:
    # What a group has not seen since it was made, and is gone, Kafka says that it misses and does not make again: a deviation.
    groups = [group for group in APPLICATIONS if group not in world.unseen]
    if not groups:
        return describe(world)
    names = INTERNAL[world.one_of(groups)]
    some = world.rng.sample(names, world.rng.randint(1, len(names)))
    return world.step(delete_topics(*some), highest=5, changes_metadata=True)


def end_all(world: World) -> list[Step]:
    """Nothing is left of the applications."""
    names = [name for names in INTERNAL.values() for name in names]
    return [
        *(_leave(world, instance) for instance in world.instances if instance.epoch),
        *(world.step(_configuring(group, None), changes_metadata=True) for group in APPLICATIONS),
        world.step(ask("DeleteGroups", groups_names=list(APPLICATIONS))),
        world.step(delete_topics(*names), highest=5, changes_metadata=True),
    ]


def other_kind(world: World) -> Step:
    group = _group(world)
    if not any(each.epoch for each in world.instances if each.group == group):
        return describe(world)
    asked = of_other_kinds(world, group, "plain", FENCE)
    share = {"member_id": "share", "member_epoch": world.one_of([0, 1]), "subscribed_topic_names": ["plain"]}
    asked += [
        (ask("ShareGroupHeartbeat", group_id=group, **share), 1),
        (ask("ShareGroupDescribe", group_ids=[group], include_authorized_operations=False), 1),
    ]
    body, lowest = world.one_of(asked)
    return world.step(body, lowest=lowest)
