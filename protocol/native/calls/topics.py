"""The calls on topics: `metadata`, `create_topics`, `delete_topics`, `describe_configs`, `create_partitions`, `alter_configs`,
`delete_records`.
"""

from __future__ import annotations

from typing import Final

from ... import limits
from ...errors import RequestError
from ...types import NO_OFFSET
from ..kinds import (
    BOOL,
    CONFIG,
    ERROR,
    INT32,
    INT64,
    INT64_OR_NONE,
    MAX_CONFIG_KEY_CHARS,
    MAX_CONFIG_KEYS,
    STRING,
    TOPIC,
    TOPICS,
    integer,
    name,
    names,
    note,
)
from ..structs import Partition, PartitionAnswer, RequestMessage, ResponseMessage, Struct, TopicAnswer, struct, wire

TOPIC_ID: Final = note(64)
"""A topic id is 22 characters of base64url; room for another form of it."""


@struct
class MetadataRequest(RequestMessage):
    """Describe these topics; None: all of them."""

    topics: tuple[str, ...] | None = wire(TOPICS, nullable=True, default=None)


@struct
class PartitionMetadata(Struct):
    """A partition: its readable range (`high_watermark` exclusive), bytes of log on disk, number of segments; `waiting` says
    why one that is read takes no appends until there is space."""

    partition: int = wire(INT32)
    error: RequestError | None = wire(ERROR, default=None)
    log_start_offset: int = wire(INT64_OR_NONE, default=NO_OFFSET)
    high_watermark: int = wire(INT64_OR_NONE, default=NO_OFFSET)
    size_bytes: int = wire(INT64, default=0)
    segments: int = wire(INT32, default=0)
    waiting: str | None = wire(note(), default=None)


@struct
class TopicMetadata(TopicAnswer):
    """A topic, the configuration it overrides, its partitions; on error the topic id is None and the rest empty."""

    topic_id: str | None = wire(TOPIC_ID, default=None)
    config: dict[str, str] = wire(CONFIG, factory=dict)
    partitions: tuple[PartitionMetadata, ...] = wire([PartitionMetadata], default=(), max_count=limits.INT32_MAX)


@struct
class MetadataResponse(ResponseMessage):
    """The topics asked for in the same order, or all of them by name."""

    topics: tuple[TopicMetadata, ...] = wire([TopicMetadata], max_count=limits.INT32_MAX)


MAX_SOURCE_CHARS: Final = 64


@struct
class NewTopic(Struct):
    """A topic to create; whether name, number of partitions and configuration are legal, the log manager says."""

    name: str = wire(TOPIC)
    partitions: int = wire(INT32)
    config: dict[str, str] = wire(CONFIG, factory=dict)


@struct
class CreateTopicsRequest(RequestMessage):
    """Topics to create, each succeeds or fails alone; `validate_only` says what would happen.

    `on_demand` creates a topic only if the server creates topics that its clients use. 0 partitions are the server's default.
    """

    topics: tuple[NewTopic, ...] = wire([NewTopic])
    validate_only: bool = wire(BOOL, default=False)
    on_demand: bool = wire(BOOL, default=False)


@struct
class CreatedTopic(TopicAnswer):
    """The result of one topic's creation; the id is None on error and when the request only validates."""

    topic_id: str | None = wire(TOPIC_ID, default=None)


@struct
class CreateTopicsResponse(ResponseMessage):
    """The results of the topics, in the same order."""

    topics: tuple[CreatedTopic, ...] = wire([CreatedTopic])


@struct
class DeleteTopicsRequest(RequestMessage):
    """Topics to delete, each succeeds or fails alone."""

    topics: tuple[str, ...] = wire(TOPICS)


@struct
class DeleteTopicsResponse(ResponseMessage):
    """The results of the topics, in the same order."""

    topics: tuple[TopicAnswer, ...] = wire([TopicAnswer])


@struct
class DescribeConfigsRequest(RequestMessage):
    """The topics whose configuration is asked for."""

    topics: tuple[str, ...] = wire(TOPICS)


@struct
class ConfigEntry(Struct):
    """A value as it is in force, and where it comes from, as in `topic` or `default`."""

    value: str = wire(STRING)
    source: str = wire(name(MAX_SOURCE_CHARS))


@struct
class TopicConfig(TopicAnswer):
    """Every configuration key of one topic; empty on error."""

    config: dict[str, ConfigEntry] = wire({str: ConfigEntry}, factory=dict)


@struct
class DescribeConfigsResponse(ResponseMessage):
    """The results of the topics, in the same order."""

    topics: tuple[TopicConfig, ...] = wire([TopicConfig])


TO_HIGH_WATERMARK: Final = -1
"""As `before_offset`: delete everything that can be read (Kafka: DeleteRecordsRequest.HIGH_WATERMARK)."""


@struct
class NewPartitions(Struct):
    """The new total number of partitions of a topic, more than it has."""

    name: str = wire(TOPIC)
    total: int = wire(INT32)


@struct
class CreatePartitionsRequest(RequestMessage):
    """Topics that get more partitions, each succeeds or fails alone."""

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

    topics: tuple[ConfigChange, ...] = wire([ConfigChange])


@struct
class CreatePartitionsResponse(ResponseMessage):
    """The results of the topics, in the same order."""

    topics: tuple[TopicAnswer, ...] = wire([TopicAnswer])


@struct
class AlterConfigsResponse(ResponseMessage):
    """The results of the topics, in the same order."""

    topics: tuple[TopicAnswer, ...] = wire([TopicAnswer])


@struct
class DeleteRecordsPartition(Partition):
    """Make `before_offset` the log start offset of a partition; -1 stands for the high watermark."""

    before_offset: int = wire(integer(TO_HIGH_WATERMARK, limits.INT64_MAX))


@struct
class DeleteRecordsRequest(RequestMessage):
    """Partitions whose oldest records are to go, each succeeds or fails alone."""

    partitions: tuple[DeleteRecordsPartition, ...] = wire([DeleteRecordsPartition])


@struct
class DeleteRecordsPartitionResponse(PartitionAnswer):
    """The partition's log start offset from now on, which may lie above the offset asked for."""

    log_start_offset: int = wire(INT64_OR_NONE, default=NO_OFFSET)


@struct
class DeleteRecordsResponse(ResponseMessage):
    """The results of the partitions, in the same order."""

    partitions: tuple[DeleteRecordsPartitionResponse, ...] = wire([DeleteRecordsPartitionResponse])
