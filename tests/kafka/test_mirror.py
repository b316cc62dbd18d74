"""A mirror of Apache Kafka 4.3.1: bytes, epochs, ids, configuration and committed offsets are Kafka's."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import trio
from triolog.protocol.errors import ErrorCode
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.server.broker import FetchPartition
from triolog.server.config.broker_config import Address
from triolog.server.system.clock import system_now_ms
from triolog.tools.mirror.link import MirrorLink
from triolog.tools.mirror.settings import MirrorSettings

from tests.support.brokers import running_broker, until
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_wire import KafkaWire, ask
from tests.support.logs import START_MS

TOPIC = "mirrored"
PLACE = TopicPartition(TOPIC, 1)


def produce(wire: KafkaWire, batch: bytes) -> None:
    """Again while Kafka's broker does not know the new topic, or not that it leads it: its controller made it."""
    data = [{"name": TOPIC, "partition_data": [{"index": 1, "records": batch}]}]
    code, again = None, (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    while code is None or code in again:
        answer = wire.call(ask("Produce", acks=-1, timeout_ms=30_000, topic_data=data), 9)
        [partition] = answer.responses[0].partition_responses
        code = ErrorCode(partition.error_code)
    assert code is ErrorCode.NONE


async def test_a_mirror_has_kafkas_bytes_ids_configuration_and_offsets(apache: KafkaBroker, tmp_path: Path) -> None:
    address = Address.parse(apache.address)
    with closing(KafkaWire.connect(address)) as wire:
        config = [{"name": "segment.bytes", "value": "1048576"}, {"name": "retention.ms", "value": "-1"}]
        new = {"name": TOPIC, "num_partitions": 2, "replication_factor": 1, "configs": config}
        [created] = wire.call(ask("CreateTopics", topics=[new], timeout_ms=30_000), 7).topics
        assert not created.error_code, created
        for number in range(20):
            produce(wire, build_batch([(START_MS + number, b"k", bytes(100), ())] * 3))
        offsets = [
            {"name": TOPIC, "partitions": [{"partition_index": 1, "committed_offset": 30, "committed_metadata": "note"}]}
        ]
        while True:
            wire.call(ask("FindCoordinator", key_type=0, coordinator_keys=["mirror-readers"]), 4)
            committed = wire.call(
                ask("OffsetCommit", group_id="mirror-readers", topics=offsets, generation_id_or_member_epoch=-1), 8
            )
            if not committed.topics[0].partitions[0].error_code:
                break
        theirs = wire.call(
            ask(
                "Fetch",
                max_wait_ms=0,
                min_bytes=1,
                topics=[{"topic": TOPIC, "partitions": [{"partition": 1, "fetch_offset": 0, "partition_max_bytes": 2**20}]}],
            ),
            12,
        )
        records = bytes(theirs.responses[0].partitions[0].records)
    settings = MirrorSettings(source=(address,), topics=(TOPIC,), groups="mirror-.*")
    async with running_broker(tmp_path, clock=system_now_ms) as mirror, trio.open_nursery() as nursery:
        link = MirrorLink(settings, mirror)
        link.reserve()
        nursery.start_soon(link.run)
        await until(lambda: bool(mirror.offsets.committed_partitions("mirror-readers")))
        assert mirror.topics.id_of(TOPIC) == created.topic_id
        assert mirror.topics.describe(TOPIC).config == {"segment.bytes": "1048576", "retention.ms": "-1"}
        [answer] = await mirror.reader.fetch([FetchPartition(PLACE, 0, 2**20)], max_bytes=2**20)
        assert answer.fetched is not None
        assert bytes(answer.fetched.records) == records
        assert mirror.reader.snapshot(PLACE).log_end_offset == 60
        assert await mirror.offsets.fetch("mirror-readers") == [(PLACE, 30, "note")]
        assert not link.troubles
        nursery.cancel_scope.cancel()
