"""What is read of directories and of servers is what reading record by record gives."""

from __future__ import annotations

import gc
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pytest
import triolog
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.server.embedded import BlockingBroker
from triolog.server.offline.stored_records import DecidedTransactions, RecordRange, find_transactions, stored_batches
from triolog.server.storage.directory.inventory import read_directory
from triolog.server.storage.disk.checkpoints import LOG_START_FILE, decode_offsets
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.tools import arrow
from triolog.tools.arrow import server
from triolog.tools.arrow.schema import COLUMNS

from tests.support.counts import counts, draws
from tests.support.damaged_batches import flip
from tests.support.golden import GOLDEN, KAFKA_4_3
from tests.support.segment_files import START_MS, DrawnBatch, WrittenLog, write_log
from tests.support.stopped_logs import BATCHES, TOPIC, write_stopped_logs

FS = OsFileSystem()
Row = dict[str, Any]


def partitions_in(directory: Path) -> list[TopicPartition]:
    return [files.topic_partition for files in read_directory(FS, str(directory)).partitions]


def scalar_rows(directory: Path, partition: TopicPartition, *, committed: bool) -> list[Row]:
    """Every record from the log start offset on, as a row of `read`."""
    [files] = [files for files in read_directory(FS, str(directory)).partitions if files.topic_partition == partition]
    transactions = find_transactions(FS, files, _pass) if committed else DecidedTransactions()
    wanted = RecordRange(from_offset=_log_start(directory, partition), committed=committed)
    append_timed = _append_timed(directory / str(partition))
    return [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestamp_type": int(record.offset in append_timed),
            "key": record.key,
            "value": record.value,
            "headers": [{"key": name, "value": value} for name, value in record.headers],
        }
        for records in stored_batches(FS, files, wanted, transactions, damaged=_refuse, advance=_pass)
        for record in records
    ]


def rows_of(reader: pa.RecordBatchReader) -> list[Row]:
    """With timestamps as milliseconds. What was handed out is checked whole."""
    rows: list[Row] = []
    for batch in reader:
        batch.validate(full=True)
        assert batch.schema == reader.schema
        rows += with_plain_times(batch)
    return rows


def with_plain_times(batch: pa.RecordBatch) -> list[Row]:
    columns = {
        name: (column.cast(pa.int64()) if name == "timestamp" else column).to_pylist()
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def _log_start(directory: Path, partition: TopicPartition) -> int:
    path = directory / LOG_START_FILE
    return decode_offsets(str(path), path.read_bytes()).get(partition, 0) if path.is_file() else 0


def _append_timed(directory: Path) -> set[int]:
    """Offsets of batches under LogAppendTime."""
    return {
        offset
        for path in directory.glob("*.log")
        for header, _ in iter_batches(path.read_bytes())
        if header.timestamp_type
        for offset in range(header.base_offset, header.next_offset)
    }


def _pass(size: int) -> None:
    """Progress."""


def _refuse(path: str, damage: object) -> None:
    raise AssertionError(f"{path}: {damage}")


DIRECTORIES: Final = (GOLDEN / "clean", GOLDEN / "unclean", KAFKA_4_3 / "clean")
ALL: Final = [(directory, partition) for directory in DIRECTORIES for partition in partitions_in(directory)]


def read_rows(source: Any, topic: str = "t", **asked: Any) -> list[dict[str, Any]]:
    return rows_of(arrow.read(source, topic, **asked))


def test_every_cell_of_kafkas_directories_is_that_of_the_scalar_decoder() -> None:
    for (directory, partition), isolation in product(ALL, ("read_committed", "read_uncommitted")):
        found = read_rows(directory, partition.topic, partitions=[partition.partition], isolation=isolation)
        assert found == scalar_rows(directory, partition, committed=isolation == "read_committed"), (directory, partition)


def test_the_schema_is_the_documented_one() -> None:
    assert arrow.read(GOLDEN / "clean", "compacted").schema == pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("ms", tz="UTC")),
            ("timestamp_type", pa.int32()),
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("headers", pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))),
        ]
    )


def test_records_without_a_time_are_in_no_range_of_times(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "t-0")
    log.append_segment([build_batch([(-1, None, b"a", ()), (5, None, b"b", ())])])
    assert [row["timestamp"] for row in read_rows(log.directory)] == [-1, 5]
    assert read_rows(log.directory, start_timestamp=0, columns=["value"]) == [{"value": b"b"}]


