"""What tasks and the driver of a write do, against a real server in a thread: no Spark session."""

from __future__ import annotations

import datetime
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import pyarrow as pa
import pytest
import triolog
from triolog.protocol.native.messages import StagedPartition
from triolog.protocol.records.columnar.schema import header_type
from triolog.protocol.types import Record
from triolog.server.config.values import Address
from triolog.server.embedded import BlockingBroker
from triolog.tools.client import backoff
from triolog.tools.client.blocking import BlockingAdmin, BlockingClient, BlockingConsumer
from triolog.tools.client.sending.partitioner import partition_for_key
from triolog.tools.spark.sink import delivery, writer
from triolog.tools.spark.sink.delivery import DeliveryError
from triolog.tools.spark.sink.write_options import WriteOptions
from triolog.tools.spark.sink.write_rows import RowError
from triolog.tools.spark.sink.writer import Staged, WriteTask

from tests.support.counts import seeds
from tests.support.forwarding_chain import WeatherProxy
from tests.support.server_process import ServerFolder

MB = 1_000_000
LARGE = 64 * 2**20


@pytest.fixture
def broker() -> Iterator[BlockingBroker]:
    with triolog.blocking.open(config={"retention.ms": "-1"}, native="127.0.0.1:0") as running:
        running.create_topic("t", 3)
        running.create_topic("u")
        yield running


def options(broker: BlockingBroker, **given: str) -> WriteOptions:
    names = {name.replace("_", "."): value for name, value in given.items()}
    return WriteOptions.from_options({"triolog.servers": f"127.0.0.1:{broker.native.port}"} | names)


def produced(broker: BlockingBroker, *batches: pa.RecordBatch, **given: str) -> int:
    given = {"deliveryGuarantee": "at-least-once", "topic": "u"} | given
    return writer.produce(batches, options(broker, **given), task())


def task(version: int = 0, spark_partition: int = 0, application: str = "app") -> WriteTask:
    return WriteTask(application=application, version=version, spark_partition=spark_partition)


def rows(values: list[Any], **columns: pa.Array) -> pa.RecordBatch:
    arrays = {"value": pa.array(values, pa.binary()), **columns}
    return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))


def records(broker: BlockingBroker, topic: str = "u", partition: int = 0) -> list[Record]:
    found: list[Record] = []
    while fetched := broker.fetch(topic, found[-1].offset + 1 if found else 0, partition=partition, max_bytes=LARGE):
        found += fetched
    return found


def values(broker: BlockingBroker, topic: str = "u", partition: int = 0) -> list[bytes | None]:
    return [record.value for record in records(broker, topic, partition)]


def test_every_column_becomes_its_part_of_the_record(broker: BlockingBroker) -> None:
    time = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    batch = rows(
        [b"v", None, b""],
        key=pa.array([b"k", None, b""], pa.binary()),
        timestamp=pa.array([time] * 3, pa.timestamp("us", tz="UTC")),
        headers=pa.array([[{"key": "h", "value": None}, {"key": "h", "value": b"1"}], None, []], pa.list_(header_type())),
    )
    assert produced(broker, batch) == 3
    at_ms = int(time.timestamp() * 1000)
    assert records(broker) == [
        Record(0, at_ms, b"k", b"v", (("h", None), ("h", b"1"))),
        Record(1, at_ms, None, None),
        Record(2, at_ms, b"", b""),
    ]


def test_rows_without_a_time_get_the_time_of_the_write_and_minus_one_is_none(broker: BlockingBroker) -> None:
    now = datetime.datetime.now(datetime.UTC).timestamp() * 1000
    produced(broker, rows([b"a", b"b"], timestamp=pa.array([None, -1000], pa.timestamp("us", tz="UTC"))))
    produced(broker, rows([b"c"]))
    [null, absent, default] = [record.timestamp for record in records(broker)]
    assert absent == -1
    assert now - 1 <= null <= default < now + 60_000


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acks_delivers(broker: BlockingBroker, acks: str) -> None:
    produced(broker, rows([b"a"]), rows([b"b"]), kafka_acks=acks)
    broker.fetch("u", max_wait_s=60.0)  # with acks 0 nobody says when they are there
    assert values(broker) == [b"a", b"b"]


def test_many_requests_in_flight_keep_the_order(broker: BlockingBroker) -> None:
    sent = [b"%06d" % number + bytes(10_000) for number in range(4000)]
    batches = [rows(list(sent[start : start + 500])) for start in range(0, 4000, 500)]
    assert produced(broker, *batches) == 4000
    assert [value[:6] for value in values(broker) if value is not None] == [value[:6] for value in sent]


