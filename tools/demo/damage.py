"""`triolog damage-demo`: flip one bit under a running pipeline; an ordinary Kafka consumer reads on after it.

A server is killed, a bit of one batch is flipped, the server is started again. The gap that recovery reports, and what
librdkafka's consumers get under both values of `gap.policy`, are compared with what was written.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ...protocol.records.batch import iter_batches
from ...protocol.types import TopicPartition
from ..client.blocking import BlockingAdmin, BlockingAppender, BlockingClient
from .processes import started_server
from .showing import Demo, as_json_option, check_kafka_client, data_dir_option, working_folder

if TYPE_CHECKING:
    from .processes import Process

PARTITION: Final = TopicPartition("orders", 0)
BATCHES: Final = 100
BATCH_RECORDS: Final = 10
RECORDS: Final = BATCHES * BATCH_RECORDS
DAMAGED: Final = 37
"""The number of the batch."""
FIRST, STOP = DAMAGED * BATCH_RECORDS, (DAMAGED + 1) * BATCH_RECORDS
PATIENCE_S: Final = 60.0
AFTER_HEADER: Final = 70
"""Of a batch: in its records, which the CRC covers."""


@click.command
@data_dir_option
@as_json_option
def command(data_dir: Path | None, as_json: bool) -> None:
    """Flip one bit, and let an ordinary Kafka consumer read on after it.

    Exit code 0 when all checks held, 1 when one failed, 2 when librdkafka is not installed, 3 when the server failed.
    """
    check_kafka_client()
    demo = Demo(is_quiet=as_json)
    with working_folder(data_dir) as (log_dir, work_dir), started_server(log_dir, work_dir, "--kafka", "127.0.0.1:0") as server:
        _story(demo, server, log_dir / str(PARTITION) / f"{0:020d}.log")
    demo.end(data_dir)


def _story(demo: Demo, server: Process, log: Path) -> None:
    others = [*range(FIRST), *range(STOP, RECORDS)]
    demo.chapter(f"{RECORDS:,} orders")
    with BlockingClient(server.address) as client:
        BlockingAdmin(client).create_topic(PARTITION.topic, config={"retention.ms": "-1"})
        appender = BlockingAppender(client)
        for first in range(0, RECORDS, BATCH_RECORDS):
            appender.append(PARTITION.topic, [b"order %d" % each for each in range(first, first + BATCH_RECORDS)])
    demo.say(f"in {BATCHES} batches, each acknowledged when it was on the device")

    demo.chapter("SIGKILL, and one flipped bit")
    server.kill()
    server.wait()
    position = _flip(log)
    demo.say(f"byte {position:,} of the log, in the batch with the offsets {FIRST} to {STOP - 1}")
    demo.figures["recovery_ms"] = server.start()
    with BlockingClient(server.address) as client:
        [topic] = BlockingAdmin(client).list_gaps(PARTITION.topic)
    gaps = [gap for partition in topic.partitions for gap in partition.gaps]
    kept = ", ".join(f"offsets {gap.start_offset} to {gap.end_offset - 1} are in {gap.file}" for gap in gaps)
    is_right = [(gap.start_offset, gap.end_offset) for gap in gaps] == [(FIRST, STOP)]
    demo.check("recovery took out this batch and no other", is_right, kept or "nothing is missing")

    def read(claim: str, group: str, offsets: list[int], *, is_refused: bool = False) -> None:
        found, error = _read(server.kafka, group)
        detail = f"{len(found):,} of {RECORDS:,} records{f', {error}' if error else ''}"
        demo.check(claim, found == offsets and is_refused == (error is not None), detail)

    demo.chapter("gap.policy=skip, the default: the consumer reads on")
    read("everything else is delivered, in order", "kitchen", others)

    demo.chapter("gap.policy=refuse: a ledger stops, until somebody has looked")
    with BlockingClient(server.address) as client:
        BlockingAdmin(client).alter_config(PARTITION.topic, {"gap.policy": "refuse"})
    read("it is delivered the records before the gap, and an error", "ledger", [*range(FIRST)], is_refused=True)
    with BlockingClient(server.address) as client:
        BlockingAdmin(client).accept_gap(PARTITION, FIRST)
    demo.say(f"triolog gaps accept {PARTITION.topic} 0 {FIRST}")
    read("then those after it", "ledger", [*range(STOP, RECORDS)])

    demo.chapter("Another SIGKILL")
    server.kill()
    server.wait()
    server.start()
    read("an accepted gap stays accepted", "another ledger", others)


def _flip(log: Path) -> int:
    """Flip a bit of the damaged batch; return its position."""
    data = bytearray(log.read_bytes())
    position = sum(header.size_bytes for header, _ in list(iter_batches(bytes(data)))[:DAMAGED]) + AFTER_HEADER
    data[position] ^= 1
    log.write_bytes(data)
    return position


def _read(address: str, group: str) -> tuple[list[int], str | None]:
    """Return the offsets that a consumer of a group gets, up to the last one or to an error, and that error."""
    from confluent_kafka import Consumer

    settings = {"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer(settings)
    consumer.subscribe([PARTITION.topic])
    offsets: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    try:
        while not offsets or offsets[-1] < RECORDS - 1:
            if time.monotonic() > deadline:
                return offsets, f"nothing more within {PATIENCE_S:.0f} s"
            message = consumer.poll(0.1)
            if message is not None and (error := message.error()) is not None:
                return offsets, error.name()
            if message is not None:
                offset = message.offset()
                assert offset is not None
                offsets.append(offset)
        return offsets, None
    finally:
        consumer.close()
