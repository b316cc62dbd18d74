"""The calls that change topics that exist: `create_partitions`, `alter_configs`, `delete_records`."""

from __future__ import annotations

from typing import Final

from ... import limits
from ...types import NO_OFFSET
from ..declaration import wire
from ..kinds import (
    CONFIG,
    INT32,
    INT64_OR_NONE,
    MAX_CONFIG_KEY_CHARS,
    MAX_CONFIG_KEYS,
    TOPIC,
    integer,
    names,
)
from ..places import Partition, PartitionAnswer, TopicAnswer
from ..structs import RequestMessage, ResponseMessage, Struct, struct

TO_HIGH_WATERMARK: Final = -1
"""As `before_offset`: delete everything that can be read (Kafka: DeleteRecordsRequest.HIGH_WATERMARK)."""


@struct
class NewPartitions(Struct):
    """How many partitions a topic is to have in all, more than it has."""

    name: str = wire(TOPIC)
    total: int = wire(INT32)


@struct
class CreatePartitionsRequest(RequestMessage):
    """Topics that get more partitions, each succeeds or fails alone."""

    api = "create_partitions"

    topics: tuple[NewPartitions, ...] = wire([NewPartitions])


@struct
class ConfigChange(Struct):
    """Keys of a topic to set, and keys whose own value is to go, so that the default holds again."""

    name: str = wire(TOPIC)
    set: dict[str, str] = wire(CONFIG, factory=dict)
    delete: tuple[str, ...] = wire(names(MAX_CONFIG_KEY_CHARS, MAX_CONFIG_KEYS), default=())


@struct
class AlterConfigsRequest(RequestMessage):
    """Changes of topics' configuration; all keys of a topic change together or none does."""

    api = "alter_configs"

    topics: tuple[ConfigChange, ...] = wire([ConfigChange])


@struct
class ChangedTopic(TopicAnswer):
    """What became of one topic."""


@struct
class CreatePartitionsResponse(ResponseMessage):
    """One entry per topic, in the same order."""

    api = "create_partitions"

    topics: tuple[ChangedTopic, ...] = wire([ChangedTopic])


@struct
class AlterConfigsResponse(ResponseMessage):
    """One entry per topic, in the same order."""

    api = "alter_configs"

    topics: tuple[ChangedTopic, ...] = wire([ChangedTopic])


@struct
class DeleteRecordsPartition(Partition):
    """Make `before_offset` the log start offset of a partition; -1 stands for the high watermark."""

    before_offset: int = wire(integer(TO_HIGH_WATERMARK, limits.INT64_MAX))


@struct
class DeleteRecordsRequest(RequestMessage):
    """Partitions whose oldest records are to go, each succeeds or fails alone."""

    api = "delete_records"

    partitions: tuple[DeleteRecordsPartition, ...] = wire([DeleteRecordsPartition])


@struct
class DeleteRecordsPartitionResponse(PartitionAnswer):
    """The partition's log start offset from now on, which may lie above the offset asked for."""

    log_start_offset: int = wire(INT64_OR_NONE, default=NO_OFFSET)


@struct
class DeleteRecordsResponse(ResponseMessage):
    """One entry per partition, in the same order."""

    api = "delete_records"

    partitions: tuple[DeleteRecordsPartitionResponse, ...] = wire([DeleteRecordsPartitionResponse])
