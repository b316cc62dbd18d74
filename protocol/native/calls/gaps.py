"""The calls about offsets that damage took out of logs: `list_gaps`, and `accept_gaps`, from where on readers pass over them
whatever a topic's gap.policy is."""

from __future__ import annotations

from typing import Final

from ...errors import RequestError
from ...types import NO_OFFSET
from ..declaration import wire
from ..kinds import ERROR, INT32, INT64, INT64_OR_NONE, TOPICS, note
from ..places import Partition, PartitionAnswer, TopicAnswer
from ..structs import RequestMessage, ResponseMessage, Struct, struct

NOT_KNOWN: Final = -1
"""As a size or a time."""


@struct
class ListGapsRequest(RequestMessage):
    """The topics whose gaps are asked for; None: all."""

    api = "list_gaps"

    topics: tuple[str, ...] | None = wire(TOPICS, nullable=True, default=None)


@struct
class Gap(Struct):
    """Offsets that are missing, the end exclusive. `file` in the partition's directory has what was found there, None: nothing
    has. `found_ms`, `accepted_ms`: when, in ms since the epoch, -1 where it is not known or was not done."""

    start_offset: int = wire(INT64)
    end_offset: int = wire(INT64)
    file: str | None = wire(note(), default=None)
    size_bytes: int = wire(INT64_OR_NONE, default=NOT_KNOWN)
    found_ms: int = wire(INT64_OR_NONE, default=NOT_KNOWN)
    accepted_ms: int = wire(INT64_OR_NONE, default=NOT_KNOWN)


@struct
class PartitionGaps(Struct):
    """The gaps of one partition, ascending. With an error, that of a partition that is offline, they are not known."""

    partition: int = wire(INT32)
    error: RequestError | None = wire(ERROR, default=None)
    gaps: tuple[Gap, ...] = wire([Gap], default=())


@struct
class TopicGaps(TopicAnswer):
    """The partitions of one topic that have gaps, or of which that is not known."""

    partitions: tuple[PartitionGaps, ...] = wire([PartitionGaps], default=())


@struct
class ListGapsResponse(ResponseMessage):
    """One entry per topic, in the order asked; where all were asked for, those that have something to say."""

    api = "list_gaps"

    topics: tuple[TopicGaps, ...] = wire([TopicGaps])


@struct
class AcceptGapsPartition(Partition):
    """The gap of a partition that starts at `start_offset`."""

    start_offset: int = wire(INT64)


@struct
class AcceptGapsRequest(RequestMessage):
    """Gaps to be accepted, each succeeds or fails alone."""

    api = "accept_gaps"

    partitions: tuple[AcceptGapsPartition, ...] = wire([AcceptGapsPartition])


@struct
class AcceptGapsPartitionResponse(PartitionAnswer):
    """Up to which offset, exclusive, readers pass over it from now on."""

    end_offset: int = wire(INT64_OR_NONE, default=NO_OFFSET)


@struct
class AcceptGapsResponse(ResponseMessage):
    """One entry per gap, in the same order."""

    api = "accept_gaps"

    partitions: tuple[AcceptGapsPartitionResponse, ...] = wire([AcceptGapsPartitionResponse])
