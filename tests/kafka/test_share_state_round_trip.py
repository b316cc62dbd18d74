"""Kafka begins with a share group, triolog goes on with it on the same files, then Kafka: all know what became of records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import triolog
from triolog.server.config.broker_config import Address

from tests.support.kafka_admin import GROUP_TYPE, NO_ID, SET, alter_incrementally
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_jars import KafkaCalls
from tests.support.kafka_server import batch, produce_request
from tests.support.kafka_wire import KafkaWire, ask
from tests.support.share_members import ACCEPT, NOT_YET, REJECT, RELEASE, WireMember

# A broker starts twice. The commit tier has the state that Kafka left: server/listeners/kafka/test_golden_directory.py.

TOPIC: Final = "queue"
GROUP: Final = "workers"
RECORDS: Final = 20
SETTINGS: Final = {
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.share.assignment.interval.ms": "0",
}


@contextmanager
def connected(address: str) -> Iterator[KafkaWire]:
    with closing(KafkaWire.connect(Address.parse(address))) as wire:
        yield wire


@contextmanager
def working(wire: KafkaWire, name: str) -> Iterator[WireMember]:
    member = WireMember(wire, GROUP, TOPIC, topic_id(wire), name)
    member.join()
    yield member
    member.leave()


def topic_id(wire: KafkaWire) -> bytes:
    asked = ask("Metadata", topics=[{"topic_id": NO_ID, "name": TOPIC}], allow_auto_topic_creation=False)
    found: bytes = wire.call(asked, 12).topics[0].topic_id
    return found


def offsets(wire: KafkaWire) -> tuple[int, int]:
    """Start offset and lag."""
    asked = ask("DescribeShareGroupOffsets", groups=[{"group_id": GROUP, "topics": None}])
    while (group := wire.call(asked, 1).groups[0]).error_code in NOT_YET:
        """Asked again."""
    [partition] = group.topics[0].partitions
    assert group.error_code == partition.error_code == 0, group
    return partition.start_offset, partition.lag


def begin(wire: KafkaWire) -> tuple[int, int]:
    """0 to 3 accepted, 4 and 5 given back, 6 rejected, 7 given back twice."""
    reset: Any = [("share.auto.offset.reset", SET, "earliest")]
    assert wire.call(alter_incrementally((GROUP_TYPE, GROUP, reset)), 1).responses[0].error_code == 0
    values = [f"{number}" for number in range(RECORDS)]
    assert wire.call(produce_request(batch(*values), topic=TOPIC), 9).responses[0].partition_responses[0].error_code == 0
    with working(wire, "kafka") as member:
        assert member.acquire(8) == [(0, 7, 1)]
        member.acknowledge(0, 7, [ACCEPT] * 4 + [RELEASE, RELEASE, REJECT, RELEASE])
        assert member.acquire(3) == [(4, 5, 2), (7, 7, 2)]
        member.acknowledge(7, 7, [RELEASE])
    return offsets(wire)


def go_on(wire: KafkaWire) -> tuple[int, int]:
    """4 and 5 came back as the member went, for the third time; 7 too."""
    with working(wire, "triolog") as member:
        assert member.acquire(4) == [(4, 5, 3), (7, 7, 3), (8, 8, 1)]
        member.acknowledge(4, 5, [ACCEPT, RELEASE])
        member.acknowledge(8, 8, [REJECT])
    return offsets(wire)


def end(wire: KafkaWire) -> tuple[int, int]:
    """What was delivered so often comes alone: it may be what members die of."""
    with working(wire, "kafka-again") as member:
        for offset in (5, 7):
            assert member.acquire(3) == [(offset, offset, 4)]
            member.acknowledge(offset, offset, [ACCEPT])
        assert member.acquire(1) == [(9, 9, 1)]
    return offsets(wire)


def test_a_share_group_goes_on_from_kafka_to_triolog_and_back(kafka: KafkaCalls, kafka_class_path: str, tmp_path: Path) -> None:
    with KafkaBroker(tmp_path / "kafka", kafka_class_path, kafka, settings=SETTINGS) as theirs:
        theirs.format()
        theirs.start()
        theirs.topics("--bootstrap-server", theirs.address, "--create", "--topic", TOPIC, "--config", "retention.ms=-1")
        with connected(theirs.address) as wire:
            left = begin(wire)
        theirs.stop()
        ours = triolog.blocking.open(
            theirs.log_directory, for_tests=True, kafka=Address("127.0.0.1", 0), config={"retention.ms": "-1"}
        )
        with ours as broker, connected(str(broker.kafka)) as wire:
            assert offsets(wire) == left == (4, 15)
            left = go_on(wire)
        theirs.start()
        with connected(theirs.address) as wire:
            assert offsets(wire) == left == (5, 13)
            assert end(wire) == (9, 11)
        theirs.stop()
