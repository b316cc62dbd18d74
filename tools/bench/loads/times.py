"""Lookups by time over a raw connection, each one timed, in logs that `fill` made: record n has offset n and time n."""

from __future__ import annotations

import random
import time
from typing import Any

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
