"""The calls that make and delete topics and show their configuration: `create_topics`, `delete_topics`, `describe_configs`."""

from __future__ import annotations

from typing import Final

from ..declaration import wire
from ..kinds import BOOL, CONFIG, INT32, STRING, TOPIC, TOPICS, name
from ..places import TopicAnswer
from ..structs import RequestMessage, ResponseMessage, Struct, struct
from .metadata import TOPIC_ID

MAX_SOURCE_CHARS: Final = 64


@struct
class NewTopic(Struct):
    """A topic to create; whether name, number of partitions and configuration are legal, the log manager says."""

    name: str = wire(TOPIC)
    partitions: int = wire(INT32)
    config: dict[str, str] = wire(CONFIG, factory=dict)


@struct
class CreateTopicsRequest(RequestMessage):
    """Topics to create, each succeeds or fails alone; `validate_only` says what would happen."""

    api = "create_topics"

    topics: tuple[NewTopic, ...] = wire([NewTopic])
    validate_only: bool = wire(BOOL, default=False)


@struct
class CreatedTopic(TopicAnswer):
    """What became of one topic; the id is None on error and when it was only validated."""

    topic_id: str | None = wire(TOPIC_ID, default=None)


@struct
class CreateTopicsResponse(ResponseMessage):
    """One entry per topic, in the same order."""

    api = "create_topics"

    topics: tuple[CreatedTopic, ...] = wire([CreatedTopic])


@struct
class DeleteTopicsRequest(RequestMessage):
    """Topics to delete, each succeeds or fails alone."""

    api = "delete_topics"

    topics: tuple[str, ...] = wire(TOPICS)


@struct
class DeletedTopic(TopicAnswer):
    """What became of one topic."""


@struct
class DeleteTopicsResponse(ResponseMessage):
    """One entry per topic, in the same order."""

    api = "delete_topics"

    topics: tuple[DeletedTopic, ...] = wire([DeletedTopic])


@struct
class DescribeConfigsRequest(RequestMessage):
    """The topics whose configuration is asked for."""

    api = "describe_configs"

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
    """One entry per topic, in the same order."""

    api = "describe_configs"

    topics: tuple[TopicConfig, ...] = wire([TopicConfig])
