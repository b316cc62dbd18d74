"""Work in steps, done without pauses."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from triolog.protocol.kafka.connection import KafkaConnection, Request

T = TypeVar("T")


def finished(steps: Generator[None, Any, T]) -> T:
    """What they return."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            answer: T = stop.value
            return answer


async def at_once(steps: Generator[None, Any, T]) -> T:
    """The same for who waits for it."""
    return finished(steps)


def next_request(connection: KafkaConnection) -> Request | None:
    """The next request, read to its end."""
    found = connection.next_request()
    return found if found is None or isinstance(found, Request) else finished(found)
