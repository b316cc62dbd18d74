"""A week of flights into a server whose disk is too small for them, and what each partition has acknowledged of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import attrs
import trio

from ....protocol.errors import ErrorCode, RequestError
from ....protocol.types import TopicPartition
from ...client.connection import Client
from ...client.producer import SentRecord, open_producer
from ..flights import Flight
from ..producing import CHECKPOINT_RECORDS, PROGRESS_S, Acknowledged, send_flight
from .week import PARTITIONS, Written

PLACES: Final = tuple(TopicPartition(topic, number) for topic, count in PARTITIONS.items() for number in range(count))


@attrs.define
class Production:
    """Of one partition."""

    flights: list[Flight] = attrs.field(factory=list)
    """What was acknowledged, by offset."""
    refused: int = 0
    misplaced: int = 0
    """Acknowledged at another offset than the next one."""


async def write_week(
    client: Client, week: Sequence[Written], progress: Callable[[int], None]
) -> tuple[dict[TopicPartition, Production], float]:
    """Send everything; what the server refuses stays away. Returns when each record is acknowledged or refused, with the
    seconds that took; raises what else a record has failed with."""
    numbers = {place: number for number, place in enumerate(PLACES)}
    acknowledged = Acknowledged(len(PLACES))
    sent: list[tuple[TopicPartition, Flight, SentRecord]] = []
    begin = time.perf_counter()
    async with trio.open_nursery() as telling:
        telling.start_soon(partial(_tell, acknowledged, progress))
        async with open_producer(client) as producer:
            for number, (topic, flight) in enumerate(week):
                record = await send_flight(producer, topic, flight, is_checkpoint=not number % CHECKPOINT_RECORDS)
                place = TopicPartition(topic, flight.partition)
                sent.append((place, flight, record))
                acknowledged.add(numbers[place], record)
            await producer.flush()
        telling.cancel_scope.cancel()
    progress(acknowledged.count())
    seconds = time.perf_counter() - begin
    produced = {place: Production() for place in PLACES}
    for place, flight, record in sent:
        _settle(produced[place], flight, record)
    return produced, seconds


async def _tell(acknowledged: Acknowledged, progress: Callable[[int], None]) -> None:
    while True:
        progress(acknowledged.count())
        await trio.sleep(PROGRESS_S)


def _settle(production: Production, flight: Flight, record: SentRecord) -> None:
    try:
        offset = record.value().offset
    except RequestError as exc:
        if exc.code is not ErrorCode.POLICY_VIOLATION:
            raise
        production.refused += 1
        return
    production.misplaced += offset != len(production.flights)
    production.flights.append(flight)
