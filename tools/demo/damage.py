"""`triolog damage-demo`: one flipped bit under a running pipeline, and an ordinary Kafka consumer that reads on behind it.

A server is killed, a bit of one batch is flipped, the server is started again. What it has taken out, and what consumers are
given under both values of `gap.policy`, is compared with what was written. The consumers are librdkafka's with nothing but an
address, a group and where to begin; without `confluent-kafka` they are ours, over the native protocol.
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from .ending import DemoFindings, check_empty, run

if TYPE_CHECKING:
    from ...protocol.native.messages import Gap
    from .server_process import ServerProcess
    from .terminal import PlainTerminal

TOPIC: Final = "orders"
BATCHES: Final = 100
BATCH_RECORDS: Final = 10
RECORDS: Final = BATCHES * BATCH_RECORDS
PATIENCE_S: Final = 60.0
BEHIND_HEADER: Final = 70
"""Of a batch: in its records, which the CRC covers."""


@click.command
@click.option("--data-dir", type=click.Path(file_okay=False, path_type=Path), help="Keep the data there: empty or new.")
@click.option("--seed", type=int, default=1, show_default=True, help="Decides which batch is damaged.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON, and nothing else.")
def command(data_dir: Path | None, seed: int, as_json: bool) -> None:
    """One flipped bit, and an ordinary Kafka consumer that reads on behind it.

    Exit code 0 when all checks held, 1 when one did not, 3 when the server failed.
    """
    from .terminal import PlainTerminal, open_console

    check_empty(data_dir)
    with tempfile.TemporaryDirectory(prefix="triolog-demo-") as name:
        log_dir, work_dir = data_dir or Path(name, "data"), Path(name)
        lines = PlainTerminal(open_console(quiet=as_json))
        findings = run(partial(_story, log_dir, work_dir, seed, lines))
        lines.ended(findings.failed_count, len(findings.checks))
    if as_json:
        click.echo(findings.to_json(seed=seed, data_dir=data_dir))
    findings.judge()


async def _story(data_dir: Path, work_dir: Path, seed: int, lines: PlainTerminal) -> DemoFindings:
    from .server_process import open_server

    async with open_server(data_dir, work_dir, ["--kafka", "127.0.0.1:0"]) as server:
        story = _Story(server, data_dir, lines, slot=seed * 37 % (BATCHES - 2) + 1)
        await story.write()
        await story.damage()
        await story.read_on()
        await story.stand_and_accept()
        await story.read_after_another_crash()
        return story.findings


@attrs.define(eq=False, repr=False)
class _Story:
    """What happens, in chapters. Owner: the task that tells it."""

    server: ServerProcess
    data_dir: Path
    lines: PlainTerminal
    slot: int
    """Of the batch that is damaged."""
    findings: DemoFindings = attrs.field(factory=DemoFindings)

    @property
    def missing(self) -> range:
        return range(self.slot * BATCH_RECORDS, (self.slot + 1) * BATCH_RECORDS)

    @property
    def there(self) -> list[int]:
        return [offset for offset in range(RECORDS) if offset not in self.missing]

    # ---- chapters ------------------------------------------------------------------------------------------------------

    async def write(self) -> None:
        from ...protocol.native.messages import PlainRecord, ProducePartition, ProduceRequest
        from ..client.admin import Admin
        from ..client.connection import connect

        self.lines.chapter(f"{RECORDS:,} orders")
        async with connect(*self.server.address()) as client:
            await Admin(client).create_topic(TOPIC, config={"retention.ms": "-1"})
            for first in range(0, RECORDS, BATCH_RECORDS):
                records = tuple(PlainRecord(None, None, b"order %d" % each) for each in range(first, first + BATCH_RECORDS))
                answer: Any = await client.call(ProduceRequest((ProducePartition(TOPIC, 0, records),)))
                if answer.partitions[0].error is not None:
                    raise answer.partitions[0].error
        self.lines.say(f"in {BATCHES} batches, each acknowledged when it was on the device")

    async def damage(self) -> None:
        from ...protocol.records.batch import iter_batches

        self.lines.chapter("SIGKILL, and one flipped bit")
        self.server.kill()
        await self.server.wait()
        log = self.data_dir / f"{TOPIC}-0" / f"{0:020d}.log"
        data = bytearray(log.read_bytes())
        position = sum(header.size_bytes for header, _ in list(iter_batches(bytes(data)))[: self.slot]) + BEHIND_HEADER
        data[position] ^= 1
        log.write_bytes(data)
        self.lines.say(f"byte {position:,} of {log.name}, in the batch with the offsets {self._words()}")
        recovery_ms = await self.server.start()
        self.findings.figures["recovery_ms"] = recovery_ms
        gaps = await self._gaps()
        found = [range(gap.start_offset, gap.end_offset) for gap in gaps]
        kept = ", ".join(f"offsets {gap.start_offset} to {gap.end_offset - 1} are in {gap.file}" for gap in gaps)
        self._check("recovery took out this batch and no other", found == [self.missing], kept or "nothing is missing")

    async def read_on(self) -> None:
        self.lines.chapter(f"gap.policy=skip, the default: {consumer_name()} reads on")
        offsets, error = await self._read("kitchen")
        self._check(
            "everything else is delivered, in order",
            (offsets, error) == (self.there, None),
            f"{len(offsets):,} records, {RECORDS - len(offsets)} missing: {self._words()}",
        )

    async def stand_and_accept(self) -> None:
        self.lines.chapter("gap.policy=refuse: a ledger stands, until somebody has looked")
        await self._admin(lambda admin: admin.alter_config(TOPIC, {"gap.policy": "refuse"}))
        offsets, error = await self._read("ledger")
        before = list(range(self.missing.start))
        is_right = offsets == before and error is not None
        self._check("it is delivered what lies before the range, and an error", is_right, f"{len(offsets):,} records, {error}")
        await self._admin(lambda admin: admin.accept_gap(_partition(), self.missing.start))
        self.lines.say(f"triolog gaps accept {TOPIC} 0 {self.missing.start}")
        offsets, error = await self._read("ledger", first=self.missing.start)
        behind = list(range(self.missing.stop, RECORDS))
        self._check("then what lies behind it", (offsets, error) == (behind, None), f"{len(offsets):,} records")

    async def read_after_another_crash(self) -> None:
        self.lines.chapter("Another SIGKILL")
        self.server.kill()
        await self.server.wait()
        await self.server.start()
        offsets, error = await self._read("another ledger")
        self._check("what is accepted stays accepted", (offsets, error) == (self.there, None), f"{len(offsets):,} records")

    # ---- steps ---------------------------------------------------------------------------------------------------------

    def _words(self) -> str:
        return f"{self.missing.start} to {self.missing.stop - 1}"

    def _check(self, name: str, ok: bool, detail: str) -> None:
        from .checks import Check

        check = Check(name, ok, detail)
        self.findings.checks.append(check)
        self.lines.checked(check)

    async def _gaps(self) -> list[Gap]:
        topics = await self._admin(lambda admin: admin.list_gaps(TOPIC))
        return [gap for topic in topics for partition in topic.partitions for gap in partition.gaps]

    async def _admin(self, ask: Callable[[Any], Awaitable[Any]]) -> Any:
        from ..client.admin import Admin
        from ..client.connection import connect

        async with connect(*self.server.address()) as client:
            return await ask(Admin(client))

    async def _read(self, group: str, first: int = 0) -> tuple[list[int], str | None]:
        """The offsets that a consumer of a group is delivered, up to the last one or to an error, and that."""
        import trio

        if has_kafka_client():
            return await trio.to_thread.run_sync(_read_with_kafka, self.server.kafka_address(), group)
        return await trio.to_thread.run_sync(_read_natively, self.server.address(), first)


def _partition() -> Any:
    from ...protocol.types import TopicPartition

    return TopicPartition(TOPIC, 0)


def has_kafka_client() -> bool:
    """Whether librdkafka is here."""
    return importlib.util.find_spec("confluent_kafka") is not None


def consumer_name() -> str:
    """Who reads."""
    return (
        "an ordinary Kafka consumer (librdkafka)" if has_kafka_client() else "a native consumer (confluent-kafka is not here)"
    )


def _read_with_kafka(address: tuple[str, int], group: str) -> tuple[list[int], str | None]:
    from confluent_kafka import Consumer

    host, port = address
    settings = {"bootstrap.servers": f"{host}:{port}", "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "log_level": 0})
    consumer.subscribe([TOPIC])
    offsets: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    try:
        while not offsets or offsets[-1] < RECORDS - 1:
            if time.monotonic() > deadline:
                return offsets, f"nothing more within {PATIENCE_S:.0f} s"
            message = consumer.poll(0.1)
            if message is None:
                continue
            if (error := message.error()) is not None:
                return offsets, error.name()
            offset = message.offset()
            assert offset is not None
            offsets.append(offset)
        return offsets, None
    finally:
        consumer.close()


def _read_natively(address: tuple[str, int], first: int) -> tuple[list[int], str | None]:
    from ...protocol.errors import RequestError
    from ..client.blocking import BlockingClient, BlockingConsumer
    from ..client.procedures.topics import AtOffset

    offsets: list[int] = []
    with BlockingClient(address) as client, BlockingConsumer(client, follow=False) as consumer:
        consumer.assign(_partition(), start=AtOffset(first))
        try:
            offsets += (record.offset for _, record in consumer.records())
        except RequestError as exc:
            return offsets, exc.code.name
    return offsets, None
