"""The fields that many responses begin with, and the result of one partition in them.

A response inherits from a structure here only if it has these fields first, in every version. Kafka's message files repeat
them for each API.
"""

from __future__ import annotations

from ...schema.fields import INT16, INT32, STRING, struct, wire
from ..apis import PARTITION


@struct
class Response:
    throttle_time_ms: int = wire(INT32, default=0)


@struct
class ResponseWithCode(Response):
    error_code: int = wire(INT16, default=0)


@struct
class ResponseWithMessage(ResponseWithCode):
    error_message: str | None = wire(STRING, nullable="0+", default=None)


@struct
class PartitionResult:
    partition_index: int = wire(PARTITION)
    error_code: int = wire(INT16, default=0)


@struct
class PartitionResultWithMessage(PartitionResult):
    error_message: str | None = wire(STRING, nullable="0+", default=None)
