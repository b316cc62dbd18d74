"""A member of a share group that speaks Kafka's protocol by hand: it keeps count of its session's epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.messages.share_groups import (
    AcknowledgedPartition,
    ShareAcknowledgementBatch,
    ShareAcknowledgeRequest,
    ShareAcknowledgeTopic,
    ShareFetchPartitionData,
    ShareFetchRequestTopic,
    ShareTopicPartitions,
)
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.records.record import iter_records

from tests.support.kafka_asking import ask
from tests.support.kafka_stream import KafkaStream

GROUP: Final = "group"
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)

Said = Sequence[tuple[int, int, Sequence[int]]]
"""(first offset, last offset, types) of acknowledgements."""


@attrs.define(eq=False)
class ShareMember:
    """Owner: the test. Every request is about partition `partition` of one topic."""

    client: KafkaStream
    topic_id: bytes
    member_id: str = "member"
    group_id: str = GROUP
    partition: int = 0
    version: int = 2
    epoch: int = 0

    async def ask(self, said: Said = (), **fields: Any) -> Any:
        """A ShareFetch; it does not wait unless it is told to. Answers the whole answer."""
        given = {
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 2**20,
            "max_records": 500,
            "batch_size": 500,
            "topics": [ShareFetchRequestTopic(topic_id=self.topic_id, partitions=[self._partition(said)])],
            "forgotten_topics_data": [],
            "share_session_epoch": self.epoch,
            **fields,
        }
        request = ask("ShareFetch", **{"group_id": self.group_id, "member_id": self.member_id, **given})
        answer = await self.client.call(request, self.version)
        if not answer.error_code:
            self.epoch += 1
        return answer

    def _partition(self, said: Said) -> AcknowledgedPartition:
        return AcknowledgedPartition(partition_index=self.partition, acknowledgement_batches=_batches(said))

    async def fetch(self, said: Said = (), **fields: Any) -> ShareFetchPartitionData | None:
        """The same; answers what there is of the partition. There may be no error on top."""
        answer = await self.ask(said, **fields)
        assert answer.error_code == 0, answer
        found = [partition for topic in answer.responses for partition in topic.partitions]
        assert len(found) <= 1
        return found[0] if found else None

    async def acquired(self, said: Said = (), **fields: Any) -> list[tuple[int, int, int]]:
        """(first offset, last offset, delivery count) of what it is given."""
        found = await self.fetch(said, **fields)
        return [] if found is None else ranges(found)

    async def values(self, **fields: Any) -> Mapping[int, bytes | None]:
        """The values of what it is given, by offset."""
        found = await self.fetch(**fields)
        if found is None or not found.records:
            return {}
        given = {offset for first, last, _ in ranges(found) for offset in range(first, last + 1)}
        return {
            record.offset: record.value
            for header, batch in iter_batches(found.records)
            if not header.is_control
            for record in iter_records(batch, header)
            if record.offset in given
        }

    async def acknowledge(self, *said: tuple[int, int, Sequence[int]], **fields: Any) -> ErrorCode:
        """A ShareAcknowledge; answers what became of it."""
        partition = AcknowledgedPartition(partition_index=self.partition, acknowledgement_batches=_batches(said))
        given = {
            "share_session_epoch": self.epoch,
            "topics": [ShareAcknowledgeTopic(topic_id=self.topic_id, partitions=[partition])],
            **fields,
        }
        request = ShareAcknowledgeRequest(group_id=self.group_id, member_id=self.member_id, **given)
        answer = await self.client.call(request, self.version)
        if answer.error_code:
            return ErrorCode(answer.error_code)
        self.epoch += 1
        [topic] = answer.responses
        return ErrorCode(topic.partitions[0].error_code)

    async def acknowledge_all(self, topics: list[dict[str, Any]]) -> Any:
        """A ShareAcknowledge of several partitions; answers the whole answer."""
        whose = {"group_id": self.group_id, "member_id": self.member_id}
        request = ask("ShareAcknowledge", **whose, share_session_epoch=self.epoch, topics=topics)
        answer = await self.client.call(request, self.version)
        self.epoch += 1
        return answer

    async def leave(self) -> Any:
        """End the session."""
        return await self.ask(share_session_epoch=-1, topics=[])

    def forgetting(self) -> list[ShareTopicPartitions]:
        """What takes the partition out of the session."""
        return [ShareTopicPartitions(topic_id=self.topic_id, partitions=[self.partition])]


def ranges(found: ShareFetchPartitionData) -> list[tuple[int, int, int]]:
    assert found.error_code == 0, found
    return [(each.first_offset, each.last_offset, each.delivery_count) for each in found.acquired_records]


def _batches(said: Said) -> list[ShareAcknowledgementBatch]:
    return [
        ShareAcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))
        for first, last, types in said
    ]
