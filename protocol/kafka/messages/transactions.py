"""Producers and their transactions (KIP-98, KIP-360, KIP-890).

InitProducerId (22): v3 goes on with an id and epoch (KIP-360); v6 two-phase commit (KIP-939). AddPartitionsToTxn (24): from v4
between brokers. EndTxn (26): v5 answers the next epoch (KIP-890). TxnOffsetCommit (28): v3 the group's member and generation
(KIP-447), v5 joins the transaction by itself (KIP-890), v6 topic ids (KIP-1319). AddOffsetsToTxn (25), WriteTxnMarkers (27),
DescribeProducers (61), DescribeTransactions (65), ListTransactions (66).
"""

from __future__ import annotations

from ...schema.fields import BOOL, INT8, INT16, INT32, INT64, STRING, struct, wire
from ..apis import GROUP_ID, PARTITION, PRODUCER_ID, TOPIC_ID, TOPIC_NAME, TRANSACTIONAL_ID
from .responses import PartitionResult, PartitionResultWithMessage, Response, ResponseWithCode


@struct
class InitProducerIdRequest:
    transactional_id: str | None = wire(TRANSACTIONAL_ID, nullable="0+")
    transaction_timeout_ms: int = wire(INT32)
    producer_id: int = wire(PRODUCER_ID, "3+", default=-1)
    producer_epoch: int = wire(INT16, "3+", default=-1)
    enable2_pc: bool = wire(BOOL, "6+")
    keep_prepared_txn: bool = wire(BOOL, "6+")


@struct
class InitProducerIdResponse(ResponseWithCode):
    producer_id: int = wire(PRODUCER_ID, default=-1)
    producer_epoch: int = wire(INT16)
    ongoing_txn_producer_id: int = wire(INT64, "6+", default=-1)
    ongoing_txn_producer_epoch: int = wire(INT16, "6+", default=-1)


@struct
class AddPartitionsToTxnTopic:
    name: str = wire(TOPIC_NAME)
    partitions: list[int] = wire([PARTITION])


@struct
class AddPartitionsToTxnTransaction:
    transactional_id: str = wire(STRING, "4+")
    producer_id: int = wire(INT64, "4+")
    producer_epoch: int = wire(INT16, "4+")
    verify_only: bool = wire(BOOL, "4+")
    topics: list[AddPartitionsToTxnTopic] = wire([AddPartitionsToTxnTopic], "4+")


