"""Groups with members of both protocols: Apache Kafka 4.3.1 and triolog answer alike, and continue from each other's files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import triolog
from triolog.protocol.coordinator.classic_group_records import (
    ConsumerPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_assignment,
    encode_consumer_protocol,
)
from triolog.protocol.errors import ErrorCode
from triolog.server.config.broker_config import Address
from triolog.server.embedded import BlockingBroker

from tests.kafka.conftest import AT_ONCE
from tests.support.kafka_admin import NO_ID, create_topics, new_topic
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_jars import KafkaCalls
from tests.support.kafka_wire import KafkaWire, ask

TOPIC: Final = "mixed"
PARTITIONS: Final = 4
LONG_MS: Final = 600_000
NOT_YET: Final = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)
Facts = list[tuple[Any, ...]]


def wants(owned: list[int], topics: tuple[str, ...] = (TOPIC,)) -> bytes:
    parts = [ConsumerPartitions(topic=TOPIC, partitions=owned)] if owned else []
    return encode_consumer_protocol(ConsumerProtocolSubscription(topics=list(topics), owned_partitions=parts), 3)


def gives(*partitions: int, user_data: bytes | None = None) -> bytes:
    parts = [ConsumerPartitions(topic=TOPIC, partitions=list(partitions))]
    return encode_consumer_protocol(ConsumerProtocolAssignment(assigned_partitions=parts, user_data=user_data), 1)


@attrs.define(eq=False)
class Group:
    """A group at one broker, and what its requests were answered, without what a broker chooses by itself."""

    wire: KafkaWire
    name: str
    facts: Facts = attrs.field(factory=list)

    def note(self, *facts: Any) -> None:
        self.facts.append(facts)

    def call(self, body: Any, version: int) -> Any:
        while (answer := self.wire.call(body, version)).error_code in NOT_YET:
            """Asked again until there is a coordinator."""
        return answer

    def consumer(self, member_id: str, epoch: int = 0, owned: list[int] | None = None, **changes: Any) -> Any:
        """A heartbeat of the consumer protocol; `owned`: partitions that it states."""
        parts = None if owned is None else [{"topic_id": topic_id(self.wire), "partitions": owned}] if owned else []
        said: dict[str, Any] = {"topic_partitions": parts}
        if epoch == 0:
            said = {"topic_partitions": [], "subscribed_topic_names": [TOPIC], "rebalance_timeout_ms": LONG_MS}
        body = {"group_id": self.name, "member_id": member_id, "member_epoch": epoch, **said, **changes}
        answer = self.call(ask("ConsumerGroupHeartbeat", **body), 1)
        topics = None if answer.assignment is None else answer.assignment.topic_partitions
        given = None if topics is None else sorted(number for topic in topics for number in topic.partitions)
        count = None if given is None else len(given)
        self.note("consumer", member_id, epoch, answer.error_code, answer.member_epoch, count)
        return given

    def kind(self) -> None:
        groups = self.call(ask("ListGroups", states_filter=[], types_filter=[]), 5).groups
        self.note(*((each.group_type, each.protocol_type, each.group_state) for each in groups if each.group_id == self.name))

    def described(self) -> None:
        [group] = self.wire.call(ask("ConsumerGroupDescribe", group_ids=[self.name]), 1).groups
        members = sorted(
            (each.member_type, each.member_epoch, sum(len(topic.partitions) for topic in each.assignment.topic_partitions))
            for each in group.members
        )
        self.note("described", group.error_code, group.group_state, group.group_epoch, group.assignment_epoch, members)
        [classic] = self.wire.call(ask("DescribeGroups", groups=[self.name]), 5).groups
        self.note("as classic", classic.error_code, classic.group_state, classic.protocol_data, len(classic.members))


@attrs.define(eq=False)
class Classic:
    group: Group
    instance_id: str | None = None
    member_id: str = ""
    generation: int = -1

    def join(self, owned: list[int] | None = None, version: int = 9, **changes: Any) -> None:
        body = {
            "group_id": self.group.name,
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": LONG_MS,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": wants(owned or [])}],
            **changes,
        }
        answer = self.group.call(ask("JoinGroup", **body), version)
        is_self = answer.leader == answer.member_id
        said = answer.error_code, answer.generation_id, answer.protocol_type, answer.protocol_name, len(answer.members)
        self.group.note("join", self.instance_id, bool(answer.member_id), is_self or answer.leader, *said)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self.join(owned, version, **changes)
        elif not answer.error_code:
            self.member_id, self.generation = answer.member_id, answer.generation_id

    def named(self, **changes: Any) -> dict[str, Any]:
        names = {"group_id": self.group.name, "generation_id": self.generation, "member_id": self.member_id}
        return {**names, "group_instance_id": self.instance_id, **changes}

    def sync(self, assignment: bytes | None = None, **changes: Any) -> list[int]:
        given = [] if assignment is None else [{"member_id": self.member_id, "assignment": assignment}]
        named = self.named(protocol_type="consumer", protocol_name="range", assignments=given)
        answer = self.group.call(ask("SyncGroup", **{**named, **changes}), 5)
        parts = decode_assignment(answer.assignment).assigned_partitions
        partitions = sorted(number for topic in parts for number in topic.partitions)
        said = answer.error_code, answer.protocol_type, answer.protocol_name
        self.group.note("sync", *said, answer.assignment[:2], len(partitions))
        return partitions

    def beat(self, **changes: Any) -> None:
        self.group.note("beat", self.group.call(ask("Heartbeat", **self.named(**changes)), 4).error_code)

    def leave(self, *others: dict[str, Any]) -> None:
        members = [*others, {"member_id": self.member_id, "group_instance_id": self.instance_id}]
        answer = self.group.call(ask("LeaveGroup", group_id=self.group.name, members=members), 5)
        self.group.note("leave", answer.error_code, [each.error_code for each in answer.members])

    def commit(self, number: int = 0, **changes: Any) -> None:
        partition = {"partition_index": number, "committed_offset": 0, "committed_metadata": ""}
        named = self.named(topics=[{"name": TOPIC, "partitions": [partition]}])
        named["generation_id_or_member_epoch"] = named.pop("generation_id")
        [topic] = self.group.wire.call(ask("OffsetCommit", **{**named, **changes}), 8).topics
        self.group.note("commit", topic.partitions[0].error_code)

    def form(self, assignment: bytes | None = None) -> None:
        self.join()
        self.sync(gives(*range(PARTITIONS)) if assignment is None else assignment)


def topic_id(wire: KafkaWire) -> bytes:
    asked = ask("Metadata", topics=[{"topic_id": NO_ID, "name": TOPIC}], allow_auto_topic_creation=False)
    found: bytes = wire.call(asked, 12).topics[0].topic_id
    return found


@contextmanager
def connected(address: Any) -> Iterator[KafkaWire]:
    with closing(KafkaWire.connect(Address.parse(str(address)))) as wire:
        yield wire


def prepare(wire: KafkaWire) -> None:
    """The topic, and a coordinator that knows it."""
    wire.call(create_topics(new_topic(TOPIC, PARTITIONS)), 7)
    find = ask("FindCoordinator", key_type=0, coordinator_keys=["probe"])
    while wire.call(find, 4).coordinators[0].error_code:
        """Asked again until there is one."""
    probe = Group(wire, "probe")
    while not probe.consumer("probe"):
        """And until it knows of the topic."""
    probe.consumer("probe", -1)


# ---- scripts -----------------------------------------------------------------------------------------------------------------


def roll(wire: KafkaWire) -> Facts:
    """A classic member, one of the consumer protocol, back again; with every right and wrong request on the way."""
    group = Group(wire, "roll")
    classic = Classic(group)
    classic.form()
    group.kind()
    group.consumer("c")
    group.described()
    classic.beat()
    classic.sync()
    classic.join(list(range(PARTITIONS)))
    kept = classic.sync()
    classic.beat()
    group.described()
    classic.join(kept)
    classic.sync()
    classic.beat()
    owned = group.consumer("c", 2)
    group.consumer("c", 2, owned)
    group.described()
    group.kind()
    for changes in ({"generation_id": 1}, {"generation_id": 9}, {"member_id": "nobody"}, {"member_id": "c"}):
        classic.beat(**changes)
        classic.sync(**changes)
    for changes in ({"group_instance_id": "nobody"}, {"protocol_type": "connect"}, {"protocol_name": "sticky"}):
        classic.sync(**changes)
    for number in (kept[0], owned[0]):
        for epoch in (0, 1, 2, 3, -1):
            classic.commit(number, generation_id_or_member_epoch=epoch)
    classic.commit(member_id="nobody")
    classic.commit(member_id="", generation_id_or_member_epoch=-1)
    classic.commit(member_id="c")
    other = Classic(group)
    other.join(protocol_type="connect")
    other.join(protocols=[{"name": "sticky", "metadata": wants([])}])
    other.join(protocols=[])
    other.join(session_timeout_ms=10**9)
    other.join()
    other.sync()
    other.beat()
    other.leave({"member_id": "nobody"}, {"member_id": "", "group_instance_id": "nobody"})
    classic.beat()
    classic.join(kept)
    classic.sync()
    group.consumer("c", -1)
    group.kind()
    classic.beat()
    classic.sync()
    classic.join(kept)
    classic.sync(gives(*range(PARTITIONS)))
    group.described()
    group.consumer("c", 3)
    classic.leave()
    group.kind()
    return group.facts


def static(wire: KafkaWire) -> Facts:
    """An instance id that changes the protocol with its process."""
    group = Group(wire, "static")
    old = Classic(group, "i")
    old.form()
    group.consumer("new", instance_id="i")
    group.kind()
    old.beat()
    old.sync()
    group.described()
    again = Classic(group, "i")
    again.join()
    group.kind()
    again.sync()
    again.beat()
    again.beat(member_id="new")
    group.consumer("new", 1, instance_id="i")
    group.consumer("newer", instance_id="i")
    group.consumer("another", instance_id="j")
    group.consumer("third", instance_id="j")
    group.consumer("another", -2, instance_id="j")
    again.leave({"member_id": "newer", "group_instance_id": "j"}, {"member_id": "", "group_instance_id": "j"})
    group.kind()
    return group.facts


def refusals(wire: KafkaWire) -> Facts:
    """Groups that stay classic."""
    facts: Facts = []
    for name, assignment in (("custom", gives(0, user_data=b"mine")), ("empty", b"")):
        group = Group(wire, name)
        classic = Classic(group)
        classic.form(assignment)
        group.consumer("c")
        group.kind()
        classic.leave()
        facts += group.facts
    group = Group(wire, "connect")
    connect = Classic(group)
    connect.join(protocol_type="connect")
    group.consumer("c")
    group.kind()
    connect.leave()
    return facts + group.facts


def old_versions(wire: KafkaWire) -> Facts:
    """Joins of every version in a consumer group."""
    facts: Facts = []
    for version in range(10):
        group = Group(wire, f"version-{version}")
        group.consumer("c")
        classic = Classic(group)
        if version < 5:
            classic.join(version=version)
            classic.sync()
            classic.leave()
        group.consumer("c", -1)
        group.kind()
        facts += group.facts
    return facts


SCRIPTS: Final = (roll, static, refusals, old_versions)


def played(address: Any) -> list[Facts]:
    with connected(address) as wire:
        prepare(wire)
        return [script(wire) for script in SCRIPTS]


def test_both_brokers_answer_members_of_both_protocols_alike(broker: BlockingBroker, apache: KafkaBroker) -> None:
    for script, ours, theirs in zip(SCRIPTS, played(broker.kafka), played(apache.address), strict=True):
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            assert one == other, f"{script.__name__}: answer {number}; before: {theirs[max(0, number - 4) : number]}"


# ---- on the same files -------------------------------------------------------------------------------------------------------


def share(group: Group, classic: Classic) -> tuple[int, list[int]]:
    """A consumer of the other protocol joins a stable group. Answers its epoch, and what the classic member keeps."""
    group.consumer("c")
    epoch = int(group.facts[-1][4])
    classic.join(list(range(PARTITIONS)))
    kept = classic.sync()
    classic.join(kept)
    assert classic.sync() == kept
    owned = group.consumer("c", epoch)
    group.consumer("c", epoch, owned)
    assert sorted([*owned, *kept]) == list(range(PARTITIONS))
    return epoch, kept


def go_on(wire: KafkaWire, classic: Classic, epoch: int, kept: list[int]) -> Group:
    """Both members are still members, and keep what they have. Each broker has its own hash of the topics, so it begins a new
    epoch where the other one wrote it."""
    group = classic.group = Group(wire, classic.group.name)
    classic.beat()
    assert group.facts[-1] == ("beat", 0)
    group.consumer("c", epoch)
    classic.join(kept)
    assert classic.sync() == kept
    classic.beat()
    assert group.facts[-1] == ("beat", 0)
    group.described()
    *_, members = group.facts[-2]
    assert [(kind, count) for kind, _, count in members] == [(0, len(kept)), (1, PARTITIONS - len(kept))]
    return group


def test_a_mixed_group_continues_from_kafka_to_triolog_and_back(
    kafka: KafkaCalls, kafka_class_path: str, tmp_path: Path
) -> None:
    with KafkaBroker(tmp_path / "kafka", kafka_class_path, kafka, settings=AT_ONCE) as theirs:
        theirs.format()
        theirs.start()
        with connected(theirs.address) as wire:
            prepare(wire)
            classic = Classic(Group(wire, "group"))
            classic.form()
            shared = share(classic.group, classic)
        theirs.stop()
        with (
            triolog.blocking.open(theirs.log_directory, for_tests=True, kafka=Address("127.0.0.1", 0)) as broker,
            connected(broker.kafka) as wire,
        ):
            group = go_on(wire, classic, *shared)
            group.consumer("c", -1)
            classic.join()
            classic.sync(gives(*range(PARTITIONS)))
            shared = share(group, classic)
        theirs.start()
        with connected(theirs.address) as wire:
            group = go_on(wire, classic, *shared)
            group.consumer("c", -1)
            classic.beat()
            assert group.facts[-1] == ("beat", ErrorCode.REBALANCE_IN_PROGRESS)
        theirs.stop()
        with (
            triolog.blocking.open(theirs.log_directory, for_tests=True, kafka=Address("127.0.0.1", 0)) as broker,
            connected(broker.kafka) as wire,
        ):
            group = classic.group = Group(wire, "group")
            classic.join()
            classic.sync(gives(*range(PARTITIONS)))
            group.kind()
            assert group.facts[-1] == (("classic", "consumer", "Stable"),)
