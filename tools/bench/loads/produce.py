"""Producers of prebuilt batches over raw connections: as a load, and to fill partitions before another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, overload

from ....protocol.types import LATEST_TIMESTAMP
from ..measuring.child import LoadFailedError
from ..measuring.wire import FIRST_TIMESTAMP, Address, Pipeline, Wire, batch_of, drive_pipelines, produce_frame

FILL_IN_FLIGHT: Final = 32
MAX_CORRELATION_ID: Final = 2**31


def produce(
    *, address: Address, topic: str, connections: int, in_flight: int, records: int, value_bytes: int, requests: int
) -> dict[str, float]:
    """Send `requests` batches in all, spread over connections with `in_flight` each; records per second."""
    batch = batch_of(records, value_bytes)
    frames = [produce_frame(number + 2, topic, 0, batch) for number in range(in_flight)]
    each = max(in_flight, requests // connections)
    wires = [Wire(address) for _ in range(connections)]
    try:
        seconds = drive_pipelines([Pipeline(wire, frames, each) for wire in wires], in_flight)
    finally:
        for wire in wires:
            wire.socket.close()
    return {"rate": each * connections * records / seconds}


class FillFrames(Sequence[bytes]):
    """Frames that append `batches` batches to each of `partitions` partitions, made as they are needed, in turn."""

    def __init__(self, topic: str, partitions: int, batches: int, records: int, value_bytes: int) -> None:
        self._topic, self._partitions, self._batches = topic, partitions, batches
        self._records, self._value_bytes = records, value_bytes
        self._number, self._batch = -1, b""

    def __len__(self) -> int:
        return self._partitions * self._batches

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...

    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        number, partition = divmod(index, self._partitions)
        if number != self._number:
            first = FIRST_TIMESTAMP + number * self._records
            self._number, self._batch = number, batch_of(self._records, self._value_bytes, first_timestamp=first)
        return produce_frame(index % MAX_CORRELATION_ID + 2, self._topic, partition, self._batch)


def fill(
    *,
    address: Address,
    topic: str,
    partitions: int,
    batches: int,
    records: int,
    value_bytes: int,
    config: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Create a topic, its keys with underscores for dots, and append the same batches to each of its partitions.

    Record n of a partition has offset n and timestamp FIRST_TIMESTAMP + n.
    """
    with Wire(address) as wire:
        wire.create_topic(topic, partitions, **{"retention_ms": "-1", **(config or {})})
        frames = FillFrames(topic, partitions, batches, records, value_bytes)
        drive_pipelines([Pipeline(wire, frames, len(frames))], FILL_IN_FLIGHT)
    return {"bytes": partitions * batches * len(batch_of(records, value_bytes))}


def append_to_each(*, address: Address, topics: Sequence[str], partitions: int, records: int, value_bytes: int) -> None:
    """One batch to each partition of each topic, one topic after the other."""
    for topic in topics:
        with Wire(address) as wire:
            drive_pipelines(
                [Pipeline(wire, FillFrames(topic, partitions, 1, records, value_bytes), partitions)], FILL_IN_FLIGHT
            )


def check_ends(*, address: Address, topics: Sequence[str], partitions: int, end_offset: int) -> None:
    """Raises LoadFailedError when a partition does not end there."""
    with Wire(address) as wire:
        for topic in topics:
            asked = [{"topic": topic, "partition": number, "timestamp": LATEST_TIMESTAMP} for number in range(partitions)]
            for answer in wire.call("offsets_for_times", {"partitions": asked})["partitions"]:
                if answer["offset"] != end_offset:
                    raise LoadFailedError(f"{topic} has a log that ends elsewhere than at {end_offset}: {answer}")
