"""`triolog damage-demo`: flip one bit under a running pipeline; an ordinary Kafka consumer reads on after it.

A server is killed, a bit of one batch is flipped, the server is started again. What recovery took out, and what consumers get
under both values of `gap.policy`, is compared with what was written. The consumers are librdkafka's.
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ...protocol.extras import how_to_install_group
from ...protocol.types import TopicPartition

if TYPE_CHECKING:
    from .processes import Process
    from .showing import Demo

PARTITION: Final = TopicPartition("orders", 0)
BATCHES: Final = 100
BATCH_RECORDS: Final = 10
RECORDS: Final = BATCHES * BATCH_RECORDS
PATIENCE_S: Final = 60.0
AFTER_HEADER: Final = 70
"""Of a batch: in its records, which the CRC covers."""


@click.command
@click.option(
    "--data-dir", type=click.Path(file_okay=False, path_type=Path), help="Keep the data in this directory, empty or new."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Seed that selects the damaged batch.")
@click.option("--json", "as_json", is_flag=True, help="Print only the figures, as JSON.")
def command(data_dir: Path | None, seed: int, as_json: bool) -> None:
    """Flip one bit, and let an ordinary Kafka consumer read on after it.

    Exit code 0 when all checks passed, 1 when one failed, 2 when something is not installed, 3 when the server failed.
    """
    from .showing import EXIT_NOT_INSTALLED, Demo, DemoError, check_empty, interrupted_by_sigterm, run

    if importlib.util.find_spec("confluent_kafka") is None:
        how = f"the Python package confluent-kafka is not installed: {how_to_install_group('edge-demo')}"
        raise DemoError(how, EXIT_NOT_INSTALLED)
    check_empty(data_dir)
    demo = Demo(is_quiet=as_json)
    with interrupted_by_sigterm(), tempfile.TemporaryDirectory(prefix="triolog-demo-") as name:
        run(partial(_story, demo, data_dir or Path(name, "data"), Path(name), seed * 37 % (BATCHES - 2) + 1))
    demo.end(seed=seed, data_dir=data_dir)


async def _story(demo: Demo, data_dir: Path, work_dir: Path, slot: int) -> None:
    """`slot`: the number of the batch that is damaged."""
    import trio

    from .processes import started_server

    first, stop = slot * BATCH_RECORDS, (slot + 1) * BATCH_RECORDS
    others = [*range(first), *range(stop, RECORDS)]
    async with started_server(data_dir, work_dir, "--kafka", "127.0.0.1:0") as server:
        demo.chapter(f"{RECORDS:,} orders")
        await _write(server)
        demo.say(f"in {BATCHES} batches, each acknowledged when it was on the device")

        demo.chapter("SIGKILL, and one flipped bit")
        server.kill()
        server.wait()
        position = _flip(data_dir / str(PARTITION) / f"{0:020d}.log", slot)
        demo.say(f"byte {position:,} of the log, in the batch with the offsets {first} to {stop - 1}")
        demo.figures["recovery_ms"] = await trio.to_thread.run_sync(server.start)
        topics = await _admin(server, lambda admin: admin.list_gaps(PARTITION.topic))
        gaps = [gap for topic in topics for partition in topic.partitions for gap in partition.gaps]
        kept = ", ".join(f"offsets {gap.start_offset} to {gap.end_offset - 1} are in {gap.file}" for gap in gaps)
        is_right = [(gap.start_offset, gap.end_offset) for gap in gaps] == [(first, stop)]
        demo.check("recovery removed this batch and no other", is_right, kept or "nothing is missing")

        demo.chapter("gap.policy=skip, the default: an ordinary Kafka consumer (librdkafka) reads on")
        found = await _read(server, "kitchen")
        demo.check("everything else is delivered, in order", found == (others, None), _said(found))

        demo.chapter("gap.policy=refuse: a ledger stops until the gap is accepted")
        await _admin(server, lambda admin: admin.alter_config(PARTITION.topic, {"gap.policy": "refuse"}))
        found = await _read(server, "ledger")
        is_right = found[0] == list(range(first)) and found[1] is not None
        demo.check("it is delivered the records before the gap, and an error", is_right, _said(found))
        await _admin(server, lambda admin: admin.accept_gap(PARTITION, first))
        demo.say(f"triolog gaps accept {PARTITION.topic} 0 {first}")
        found = await _read(server, "ledger")
        demo.check("then those after it", found == (list(range(stop, RECORDS)), None), _said(found))

        demo.chapter("Another SIGKILL")
        server.kill()
        server.wait()
        await trio.to_thread.run_sync(server.start)
        found = await _read(server, "another ledger")
        demo.check("an accepted gap stays accepted", found == (others, None), _said(found))


async def _write(server: Process) -> None:
    from ...protocol.native.messages import PlainRecord, ProducePartition, ProduceRequest
    from ..client.admin import Admin
    from ..client.connection import connect

    async with connect(*server.address) as client:
        await Admin(client).create_topic(PARTITION.topic, config={"retention.ms": "-1"})
        for first in range(0, RECORDS, BATCH_RECORDS):
            records = tuple(PlainRecord(None, None, b"order %d" % each) for each in range(first, first + BATCH_RECORDS))
            answer: Any = await client.call(ProduceRequest((ProducePartition(*PARTITION, records),)))
            if answer.partitions[0].error is not None:
                raise answer.partitions[0].error


def _flip(log: Path, slot: int) -> int:
    """Flip a bit of the batch with this number; return its position."""
    from ...protocol.records.batch import iter_batches

    data = bytearray(log.read_bytes())
    position = sum(header.size_bytes for header, _ in list(iter_batches(bytes(data)))[:slot]) + AFTER_HEADER
    data[position] ^= 1
    log.write_bytes(data)
    return position


async def _admin(server: Process, ask: Callable[[Any], Awaitable[Any]]) -> Any:
    from ..client.admin import Admin
    from ..client.connection import connect

    async with connect(*server.address) as client:
        return await ask(Admin(client))


def _said(found: tuple[list[int], str | None]) -> str:
    return f"{len(found[0]):,} of {RECORDS:,} records" + (f", {found[1]}" if found[1] else "")


async def _read(server: Process, group: str) -> tuple[list[int], str | None]:
    """Return the offsets that a consumer of a group gets, up to the last one or to an error, and that error."""
    import trio

    return await trio.to_thread.run_sync(read_with_kafka, server.kafka, group)


def read_with_kafka(address: str, group: str) -> tuple[list[int], str | None]:
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
