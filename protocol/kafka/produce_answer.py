"""The answer to a produce that every partition has taken: written without the message's objects, of which it would need three
and more, although all but a few numbers are always the same.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from ..schema.given_writer import Given, GivenWriter, make_given_writer
from ..types import Bytes
from .apis import Api
from .connection import Request, answer_head, framed
from .messages.produce import ProduceResponse

PartitionProduced = tuple[int, int, int, int]
"""Index, base offset, log append time, log start offset."""
TopicProduced = tuple[str, bytes, Iterable[PartitionProduced]]
"""Name and id, of which a version has one, and its partitions."""

_PARTITION: Final = Given(("index", "base_offset", "log_append_time_ms", "log_start_offset"))
_TOPIC: Final = Given(("name", "topic_id"), {"partition_responses": _PARTITION})
_RESPONSE: Final = Given(("throttle_time_ms",), {"responses": _TOPIC})

_writers: Final[dict[int, tuple[GivenWriter, struct.Struct]]] = {}
"""By version, each with the layout of the answer's size and header."""


def produced(request: Request, topics: list[TopicProduced], throttle_time_ms: int = 0) -> list[Bytes]:
    """The buffers of the answer, as `answer_buffers` has them for the message. There are no error codes in it."""
    write, head = _writers.get(request.version) or _made(request.api, request.version)
    parts: list[Bytes] = []
    write((throttle_time_ms, topics), parts)
    return framed(head, request.correlation_id, [b"".join(parts)])


def _made(api: Api, version: int) -> tuple[GivenWriter, struct.Struct]:
    flexible = api.is_flexible(version)
    write = make_given_writer(ProduceResponse, _RESPONSE, version, flexible=flexible)
    made = _writers[version] = write, answer_head(api, flexible=flexible)
    return made
