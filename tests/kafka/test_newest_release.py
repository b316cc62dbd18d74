"""What Kafka 4.4 has and the reference does not: its tools work here, and its broker and triolog write the same dead letters,
answer alike when levels of features are set, and count the epochs of groups alike.

Kafka 4.4's jars come from Maven beside those of the reference; its processes are started for these tests alone.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
import triolog
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.records.builder import build_batch
from triolog.protocol.records.record import iter_records
from triolog.server.config.broker_config import Address
from triolog.server.embedded import MEMORY, BlockingBroker
from triolog.tools.bench.kafka.jars import PeerMissingError, kafka_jars

from tests.kafka.differential.sides import SHARING, Side
from tests.support.kafka_admin import GROUP_TYPE, NO_ID, SET, alter_incrementally, create_topics, new_topic
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_jars import JVM_OPTIONS, Outcome, unavailable
from tests.support.kafka_wire import KafkaWire, ask
from tests.support.share_members import WireMember
from tests.support.streams_members import PLAIN, SOURCE, heartbeat

pytestmark = pytest.mark.long  # JVMs start. The commit tier has the rules: server/sharing/test_dead_letters.py

VERSION: Final = "4.4.0"
CREATES: Final = {"errors.deadletterqueue.auto.create.topics.enable": "true"}
PARTITION: Final = 2
RELEASE, REJECT = 2, 3
DEADLINE_S: Final = 60.0
SETTLED_S: Final = 2.0
"""A queue that gets nothing has got nothing by then."""


@attrs.frozen
class Programs:
    """Kafka's tools in a JVM each."""

    classes: str

    def call(self, kind: str, *words: object) -> Outcome:
        program = "kafka.tools.StorageTool" if kind == "format" else kind
        command = ("java", *JVM_OPTIONS, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", self.classes, program)
        done = subprocess.run([*command, *map(str, words)], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        return Outcome(exit_code=done.returncode, stdout=done.stdout, stderr=done.stderr)


@pytest.fixture(scope="module")
def programs() -> Programs:
    try:
        return Programs(kafka_jars(VERSION))
    except PeerMissingError as exc:
        unavailable(str(exc))


@pytest.fixture
def ours() -> Iterator[BlockingBroker]:
    with triolog.blocking.open(
        MEMORY, kafka=Address("127.0.0.1", 0), settings={"errors_deadletterqueue_auto_create_topics_enable": True}
    ) as broker:
        yield broker


def test_the_tools_that_came_with_it_work(programs: Programs, ours: BlockingBroker) -> None:
    server = ("--bootstrap-server", str(ours.kafka))
    told = programs.call("org.apache.kafka.tools.ClusterTool", "api-versions", *server).ok()
    assert "ShareFetch(78): 1 to 2 [usable: 2]" in told
    features = "org.apache.kafka.tools.FeatureCommand"
    assert "downgraded to 1" in programs.call(features, *server, "downgrade", "--feature", "share.version=1").ok()
    assert "was disabled" in programs.call(features, *server, "disable", "--feature", "group.version").ok()
    shown = programs.call(features, *server, "describe").ok()
    levels = {line.split()[1]: line.split()[7] for line in shown.splitlines() if line.startswith("Feature: ")}
    assert (levels["share.version"], levels["group.version"]) == ("1", "0")


# ---- the broker ------------------------------------------------------------------------------------------------------------

Letter = tuple[int, bytes | None, bytes | None, Any]
"""Partition of the queue, key, value, headers."""


@attrs.define(eq=False)
class World:
    """One of the two brokers. Owner: the test."""

    side: Side

    def id_of(self, topic: str) -> bytes:
        return self._metadata(topic).topic_id  # type: ignore[no-any-return]

    def _metadata(self, topic: str) -> Any:
        asked = [{"topic_id": NO_ID, "name": topic}]
        return self.side.wire.call(ask("Metadata", topics=asked, allow_auto_topic_creation=False), 12).topics[0]

    def give_up(self, group: str, queue: str, kinds: Sequence[int], *, made: dict[str, str] | None, copies: bool) -> None:
        """Let a group of its own acknowledge the only records of a topic of its own, time after time."""
        wire, topic = self.side.wire, f"source-{group}"
        wire.call(create_topics(new_topic(topic, PARTITION + 1)), 7)
        if made is not None:
            wire.call(create_topics(new_topic(queue, 2, configs=made)), 7)
        keys = {
            "share.auto.offset.reset": "earliest",
            "share.delivery.count.limit": "2",
            "errors.deadletterqueue.topic.name": queue,
            "errors.deadletterqueue.copy.record.enable": str(copies).lower(),
        }
        wire.call(alter_incrementally((GROUP_TYPE, group, [(key, SET, value) for key, value in keys.items()])), 1)
        self.side.settle_metadata()
        now_ms = int(time.time() * 1000)
        records = build_batch([(now_ms, b"key", b"value", (("header", b"1"),)), (now_ms, None, None, ())])
        parts = [{"index": PARTITION, "records": records}]
        produce = ask("Produce", acks=-1, timeout_ms=30_000, topic_data=[{"name": topic, "partition_data": parts}])
        assert wire.call(produce, 9).responses[0].partition_responses[0].error_code == 0
        with closing(KafkaWire.connect(self.side.address)) as own:
            member = WireMember(own, group, topic, self.id_of(topic), "member", PARTITION)
            member.join()
            for kind in kinds:
                acquired = member.acquire(2)
                member.acknowledge(acquired[0][0], acquired[-1][1], [kind])
            self.letters(queue, 2 if made is None or made else 0)
            member.leave()

    def letters(self, queue: str, count: int) -> list[Letter]:
        """The letters in a queue, once there are so many; none, after a while."""
        deadline = time.monotonic() + (DEADLINE_S if count else SETTLED_S)
        while len(found := self._letters(queue)) < max(count, 1) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(found) == count, found
        return sorted(found, key=str)

    def _letters(self, queue: str) -> list[Letter]:
        known = self._metadata(queue)
        parts = [
            {
                "partition": number,
                "fetch_offset": 0,
                "partition_max_bytes": 2**20,
                "current_leader_epoch": -1,
                "log_start_offset": 0,
            }
            for number in range(len(known.partitions))
        ]
        sizes = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 2**20, "session_id": 0, "session_epoch": -1}
        topics = [{"topic": queue, "partitions": parts}]
        answer = self.side.wire.call(ask("Fetch", isolation_level=0, topics=topics, **sizes), 11)
        return [
            (part.partition_index, record.key, record.value, record.headers)
            for topic in answer.responses
            for part in topic.partitions
            for header, batch in iter_batches(part.records or b"")
            for record in iter_records(batch, header)
        ]

    def set_level(self, name: str, level: int, kind: int) -> int:
        update = [{"feature": name, "max_version_level": level, "upgrade_type": kind}]
        answer = self.side.wire.call(ask("UpdateFeatures", feature_updates=update, validate_only=True), 2)
        return int(answer.error_code)


def joined_epochs(world: World, kind: str, members: int) -> list[tuple[int, int, int]]:
    """Let members join a group one after the other. After each join: the epoch of that member once it does not change any more,
    and the described epochs of the group and of its assignment.

    A member of a share group gets partitions only when they have states, which is another epoch."""
    wire, group, found = world.side.wire, f"epochs-{kind}", []
    for number in range(members):
        member, epoch, is_settled, has_partitions = f"member-{number}", 0, False, kind != "Share"
        deadline = time.monotonic() + DEADLINE_S
        while not is_settled:
            assert time.monotonic() < deadline, (kind, epoch)
            answer = wire.call(_heartbeat(kind, group, member, epoch), HEARTBEATS[kind])
            assert answer.error_code == 0, answer
            has_partitions |= kind == "Share" and answer.assignment is not None and bool(answer.assignment.topic_partitions)
            described = _described_epochs(wire, kind, group)
            is_settled = has_partitions and epoch == answer.member_epoch == described[0]
            epoch = answer.member_epoch
        found.append((epoch, *described))
    return found


HEARTBEATS: Final = {"Consumer": 1, "Share": 1, "Streams": 0}
"""By kind of group, the version of its heartbeats and of their descriptions."""


def _heartbeat(kind: str, group: str, member: str, epoch: int) -> Any:
    who: dict[str, Any] = {"group_id": group, "member_id": member, "member_epoch": epoch}
    if kind == "Streams":
        return heartbeat(epoch, **who, **({"topology": PLAIN} if epoch == 0 else {}))
    said = {"subscribed_topic_names": [SOURCE]} if epoch == 0 else {}
    if kind == "Consumer" and epoch == 0:
        said |= {"rebalance_timeout_ms": 60_000, "topic_partitions": []}
    return ask(f"{kind}GroupHeartbeat", **who, **said)


def _described_epochs(wire: KafkaWire, kind: str, group: str) -> tuple[int, int]:
    asked = ask(f"{kind}GroupDescribe", group_ids=[group], include_authorized_operations=False)
    [described] = wire.call(asked, HEARTBEATS[kind]).groups
    return described.group_epoch, described.assignment_epoch


ENABLED: Final = {"errors.deadletterqueue.group.enable": "true"}
STEPS: Final[dict[str, Callable[[World], None]]] = {
    "dlq.created": lambda world: world.give_up("created", "dlq.created", [REJECT], made=None, copies=False),
    "dlq.copied": lambda world: world.give_up("copied", "dlq.copied", [REJECT], made=ENABLED, copies=True),
    "dlq.exceeded": lambda world: world.give_up("exceeded", "dlq.exceeded", [RELEASE] * 2, made=ENABLED, copies=True),
    "dlq.closed": lambda world: world.give_up("closed", "dlq.closed", [REJECT], made={}, copies=True),
}


def test_dead_letters_levels_and_first_epochs_are_those_of_its_broker(
    programs: Programs, ours: BlockingBroker, tmp_path: Path
) -> None:
    calls: Any = programs
    with KafkaBroker(tmp_path / "kafka", programs.classes, calls, settings=SHARING | CREATES) as kafka:
        kafka.format()
        kafka.start()
        with closing(Side.connect(ours.kafka)) as one, closing(Side.connect(Address.parse(kafka.address))) as other:
            mine, theirs = World(one), World(other)
            for world in (mine, theirs):
                world.side.prepare()
                for step in STEPS.values():
                    step(world)
            for queue in STEPS:
                count = 0 if queue == "dlq.closed" else 2
                assert mine.letters(queue, count) == theirs.letters(queue, count), queue
            for world in (mine, theirs):
                world.side.wire.call(create_topics(new_topic(SOURCE, 2)), 7)
                world.side.settle_metadata()
            for group_kind in HEARTBEATS:
                epochs = [joined_epochs(world, group_kind, 2) for world in (mine, theirs)]
                assert epochs[0] == epochs[1], group_kind
                assert epochs[0][0] == ((3, 3, 3) if group_kind == "Share" else (2, 2, 2))
            for level in range(-1, 4):
                for kind in range(4):
                    updates = [world.set_level("share.version", level, kind) for world in (mine, theirs)]
                    assert updates[0] == updates[1], (level, kind)