def test_what_cannot_be_written_is_an_error_that_says_what_to_do_and_leaves_nothing(broker: BlockingBroker) -> None:
    assert produced(broker) == 0
    assert produced(broker, rows([])) == 0
    assert values(broker) == []
    with pytest.raises(
        DeliveryError, match=r"127\.0\.0\.1:\d+: writing to topic u partition 0: MESSAGE_TOO_LARGE: .*max\.message\.bytes"
    ):
        produced(broker, rows([bytes(2 * MB)]))
    with pytest.raises(DeliveryError, match=r"topic u partition 0 makes a batch of 6710\d+ bytes, above the 6710\d+ bytes"):
        produced(broker, rows([bytes(LARGE - 1000)]))
    with pytest.raises(RowError, match="column partition is 7 in a row for topic u"):
        produced(broker, rows([b"a"], partition=pa.array([7], pa.int32())))
    with pytest.raises(ValueError, match="timestamp"):
        produced(broker, rows([b"a"], timestamp=pa.array([-5_000_000], pa.timestamp("us", tz="UTC"))))
    with pytest.raises(DeliveryError, match=r"staging for topic u partition 0: MESSAGE_TOO_LARGE: .*max\.message\.bytes"):
        staged(broker, [bytes(2 * MB)])


def test_a_missing_topic_is_created_where_the_server_allows_it_and_otherwise_named_once(broker: BlockingBroker) -> None:
    assert produced(broker, rows([b"a"]), topic="absent") == 1
    assert values(broker, "absent") == [b"a"]
    assert len(broker.describe_topic("absent").partitions) == 1
    with triolog.blocking.open(settings={"auto_create_topics_enable": False}, native="127.0.0.1:0") as strict:
        with pytest.raises(DeliveryError, match=r"creating topic absent: .*auto_create_topics_enable is false") as caught:
            produced(strict, rows([b"a"]), topic="absent")
        assert str(caught.value).count("triolog topics create") == 1
        with pytest.raises(DeliveryError, match=r"INVALID_TOPIC_EXCEPTION"):
            produced(broker, rows([b"a"]), topic="no topic")


@pytest.mark.merge
def test_value_of_64_mb_is_written_where_the_topic_allows_it(broker: BlockingBroker) -> None:
    broker.create_topic("large", 1, {"max.message.bytes": str(70 * MB)})
    value = bytes(64 * MB)
    assert produced(broker, rows([b"before", value, b"behind"]), topic="large") == 3
    assert values(broker, "large") == [b"before", value, b"behind"]


def test_server_that_is_gone_is_an_error_with_its_address_within_the_timeout(broker: BlockingBroker) -> None:
    gone = options(broker, topic="u", deliveryGuarantee="at-least-once", kafka_delivery_timeout_ms="50")
    broker.stop()
    with pytest.raises(DeliveryError, match=rf"127\.0\.0\.1:{gone.servers.addresses[0][1]}: .*topic u.* failed for 50 ms"):
        writer.produce([rows([b"a"])], gone, task())


class Restarting:
    """A server on one directory and one port, stopped and started again while rows are being read."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.broker = triolog.blocking.open(path, durability="os", native="127.0.0.1:0")
        self.broker.start()
        self.broker.create_topic("u")

    def restart(self) -> None:
        native = self.broker.native
        self.broker.stop()
        self.broker = triolog.blocking.open(self.path, durability="os", native=Address(host="127.0.0.1", port=native.port))
        self.broker.start()

    def rows(self, sent: list[bytes], *restarts: int) -> Iterator[pa.RecordBatch]:
        """The rows, ten to a batch of Spark's and a megabyte each; before these batches the server is restarted."""
        for number, start in enumerate(range(0, len(sent), 10)):
            if number in restarts:
                self.restart()
            yield rows([value + bytes(MB) for value in sent[start : start + 10]])


@pytest.fixture
def restarting(tmp_path: Any) -> Iterator[Restarting]:
    made = Restarting(str(tmp_path))
    try:
        yield made
    finally:
        made.broker.stop()


@pytest.mark.merge
def test_at_least_once_rides_out_a_restart_of_the_server(restarting: Restarting) -> None:
    sent = [b"%03d" % number for number in range(80)]
    restarting.broker.alter_config("u", {"max.message.bytes": str(2 * MB)})
    given = options(restarting.broker, topic="u", deliveryGuarantee="at-least-once")
    writer.produce(restarting.rows(sent, 3, 6), given, task())
    assert {value[:3] for value in values(restarting.broker) if value is not None} == set(sent)


