"""Requests of Kafka's protocol as packed frames, and answers that hold no error. One version of each API: the highest."""

from __future__ import annotations

import struct
from typing import Any, Final

import attrs

from ....protocol.kafka.apis import APIS, ApiKey
from ....protocol.schema import codec
from ..measuring.child import LoadFailedError

CORRELATION_ID: Final = 7
CLIENT_ID: Final = b"bench"
ANSWER_HEADER_BYTES: Final = 4


def kafka_frame(key: ApiKey, body: object) -> bytes:
    """Return a request as it goes over the wire."""
    api = APIS[key]
    flexible = api.is_flexible(api.highest)
    header = struct.pack(">hhih", key, api.highest, CORRELATION_ID, len(CLIENT_ID)) + CLIENT_ID + b"\0" * flexible
    data = header + b"".join(codec.write(body, api.highest, flexible=flexible))
    return struct.pack(">i", len(data)) + data


def read_kafka_answer(key: ApiKey, frame: bytes) -> Any:
    """Return the body of an answer, without its length. Raises LoadFailedError when something in it failed."""
    api = APIS[key]
    flexible = api.is_flexible(api.highest)
    body, _ = codec.read(api.response, api.highest, memoryview(frame), ANSWER_HEADER_BYTES + flexible, flexible=flexible)
    check_codes(body)
    return body


def check_codes(body: Any) -> None:
    """Raise LoadFailedError for an error code anywhere."""
    if isinstance(body, list):
        for each in body:
            check_codes(each)
    elif attrs.has(type(body)):
        if getattr(body, "error_code", 0):
            raise LoadFailedError(f"the server answered {body}")
        for field in attrs.fields(type(body)):
            check_codes(getattr(body, field.name))
