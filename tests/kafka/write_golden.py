"""`python -m tests.kafka.write_golden` makes `tests/data/kafka-4.3.1`: a small log directory that Apache Kafka 4.3.1 wrote and
stopped in order, and what that broker answered about it when it was started again.

What is in it is drawn by a seed; topic ids and times are Kafka's. Client quotas and configurations of groups leave nothing
here: they are in Kafka's metadata log.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import CompressionType
from triolog.server.config.broker_config import Address
from triolog.tools.bench.kafka.jars import REFERENCE_VERSION

from tests.support import golden_questions
from tests.support.golden import KAFKA_4_3
from tests.support.golden_questions import CLASSIC, CODECS, COMPACTED, CONSUMERS, MOVES, QUEUE, SHARERS
from tests.support.kafka_admin import GROUP_TYPE, NO_ID, SET, alter_incrementally, create_topics, new_topic
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_jars import KafkaCalls, class_path
from tests.support.kafka_server import batch, produce_request
from tests.support.kafka_wire import KafkaWire, ask
from tests.support.logs import START_MS
from tests.support.share_members import ACCEPT, REJECT, RELEASE, WireMember

SEED: Final = 431
DEADLINE_S: Final = 60.0
COMPACTS: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "5000"}
SETTINGS: Final = {
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.snapshot.update.records.per.snapshot": "3",  # so that there are both
    "group.share.assignment.interval.ms": "0",
    "log.index.size.max.bytes": "4096",
    "log.cleaner.enable": "true",
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.dedupe.buffer.size": "4194304",
}
LEFT_OUT: Final = ("__cluster_metadata*", ".lock", "bootstrap.checkpoint", "*.checkpoint.deleted")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, KafkaCalls.start(class_path()) as calls:
        with KafkaBroker(Path(folder) / "kafka", class_path(), calls, settings=SETTINGS) as broker:
            broker.format()
            broker.start()
            with closing(KafkaWire.connect(Address.parse(broker.address))) as wire:
                _write(wire)
            _wait_for_cleaner(broker.log_directory)
            broker.stop()
            written_ms = time.time_ns() // 1_000_000
            shutil.rmtree(KAFKA_4_3, ignore_errors=True)
            shutil.copytree(broker.log_directory, KAFKA_4_3 / "clean", ignore=shutil.ignore_patterns(*LEFT_OUT))
            broker.start()
            with closing(KafkaWire.connect(Address.parse(broker.address))) as wire:
                _wait_for_coordinator(wire)
                answers = golden_questions.answers(wire)
            broker.stop()
    expected = {"version": REFERENCE_VERSION, "written_ms": written_ms, "answers": answers}
    (KAFKA_4_3 / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def _write(wire: KafkaWire) -> None:
    rng = random.Random(SEED)
    topics = [new_topic(name, 1, configs={"retention.ms": "-1"}) for name in (CODECS, MOVES, QUEUE)]
    wire.call(create_topics(*topics, new_topic(COMPACTED, 1, configs=COMPACTS)), 7)
    reset: Any = [("share.auto.offset.reset", SET, "earliest")]
    assert wire.call(alter_incrementally((GROUP_TYPE, SHARERS, reset)), 1).responses[0].error_code == 0
    _wait_for_coordinator(wire)
    for codec in CompressionType:
        values = [rng.choice(["", "coffee " * 20, f"{rng.random()}"]) for _ in range(rng.randint(3, 12))]
        _produce(wire, batch(*values, timestamp=START_MS + 1000 * codec, compression_type=codec), topic=CODECS)
    for number in range(20):
        records = [(START_MS + 1000 * number, b"key %d" % rng.randrange(4), b"%d" % number, ())]
        _produce(wire, build_batch(records), topic=COMPACTED)
    _write_transactions(wire, rng)
    _commit(wire)
    _share(wire)


def _until(is_so: Callable[[], Any]) -> Any:
    """What it answers, as soon as that is true."""
    deadline = time.monotonic() + DEADLINE_S
    while not (found := is_so()):
        assert time.monotonic() < deadline
    return found


def _taken(wire: KafkaWire, body: Any, version: int) -> Any:
    """The answer without an error."""
    return _until(lambda: None if (answer := wire.call(body, version)).error_code else answer)


def _produce(wire: KafkaWire, records: bytes, version: int = 9, **options: Any) -> None:
    body = produce_request(records, **options)
    _until(lambda: wire.call(body, version).responses[0].partition_responses[0].error_code == 0)


def _wait_for_cleaner(directory: Path) -> None:
    """It says how far it has come."""
    path = directory / "cleaner-offset-checkpoint"
    _until(lambda: path.exists() and any(line.startswith(f"{COMPACTED} 0 ") for line in path.read_text().splitlines()))


def _wait_for_coordinator(wire: KafkaWire) -> None:
    """Of groups, of transactions, of share groups' states."""
    for kind, key in ((0, "first"), (1, "first"), (2, f"{SHARERS}:AAAAAAAAAAAAAAAAAAAAAQ:0")):
        find = ask("FindCoordinator", key=key, key_type=kind, coordinator_keys=[key])
        _until(lambda find=find: wire.call(find, 6).coordinators[0].error_code == 0)


