"""Produce (key 0): record batches to partitions.

v3 transactional id; v5 log start offset; v7 zstd; v8 errors of single records; v10 the current leader; v12 joins a transaction
by itself (KIP-890); v13 topic ids in place of names (KIP-516).
"""

from __future__ import annotations

from ...schema.fields import INT16, INT32, INT64, RECORDS, STRING, struct, wire
from ...types import Bytes
from ..apis import PARTITION, TOPIC_ID, TOPIC_NAME, TRANSACTIONAL_ID


@struct
class ProducePartition:
    index: int = wire(PARTITION)
    records: Bytes | None = wire(RECORDS, nullable="0+")


@struct
class ProduceTopic:
    name: str = wire(TOPIC_NAME, "0-12")
    topic_id: bytes = wire(TOPIC_ID, "13+")
    partition_data: list[ProducePartition] = wire([ProducePartition])


@struct
class ProduceRequest:
    transactional_id: str | None = wire(TRANSACTIONAL_ID, "3+", nullable="3+", default=None)
    acks: int = wire(INT16)
    timeout_ms: int = wire(INT32)
    topic_data: list[ProduceTopic] = wire([ProduceTopic])


@struct
class ProduceBatchIndexAndErrorMessage:
    batch_index: int = wire(INT32, "8+")
    batch_index_error_message: str | None = wire(STRING, "8+", nullable="8+", default=None)


@struct
class ProduceLeaderIdAndEpoch:
    leader_id: int = wire(INT32, "10+", default=-1)
    leader_epoch: int = wire(INT32, "10+", default=-1)


@struct
class ProducePartitionResponse:
    index: int = wire(PARTITION)
    error_code: int = wire(INT16, default=0)
    base_offset: int = wire(INT64)
    log_append_time_ms: int = wire(INT64, "2+", default=-1)
    log_start_offset: int = wire(INT64, "5+", default=-1)
    record_errors: list[ProduceBatchIndexAndErrorMessage] = wire([ProduceBatchIndexAndErrorMessage], "8+")
    error_message: str | None = wire(STRING, "8+", nullable="8+", default=None)
    current_leader: ProduceLeaderIdAndEpoch = wire(ProduceLeaderIdAndEpoch, "10+", tag=0, default=...)


@struct
class ProduceTopicResponse:
    name: str = wire(TOPIC_NAME, "0-12")
    topic_id: bytes = wire(TOPIC_ID, "13+")
    partition_responses: list[ProducePartitionResponse] = wire([ProducePartitionResponse])


@struct
class ProduceNodeEndpoint:
    node_id: int = wire(INT32, "10+")
    host: str = wire(STRING, "10+")
    port: int = wire(INT32, "10+")
    rack: str | None = wire(STRING, "10+", nullable="10+", default=None)


@struct
class ProduceResponse:
    responses: list[ProduceTopicResponse] = wire([ProduceTopicResponse])
    throttle_time_ms: int = wire(INT32, "1+", default=0)
    node_endpoints: list[ProduceNodeEndpoint] = wire([ProduceNodeEndpoint], "10+", tag=0, default=...)
