from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as pf
import pyarrow.parquet as pq
import pytest
from triolog.server.embedded import BlockingBroker

from .conftest import Cli

TABLE = pa.table({"tail": ["N1", "N2"], "delay": [5, None], "at": pa.array([1_000, 2_000], pa.timestamp("ms", "UTC"))})


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_the_rows_of_a_file_become_records_and_what_cannot_be_sent_is_one_line(
    cli: Cli, broker: BlockingBroker, tmp_path: Path, kind: str
) -> None:
    broker.create_topic("t", config={"retention.ms": "-1"})
    path = tmp_path / "table"
    if kind == "parquet":
        pq.write_table(TABLE, path)
    else:
        pf.write_feather(TABLE, path, compression="uncompressed")
    summary = cli.json("produce", "t", str(path), "--format", kind, "--key", "tail", "--timestamp", "at")
    assert summary["records"] == 2
    assert summary["partitions"] == [{"partition": 0, "records": 2, "first_offset": 0, "last_offset": 1}]
    records = broker.fetch("t", 0)
    assert [(record.key, record.timestamp) for record in records] == [(b"N1", 1_000), (b"N2", 2_000)]
    assert json.loads(records[1].value or b"") == {"tail": "N2", "delay": None, "at": "1970-01-01T00:00:02.000Z"}
    assert cli.ok("produce", "t", str(path), "--format", kind, "--value", "tail").startswith("produced 2 records to t in ")
    path = tmp_path / "table.parquet"
    pq.write_table(TABLE, path)
    asked = ("--format", "parquet")
    assert "has no column no, only tail, delay, at" in cli.refused("produce", "t", str(path), *asked, "--key", "no")
    assert "has no topic other" in cli.refused("produce", "other", str(path), *asked)
    assert "cannot read standard input" in cli.refused("produce", "t", "-", *asked)
    path.write_bytes(b"noise")
    assert "table.parquet: " in cli.refused("produce", "t", str(path), *asked)
