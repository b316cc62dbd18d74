"""OffsetForLeaderEpoch: where an epoch ends, and which epoch a client may have."""

from __future__ import annotations

from typing import Any

import pytest
from triolog.protocol.kafka.messages import list_offsets

from tests.support.kafka_server import TOPIC, batch, produced
from tests.support.kafka_stream import KafkaStream

UNKNOWN_TOPIC_OR_PARTITION, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH = 3, 74, 75


async def end_of(
    client: KafkaStream, epoch: int, *, version: int = 4, topic: str = TOPIC, partition: int = 0, current: int = -1
) -> Any:
    asked = list_offsets.OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
    topics = [list_offsets.OffsetForLeaderTopic(topic=topic, partitions=[asked])]
    answer = await client.call(list_offsets.OffsetForLeaderEpochRequest(replica_id=-1, topics=topics), version)
    assert answer.topics[0].topic == topic
    [found] = answer.topics[0].partitions
    assert found.partition == partition
    return found


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_an_epoch_ends_at_the_high_watermark_and_one_that_never_was_nowhere(client: KafkaStream, version: int) -> None:
    await produced(client, batch("a", "b"))
    for epoch, end in ((0, (0, 2)), (1, (-1, -1)), (100, (-1, -1)), (-1, (-1, -1))):
        found = await end_of(client, epoch, version=version)
        assert (found.error_code, (found.leader_epoch, found.end_offset)) == (0, end), epoch
    for current, error in ((-1, 0), (0, 0), (1, UNKNOWN_LEADER_EPOCH), (-2, FENCED_LEADER_EPOCH)):
        found = await end_of(client, 0, version=version, current=current)
        assert (found.error_code, found.end_offset) == (error, -1 if error else 2), current


async def test_what_is_not_there_is_unknown(client: KafkaStream) -> None:
    for topic, partition in (("missing", 0), (TOPIC, 9)):
        found = await end_of(client, 0, topic=topic, partition=partition, current=0)
        assert (found.error_code, found.leader_epoch, found.end_offset) == (UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
