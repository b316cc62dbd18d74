"""Every flight into the log, through a server that dies on the way.

The feeding task hands records to the client's Producer, which does all retrying. When the record at the kill point is
acknowledged, the server is killed and started again. Feeding waits before its last quarter until that has happened, so that
the kill meets work in progress however fast the machine is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

import attrs
import trio

from ..client.connection import Client
from ..client.producer import Producer, SentRecord, open_producer
from .checks import RecordPlace
from .flights import Flight
from .reading import ROW_HEADER
from .server_process import ServerProcess

CHECKPOINT_RECORDS: Final = 256
"""How many records are handed over before other tasks get a turn: a checkpoint each would double their cost."""
PROGRESS_S: Final = 0.05


@attrs.frozen(kw_only=True)
class Kill:
    """What happened around the SIGKILL. The times count from the signal, in ms."""

    acknowledged: int
    exit_status: int
    at_s: float
    """Seconds after the start of production."""
    recovery_ms: float
    """How long the new process took until it accepted: interpreter, recovery and all."""
    resumed_ms: float
    """When the next record was acknowledged."""


@attrs.frozen(kw_only=True)
class Production:
    """All records are in the log."""

    acknowledged: list[RecordPlace]
    """Of each flight, in the order they were sent."""
    seconds: float
    kill: Kill


class Acknowledged:
    """Counts records that are done. Of one partition they are done in the order sent, so a cursor on each is enough."""

    def __init__(self, partitions: int) -> None:
        self._sent: list[list[SentRecord]] = [[] for _ in range(partitions)]
        self._done = [0] * partitions

    def add(self, partition: int, record: SentRecord) -> None:
        self._sent[partition].append(record)

    def count(self) -> int:
        for partition, sent in enumerate(self._sent):
            done = self._done[partition]
            while done < len(sent) and sent[done].is_done:
                done += 1
            self._done[partition] = done
        return sum(self._done)

    def first_pending(self) -> list[SentRecord]:
        """Of each partition the record that is done next, where one is on its way; as of the last count."""
        return [sent[done] for sent, done in zip(self._sent, self._done, strict=True) if done < len(sent)]


async def produce(
    client: Client,
    server: ServerProcess,
    topic: str,
    partitions: int,
    flights: Sequence[Flight],
    kill_at: int,
    progress: Callable[[int], None],
) -> Production:
    """Send all flights, kill the server when number `kill_at` is acknowledged; `progress` is told how many are.

    Returns when each is acknowledged; raises what the first record failed with that was given up.
    """
    begin = time.perf_counter()
    sent: list[SentRecord] = []
    acknowledged = Acknowledged(partitions)
    kills: list[Kill] = []
    kill_point, was_killed, resumed = trio.Event(), trio.Event(), trio.Event()
    hold_at = max(kill_at + 1, len(flights) * 3 // 4)

    async def feed(producer: Producer) -> None:
        for number, flight in enumerate(flights):
            if number == hold_at:
                await was_killed.wait()
            record = await send_flight(producer, topic, flight, is_checkpoint=not number % CHECKPOINT_RECORDS)
            if number == kill_at:
                record.add_listener(kill_point.set)
            elif number == hold_at:
                record.add_listener(resumed.set)
            sent.append(record)
            acknowledged.add(flight.partition, record)

    async def kill_and_restart() -> None:
        await kill_point.wait()
        server.kill()
        killed_at = time.perf_counter()
        count = acknowledged.count()
        for record in acknowledged.first_pending():
            record.add_listener(resumed.set)
        status = await server.wait()
        was_killed.set()
        recovery_ms = await server.start()
        await resumed.wait()
        resumed_ms = (time.perf_counter() - killed_at) * 1000
        kills.append(
            Kill(
                acknowledged=count,
                exit_status=status,
                at_s=killed_at - begin,
                recovery_ms=recovery_ms,
                resumed_ms=resumed_ms,
            )
        )

    async def tell() -> None:
        while True:
            progress(acknowledged.count())
            await trio.sleep(PROGRESS_S)

    async with trio.open_nursery() as telling:
        telling.start_soon(tell)
        async with open_producer(client) as producer, trio.open_nursery() as nursery:
            nursery.start_soon(kill_and_restart)
            await feed(producer)
            await producer.flush()
        telling.cancel_scope.cancel()
    seconds = time.perf_counter() - begin
    progress(acknowledged.count())
    places = [RecordPlace(metadata.partition, metadata.offset) for metadata in (record.value() for record in sent)]
    return Production(acknowledged=places, seconds=seconds, kill=kills[0])


async def send_flight(producer: Producer, topic: str, flight: Flight, *, is_checkpoint: bool) -> SentRecord:
    row, partition, key, timestamp, value = flight
    headers = ((ROW_HEADER, row),)
    if not is_checkpoint:
        try:
            return producer.send_nowait(topic, value, key=key, timestamp_ms=timestamp, partition=partition, headers=headers)
        except trio.WouldBlock:
            pass
    return await producer.send(topic, value, key=key, timestamp_ms=timestamp, partition=partition, headers=headers)