def test_offsets_may_be_given_for_each_partition(tmp_path: Path) -> None:
    write_stopped_logs(tmp_path, partitions=2)
    rows = read_rows(tmp_path, TOPIC, start={0: 10}, end={(TOPIC, 0): 20, (TOPIC, 1): 3})
    found = [(row["partition"], row["offset"]) for row in rows]
    everything = [(row["partition"], row["offset"]) for row in read_rows(tmp_path, TOPIC)]
    assert found == [(number, offset) for number, offset in everything if (10 <= offset < 20 if number == 0 else offset < 3)]
    assert {0, 1} == {number for number, _ in found}


def test_times_may_be_given_with_any_zone(tmp_path: Path) -> None:
    log = write_log(tmp_path / "t-0", [[DrawnBatch(times=(0, 10, 20))]])
    start = datetime.fromtimestamp((START_MS + 10) / 1000, UTC)
    assert [row["offset"] for row in read_rows(log.directory, start=start)] == [1, 2]
    assert [row["offset"] for row in read_rows(log.directory, end=start)] == [0]
    with pytest.raises(arrow.ArrowError, match="start is 2026-01-01T00:00:00, a time without a zone"):
        arrow.read(log.directory, "t", datetime(2026, 1, 1))


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ({"topics": "other"}, "has no topic other$"),
        ({"topics": []}, "no topic"),
        ({"partitions": [1]}, "has no partition t-1. Topic t has 1 partitions"),
        ({"start": 5, "end": 2}, "the end, offset 2, is before the start, offset 5"),
        ({"start": {0: 5}, "end": 2}, "t-0: the end, offset 2, is before the start, offset 5"),
        ({"start": {3: 5}}, "has no partition 3"),
        ({"start_timestamp": 9, "end_timestamp": 8}, r"the end, 1970-01-01T00:00:00\.008Z, is before the start, 1970-"),
        ({"columns": ["ofset"]}, "unknown column ofset. Did you mean offset?"),
        ({"columns": []}, "columns are none\\."),
        ({"columns": ["key", "key"]}, "columns are key, key\\."),
        ({"columns": "key"}, "columns is 'key', expected a list of names"),
        ({"start": -1}, "start is -1, expected an offset"),
        ({"isolation": "dirty"}, "isolation is 'dirty', expected read_committed or read_uncommitted"),
        ({"damaged": "no"}, "damaged is 'no', expected warn, skip, raise"),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path: Path, asked: dict[str, Any], complaint: str) -> None:
    write_log(tmp_path / "t-0", [[DrawnBatch(times=(0, 1))]])
    with pytest.raises(arrow.ArrowError, match=complaint) as caught:
        arrow.read(tmp_path, **{"topics": "t", **asked})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("source", ["nowhere", "localhost", "localhost:port", "/no/such:1", "h:99999"])
def test_a_source_is_a_directory_or_an_address(source: str) -> None:
    with pytest.raises(arrow.ArrowError, match="is neither a directory nor HOST:PORT"):
        arrow.read(source, "t")
    with pytest.raises(arrow.ArrowError, match="int is not a source"):
        arrow.read(7, "t")  # type: ignore[arg-type]


def test_damage_is_left_out_or_an_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = write_log(tmp_path / "t-0", [[DrawnBatch(times=(0,)), DrawnBatch(times=(1,)), DrawnBatch(times=(2,))]])
    path, position, header = log.batches[1]
    flip(Path(path), position + header.size_bytes - 1)
    assert [row["offset"] for row in read_rows(tmp_path)] == [0, 2]
    assert f"position {position}" in caplog.text
    caplog.clear()
    assert [row["offset"] for row in read_rows(tmp_path, damaged="skip")] == [0, 2]
    assert caplog.text == ""
    reader = arrow.read(tmp_path, "t", damaged="raise")
    with pytest.raises(arrow.ArrowError, match=f"t-0: .*position {position}: .*triolog verify"):
        reader.read_all()


def test_a_segment_that_is_deleted_meanwhile_is_an_error(tmp_path: Path) -> None:
    log = write_log(tmp_path / "t-0", [[DrawnBatch(times=(0,))], [DrawnBatch(times=(1,))]])
    reader = arrow.read(tmp_path, "t")
    Path(log.batches[0][0]).unlink()
    with pytest.raises(arrow.ArrowError, match=r"t-0.*deleted|deleted.*t-0"):
        reader.read_all()


