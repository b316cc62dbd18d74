"""CreateTopics (19), DeleteTopics (20), CreatePartitions (37), DeleteRecords (21).

CreateTopics: v5 answers configurations (KIP-525), v7 topic ids. DeleteTopics: v6 by topic id.
"""

from __future__ import annotations

from ....schema.fields import BOOL, INT8, INT16, INT32, INT64, STRING, struct, wire
from ...apis import PARTITION, TOPIC_ID, TOPIC_NAME


@struct
class CreateTopicsCreatableReplicaAssignment:
    partition_index: int = wire(INT32)
    broker_ids: list[int] = wire([INT32])


@struct
class CreateTopicsCreatableTopicConfig:
    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable="0+")


@struct
class CreateTopicsCreatableTopic:
    name: str = wire(TOPIC_NAME)
    num_partitions: int = wire(INT32)
    replication_factor: int = wire(INT16)
    assignments: list[CreateTopicsCreatableReplicaAssignment] = wire([CreateTopicsCreatableReplicaAssignment])
    configs: list[CreateTopicsCreatableTopicConfig] = wire([CreateTopicsCreatableTopicConfig])


@struct
class CreateTopicsRequest:
    topics: list[CreateTopicsCreatableTopic] = wire([CreateTopicsCreatableTopic])
    timeout_ms: int = wire(INT32, default=60000)
    validate_only: bool = wire(BOOL, "1+")


@struct
class CreateTopicsCreatableTopicConfigs:
    name: str = wire(STRING, "5+")
    value: str | None = wire(STRING, "5+", nullable="5+")
    read_only: bool = wire(BOOL, "5+")
    config_source: int = wire(INT8, "5+", default=-1)
    is_sensitive: bool = wire(BOOL, "5+")


@struct
class CreateTopicsCreatableTopicResult:
    name: str = wire(TOPIC_NAME)
    topic_id: bytes = wire(TOPIC_ID, "7+")
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, "1+", nullable="0+")
    topic_config_error_code: int = wire(INT16, "5+", tag=0, default=...)
    num_partitions: int = wire(INT32, "5+", default=-1)
    replication_factor: int = wire(INT16, "5+", default=-1)
    configs: list[CreateTopicsCreatableTopicConfigs] | None = wire([CreateTopicsCreatableTopicConfigs], "5+", nullable="5+")


@struct
class CreateTopicsResponse:
    throttle_time_ms: int = wire(INT32, "2+", default=0)
    topics: list[CreateTopicsCreatableTopicResult] = wire([CreateTopicsCreatableTopicResult])


@struct
class DeleteTopicState:
    name: str | None = wire(TOPIC_NAME, "6+", nullable="6+", default=None)
    topic_id: bytes = wire(TOPIC_ID, "6+")


@struct
class DeleteTopicsRequest:
    topics: list[DeleteTopicState] = wire([DeleteTopicState], "6+")
    topic_names: list[str] = wire([TOPIC_NAME], "0-5")
    timeout_ms: int = wire(INT32)


@struct
class DeleteTopicsDeletableTopicResult:
    name: str | None = wire(TOPIC_NAME, nullable="6+")
    topic_id: bytes = wire(TOPIC_ID, "6+")
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, "5+", nullable="5+", default=None)


@struct
class DeleteTopicsResponse:
    throttle_time_ms: int = wire(INT32, "1+", default=0)
    responses: list[DeleteTopicsDeletableTopicResult] = wire([DeleteTopicsDeletableTopicResult])


@struct
class CreatePartitionsAssignment:
    broker_ids: list[int] = wire([INT32])


@struct
class CreatePartitionsTopic:
    name: str = wire(TOPIC_NAME)
    count: int = wire(INT32)
    assignments: list[CreatePartitionsAssignment] | None = wire([CreatePartitionsAssignment], nullable="0+")


@struct
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic] = wire([CreatePartitionsTopic])
    timeout_ms: int = wire(INT32)
    validate_only: bool = wire(BOOL)


@struct
class CreatePartitionsTopicResult:
    name: str = wire(TOPIC_NAME)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+", default=None)


@struct
class CreatePartitionsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    results: list[CreatePartitionsTopicResult] = wire([CreatePartitionsTopicResult])


@struct
class DeleteRecordsPartition:
    partition_index: int = wire(PARTITION)
    offset: int = wire(INT64)


@struct
class DeleteRecordsTopic:
    name: str = wire(TOPIC_NAME)
    partitions: list[DeleteRecordsPartition] = wire([DeleteRecordsPartition])


@struct
class DeleteRecordsRequest:
    topics: list[DeleteRecordsTopic] = wire([DeleteRecordsTopic])
    timeout_ms: int = wire(INT32)


@struct
class DeleteRecordsPartitionResult:
    partition_index: int = wire(PARTITION)
    low_watermark: int = wire(INT64)
    error_code: int = wire(INT16, default=0)


@struct
class DeleteRecordsTopicResult:
    name: str = wire(TOPIC_NAME)
    partitions: list[DeleteRecordsPartitionResult] = wire([DeleteRecordsPartitionResult])


@struct
class DeleteRecordsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    topics: list[DeleteRecordsTopicResult] = wire([DeleteRecordsTopicResult])
