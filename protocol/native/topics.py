"""The calls that make and delete topics and show their configuration: `create_topics`, `delete_topics`, `describe_configs`."""

from __future__ import annotations

from typing import ClassVar, Final

import attrs

from ..errors import RequestError
from . import fields
from .error_entries import decode_error, encode_error
from .fields import Body
from .metadata import TOPIC_ID_CHARS

MAX_SOURCE_CHARS: Final = 64


@attrs.frozen
class NewTopic:
    """A topic to create; whether name, number of partitions and configuration are legal, the log manager says."""

    keys: ClassVar[frozenset[str]] = fields.names("name", "partitions", "config")

    name: str
    partitions: int
    config: dict[str, str] = attrs.Factory(dict)

    @classmethod
    def from_body(cls, entry: Body) -> NewTopic:
        """Read one entry; FieldError for what is wrong in it."""
        fields.check_keys(entry, cls.keys)
        return cls(fields.topic(entry, "name"), fields.int32(entry, "partitions"), fields.string_map(entry, "config", {}))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"name": self.name, "partitions": self.partitions, "config": self.config}


@attrs.frozen
class CreateTopicsRequest:
    """Topics to create, each succeeds or fails alone; `validate_only` says what would happen."""

    api: ClassVar[str] = "create_topics"
    keys: ClassVar[frozenset[str]] = fields.names("topics", "validate_only")

    topics: tuple[NewTopic, ...]
    validate_only: bool = False

    @classmethod
    def from_body(cls, body: Body) -> CreateTopicsRequest:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(fields.entries(body, "topics", NewTopic.from_body), fields.boolean(body, "validate_only", False))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"topics": [topic.to_body() for topic in self.topics], "validate_only": self.validate_only}


@attrs.frozen
class CreatedTopic:
    """What became of one topic; the id is None on error and when it was only validated."""

    name: str
    error: RequestError | None = None
    topic_id: str | None = None

    @classmethod
    def from_body(cls, entry: Body) -> CreatedTopic:
        """Read one entry; FieldError for what is wrong in it."""
        return cls(
            fields.topic(entry, "name"),
            decode_error(entry.get("error")),
            fields.optional_string(entry, "topic_id", TOPIC_ID_CHARS),
        )

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"name": self.name, "error": encode_error(self.error), "topic_id": self.topic_id}


@attrs.frozen
class CreateTopicsResponse:
    """One entry per topic, in the same order."""

    api: ClassVar[str] = "create_topics"

    topics: tuple[CreatedTopic, ...]

    @classmethod
    def from_body(cls, body: Body) -> CreateTopicsResponse:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(fields.entries(body, "topics", CreatedTopic.from_body))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"topics": [topic.to_body() for topic in self.topics]}


@attrs.frozen
class DeleteTopicsRequest:
    """Topics to delete, each succeeds or fails alone."""

    api: ClassVar[str] = "delete_topics"
    keys: ClassVar[frozenset[str]] = fields.names("topics")

    topics: tuple[str, ...]

    @classmethod
    def from_body(cls, body: Body) -> DeleteTopicsRequest:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(fields.topics(body, "topics"))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"topics": list(self.topics)}


@attrs.frozen
class DeletedTopic:
    """What became of one topic."""

    name: str
    error: RequestError | None = None

    @classmethod
    def from_body(cls, entry: Body) -> DeletedTopic:
        """Read one entry; FieldError for what is wrong in it."""
        return cls(fields.topic(entry, "name"), decode_error(entry.get("error")))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"name": self.name, "error": encode_error(self.error)}


@attrs.frozen
class DeleteTopicsResponse:
    """One entry per topic, in the same order."""

    api: ClassVar[str] = "delete_topics"

    topics: tuple[DeletedTopic, ...]

    @classmethod
    def from_body(cls, body: Body) -> DeleteTopicsResponse:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(fields.entries(body, "topics", DeletedTopic.from_body))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"topics": [topic.to_body() for topic in self.topics]}


@attrs.frozen
class DescribeConfigsRequest:
    """The topics whose configuration is asked for."""

    api: ClassVar[str] = "describe_configs"
    keys: ClassVar[frozenset[str]] = fields.names("topics")

    topics: tuple[str, ...]

    @classmethod
    def from_body(cls, body: Body) -> DescribeConfigsRequest:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(fields.topics(body, "topics"))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"topics": list(self.topics)}


@attrs.frozen
class ConfigEntry:
    """A value as it is in force, and where it comes from, as in `topic` or `default`."""

    value: str
    source: str

    @classmethod
    def from_body(cls, entry: Body) -> ConfigEntry:
        """Read one entry; FieldError for what is wrong in it."""
        value = entry.get("value", fields.REQUIRED)
        if type(value) is not str:
            raise fields.unexpected("value", value, "str")
        return cls(value, fields.string(entry, "source", MAX_SOURCE_CHARS))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"value": self.value, "source": self.source}


@attrs.frozen
class TopicConfig:
    """Every configuration key of one topic; empty on error."""

    name: str
    error: RequestError | None = None
    config: dict[str, ConfigEntry] = attrs.Factory(dict)

    @classmethod
    def from_body(cls, entry: Body) -> TopicConfig:
        """Read one entry; FieldError for what is wrong in it."""
        config: dict[str, ConfigEntry] = {}
        for key, value in fields.map_at(entry, "config").items():
            path = f"config[{fields.describe(key)}]"
            if type(key) is not str or type(value) is not dict:
                raise fields.unexpected(path, value, "map under a str")
            try:
                config[key] = ConfigEntry.from_body(value)
            except fields.FieldError as exc:
                raise exc.within(path) from None
        return cls(fields.topic(entry, "name"), decode_error(entry.get("error")), config)

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {
            "name": self.name,
            "error": encode_error(self.error),
            "config": {key: entry.to_body() for key, entry in self.config.items()},
        }


@attrs.frozen
class DescribeConfigsResponse:
    """One entry per topic, in the same order."""

    api: ClassVar[str] = "describe_configs"

    topics: tuple[TopicConfig, ...]

    @classmethod
    def from_body(cls, body: Body) -> DescribeConfigsResponse:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(fields.entries(body, "topics", TopicConfig.from_body))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"topics": [topic.to_body() for topic in self.topics]}