MOST_MIB: Final = 200
MEASURED: Final = """
import pathlib, struct, sys
import numpy as np
import pyarrow as pa
from triolog.protocol.records.columnar.encode import Encoding, encode_batches
from triolog.tools import arrow

folder, megabytes = pathlib.Path(sys.argv[1]) / "t-0", int(sys.argv[2])
folder.mkdir()
values = pa.array([np.random.default_rng(1).bytes(1000) for _ in range(1000)], pa.binary())
offset = 0
with open(folder / f"{0:020d}.log", "wb") as file:
    while offset < megabytes * 1000:
        for encoded in encode_batches(pa.RecordBatch.from_arrays([values], ["value"]), Encoding(batch_records=100)):
            file.write(struct.pack(">q", offset) + encoded.data[8:])
            offset += encoded.records
rows = sum(batch.num_rows for batch in arrow.read(folder, "t"))
assert rows == offset, (rows, offset)
(peak,) = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:")]
print(int(peak) // 1024)
"""
"""`ru_maxrss` would count what the process was forked from."""


def most_mib(folder: Path, megabytes: int) -> int:
    folder.mkdir()
    command = [sys.executable, "-c", MEASURED, str(folder), str(megabytes)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True, timeout=250).stdout)


@pytest.mark.merge  # some hundred MB are written and read
def test_a_read_of_some_hundred_megabytes_stays_below_200_mib(tmp_path: Path) -> None:
    assert most_mib(tmp_path / "some", 400) <= MOST_MIB


RANGES: Final = counts(60, commit=20)


def address(broker: BlockingBroker) -> str:
    return f"{broker.native.host}:{broker.native.port}"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("logs") / "stopped"
    write_stopped_logs(path, partitions=3)
    return path


@pytest.fixture
def broker(stopped: Path, tmp_path: Path) -> Iterator[BlockingBroker]:
    shutil.copytree(stopped, tmp_path / "running")
    with triolog.blocking.open(
        tmp_path / "running", durability="os", config={"retention.ms": "-1"}, native="127.0.0.1:0"
    ) as broker:
        yield broker


@pytest.fixture
def six(monkeypatch: pytest.MonkeyPatch) -> Iterator[BlockingBroker]:
    """So many records, each of which a reader has to ask for."""
    monkeypatch.setattr(server, "FETCH_BYTES", 1)
    with triolog.blocking.open(topics=["t"], native="127.0.0.1:0") as broker:
        for number in range(6):
            broker.append("t", [str(number).encode()])
        yield broker


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_every_door_gives_what_the_scalar_decoder_reads(stopped: Path, broker: BlockingBroker, isolation: Any) -> None:
    committed = isolation == "read_committed"
    expected = [row for name in partitions_in(stopped) for row in scalar_rows(stopped, name, committed=committed)]
    for source in (stopped, broker, address(broker), broker.native):
        assert rows_of(arrow.read(source, TOPIC, isolation=isolation)) == expected


