"""The leader epoch that a client has from Metadata, compared with the log's (KIP-320)."""

from __future__ import annotations

from typing import Final

from ....protocol.errors import ErrorCode, RequestError
from ....protocol.types import TopicPartition
from ...broker import Broker

NOT_CHECKED: Final = -1


def check_leader_epoch(broker: Broker, topic_partition: TopicPartition, epoch: int) -> None:
    """Raises RequestError: FENCED_LEADER_EPOCH for an epoch below the log's, UNKNOWN_LEADER_EPOCH above it, and what looking
    at the partition raises."""
    if epoch == NOT_CHECKED:
        return
    current = broker.reader.snapshot(topic_partition).leader_epoch
    if epoch < current:
        raise RequestError(
            f"{topic_partition}: leader epoch {epoch} is below the current one, {current}; ask for metadata",
            ErrorCode.FENCED_LEADER_EPOCH,
        )
    if epoch > current:
        raise RequestError(
            f"{topic_partition}: leader epoch {epoch} is above the current one, {current}", ErrorCode.UNKNOWN_LEADER_EPOCH
        )
