"""Groups with members of both protocols: Apache Kafka 4.3.1 and triolog answer alike, and continue from each other's files."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
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
from tests.support.counts import counts
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


def wants(owned: list[int], topic: str = TOPIC) -> bytes:
    parts = [ConsumerPartitions(topic=topic, partitions=owned)] if owned else []
    return encode_consumer_protocol(ConsumerProtocolSubscription(topics=[topic], owned_partitions=parts), 3)


def gives(*partitions: int, topic: str = TOPIC, user_data: bytes | None = None) -> bytes:
    parts = [ConsumerPartitions(topic=topic, partitions=list(partitions))]
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


def topic_id(wire: KafkaWire, topic: str = TOPIC) -> bytes:
    asked = ask("Metadata", topics=[{"topic_id": NO_ID, "name": topic}], allow_auto_topic_creation=False)
    found: bytes = wire.call(asked, 12).topics[0].topic_id
    return found


@contextmanager
def connected(address: Any) -> Iterator[KafkaWire]:
    with closing(KafkaWire.connect(Address.parse(str(address)))) as wire:
        yield wire


def prepare(wire: KafkaWire, topic: str = TOPIC, partitions: int = PARTITIONS) -> None:
    """A topic, and a coordinator that knows it."""
    wire.call(create_topics(new_topic(topic, partitions)), 7)
    find = ask("FindCoordinator", key_type=0, coordinator_keys=["probe"])
    while wire.call(find, 4).coordinators[0].error_code:
        """Asked again until there is one."""
    probe = Group(wire, "probe")
    while not probe.consumer("probe", subscribed_topic_names=[topic]):
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


# ---- walks -------------------------------------------------------------------------------------------------------------------

PLACES: Final = ("a", "b", "c", "d")
"""Members of a walk. The last two are static."""
STATIC: Final = ("c", "d")
WALKED_TOPIC: Final = "walked"
WALKED: Final = 12
"""Partitions, so that up to four members have equally many."""
WALKS: Final = counts(4)
CHANGES: Final = 14
ROUNDS: Final = 30


@attrs.define(eq=False)
class Walker:
    """One member, which may use either protocol, with a connection of its own."""

    wire: KafkaWire
    name: str
    group: Group
    protocol: str = ""
    """Of the process that runs: classic, consumer, or none."""
    number: int = 0
    member_id: str = ""
    epoch: int = -1
    owned: list[int] = attrs.field(factory=list)
    leads: list[str] = attrs.field(factory=list)

    @property
    def instance_id(self) -> str | None:
        return self.name if self.name in STATIC else None

    def start(self, protocol: str) -> None:
        self.protocol, self.number = protocol, self.number + 1
        self.member_id = f"{self.name}-{self.number}" if protocol == "consumer" else ""
        self.epoch, self.owned = (0 if protocol == "consumer" else -1), []

    def send_join(self) -> None:
        body = {
            "group_id": self.group.name,
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": LONG_MS,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": wants(self.owned, WALKED_TOPIC)}],
        }
        self.wire.send(ask("JoinGroup", **body), 9)

    def joined(self) -> bool:
        """Whether it is a member now; otherwise it has to join again."""
        answer = self.wire.receive()
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        elif answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        if answer.error_code:
            return False
        self.member_id, self.epoch = answer.member_id, answer.generation_id
        self.leads = [each.member_id for each in answer.members]
        return True

    def sync(self) -> bool:
        """Whether it has its assignment. A leader shares out everything in order."""
        given = [
            {"member_id": each, "assignment": gives(*range(place, WALKED, len(self.leads)), topic=WALKED_TOPIC)}
            for place, each in enumerate(sorted(self.leads))
        ]
        named = {"group_id": self.group.name, "generation_id": self.epoch, "member_id": self.member_id}
        body = {**named, "group_instance_id": self.instance_id, "protocol_type": "consumer", "protocol_name": "range"}
        answer = self.wire.call(ask("SyncGroup", **body, assignments=given), 5)
        if not answer.error_code:
            parts = decode_assignment(answer.assignment).assigned_partitions
            self.owned = sorted(number for topic in parts for number in topic.partitions)
        return not answer.error_code

    def beat(self) -> int:
        named = {"group_id": self.group.name, "generation_id": self.epoch, "member_id": self.member_id}
        code: int = self.wire.call(ask("Heartbeat", **named, group_instance_id=self.instance_id), 4).error_code
        return code

    def heartbeat(self) -> None:
        """Of the consumer protocol. It joins again where it has to."""
        parts = [{"topic_id": topic_id(self.wire, WALKED_TOPIC), "partitions": self.owned}] if self.owned else []
        said: dict[str, Any] = {"member_id": self.member_id, "member_epoch": self.epoch, "topic_partitions": parts}
        if self.epoch == 0:
            said |= {"subscribed_topic_names": [WALKED_TOPIC], "rebalance_timeout_ms": LONG_MS}
        body = {"group_id": self.group.name, "instance_id": self.instance_id, **said}
        answer = self.wire.call(ask("ConsumerGroupHeartbeat", **body), 1)
        if answer.error_code:
            self.epoch, self.owned = 0, []
            return
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = sorted(number for topic in answer.assignment.topic_partitions for number in topic.partitions)

    def leave(self) -> None:
        if self.protocol == "classic":
            members = [{"member_id": self.member_id, "group_instance_id": self.instance_id}]
            answer = self.wire.call(ask("LeaveGroup", group_id=self.group.name, members=members), 5)
            self.group.note("left", self.name, [each.error_code for each in answer.members])
        else:
            named = {"group_id": self.group.name, "member_id": self.member_id, "instance_id": self.instance_id}
            answer = self.wire.call(ask("ConsumerGroupHeartbeat", **named, member_epoch=-1), 1)
            self.group.note("left", self.name, answer.error_code)
        self.protocol = ""


def rejoin(members: list[Walker]) -> None:
    """All members of a classic group join together, new ones first, and sync, the leader first."""
    new = [each for each in members if each.epoch < 0]
    old = [each for each in members if each.epoch >= 0]
    for each in new:
        if each.instance_id is None and not each.member_id:
            each.send_join()
            assert not each.joined(), "it gets a member id"
        each.send_join()
    while new and old and not old[0].beat():
        """Until the broker has begun the rebalance: before, a join of a member without news ends at once."""
    for each in old:
        each.send_join()
    for each in members:
        assert each.joined(), each
    for each in sorted(members, key=lambda each: not each.leads):
        each.sync()


def kind_of(group: Group) -> str:
    listed = group.call(ask("ListGroups", states_filter=[], types_filter=[]), 5).groups
    return next((each.group_type for each in listed if each.group_id == group.name), "")


def speak(group: Group, running: list[Walker]) -> bool:
    """One round of requests. Answers whether nothing has moved."""
    before = [(each.epoch, each.owned) for each in running]
    classic = [each for each in running if each.protocol == "classic"]
    codes = [each.beat() for each in classic]
    if kind_of(group) == "consumer":
        for each, code in zip(classic, codes, strict=True):
            if code:
                each.send_join()
                if each.joined():
                    each.sync()
    elif any(codes):
        rejoin(classic)
    for each in running:
        if each.protocol == "consumer":
            each.heartbeat()
    return not any(codes) and before == [(each.epoch, each.owned) for each in running]


def calm(group: Group, walkers: list[Walker]) -> None:
    """Let everybody speak until nothing more moves, and note what is then."""
    running = [each for each in walkers if each.protocol]
    rounds = 0
    while not speak(group, running):
        rounds += 1
        assert rounds < ROUNDS, f"still moving: {running}"
    owned = sorted(number for each in running for number in each.owned)
    assert owned == (list(range(WALKED)) if running else []), [(each.name, each.owned) for each in running]
    group.note(*((each.name, each.protocol, each.epoch, len(each.owned)) for each in running))
    group.kind()
    group.described()


def walk(address: Any, seed: int) -> Facts:
    """Members come, go and change their protocol, one at a time."""
    rng = random.Random(seed)
    with ExitStack() as wires:
        group = Group(wires.enter_context(connected(address)), f"walk-{seed}")
        walkers = [Walker(wires.enter_context(connected(address)), name, group) for name in PLACES]
        for _ in range(CHANGES):
            walker = rng.choice(walkers)
            protocol = rng.choice(["classic", "consumer"])
            is_replaced = walker.instance_id is not None and walker.protocol not in ("", protocol) and rng.random() < 0.6
            group.note("next", walker.name, walker.protocol, protocol, is_replaced)
            if walker.protocol and not is_replaced:
                walker.leave()
                calm(group, walkers)
            walker.start(protocol)
            if protocol == "consumer":
                walker.heartbeat()
            calm(group, walkers)
        for walker in walkers:
            if walker.protocol:
                walker.leave()
        group.kind()
        return group.facts


def test_members_that_change_their_protocol_get_the_same_epochs_from_both(broker: BlockingBroker, apache: KafkaBroker) -> None:
    for address in (broker.kafka, apache.address):
        with connected(address) as wire:
            prepare(wire, WALKED_TOPIC, WALKED)
    for seed in range(WALKS):
        ours, theirs = walk(broker.kafka, seed), walk(apache.address, seed)
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            assert one == other, f"seed {seed}, fact {number}; before: {theirs[max(0, number - 8) : number]}"


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
