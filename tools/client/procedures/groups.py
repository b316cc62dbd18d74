"""Groups and transactions as generators: requests out, answers in, as in `procedures`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ....protocol.errors import RequestError, UnsupportedVersionError
from ....protocol.native.messages import (
    CommitOffsetsRequest,
    CommittedPartition,
    EndTransactionRequest,
    FetchOffsetsRequest,
    InitProducerRequest,
    Partition,
    TransactionProducer,
)
from ....protocol.types import NO_OFFSET, TopicPartition
from ..config import ProducerConfig
from ..sending.partition_queue import ProducerIdentity
from .topics import Procedure, checked


class CommittedOffset(NamedTuple):
    """A group's committed offset for a partition: the offset to read next, and its metadata."""

    offset: int
    metadata: str | None = None


def init_producer(config: ProducerConfig) -> Procedure[ProducerIdentity]:
    """A producer id and an epoch; with a transactional id whoever had it before is fenced."""
    response = yield InitProducerRequest(config.transactional_id, config.transaction_timeout_ms)
    return ProducerIdentity(response.producer_id, response.producer_epoch)


def end_transaction(producer: TransactionProducer, commit: bool) -> Procedure[None]:
    """Commit or abort; once it is answered, every partition has its marker."""
    yield EndTransactionRequest(producer, commit)


def commit_offsets(
    group: str,
    offsets: Mapping[TopicPartition, int | CommittedOffset],
    transaction: TransactionProducer | None = None,
) -> Procedure[None]:
    """Keep offsets for a group, at once or when the transaction commits; raises the first error, after all were tried."""
    if not offsets:
        return
    response = yield CommitOffsetsRequest(
        group,
        tuple(
            CommittedPartition(*partition, *(kept if isinstance(kept, CommittedOffset) else (kept, None)))
            for partition, kept in offsets.items()
        ),
        transaction,
    )
    checked(response.partitions)


def fetch_offsets(
    group: str, partitions: Iterable[TopicPartition] | None, require_stable: bool
) -> Procedure[dict[TopicPartition, CommittedOffset]]:
    """Return a group's committed offsets for these partitions, or for all; partitions without one are left out."""
    asked = None if partitions is None else tuple(Partition(*partition) for partition in partitions)
    response = yield FetchOffsetsRequest(group, asked, require_stable)
    return {
        TopicPartition(entry.topic, entry.partition): CommittedOffset(entry.offset, entry.metadata)
        for entry in checked(response.partitions)
        if entry.offset != NO_OFFSET
    }


def explain_refusal(error: RequestError) -> RequestError:
    """Say what to do where a server has no `init_producer`: who asked for no producer id does not know why one is needed.

    Any other error is returned as it is.
    """
    if not isinstance(error, UnsupportedVersionError):
        return error
    explained = UnsupportedVersionError(f"{error.message}. Switch idempotence off: enable_idempotence=False")
    explained.__cause__ = error
    return explained