def staged(broker: BlockingBroker, values: list[Any], version: int = 0, spark_partition: int = 0, **given: str) -> Staged:
    return writer.stage([rows(values)], options(broker, **({"topic": "u"} | given)), task(version, spark_partition))


def committed(broker: BlockingBroker, *parts: Staged, version: int = 0) -> bool:
    return writer.commit(options(broker, topic="u"), "app", version, parts)


def test_nothing_is_visible_before_the_commit_and_everything_behind_it(broker: BlockingBroker) -> None:
    parts = [staged(broker, [b"a", None], spark_partition=0), staged(broker, [b"c"], spark_partition=1)]
    assert [part.records for part in parts] == [2, 1]
    assert values(broker) == []
    assert committed(broker, *parts)
    assert values(broker) == [b"a", None, b"c"]


def test_commit_spreads_over_topics_and_partitions(broker: BlockingBroker) -> None:
    batch = rows([b"a", b"b", b"c"], topic=pa.array(["t", "u", "t"]), partition=pa.array([2, 0, 1], pa.int32()))
    part = writer.stage([batch], options(broker), task())
    assert committed(broker, part)
    assert {(topic, partition): values(broker, topic, partition) for topic, partition in [("t", 1), ("t", 2), ("u", 0)]} == {
        ("t", 1): [b"c"],
        ("t", 2): [b"a"],
        ("u", 0): [b"b"],
    }


def test_attempts_that_the_commit_does_not_name_vanish(broker: BlockingBroker) -> None:
    zombie = staged(broker, [b"a", b"b"])
    good = staged(broker, [b"a", b"b"])
    assert zombie.task != good.task
    assert committed(broker, good)
    late = writer.stage([rows([b"a", b"b"])], options(broker, topic="u"), task())
    assert late.partitions == ()
    assert not committed(broker, zombie)
    assert values(broker) == [b"a", b"b"]


def test_abort_after_the_commit_changes_nothing(broker: BlockingBroker) -> None:
    part = staged(broker, [b"a"])
    assert committed(broker, part)
    writer.abort(options(broker), "app", 0, [part.task])
    writer.abort(options(broker), "app", 0, None)
    assert values(broker) == [b"a"]
    assert not committed(broker, part)


def test_abort_without_a_server_says_so(
    broker: BlockingBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "ABORT_TIMEOUT_MS", 1)
    given = options(broker)
    broker.stop()
    writer.abort(given, "app", 0, None)
    assert "the server deletes staged records" in caplog.text


def test_a_commit_that_was_not_answered_says_that_it_may_have_happened(broker: BlockingBroker) -> None:
    part = staged(broker, [b"a"])
    given = options(broker, topic="u", kafka_delivery_timeout_ms="50")
    broker.stop()
    with pytest.raises(DeliveryError, match=r"committing version 0 of app to topic u failed for 50 ms .* may be committed"):
        writer.commit(given, "app", 0, [part])


@pytest.mark.merge
def test_the_largest_commit_fits_into_a_request_and_a_larger_one_says_what_to_do(broker: BlockingBroker) -> None:
    def parts(tasks: int, each: int) -> list[Staged]:
        of_task = tuple(StagedPartition("wide", number, 1, 1) for number in range(each))
        return [
            Staged(application="app", task=f"{number}.0.{'0' * 12}", partitions=of_task, records=1) for number in range(tasks)
        ]

    broker.create_topic("wide", 200)
    for tasks, each in ((10_000, 2), (100, 200)):
        with pytest.raises(DeliveryError, match=r"INVALID_REQUEST: wide-0: task '0\.0\.0+' has nothing staged"):
            writer.commit(options(broker), "app", 0, parts(tasks, each))
    for tasks, each in ((10_001, 1), (101, 200)):
        with pytest.raises(DeliveryError, match=rf"^{tasks} tasks have staged {tasks * each} parts, .*: coalesce\(\) the rows"):
            writer.commit(options(broker), "app", 0, parts(tasks, each))


@pytest.mark.merge
def test_staged_value_of_64_mb_is_committed_where_the_topic_allows_it(broker: BlockingBroker) -> None:
    broker.create_topic("large", 1, {"max.message.bytes": str(70 * MB)})
    value = bytes(64 * MB)
    assert committed(broker, staged(broker, [value, b"behind"], topic="large"))
    assert values(broker, "large") == [value, b"behind"]


def test_topic_that_compresses_anew_is_staged_and_committed(broker: BlockingBroker) -> None:
    broker.create_topic("z", 1, {"compression.type": "zstd"})
    sent = [b"value %d" % number for number in range(1000)]
    assert committed(broker, staged(broker, list(sent), topic="z"))
    assert values(broker, "z") == sent


