"""A small but complete data directory, as a stop and as a kill leave it, and what a broker on it has to answer.

One topic with transactions, committed and aborted, an idempotent producer and a partition with a gap; one topic beside it;
committed offsets; an open and an ended transactional id; a compacted topic with its checkpoint.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import attrs
from triolog.protocol.errors import RequestError
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.records.record import iter_records
from triolog.protocol.types import Isolation, Record, TopicPartition
from triolog.server.broker import Broker, FetchPartition, ReaderView
from triolog.server.storage.disk.checkpoints import CLEANER_OFFSET_FILE, RECOVERY_POINT_FILE, encode_offsets

from tests.support.brokers import batches_from, records_from, running_broker, value
from tests.support.damaged_batches import flip
from tests.support.logs import START_MS
from tests.support.transactions import TransactionalProducer

FLIGHTS: Final = [TopicPartition("flights", 0), TopicPartition("flights", 1)]
ORDERS: Final = TopicPartition("orders", 0)
TABLE: Final = TopicPartition("table", 0)
OFFSETS: Final = TopicPartition("__consumer_offsets", 0)
TRANSACTIONS: Final = TopicPartition("__transaction_state", 0)
SERVED: Final = [*FLIGHTS, ORDERS, TABLE]
EVERY: Final = [*SERVED, OFFSETS, TRANSACTIONS]
GROUP: Final = "readers"
TRANSACTIONAL_ID: Final = "mover"
SETTINGS: Final = {
    "segment.bytes": "500",
    "index.interval.bytes": "100",
    "segment.index.bytes": "240",
    "min.cleanable.dirty.ratio": "1",
    "fetch.check.crcs": "true",
}
"""Several segments; the cleaner runs, and never finds a log dirty enough."""
APPENDS: Final = 16
KILLED_RECOVERY_POINT: Final = 8
TRIMMED_TO: Final = 5
"""Log start offset of ORDERS: inside a segment."""


@attrs.frozen(kw_only=True)
class Truth:
    """What a partition holds: its records by offset, those of them that were aborted, and where it starts and ends."""

    records: dict[int, Record]
    aborted: frozenset[int]
    log_start_offset: int
    log_end_offset: int


@attrs.frozen(kw_only=True)
class Image:
    """A directory to copy, whether the marker of a clean stop is in it, and what it holds."""

    path: Path
    is_clean: bool
    truths: dict[TopicPartition, Truth]
    committed: dict[TopicPartition, int]

    def copy_to(self, path: Path) -> Path:
        shutil.copytree(self.path, path, copy_function=shutil.copyfile)
        return path


async def make_images(root: Path) -> tuple[Image, Image]:
    """(stopped, killed): the same content. After the kill FLIGHTS[0] is scanned from KILLED_RECOVERY_POINT on, others whole."""
    stopped, killed = root / "stopped", root / "killed"
    await _fill(stopped)
    _damage(stopped, FLIGHTS[1])
    async with running_broker(stopped, topic=SETTINGS) as broker:
        truths = {partition: await truth_of(broker, partition) for partition in EVERY}
        committed = {partition: offset for partition, offset, _ in await broker.offsets.fetch(GROUP)}
        await broker._manager.log_directories.write_checkpoints()
        (stopped / CLEANER_OFFSET_FILE).write_bytes(encode_offsets({TABLE: 3}))
        shutil.copytree(stopped, killed)
    (killed / RECOVERY_POINT_FILE).write_bytes(
        encode_offsets(dict.fromkeys([*SERVED, OFFSETS], 0) | {FLIGHTS[0]: KILLED_RECOVERY_POINT})
    )
    return (
        Image(path=stopped, is_clean=True, truths=truths, committed=committed),
        Image(path=killed, is_clean=False, truths=truths, committed=committed),
    )


async def _fill(path: Path) -> None:
    async with running_broker(path, topic=SETTINGS) as broker:
        await broker.topics.create("flights", 2)
        await broker.topics.create("orders", 1)
        await broker.topics.create("table", 1, {"cleanup.policy": "compact"})
        producer = await TransactionalProducer.start(broker, TRANSACTIONAL_ID)
        for number in range(APPENDS):
            for partition in SERVED:
                await broker.writer.append(partition, _record(partition, number))
            if number % 4 == 1:
                await producer.produce(FLIGHTS[0], f"transaction {number}")
                await producer.produce(FLIGHTS[1], f"transaction {number}")
                await (producer.abort() if number % 8 == 1 else producer.commit())
            await broker.offsets.commit(GROUP, [(partition, number, None) for partition in SERVED])
        await broker.logs.delete_records(ORDERS, TRIMMED_TO)


def _record(partition: TopicPartition, number: int) -> list[tuple[int | None, bytes | None, bytes | None, tuple[()]]]:
    [(timestamp, _, content, headers)] = value(f"{partition} {number} " + "x" * 40, START_MS + 1000 * number)
    return [(timestamp, b"key %d" % (number % 5), content, headers)]


def _damage(path: Path, partition: TopicPartition) -> None:
    """Flip a bit in the partition's first batch and let the stop be unclean: a gap comes of it."""
    log = path / str(partition) / "00000000000000000000.log"
    flip(log, 70)
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (path / name).unlink()


async def truth_of(broker: Broker, partition: TopicPartition) -> Truth:
    """What the broker answers now, all of it. Raises RequestError."""
    snapshot = broker.reader.snapshot(partition)
    start = snapshot.gaps[0].end_offset if snapshot.gaps else snapshot.log_start_offset
    records = {record.offset: record for record in await records_from(broker, partition, start)}
    return Truth(
        records=records,
        aborted=frozenset(await aborted_from(broker, partition, start)),
        log_start_offset=snapshot.log_start_offset,
        log_end_offset=snapshot.log_end_offset,
    )


async def aborted_from(broker: Broker, partition: TopicPartition, offset: int) -> set[int]:
    """Offsets of data records, from `offset` on, that a reader of committed records leaves out. Raises RequestError."""
    view = ReaderView(isolation=Isolation.READ_COMMITTED, skip_gaps=True)
    return {
        record.offset
        async for header, batch, is_aborted in batches_from(broker, partition, offset, view=view)
        if is_aborted
        for record in iter_records(batch, header)
    }


async def fetch_one(broker: Broker, partition: TopicPartition, offset: int) -> list[Record] | RequestError:
    """Return the records from `offset` on of the batch that holds it (or the next one), or the partition's error. The control
    batch of no producer that covers a gap is not a record."""
    [answer] = await broker.reader.fetch([FetchPartition(partition, offset, 1)], max_bytes=1)
    if answer.error is not None:
        return answer.error
    assert answer.fetched is not None
    return [
        record
        for header, batch in iter_batches(answer.fetched.records)
        if not header.is_control or header.has_producer_id
        for record in iter_records(batch, header)
        if record.offset >= offset
    ]
