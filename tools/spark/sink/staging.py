"""The outbox of exactly-once writes: what a task has staged is every batch once and in order, or the task fails."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from ....protocol.errors import ErrorCode, RequestError
from ....protocol.native.messages import (
    RequestMessage,
    ResponseMessage,
    StagePartition,
    StagePartitionResponse,
    StageRequest,
    StageResponse,
)
from ....protocol.records.batch import crc32c
from ....protocol.types import TopicPartition
from ...client.blocking.outbox import Blobs, Refused
from ...client.exchange import expect
from .delivery import DeliveryError, ServerLink, TaskOutbox


@attrs.frozen
class StagedBytes:
    """The bytes staged for one partition: their size, and the CRC-32C of all of them."""

    size_bytes: int = 0
    crc: int = 0

    def then(self, data: bytes) -> StagedBytes:
        """With more behind it."""
        return StagedBytes(self.size_bytes + len(data), crc32c(data, self.crc))


class StageOutbox(TaskOutbox):
    """Stages batches of one task of a version. `staged` is, after `flush`, what the commit has to name.

    After a lost connection the server is asked how much has arrived, and the rest is sent. A server that stamps or compresses a
    topic's batches anew stages other bytes than it was sent: what arrived cannot be told from sizes and CRCs then, so a lost
    connection ends the task, and Spark runs it again.

    While the server has no room (`max_staged_bytes`) what it refused is sent again, until other writers have committed. A
    request behind the refused one may have found room, being smaller; the order is lost then, and the task ends too.
    """

    def __init__(self, link: ServerLink, application: str, version: int, task: str) -> None:
        super().__init__(link)
        self._application = application
        self._version = version
        self._task = task
        self._rebuilt: set[TopicPartition] = set()
        self.staged: dict[TopicPartition, StagedBytes] = {}

    def request(self, blobs: Blobs) -> RequestMessage:
        """A stage request."""
        partitions = tuple(StagePartition(*partition, data) for partition, data in blobs.items())
        return StageRequest(self._application, self._version, self._task, partitions)

    def settle(self, blobs: Blobs, response: ResponseMessage) -> Refused | None:
        """Batches that the server had no room for. DeliveryError for any other error of a partition."""
        again: Blobs = {}
        error: RequestError | None = None
        for entry in expect(StageResponse, response).partitions:
            partition = TopicPartition(entry.topic, entry.partition)
            if entry.error is not None and entry.error.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
                again[partition], error = blobs[partition], entry.error
                continue
            found = self._checked(partition, entry)
            if partition in self._again:
                raise self._complaint(partition, "the server refused batches but accepted later ones. Run the task again")
            expected = self.staged.get(partition, StagedBytes()).then(blobs[partition])
            if found != expected:
                if self._was_lost:
                    raise self._out_of_step(partition, found, expected)
                self._rebuilt.add(partition)
            self.staged[partition] = found
        return Refused(again, error) if error is not None else None

    def missing(self, sent: Sequence[Blobs]) -> list[Blobs]:
        """Return the batches that the server lacks: those it refused. Where responses were lost, the sizes and CRCs in the
        response to a request without batches decide."""
        left = [dict(blobs) for blobs in sent]
        partitions = {partition: b"" for blobs in sent for partition in blobs}
        if not self._was_lost or not partitions:
            return left
        for entry in expect(StageResponse, self._client.call(self.request(partitions))).partitions:
            partition = TopicPartition(entry.topic, entry.partition)
            found, known = self._checked(partition, entry), self.staged.get(partition, StagedBytes())
            for blobs in left:
                if found == known:
                    break
                if partition in blobs:
                    known = known.then(blobs.pop(partition))
            if found != known or partition in self._rebuilt:
                raise self._out_of_step(partition, found, known)
            self.staged[partition] = known
        return [blobs for blobs in left if blobs]

    def _checked(self, partition: TopicPartition, entry: StagePartitionResponse) -> StagedBytes:
        if entry.error is not None:
            raise self._complaint(partition, entry.error)
        return StagedBytes(entry.size_bytes, entry.crc)

    def _out_of_step(self, partition: TopicPartition, found: StagedBytes, expected: StagedBytes) -> DeliveryError:
        return self._complaint(
            partition,
            f"after a lost connection the server has staged {found.size_bytes} bytes with CRC {found.crc:08x}, "
            f"not {expected.size_bytes} with {expected.crc:08x}. Run the task again",
        )

    def _complaint(self, partition: TopicPartition, error: RequestError | str) -> DeliveryError:
        return self._link.refusal(f"staging for topic {partition.topic} partition {partition.partition}", error)
