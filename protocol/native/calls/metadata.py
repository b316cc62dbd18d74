"""The call `metadata`: which topics there are, their partitions and how large these are."""

from __future__ import annotations

from typing import Final

from ... import limits
from ...errors import RequestError
from ...types import NO_OFFSET
from ..declaration import wire
from ..kinds import CONFIG, ERROR, INT32, INT64, INT64_OR_NONE, TOPICS, note
from ..places import TopicAnswer
from ..structs import RequestMessage, ResponseMessage, Struct, struct

TOPIC_ID: Final = note(64)
"""A topic id is 22 characters of base64url; room for another form of it."""


@struct
class MetadataRequest(RequestMessage):
    """Describe these topics; None: all of them."""

    api = "metadata"

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

    api = "metadata"

    topics: tuple[TopicMetadata, ...] = wire([TopicMetadata], max_count=limits.INT32_MAX)
