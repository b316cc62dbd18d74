"""What the server has at the end, and how far its groups are: read once for each isolation level, from the start."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs
import trio
from triolog.protocol.errors import ErrorCode, OffsetOutOfRangeError, TriologError
from triolog.protocol.types import TopicPartition
from triolog.tools.client.blocking import EARLIEST, BlockingAdmin, BlockingClient
from triolog.tools.client.procedures import groups as group_procedures

from tests.simulation.clients.readers import Fetched, fetch
from tests.simulation.history import Found
from tests.soak.clients.worker import Notebook
from tests.support.kafka_stream import KafkaStream

FETCH_BYTES: Final = 1 << 20
PATIENCE_S: Final = 60.0


@attrs.define(eq=False)
class Connection(KafkaStream):
    """Calls of Kafka's protocol to a server that is there."""

    def sees(self, kind: str, detail: str) -> None:
        raise AssertionError(f"{kind}: {detail}")


def partitions_of(topics: Mapping[str, int]) -> Iterator[TopicPartition]:
    return (TopicPartition(topic, number) for topic, count in topics.items() for number in range(count))


def read_everything(kafka: str, native: tuple[str, int], topics: Mapping[str, int], notes: Notebook) -> None:
    """Note all records of all partitions. Where retention takes the beginning away meanwhile it is read again."""
    for where in partitions_of(topics):
        for committed in (False, True):
            while (found := _everything(kafka, native, where, committed=committed)) is None:
                pass
            notes.write("stored", of=[*where], committed=committed, **found)


def _everything(kafka: str, native: tuple[str, int], where: TopicPartition, *, committed: bool) -> dict[str, Any] | None:
    """None: it began later than it was said to begin."""
    with BlockingClient(native) as client:
        start = BlockingAdmin(client).offsets(where, EARLIEST)[where]

    async def read() -> dict[str, Any] | None:
        async with await open_connection(kafka) as stream:
            try:
                records, markers, end = await _read(Connection(stream), where, start, committed=committed)
            except OffsetOutOfRangeError:
                return None
        return {"start": start, "end": end, "records": records, "markers": markers}

    return trio.run(read)


async def open_connection(kafka: str) -> trio.SocketStream:
    host, _, port = kafka.rpartition(":")
    return await trio.open_tcp_stream(host, int(port))


async def _read(
    connection: Connection, where: TopicPartition, start: int, *, committed: bool
) -> tuple[list[Found], list[tuple[int, int]], int]:
    """Records, markers and the end. Raises OffsetOutOfRangeError."""
    records: list[Found] = []
    markers: list[tuple[int, int]] = []
    position = start
    while True:
        found: Fetched | None = await fetch(
            connection, where, position, is_committed=committed, max_bytes=FETCH_BYTES, max_wait_ms=0
        )
        assert found is not None, f"{where} at {position}: no answer"
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise OffsetOutOfRangeError(f"{where} at {position}")
        assert not found.error_code, f"{where} at {position}: error {found.error_code}"
        if found.next_position == position:
            return records, markers, position
        records += found.records
        markers += found.markers
        position = found.next_position


def ends(kafka: str, topics: Mapping[str, int], *, committed: bool) -> dict[TopicPartition, int]:
    """One past the last record that a reader of this kind sees, of each partition that has some."""

    async def main() -> dict[TopicPartition, int]:
        found = {}
        async with await open_connection(kafka) as stream:
            connection = Connection(stream)
            for where in partitions_of(topics):
                records, _, _ = await _read(connection, where, 0, committed=committed)
                if records:
                    found[where] = records[-1].offset + 1
        return found

    return trio.run(main)


def committed_offsets(
    native: tuple[str, int], group: str, topics: Mapping[str, int], notes: Notebook
) -> dict[TopicPartition, int]:
    """What a group has committed, which is noted."""
    asked = list(partitions_of(topics))
    deadline = time.monotonic() + PATIENCE_S
    while True:
        begun = time.monotonic_ns()
        try:
            with BlockingClient(native) as client:
                found = client.run(group_procedures.fetch_offsets(group, asked, require_stable=True))
            break
        except TriologError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
    offsets = {where: found[where].offset if where in found else -1 for where in asked}
    for where, offset in offsets.items():
        notes.offset_fetched(group, (where.topic, where.partition), offset, begun)
    return offsets
