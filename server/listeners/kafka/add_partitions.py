"""AddPartitionsToTxn: partitions join a transaction, all of them or none. Source: KIP-98, KafkaApis (4.1).

It asks by itself what the client may do, since what is denied keeps what is allowed from joining, and both are told why. As in
Kafka, a node that coordinates nothing of the transaction says so only when all partitions could join. The transaction itself is
the broker's.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....protocol.errors import ErrorCode, RequestError
from ....protocol.kafka.authorization import DENIED, AclOperation, ResourceType
from ....protocol.kafka.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ....protocol.types import TopicPartition
from ...broker import is_internal
from ...loop.procedures import in_turns
from .door import Call
from .transactions import transaction_code


async def add_partitions_to_txn(call: Call, body: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    """All partitions join or none: where one may not or does not exist, the others are told OPERATION_NOT_ATTEMPTED."""
    named = ((topic.name, number) for topic in body.v3_and_below_topics for number in topic.partitions)
    asked = [TopicPartition(name, number) async for name, number in in_turns(named)]
    refused = await _refused(call, asked)
    code = ErrorCode.OPERATION_NOT_ATTEMPTED if refused else ErrorCode.NONE
    if not refused:
        try:
            call.door.check_coordinator(body.v3_and_below_transactional_id)
            await call.broker.transactions.add_partitions(
                body.v3_and_below_transactional_id,
                body.v3_and_below_producer_id,
                body.v3_and_below_producer_epoch,
                asked,
            )
        except RequestError as exc:
            code = transaction_code(call, "AddPartitionsToTxn", exc)
    return AddPartitionsToTxnResponse(
        results_by_transaction=[],
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=number, partition_error_code=refused.get(TopicPartition(topic.name, number), code)
                    )
                    async for number in in_turns(topic.partitions)
                ],
            )
            async for topic in in_turns(body.v3_and_below_topics)
        ],
    )


async def _refused(call: Call, asked: Sequence[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
    """The partitions that cannot join, with their errors. Internal topics cannot: groups join by AddOffsetsToTxn."""
    names = dict.fromkeys(each.topic for each in asked)
    allowed = {name for name in names if not is_internal(name) and call.authorize(AclOperation.WRITE, ResourceType.TOPIC, name)}
    refused = {}
    async for each in in_turns(asked):
        try:
            if each.topic not in allowed:
                refused[each] = DENIED[ResourceType.TOPIC]
            else:
                call.broker.reader.snapshot(each)
        except RequestError as exc:
            refused[each] = exc.code
    return refused