@struct
class AddPartitionsToTxnRequest:
    transactions: list[AddPartitionsToTxnTransaction] = wire([AddPartitionsToTxnTransaction], "4+")
    v3_and_below_transactional_id: str = wire(TRANSACTIONAL_ID, "0-3")
    v3_and_below_producer_id: int = wire(PRODUCER_ID, "0-3")
    v3_and_below_producer_epoch: int = wire(INT16, "0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = wire([AddPartitionsToTxnTopic], "0-3")


@struct
class AddPartitionsToTxnPartitionResult:
    partition_index: int = wire(PARTITION)
    partition_error_code: int = wire(INT16)


@struct
class AddPartitionsToTxnTopicResult:
    name: str = wire(TOPIC_NAME)
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = wire([AddPartitionsToTxnPartitionResult])


@struct
class AddPartitionsToTxnResult:
    transactional_id: str = wire(STRING, "4+")
    topic_results: list[AddPartitionsToTxnTopicResult] = wire([AddPartitionsToTxnTopicResult], "4+")


@struct
class AddPartitionsToTxnResponse(Response):
    error_code: int = wire(INT16, "4+", default=0)
    results_by_transaction: list[AddPartitionsToTxnResult] = wire([AddPartitionsToTxnResult], "4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = wire([AddPartitionsToTxnTopicResult], "0-3")


@struct
class AddOffsetsToTxnRequest:
    transactional_id: str = wire(TRANSACTIONAL_ID)
    producer_id: int = wire(PRODUCER_ID)
    producer_epoch: int = wire(INT16)
    group_id: str = wire(GROUP_ID)


@struct
class AddOffsetsToTxnResponse(ResponseWithCode):
    """Only the code."""


@struct
class EndTxnRequest:
    transactional_id: str = wire(TRANSACTIONAL_ID)
    producer_id: int = wire(PRODUCER_ID)
    producer_epoch: int = wire(INT16)
    committed: bool = wire(BOOL)


@struct
class EndTxnResponse(ResponseWithCode):
    producer_id: int = wire(PRODUCER_ID, "5+", default=-1)
    producer_epoch: int = wire(INT16, "5+", default=-1)


@struct
class TxnOffsetCommitRequestPartition:
    partition_index: int = wire(PARTITION)
    committed_offset: int = wire(INT64)
    committed_leader_epoch: int = wire(INT32, "2+", default=-1)
    committed_metadata: str | None = wire(STRING, nullable="0+")


@struct
class TxnOffsetCommitRequestTopic:
    name: str = wire(TOPIC_NAME, "0-5")
    topic_id: bytes = wire(TOPIC_ID, "6+")
    partitions: list[TxnOffsetCommitRequestPartition] = wire([TxnOffsetCommitRequestPartition])


@struct
class TxnOffsetCommitRequest:
    transactional_id: str = wire(TRANSACTIONAL_ID)
    group_id: str = wire(GROUP_ID)
    producer_id: int = wire(PRODUCER_ID)
    producer_epoch: int = wire(INT16)
    generation_id: int = wire(INT32, "3+", default=-1)
    member_id: str = wire(STRING, "3+")
    group_instance_id: str | None = wire(STRING, "3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = wire([TxnOffsetCommitRequestTopic])


@struct
class TxnPartitionError(PartitionResult):
    """The result of a commit in a transaction, and of a marker."""


@struct
class TxnOffsetCommitResponseTopic:
    name: str = wire(TOPIC_NAME, "0-5")
    topic_id: bytes = wire(TOPIC_ID, "6+")
    partitions: list[TxnPartitionError] = wire([TxnPartitionError])


@struct
class TxnOffsetCommitResponse(Response):
    topics: list[TxnOffsetCommitResponseTopic] = wire([TxnOffsetCommitResponseTopic])


@struct
class TopicPartitionIndexes:
    name: str = wire(TOPIC_NAME)
    partition_indexes: list[int] = wire([PARTITION])


@struct
class WriteTxnMarkersWritableTxnMarker:
    producer_id: int = wire(PRODUCER_ID)
    producer_epoch: int = wire(INT16)
    transaction_result: bool = wire(BOOL)
    topics: list[TopicPartitionIndexes] = wire([TopicPartitionIndexes])
    coordinator_epoch: int = wire(INT32)
    transaction_version: int = wire(INT8, "2+")


@struct
class WriteTxnMarkersRequest:
    markers: list[WriteTxnMarkersWritableTxnMarker] = wire([WriteTxnMarkersWritableTxnMarker])


@struct
class WriteTxnMarkersWritableTxnMarkerTopicResult:
    name: str = wire(TOPIC_NAME)
    partitions: list[TxnPartitionError] = wire([TxnPartitionError])


@struct
class WriteTxnMarkersWritableTxnMarkerResult:
    producer_id: int = wire(PRODUCER_ID)
    topics: list[WriteTxnMarkersWritableTxnMarkerTopicResult] = wire([WriteTxnMarkersWritableTxnMarkerTopicResult])


@struct
class WriteTxnMarkersResponse:
    markers: list[WriteTxnMarkersWritableTxnMarkerResult] = wire([WriteTxnMarkersWritableTxnMarkerResult])


@struct
class DescribeProducersRequest:
    topics: list[TopicPartitionIndexes] = wire([TopicPartitionIndexes])


@struct
class DescribeProducersProducerState:
    producer_id: int = wire(PRODUCER_ID)
    producer_epoch: int = wire(INT32)
    last_sequence: int = wire(INT32, default=-1)
    last_timestamp: int = wire(INT64, default=-1)
    coordinator_epoch: int = wire(INT32)
    current_txn_start_offset: int = wire(INT64, default=-1)


@struct
class DescribeProducersPartitionResponse(PartitionResultWithMessage):
    active_producers: list[DescribeProducersProducerState] = wire([DescribeProducersProducerState])


@struct
class DescribeProducersTopicResponse:
    name: str = wire(TOPIC_NAME)
    partitions: list[DescribeProducersPartitionResponse] = wire([DescribeProducersPartitionResponse])


@struct
class DescribeProducersResponse(Response):
    topics: list[DescribeProducersTopicResponse] = wire([DescribeProducersTopicResponse])


@struct
class DescribeTransactionsRequest:
    transactional_ids: list[str] = wire([TRANSACTIONAL_ID])


@struct
class DescribeTransactionsTopicData:
    topic: str = wire(TOPIC_NAME)
    partitions: list[int] = wire([PARTITION])


@struct
class DescribeTransactionsTransactionState:
    error_code: int = wire(INT16, default=0)
    transactional_id: str = wire(TRANSACTIONAL_ID)
    transaction_state: str = wire(STRING)
    transaction_timeout_ms: int = wire(INT32)
    transaction_start_time_ms: int = wire(INT64)
    producer_id: int = wire(PRODUCER_ID)
    producer_epoch: int = wire(INT16)
    topics: list[DescribeTransactionsTopicData] = wire([DescribeTransactionsTopicData])


@struct
class DescribeTransactionsResponse(Response):
    transaction_states: list[DescribeTransactionsTransactionState] = wire([DescribeTransactionsTransactionState])


@struct
class ListTransactionsRequest:
    state_filters: list[str] = wire([STRING])
    producer_id_filters: list[int] = wire([PRODUCER_ID])
    duration_filter: int = wire(INT64, "1+", default=-1)
    transactional_id_pattern: str | None = wire(STRING, "2+", nullable="2+", default=None)


@struct
class ListTransactionsTransactionState:
    transactional_id: str = wire(TRANSACTIONAL_ID)
    producer_id: int = wire(PRODUCER_ID)
    transaction_state: str = wire(STRING)


@struct
class ListTransactionsResponse(ResponseWithCode):
    unknown_state_filters: list[str] = wire([STRING])
    transaction_states: list[ListTransactionsTransactionState] = wire([ListTransactionsTransactionState])