def test_any_range_is_the_filter_of_a_full_scan(stopped: Path, broker: BlockingBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many pages: times are out of order, transactions aborted, one is open."""
    monkeypatch.setattr(server, "FETCH_BYTES", 700)
    whole = rows_of(arrow.read(stopped, TOPIC))
    rng = draws(5)
    for _ in range(RANGES):
        low, high = sorted(rng.randrange(90) for _ in range(2))
        first, end = sorted(START_MS + rng.randrange(-2_000, 1_000 * BATCHES + 7_000) for _ in range(2))
        times = {"start_timestamp": rng.choice([None, first]), "end_timestamp": rng.choice([None, end])}
        asked: dict[str, Any] = {"start": rng.choice([None, low]), "end": rng.choice([None, high]), **times}
        columns = rng.choice([COLUMNS, ("offset",), ("value", "offset")])
        expected = [
            {name: row[name] for name in columns}
            for row in whole
            if (asked["start"] or 0) <= row["offset"] < (1000 if asked["end"] is None else asked["end"])
            and (asked["start_timestamp"] or 0) <= row["timestamp"]
            and (asked["end_timestamp"] is None or row["timestamp"] < asked["end_timestamp"])
        ]
        assert rows_of(arrow.read(stopped, TOPIC, columns=columns, **asked)) == expected, asked
        assert rows_of(arrow.read(broker, TOPIC, columns=columns, **asked)) == expected, asked


def test_a_range_of_times_is_found_by_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 400 records in order of time 10 are meant, and about as many are sent."""
    monkeypatch.setattr(server, "FETCH_BYTES", 700)
    with triolog.blocking.open(config={"retention.ms": "-1", "segment.bytes": "4000"}, native="127.0.0.1:0") as broker:
        broker.create_topic("t")
        for number in range(400):
            broker.append("t", [(START_MS + number, None, b"%d" % number, ())])
        whole, part = arrow.Report(), arrow.Report()
        assert len(rows_of(arrow.read(broker, "t", report=whole))) == 400
        times = {"start_timestamp": START_MS + 200, "end_timestamp": START_MS + 210}
        rows = rows_of(arrow.read(broker, "t", report=part, **times))
        assert [row["offset"] for row in rows] == list(range(200, 210))
        assert 10 * part.log_bytes < whole.log_bytes


def test_a_log_that_was_cut_meanwhile_is_an_error_in_a_range_of_times_too(six: BlockingBroker) -> None:
    reader = arrow.read(six, "t", start_timestamp=0)
    six.reset()
    six.append("t", [b"new"])
    with pytest.raises(arrow.ArrowError, match=r"t-0: offsets up to 5 were requested, but the log now ends at offset 1"):
        reader.read_all()


def test_what_is_not_there_is_one_line(broker: BlockingBroker) -> None:
    where = address(broker)
    with pytest.raises(arrow.ArrowError, match=f"{where} has no topic other"):
        arrow.read(broker, "other")
    with pytest.raises(arrow.ArrowError, match=f"{where} has no partition {TOPIC}-7. Topic {TOPIC} has 3 partitions"):
        arrow.read(broker, TOPIC, partitions=[7])
    with triolog.blocking.open(native="127.0.0.1:0") as other:
        gone = address(other)
    with pytest.raises(arrow.ArrowError, match=f"{gone}: .*Is `triolog serve` running there"):
        arrow.read(gone, TOPIC)
    with (
        triolog.blocking.open() as silent,
        pytest.raises(arrow.ArrowError, match="does not listen for the native protocol"),
    ):
        arrow.read(silent, TOPIC)


def test_a_server_that_starts_again_is_read_on(six: BlockingBroker) -> None:
    reader = arrow.read(six, "t", columns=["value"])
    values = reader.read_next_batch()["value"].to_pylist()
    six.restart()
    values += [value for batch in reader for value in batch["value"].to_pylist()]
    assert values == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_a_log_that_retention_has_cut_meanwhile_is_an_error(six: BlockingBroker) -> None:
    reader = arrow.read(six, "t")
    six.delete_records("t", 5)
    with pytest.raises(arrow.ArrowError, match=r"t-0 offset 0: .*offset 0 is not in 5 to 6"):
        reader.read_all()


def test_pandas_polars_and_duckdb_read_a_topic_in_one_line(broker: BlockingBroker) -> None:
    import polars as pl  # needs time to load, as pandas does, which pyarrow loads

    offsets = [row["offset"] for row in rows_of(arrow.read(broker, TOPIC))]
    frame = arrow.read(broker, TOPIC).read_pandas()
    assert frame["offset"].tolist() == offsets
    assert str(frame["timestamp"].dtype) == "datetime64[ms, UTC]"
    table: Any = pl.from_arrow(arrow.read(broker, TOPIC))
    assert table["offset"].to_list() == offsets
    flights = arrow.read(broker, TOPIC)
    assert duckdb.sql('select count(*), sum("offset") from flights').fetchall() == [(len(offsets), sum(offsets))]
    del flights


def test_a_read_that_is_given_up_or_never_begun_leaves_nothing_open(broker: BlockingBroker) -> None:
    """The suite looks for sockets that stay."""
    reader = arrow.read(broker, TOPIC)
    reader.read_next_batch()
    reader.close()
    del reader
    gc.collect()
    reader = arrow.read(broker, TOPIC)
    assert reader.schema.names
    del reader
    gc.collect()
