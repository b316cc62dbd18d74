"""Writing one record by hand."""

from __future__ import annotations

import json
import random
import time
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]

from ....protocol.limits import INT64_MAX
from ....protocol.native.messages import ProducePartition, ProduceRequest
from ....protocol.records.builder import build_batch
from ....protocol.records.partitioners import partition_for_key
from ..errors import ApiError, BadParameterError
from ..parameters import exact
from ..routes import Call, Route, change

KINDS: Final = ("text", "json", "msgpack", "hex")
MAX_HEADERS: Final = 100


async def produce(call: Call) -> dict[str, Any]:
    """`{"partition", "key", "key_as", "value", "value_as", "headers": [[name, text], ...], "timestamp"}`; null is null, and a
    partition that is not said is chosen by the key, as Kafka's clients do it. Answers where the record went."""
    topic = call.path["topic"]
    key, value = _bytes(call, "key"), _bytes(call, "value")
    timestamp = call.field("timestamp", int, None)
    if timestamp is not None and not 0 <= timestamp <= INT64_MAX:
        raise BadParameterError("timestamp", f"{timestamp} is no time in ms")
    described = await call.watcher.admin.describe_topic(topic)
    partition = call.field("partition", int, None)
    if partition is None:
        count = len(described.partitions)
        partition = random.randrange(count) if key is None else partition_for_key(key, count)
    if not 0 <= partition < len(described.partitions):
        raise BadParameterError("partition", f"{topic} has no partition {partition}")
    now_ms = time.time_ns() // 1_000_000
    batch = build_batch([(now_ms if timestamp is None else timestamp, key, value, _headers(call))])
    response = await call.watcher.client.produce(ProduceRequest((ProducePartition(topic, partition, batch),)))
    if response is None:
        raise ApiError(503, "NO_ANSWER", "whether the record was appended is not known")
    (answer,) = response.partitions
    if answer.failure is not None:
        raise answer.failure
    return {"topic": topic, "partition": partition, "offset": exact(answer.base_offset)}


def _bytes(call: Call, name: str) -> bytes | None:
    text, kind = call.field(name, str, None), call.field(f"{name}_as", str, "text")
    if kind not in KINDS:
        raise BadParameterError(f"{name}_as", f"{kind[:100]!r} is none of {', '.join(KINDS)}")
    if text is None:
        return None
    try:
        if kind == "hex":
            return bytes.fromhex(text)
        if kind in ("json", "msgpack"):
            read = json.loads(text)
            return text.encode() if kind == "json" else bytes(msgpack.packb(read))
        return str(text).encode()
    except (ValueError, RecursionError, OverflowError) as exc:
        raise BadParameterError(name, f"is no {kind}: {exc}") from None


def _headers(call: Call) -> tuple[tuple[str, bytes | None], ...]:
    given = call.field("headers", list, [])
    if len(given) > MAX_HEADERS:
        raise BadParameterError("headers", f"of more than {MAX_HEADERS}")
    headers = []
    for each in given:
        match each:
            case [str(name), (str() | None) as value]:
                try:
                    name.encode()
                    headers.append((name, None if value is None else value.encode()))
                except UnicodeEncodeError as exc:
                    raise BadParameterError("headers", f"cannot be written as UTF-8: {exc}") from None
            case _:
                raise BadParameterError("headers", "each is [name, text or null]")
    return tuple(headers)


ROUTES: Final[tuple[Route, ...]] = (change("POST", "/topics/{topic}/records", produce),)
