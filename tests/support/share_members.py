"""Members of share groups that speak Kafka's protocol by hand and keep count of their sessions' epochs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.messages.share_groups import ShareFetchPartitionData
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.records.record import iter_records

from tests.support.kafka_stream import KafkaStream
from tests.support.kafka_wire import KafkaWire, ask

GROUP: Final = "group"
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)

Said = Sequence[tuple[int, int, Sequence[int]]]
"""(first offset, last offset, types) of acknowledgements."""
Acquired = list[tuple[int, int, int]]
"""(first offset, last offset, delivery count)."""
VERSION: Final = 2
BY_RECORDS: Final = 1
"""Acquire mode: no more than `max_records`."""
DEADLINE_S: Final = 60.0
NOT_YET: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
"""Of a broker that has just started."""


@attrs.define(eq=False)
class ShareMember:
    """Owner: the test. Every request is about partition `partition` of one topic."""

    client: KafkaStream
    topic_id: bytes
    member_id: str = "member"
    group_id: str = GROUP
    partition: int = 0
    version: int = VERSION
    epoch: int = 0

    async def ask(self, said: Said = (), **fields: Any) -> Any:
        """A ShareFetch; it does not wait unless it is told to. Answers the whole answer."""
        request = _fetch(self, said, **fields)
        answer = await self.client.call(request, self.version)
        if not answer.error_code:
            self.epoch += 1
        return answer

    async def fetch(self, said: Said = (), **fields: Any) -> ShareFetchPartitionData | None:
        """The same; answers what there is of the partition. There may be no error on top."""
        answer = await self.ask(said, **fields)
        assert answer.error_code == 0, answer
        found = [partition for topic in answer.responses for partition in topic.partitions]
        assert len(found) <= 1
        return found[0] if found else None

    async def acquired(self, said: Said = (), **fields: Any) -> Acquired:
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
        request = _acknowledgement(self, said, **fields)
        answer = await self.client.call(request, self.version)
        if answer.error_code:
            return ErrorCode(answer.error_code)
        self.epoch += 1
        [topic] = answer.responses
        return ErrorCode(topic.partitions[0].error_code)

    async def acknowledge_all(self, topics: list[dict[str, Any]]) -> Any:
        """A ShareAcknowledge of several partitions; answers the whole answer."""
        request = _acknowledgement(self, (), topics=topics)
        answer = await self.client.call(request, self.version)
        self.epoch += 1
        return answer

    async def leave(self) -> Any:
        """End the session."""
        return await self.ask(share_session_epoch=-1, topics=[])

    def forgetting(self) -> list[dict[str, Any]]:
        """What takes the partition out of the session."""
        return [{"topic_id": self.topic_id, "partitions": [self.partition]}]


def ranges(found: ShareFetchPartitionData) -> Acquired:
    assert found.error_code == 0, found
    return [(each.first_offset, each.last_offset, each.delivery_count) for each in found.acquired_records]


@attrs.define(eq=False)
class WireMember:
    """One over a blocking connection. Owner: the test. It reads one partition."""

    wire: KafkaWire
    group_id: str
    topic: str
    topic_id: bytes
    member_id: str
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
        whose = {"group_id": self.group_id, "member_id": self.member_id, "member_epoch": self.member_epoch}
        answer = self.wire.call(ask("ShareGroupHeartbeat", **whose, subscribed_topic_names=topics), 1)
        if answer.error_code in NOT_YET:
            self.wire.call(ask("FindCoordinator", coordinator_keys=[self.group_id]), 4)
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

    def _fetch(self, most: int, **fields: Any) -> Any:
        sizes = {"min_bytes": min(1, most), "max_bytes": 2**20 if most else 0, "max_records": most, "batch_size": most}
        asked = _fetch(self, (), **{"max_wait_ms": 1_000, "share_acquire_mode": BY_RECORDS, **sizes, **fields})
        answer = self.wire.call(asked, VERSION)
        assert answer.error_code == 0, answer
        self.epoch += 1
        return answer

    def acknowledge(self, first: int, last: int, types: Sequence[int]) -> None:
        answer = self.wire.call(_acknowledgement(self, [(first, last, types)]), VERSION)
        self.epoch += 1
        codes = [answer.error_code, *(each.error_code for topic in answer.responses for each in topic.partitions)]
        assert codes == [0, 0], answer


def _fetch(member: ShareMember | WireMember, said: Said, **fields: Any) -> Any:
    sizes = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 2**20, "max_records": 500, "batch_size": 500}
    return ask("ShareFetch", **{**sizes, **_session(member, said), **fields})


def _acknowledgement(member: ShareMember | WireMember, said: Said, **fields: Any) -> Any:
    return ask("ShareAcknowledge", **{**_session(member, said), **fields})


def _session(member: ShareMember | WireMember, said: Said) -> dict[str, Any]:
    batches = [{"first_offset": first, "last_offset": last, "acknowledge_types": list(types)} for first, last, types in said]
    topics = [
        {
            "topic_id": member.topic_id,
            "partitions": [{"partition_index": member.partition, "acknowledgement_batches": batches}],
        }
    ]
    whose = {"group_id": member.group_id, "member_id": member.member_id}
    return {**whose, "share_session_epoch": member.epoch, "topics": topics}
