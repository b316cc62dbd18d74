"""Lookups by time over a raw connection, each one timed, in logs that `fill` made: record n has offset n and time n; and a
range of times out of a year of flights, which are written about as they left."""

from __future__ import annotations

import random
import time
from typing import Any

from ....protocol.native.messages import FetchPartition, FetchRequest, NewTopic
from ....protocol.records.batch import iter_batches
from ....protocol.records.record import iter_records
from ....protocol.types import TimeRange
from ...client.blocking import BlockingAdmin, BlockingClient, BlockingConsumer, BlockingProducer
from ...demo.flights import AIRPORTS, SourceMissingError, find_source, load_flights
from ..measuring.child import LoadFailedError
from ..measuring.measure import percentile
from ..measuring.wire import FIRST_TIMESTAMP, Address, Wire, packed, read_answer


def times_frame(correlation_id: int, topic: str, offsets: list[int]) -> bytes:
    """A request that asks each partition for the time of the record at its offset."""
    partitions = [
        {"topic": topic, "partition": partition, "timestamp": FIRST_TIMESTAMP + offset}
        for partition, offset in enumerate(offsets)
    ]
    return packed(correlation_id, "offsets_for_times", {"partitions": partitions})


def look_up_times(
    *, address: Address, topic: str, partitions: int, records: int, requests: int, rounds: int, seed: int = 0
) -> dict[str, Any]:
    """p50 and p99 in ms of each round of `requests` requests, one at a time, after one round that warms.

    Every answer is compared with what the log is known to hold, outside of the timed part.
    """
    rng = random.Random(seed)
    asked = [[rng.randrange(records) for _ in range(partitions)] for _ in range(requests)]
    frames = [times_frame(number + 2, topic, offsets) for number, offsets in enumerate(asked)]
    times: list[list[float]] = []
    with Wire(address) as wire:
        for _ in range(1 + rounds):
            times.append([])
            for frame, offsets in zip(frames, asked, strict=True):
                started = time.perf_counter()
                answer = wire.ask(frame)
                times[-1].append((time.perf_counter() - started) * 1000)
                _check(answer, offsets)
    return {
        "p50_ms": [percentile(each, 0.5) for each in times[1:]],
        "p99_ms": [percentile(each, 0.99) for each in times[1:]],
    }


def _check(answer: bytes, offsets: list[int]) -> None:
    _, body = read_answer(answer[4:])
    found = [entry["offset"] for entry in body["partitions"]]
    if found != offsets:
        wrong = next(slot for slot, pair in enumerate(zip(found, offsets, strict=True)) if pair[0] != pair[1])
        raise LoadFailedError(f"partition {wrong}: offset {found[wrong]} was answered, {offsets[wrong]} is right")


# ---- a range of times --------------------------------------------------------------------------------------------------------

FLIGHTS = "flights"
BATCH_BYTES = 16_384
"""Kafka's producers' default."""
LATE_MINUTES = 60
"""A departure is written up to so much later than another one that left after it."""


def fill_flights(*, address: Address, count: int | None) -> dict[str, int]:
    """Produce the year's departures, by airport, about in their order. Raises LoadFailedError where there is no such data."""
    try:
        flights = load_flights(find_source(), count)
    except SourceMissingError as exc:
        raise LoadFailedError(str(exc)) from exc
    flights.sort(key=lambda flight: flight.timestamp + int(flight.row) * 7919 % LATE_MINUTES * 60_000)
    with BlockingClient(tuple(address)) as client:
        BlockingAdmin(client).create_topics([NewTopic(FLIGHTS, len(AIRPORTS), {"retention.ms": "-1"})])
        with BlockingProducer(client, batch_bytes=BATCH_BYTES) as producer:
            for flight in flights:
                producer.send(FLIGHTS, flight.value, key=flight.key, timestamp_ms=flight.timestamp, partition=flight.partition)
    return {"records": len(flights), "value_bytes": sum(len(flight.value) for flight in flights)}


def read_range(*, address: Address, start: int, end: int, requests: int) -> dict[str, float]:
    """Ask for the range of all partitions at once, and unpack its records, so many times."""
    times = TimeRange(start, end)
    seconds = pages = 0.0
    with BlockingClient(tuple(address)) as client:
        client.hello()
        for _ in range(requests):
            started = time.perf_counter()
            found: list[tuple[int, int]] = []
            positions = dict.fromkeys(range(len(AIRPORTS)), -1)
            while positions:
                asked = tuple(FetchPartition(FLIGHTS, number, at, 2**30, start, end) for number, at in positions.items())
                pages += 1
                for entry in client.fetch(FetchRequest(asked)).partitions:
                    if entry.error is not None:
                        raise LoadFailedError(str(entry.error))
                    assert not isinstance(entry.records, tuple)
                    for header, batch in iter_batches(entry.records):
                        records = iter_records(batch, header)
                        found += [(entry.partition, each.offset) for each in records if times.holds(each.timestamp)]
                    positions[entry.partition] = entry.next_offset
                    if entry.range_ended:
                        del positions[entry.partition]
            seconds += time.perf_counter() - started
    return {
        "seconds": seconds / requests,
        "requests": pages / requests,
        "records": len(found),
        "check": hash(tuple(sorted(found))),
    }


def filter_all(*, address: Address, start: int, end: int) -> dict[str, float]:
    """Read everything and keep the range."""
    times = TimeRange(start, end)
    with BlockingClient(tuple(address)) as client:
        client.hello()
        started = time.perf_counter()
        with BlockingConsumer(client, follow=False) as consumer:
            consumer.assign(FLIGHTS)
            found = [
                (partition.partition, record.offset)
                for partition, record in consumer.records()
                if times.holds(record.timestamp)
            ]
        seconds = time.perf_counter() - started
    return {"seconds": seconds, "records": len(found), "check": hash(tuple(sorted(found)))}