def _write_transactions(wire: KafkaWire, rng: random.Random) -> None:
    """Of version 2 (KIP-890): partitions join by being written to, each end raises the epoch. The last one stays open."""
    made = _taken(wire, ask("InitProducerId", transactional_id="mover", transaction_timeout_ms=600_000), 5)
    producer, epoch = made.producer_id, made.producer_epoch
    for commits in (True, False, True, None):
        for sequence in range(rng.randint(1, 3)):
            of_producer = {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence}
            records = batch(f"{commits} {sequence}", is_transactional=True, **of_producer)
            _produce(wire, records, 12, topic=MOVES, transactional_id="mover")
        if commits is not None:
            end = ask("EndTxn", transactional_id="mover", producer_id=producer, producer_epoch=epoch, committed=commits)
            ended = _taken(wire, end, 5)
            producer, epoch = ended.producer_id, ended.producer_epoch


def _commit(wire: KafkaWire) -> None:
    """By topic id, of a group without members, and of one whose assignments the server makes."""
    asked = ask("Metadata", topics=[{"topic_id": NO_ID, "name": CODECS}], allow_auto_topic_creation=False)
    topic_id = wire.call(asked, 12).topics[0].topic_id
    beat = ask(
        "ConsumerGroupHeartbeat",
        group_id=CONSUMERS,
        member_id="reader",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[CODECS],
        topic_partitions=[],
    )
    epoch = wire.call(beat, 1).member_epoch
    for group, member, of_member, offset in ((CLASSIC, "", -1, 4), (CONSUMERS, "reader", epoch, 7)):
        part = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "noted"}
        request = ask(
            "OffsetCommit",
            group_id=group,
            generation_id_or_member_epoch=of_member,
            member_id=member,
            topics=[{"topic_id": topic_id, "partitions": [part]}],
        )
        answer = wire.call(request, 10)
        assert answer.topics[0].partitions[0].error_code == 0, answer
    beat.member_epoch = -1
    wire.call(beat, 1)


def _share(wire: KafkaWire) -> None:
    """Accepted, given back once and twice, rejected, and what nobody had."""
    _produce(wire, batch(*(f"task {number}" for number in range(30))), topic=QUEUE)
    member = WireMember(wire, SHARERS, QUEUE, golden_questions.topic_id(wire, QUEUE), "worker")
    member.join()
    assert member.acquire(12) == [(0, 11, 1)]
    member.acknowledge(0, 5, [ACCEPT, ACCEPT, RELEASE, ACCEPT, REJECT, RELEASE])
    member.acknowledge(6, 9, [ACCEPT])
    assert member.acquire(1) == [(2, 2, 2)]
    member.acknowledge(2, 2, [RELEASE])
    member.acknowledge(10, 10, [RELEASE])
    member.acknowledge(11, 11, [REJECT])
    member.leave()


if __name__ == "__main__":
    main()
