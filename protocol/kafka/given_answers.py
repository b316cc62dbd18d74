"""Answers of success, written without the messages' objects: a produce that every partition has taken, a lookup that has found
every offset. They would need an object for each partition, although all but a few numbers are always the same.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import attrs

from ..schema.given_writer import Given, GivenWriter, make_given_writer
from ..types import Bytes
from .apis import Api
from .connection import Request, answer_head, framed_one
from .messages.list_offsets import ListOffsetsResponse
from .messages.produce import ProduceResponse


@attrs.define(eq=False, repr=False)
class GivenAnswer:
    """How an answer is written of which some fields are given. Owner of the writers, by version, each with the layout of the
    answer's size and header."""

    response: type
    given: Given
    _writers: dict[int, tuple[GivenWriter, struct.Struct]] = attrs.field(factory=dict)

    def buffers(self, request: Request, values: tuple[Any, ...]) -> list[Bytes]:
        """The buffers of the answer, as `answer_buffers` has them for the message."""
        write, head = self._writers.get(request.version) or self._made(request.api, request.version)
        parts: list[Bytes] = []
        write(values, parts)
        return framed_one(head, request.correlation_id, b"".join(parts))

    def _made(self, api: Api, version: int) -> tuple[GivenWriter, struct.Struct]:
        flexible = api.is_flexible(version)
        write = make_given_writer(self.response, self.given, version, flexible=flexible)
        made = self._writers[version] = write, answer_head(api, flexible=flexible)
        return made


PartitionProduced = tuple[int, int, int, int]
"""(index, base offset, log append time in ms or -1, log start offset)"""
TopicProduced = tuple[str, bytes, list[PartitionProduced]]
"""(name, topic id, partitions); a version writes one of name and id."""

_PRODUCED: Final = Given(("index", "base_offset", "log_append_time_ms", "log_start_offset"))
PRODUCED: Final = GivenAnswer(
    ProduceResponse,
    Given(("throttle_time_ms",), {"responses": Given(("name", "topic_id"), {"partition_responses": _PRODUCED})}),
)
"""Of (throttle time in ms, topics)."""

LISTED: Final = GivenAnswer(
    ListOffsetsResponse,
    Given(
        ("throttle_time_ms",),
        {"topics": Given(("name",), {"partitions": Given(("partition_index", "timestamp", "offset", "leader_epoch"))})},
    ),
)
"""Of (throttle time in ms, topics), each (name, partitions). Version 0 has another answer."""
