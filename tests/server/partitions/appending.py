"""Appends straight to a partition's actor, and their answers."""

from __future__ import annotations

from typing import Any

from triolog.protocol.errors import RequestError
from triolog.server.partitions.partition import PartitionActor
from triolog.server.storage.log.append import AppendResult
from triolog.server.storage.log.prepare import prepare_append

from tests.support.brokers import until
from tests.support.logs import START_MS, batch

Answered = list[AppendResult | RequestError]


def prepared(actor: PartitionActor, *, size: int = 5) -> Any:
    data = batch(START_MS, value=b"v" * size)
    return prepare_append(data, actor.topic_partition, actor.config, now_ms=START_MS)


async def send(actor: PartitionActor, answers: Answered, *, acks: int = -1, size: int = 5, count: int = 1) -> None:
    for _ in range(count):
        await actor.append(prepared(actor, size=size), acks, answers.append)


async def answered(answers: Answered, count: int) -> None:
    """Wait until so many callers have their answer."""
    await until(lambda: len(answers) >= count)


def offsets(answers: Answered) -> list[int]:
    """Base offsets of appends that were not refused."""
    return [answer.base_offset for answer in answers if isinstance(answer, AppendResult)]
