from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs
import pyarrow as pa
import pytest
from triolog.tools.client.blocking import BlockingAdmin, BlockingClient, BlockingConsumer
from triolog.tools.spark.sink import delivery, writer
from triolog.tools.spark.sink.delivery import DeliveryError
from triolog.tools.spark.sink.write_options import WriteOptions
from triolog.tools.spark.sink.writer import Staged, WriteTask

from tests.support.server_process import ServerFolder

ROOM: Final = 2**20
TAKEN: Final = 900_000
FRAME: Final = 100_000


@attrs.define(eq=False)
class Server:
    """A server that keeps little of what is staged and takes small frames."""

    client: BlockingClient
    options: WriteOptions

    def create_topic(self, name: str, **config: str) -> None:
        BlockingAdmin(self.client).create_topic(name, 1, {key.replace("_", "."): value for key, value in config.items()})

    def stage(
        self, topic: str, *values: bytes, application: str = "app", records: int = 1000, timeout_ms: int = 60_000
    ) -> Staged:
        """Each value is a batch of Spark's."""
        batches = [pa.RecordBatch.from_arrays([pa.array([value], pa.binary())], ["value"]) for value in values]
        given = attrs.evolve(self.options, topic=topic, batch_records=records, delivery_timeout_ms=timeout_ms)
        return writer.stage(batches, given, WriteTask(application=application, version=0, spark_partition=0))

    def commit(self, part: Staged) -> bool:
        return writer.commit(self.options, part.application, 0, [part])

    def values(self, topic: str) -> list[bytes | None]:
        with BlockingConsumer(self.client, follow=False) as consumer:
            consumer.assign(topic)
            return [record.value for _, record in consumer.records()]


def _serving(folder: Path, **settings: int) -> Iterator[Server]:
    config = folder / "server.toml"
    config.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
    with ServerFolder(folder, ("--durability", "os", "--config", str(config))) as servers:
        address = servers.start().address
        with BlockingClient(address) as client:
            yield Server(client, WriteOptions.from_options({"triolog.servers": f"{address.host}:{address.port}"}))


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Server]:
    yield from _serving(tmp_path, max_staged_bytes=ROOM)


@pytest.fixture
def narrow(tmp_path: Path) -> Iterator[Server]:
    yield from _serving(tmp_path, max_frame_bytes=FRAME)


@pytest.fixture
def small_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "REQUEST_BYTES", 10_000)
    monkeypatch.setattr(writer, "BUFFER_BYTES", 1)


def _making_room(server: Server, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When a writer waits for the first time, what `other` has staged goes. Answers how long it has waited, each time."""
    waits: list[float] = []
    wait = time.sleep

    def make_room(seconds: float) -> None:
        if seconds > 0:
            waits.append(seconds)
            if len(waits) == 1:
                writer.abort(server.options, "other", 0, None)
        wait(seconds)

    monkeypatch.setattr(time, "sleep", make_room)
    return waits


@pytest.mark.usefixtures("small_requests")
@pytest.mark.parametrize("codec", ["producer", "gzip"])
def test_a_writer_waits_until_others_leave_room_in_order(full: Server, monkeypatch: pytest.MonkeyPatch, codec: str) -> None:
    full.create_topic("t", compression_type=codec)
    full.create_topic("others")
    full.stage("others", bytes(TAKEN), application="other")
    waits = _making_room(full, monkeypatch)
    sent = [b"%05d" % number + random.Random(number).randbytes(6000) for number in range(30)]
    part = full.stage("t", *sent)
    assert waits
    assert full.commit(part)
    assert full.values("t") == sent


def test_what_never_finds_room_is_an_error_that_names_the_limit_within_the_timeout(full: Server) -> None:
    full.create_topic("t")
    with pytest.raises(DeliveryError, match=r"writing to topic t failed for 1000 ms .*max_staged_bytes=1048576; [^;]*$"):
        full.stage("t", bytes(TAKEN), bytes(TAKEN), timeout_ms=1000)


@pytest.mark.usefixtures("small_requests")
def test_a_batch_that_found_room_behind_one_that_did_not_ends_the_task(full: Server) -> None:
    full.create_topic("t")
    full.create_topic("others")
    full.stage("others", bytes(TAKEN), application="other")
    with pytest.raises(DeliveryError, match=r"staging for topic t partition 0: .* took those behind them; .* run again"):
        full.stage("t", bytes(300_000), b"small")


def test_a_server_with_small_frames_gets_small_requests(narrow: Server) -> None:
    narrow.create_topic("t")
    sent = [b"%05d" % number + bytes(1000) for number in range(500)]
    assert narrow.commit(narrow.stage("t", *sent, records=10))
    assert narrow.values("t") == sent
    with pytest.raises(DeliveryError, match=r"makes a batch of \d+ bytes, above the 95904 bytes"):
        narrow.stage("t", bytes(2 * FRAME), application="another")
