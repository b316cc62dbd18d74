"""The transaction coordinator's APIs. Source: KIP-98, KIP-360, KIP-447, KIP-664 (what administrators see), KIP-890.

A client of transaction version 2 joins partitions by producing and goes on with another epoch after each transaction; one of
before sends AddPartitionsToTxn and AddOffsetsToTxn first. Which it is, the version of its EndTxn tells.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ....protocol.errors import ErrorCode, InvalidRequestError, RequestError
from ....protocol.kafka.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnPartitionError,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
    WriteTxnMarkersWritableTxnMarker,
    WriteTxnMarkersWritableTxnMarkerResult,
    WriteTxnMarkersWritableTxnMarkerTopicResult,
)
from ....protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from ...loop.procedures import in_turns
from .door import Call, error_code

FIRST_WITH_FENCED: Final = {"InitProducerId": 4, "AddPartitionsToTxn": 2, "AddOffsetsToTxn": 2, "EndTxn": 2}
"""The first versions whose clients know PRODUCER_FENCED; the others are told INVALID_PRODUCER_EPOCH."""
FIRST_END_WITH_EPOCH: Final = 5
EPOCH_PER_TRANSACTION: Final = 2


def transaction_code(call: Call, api: str, error: RequestError) -> ErrorCode:
    """The error code that a client of that version knows."""
    if error.code is ErrorCode.PRODUCER_FENCED and call.version < FIRST_WITH_FENCED[api]:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error.code


async def init_producer_id(call: Call, body: InitProducerIdRequest) -> InitProducerIdResponse:
    """A fresh id, or that of the transactional id; without one the timeout means nothing, whatever clients send."""
    expected = None if body.producer_id == NO_PRODUCER_ID else (body.producer_id, body.producer_epoch)
    try:
        if (expected is None) != (body.producer_epoch == NO_PRODUCER_EPOCH):
            raise InvalidRequestError(
                f"producer id {body.producer_id} and epoch {body.producer_epoch}: both are given, or none"
            )
        producer_id, epoch = await call.broker.producers.init(body.transactional_id, body.transaction_timeout_ms, expected)
    except RequestError as exc:
        code = transaction_code(call, "InitProducerId", exc)
        return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)


async def add_offsets_to_txn(call: Call, body: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    """The partition in which the group's offsets are kept joins."""
    try:
        await call.broker.offsets.join_transaction(body.transactional_id, body.producer_id, body.producer_epoch, body.group_id)
    except RequestError as exc:
        return AddOffsetsToTxnResponse(error_code=transaction_code(call, "AddOffsetsToTxn", exc))
    return AddOffsetsToTxnResponse()


async def end_txn(call: Call, body: EndTxnRequest) -> EndTxnResponse:
    """Commit or abort; from version 5 on the answer has the id and epoch to go on with."""
    client_version = EPOCH_PER_TRANSACTION if call.version >= FIRST_END_WITH_EPOCH else 0
    try:
        producer_id, epoch = await call.broker.transactions.end(
            body.transactional_id,
            body.producer_id,
            body.producer_epoch,
            commit=body.committed,
            client_version=client_version,
        )
    except RequestError as exc:
        return EndTxnResponse(error_code=transaction_code(call, "EndTxn", exc))
    return EndTxnResponse(producer_id=producer_id, producer_epoch=epoch)


async def write_txn_markers(call: Call, body: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    """End transactions on single partitions by hand: what an administrator does with one that hangs (KIP-664)."""
    return WriteTxnMarkersResponse(
        markers=[
            WriteTxnMarkersWritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WriteTxnMarkersWritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=await _write_markers(call, marker, topic.name, topic.partition_indexes),
                    )
                    async for topic in in_turns(marker.topics)
                ],
            )
            async for marker in in_turns(body.markers)
        ]
    )


async def _write_markers(
    call: Call, marker: WriteTxnMarkersWritableTxnMarker, topic: str, partitions: Iterable[int]
) -> list[TxnPartitionError]:
    results = []
    async for number in in_turns(partitions):
        error: RequestError | None = None
        try:
            await call.broker.transactions.write_marker(
                TopicPartition(topic, number),
                marker.producer_id,
                marker.producer_epoch,
                commit=marker.transaction_result,
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.transaction_version,
            )
        except RequestError as exc:
            error = exc.as_answer()
        results.append(TxnPartitionError(partition_index=number, error_code=error_code(error)))
    return results
