from __future__ import annotations

import gc
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import duckdb
import pandas as pd
import polars as pl
import pytest
import triolog
from triolog.server.embedded import BlockingBroker
from triolog.tools import arrow
from triolog.tools.arrow import server
from triolog.tools.arrow.schema import COLUMNS

from tests.support.counts import counts, draws
from tests.support.logs import START_MS
from tests.support.stopped_logs import BATCHES, TOPIC, write_stopped_logs
from tests.tools.arrow.test_reading_files import partitions_in, rows_of, scalar_rows

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
    offsets = [row["offset"] for row in rows_of(arrow.read(broker, TOPIC))]
    frame: pd.DataFrame = arrow.read(broker, TOPIC).read_pandas()
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
