"""A member of a share group over a blocking connection: it keeps count of its session's epoch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

import attrs
from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.messages.groups import FindCoordinatorRequest
from triolog.protocol.kafka.messages.share_groups import (
    AcknowledgedPartition,
    ShareAcknowledgementBatch,
    ShareAcknowledgeRequest,
    ShareAcknowledgeTopic,
    ShareFetchRequest,
    ShareFetchRequestTopic,
    ShareGroupHeartbeatRequest,
)

from tests.support.kafka_wire import KafkaWire

VERSION: Final = 2
BY_RECORDS: Final = 1
"""Acquire mode: no more than `max_records`."""
WAIT_MS: Final = 1_000
DEADLINE_S: Final = 60.0

NOT_YET: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
"""Of a broker that has just started."""

Acquired = list[tuple[int, int, int]]
"""(first offset, last offset, delivery count)."""


@attrs.define(eq=False)
class WireMember:
    """Owner: the test. It reads one partition."""

    wire: KafkaWire
    group: str
    topic: str
    topic_id: bytes
    id: str
    partition: int = 0
    epoch: int = 0
    member_epoch: int = 0

    def join(self) -> None:
        """Until the partition is this member's, or it shares it with others."""
        deadline = time.monotonic() + DEADLINE_S
        while not (assigned := self._beat([self.topic] if self.member_epoch == 0 else None)):
            assert time.monotonic() < deadline, assigned

    def leave(self) -> None:
        """End the session, which gives back what it had, and go."""
        self._fetch(0, share_session_epoch=-1, topics=[], max_wait_ms=0)
        self.member_epoch = -1
        self._beat(None)

    def _beat(self, topics: list[str] | None) -> bool:
        request = ShareGroupHeartbeatRequest(
            group_id=self.group, member_id=self.id, member_epoch=self.member_epoch, subscribed_topic_names=topics
        )
        answer = self.wire.call(request, 1)
        if answer.error_code in NOT_YET:
            self.wire.call(FindCoordinatorRequest(key="", key_type=0, coordinator_keys=[self.group]), 4)
            return False
        assert answer.error_code == 0, answer
        self.member_epoch = answer.member_epoch
        return bool(answer.assignment and answer.assignment.topic_partitions)

    def acquire(self, max_records: int) -> Acquired:
        """The next records that there are; waits for the first."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            answer = self._fetch(max_records)
            [partition] = [each for topic in answer.responses for each in topic.partitions] or [None]
            assert partition is None or partition.error_code in (0, *NOT_YET), partition
            if partition is not None and partition.acquired_records:
                return [(each.first_offset, each.last_offset, each.delivery_count) for each in partition.acquired_records]
            assert time.monotonic() < deadline, answer

    def _fetch(self, max_records: int, **fields: Any) -> Any:
        part = AcknowledgedPartition(partition_index=self.partition, acknowledgement_batches=[])
        given = {
            "share_session_epoch": self.epoch,
            "max_wait_ms": WAIT_MS,
            "topics": [ShareFetchRequestTopic(topic_id=self.topic_id, partitions=[part])],
            **fields,
        }
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=self.id,
            min_bytes=1 if max_records else 0,
            max_bytes=2**20 if max_records else 0,
            max_records=max_records,
            batch_size=max_records,
            share_acquire_mode=BY_RECORDS,
            forgotten_topics_data=[],
            **given,
        )
        answer = self.wire.call(request, VERSION)
        assert answer.error_code == 0, answer
        self.epoch += 1
        return answer

    def acknowledge(self, first: int, last: int, types: Sequence[int]) -> None:
        batch = ShareAcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))
        part = AcknowledgedPartition(partition_index=self.partition, acknowledgement_batches=[batch])
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.id,
            share_session_epoch=self.epoch,
            topics=[ShareAcknowledgeTopic(topic_id=self.topic_id, partitions=[part])],
        )
        answer = self.wire.call(request, VERSION)
        self.epoch += 1
        codes = [answer.error_code, *(each.error_code for topic in answer.responses for each in topic.partitions)]
        assert codes == [0, 0], answer
