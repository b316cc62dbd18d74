"""Transactions and producers: transactional ids with what they have open, what hangs on partitions, and an end to both by hand.

What hangs is open on a partition and belongs to no transactional id, so nobody would end it; readers of committed records wait
there.
"""

from __future__ import annotations

from typing import Any, Final

from ....protocol.errors import UnknownTopicOrPartitionError
from ....protocol.limits import INT64_MAX
from ....protocol.native.messages import DescribeProducersPartitionResponse
from ....protocol.types import TopicPartition
from ..errors import BadParameterError
from ..routes import Call, Route, change, data, exact, page
from ..watching.watcher import now_ms

MAX_TRANSACTIONS: Final = 500
MAX_PRODUCERS: Final = 500
MAX_PARTITIONS: Final = 5000
"""That are looked through for what is open."""


async def transactions(call: Call) -> dict[str, Any]:
    """All transactional ids, and on every partition the producers that have something open. `topic`: all producers of one."""
    admin, topic = call.watcher.admin, call.query.text("topic", max_chars=249)
    listed = await admin.list_transactions(max_transactions=MAX_TRANSACTIONS)
    every = await call.watcher.topics()
    if topic and all(each.name != topic for each in every):
        raise UnknownTopicOrPartitionError(f"there is no topic {topic!r}")
    wanted = [
        TopicPartition(each.name, partition.partition)
        for each in every
        if not topic or each.name == topic
        for partition in each.partitions
        if partition.error is None
    ][:MAX_PARTITIONS]
    answers = await admin.describe_producers(*wanted, open_only=not topic, max_producers=MAX_PRODUCERS) if wanted else []
    return {
        "status": call.watcher.status.to_json(),
        "now_ms": now_ms(),
        "transactions": [_known(each.to_body()) for each in listed.transactions],
        "left_out": listed.left_out,
        "topic": topic or None,
        "topics": [each.name for each in every],
        "producers": [row for each in answers for row in _rows(each)],
        "producers_left_out": sum(each.left_out for each in answers),
        "can_change": call.settings.allow_changes,
    }


def _rows(answer: DescribeProducersPartitionResponse) -> list[dict[str, Any]]:
    place = {"topic": answer.topic, "partition": answer.partition}
    return [place | _known(each.to_body()) for each in answer.producers]


def _known(body: dict[str, Any]) -> dict[str, Any]:
    """Numbers that are not known as null."""
    return {name: None if value == -1 else exact(value) if type(value) is int else value for name, value in body.items()}


async def transaction(call: Call) -> dict[str, Any]:
    """Return a transactional id with the partitions of its transaction."""
    (found,) = await call.watcher.admin.describe_transactions(call.path["id"])
    if found.error is not None:
        raise found.error
    partitions = [{"topic": each.topic, "partition": each.partition} for each in found.partitions]
    told = _known({name: value for name, value in found.to_body().items() if name not in ("error", "partitions")})
    return {
        "status": call.watcher.status.to_json(),
        **told,
        "partitions": partitions,
        "can_change": call.settings.allow_changes,
    }


async def abort(call: Call) -> dict[str, Any]:
    """`{"transactional_id"}`, or of what hangs `{"topic", "partition", "producer_id"}`; the producer is fenced off."""
    admin, name = call.watcher.admin, call.field("transactional_id", str, None)
    if name is not None:
        await admin.abort_transaction(name)
        return {"transactional_id": name, "aborted": True}
    place = TopicPartition(call.field("topic", str), call.field("partition", int))
    text = str(call.body.get("producer_id"))
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= INT64_MAX):
        raise BadParameterError("producer_id", f"{text[:100]!r} is not a producer id")
    start = await admin.abort_hanging_transaction(place, int(text))
    return {"topic": place.topic, "partition": place.partition, "aborted": True, "start_offset": exact(start)}


ROUTES: Final[tuple[Route, ...]] = (
    page("/transactions", transactions, ("topic",)),
    data("/transactions/{id}", transaction),
    change("POST", "/transactions/abort", abort),
)