@pytest.mark.merge
def test_exactly_once_rides_out_restarts_of_the_server(restarting: Restarting) -> None:
    sent = [b"%03d" % number for number in range(80)]
    restarting.broker.alter_config("u", {"max.message.bytes": str(2 * MB)})
    given = options(restarting.broker, topic="u")
    part = writer.stage(restarting.rows(sent, 2, 5), given, task())
    restarting.restart()
    assert writer.commit(given, "app", 0, [part])
    restarting.restart()
    assert not writer.commit(given, "app", 0, [part])
    assert [value[:3] for value in values(restarting.broker) if value is not None] == sent


def test_staging_again_after_a_restart_is_an_error_where_the_server_changes_batches(restarting: Restarting) -> None:
    restarting.broker.alter_config("u", {"max.message.bytes": str(2 * MB), "compression.type": "gzip"})
    given = options(restarting.broker, topic="u")
    with pytest.raises(DeliveryError, match=r"staging for topic u partition 0: after a lost connection .* Run the task again"):
        writer.stage(restarting.rows([b"%03d" % number for number in range(80)], 3), given, task())


@pytest.mark.parametrize("seed", seeds(60))
def test_lost_answers_stage_batches_once_in_order(broker: BlockingBroker, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(delivery, "REQUEST_BYTES", 2000)
    monkeypatch.setattr(backoff, "PAUSES_MS", (1, 5))
    monkeypatch.setattr(writer, "BUFFER_BYTES", 1)
    sent = [b"%05d" % number + bytes(50) for number in range(1000)]
    keys = [b"%d" % (number % 17) for number in range(1000)]
    rng, address = random.Random(seed), ("127.0.0.1", broker.native.port)
    with WeatherProxy(lambda: address, lives=lambda: rng.randrange(3, 30)) as proxy:
        given = WriteOptions.from_options({"triolog.servers": f"127.0.0.1:{proxy.port}", "topic": "t", "batchRecords": "5"})
        batches = [
            rows(list(sent[start : start + 50]), key=pa.array(keys[start : start + 50], pa.binary()))
            for start in range(0, 1000, 50)
        ]
        part = writer.stage(batches, given, task())
        writer.commit(given, "app", 0, [part])
    assert proxy.ended
    for partition in range(3):
        expected = [value for value, key in zip(sent, keys, strict=True) if partition_for_key(key, 3) == partition]
        assert values(broker, "t", partition) == expected


def test_topic_that_stamps_records_is_staged_and_committed(broker: BlockingBroker) -> None:
    broker.create_topic("s", 1, {"message.timestamp.type": "LogAppendTime"})
    now = datetime.datetime.now(datetime.UTC).timestamp() * 1000
    batch = rows([b"a"], timestamp=pa.array([1_000_000], pa.timestamp("us", tz="UTC")))
    part = writer.stage([batch], options(broker, topic="s"), task())
    assert committed(broker, part)
    [record] = records(broker, "s")
    assert (record.value, record.timestamp >= now - 1) == (b"a", True)


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


@pytest.mark.merge
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


@pytest.mark.merge
def test_what_never_finds_room_is_an_error_that_names_the_limit_within_the_timeout(full: Server) -> None:
    full.create_topic("t")
    with pytest.raises(DeliveryError, match=r"writing to topic t failed for 1000 ms .*max_staged_bytes=1048576. [^;]*$"):
        full.stage("t", bytes(TAKEN), bytes(TAKEN), timeout_ms=1000)


@pytest.mark.merge
@pytest.mark.usefixtures("small_requests")
def test_a_batch_that_found_room_behind_one_that_did_not_ends_the_task(full: Server) -> None:
    full.create_topic("t")
    full.create_topic("others")
    full.stage("others", bytes(TAKEN), application="other")
    with pytest.raises(DeliveryError, match=r"staging for topic t partition 0: .* accepted later ones. Run the task again"):
        full.stage("t", bytes(300_000), b"small")


@pytest.mark.merge
def test_a_server_with_small_frames_gets_small_requests(narrow: Server) -> None:
    narrow.create_topic("t")
    sent = [b"%05d" % number + bytes(1000) for number in range(500)]
    assert narrow.commit(narrow.stage("t", *sent, records=10))
    assert narrow.values("t") == sent
    with pytest.raises(DeliveryError, match=r"makes a batch of \d+ bytes, above the 95904 bytes"):
        narrow.stage("t", bytes(2 * FRAME), application="another")
