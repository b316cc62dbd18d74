"""The call `explain`: a lookup by offset or by timestamp, answered with the walk that led to the answer."""

from __future__ import annotations

from typing import Any

from ..declaration import wire
from ..kinds import INT64, MAP
from ..places import Partition, PartitionAnswer
from ..structs import RequestMessage, ResponseMessage, struct
from .lookups import TIMESTAMP


@struct
class ExplainPartition(Partition):
    """What to look up in one partition: an offset or a timestamp, the other one is None."""

    offset: int | None = wire(INT64, alternative=True, default=None)
    timestamp: int | None = wire(TIMESTAMP, alternative=True, default=None)


@struct
class ExplainRequest(RequestMessage):
    """Lookups to be explained, each answered alone."""

    api = "explain"

    partitions: tuple[ExplainPartition, ...] = wire([ExplainPartition])


@struct
class ExplainPartitionResponse(PartitionAnswer):
    """The walk as data, for people and their tools; its keys stand in docs/native-protocol.md. None on error."""

    walk: dict[str, Any] | None = wire(MAP, nullable=True, default=None)


@struct
class ExplainResponse(ResponseMessage):
    """One entry per partition asked for, in the same order."""

    api = "explain"

    partitions: tuple[ExplainPartitionResponse, ...] = wire([ExplainPartitionResponse])
