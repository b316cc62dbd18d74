from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from triolog.server.embedded import BlockingBroker
from triolog.tools.cli.main import main
from triolog.tools.cli.terminal.failures import FailedError
from triolog.tools.client.blocking import BlockingAdmin, BlockingClient
from triolog.tools.spark.jobs.job_session import job_session

from tests.support.server_process import Address

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Topic t with 1,000 records of ten keys."""
    path = tmp_path / "data"
    with BlockingBroker(path, durability="os", config={"retention.ms": "-1"}) as broker:
        broker.create_topic("t", config={"segment.bytes": "10000"})
        for start in range(0, 1000, 50):
            broker.append("t", [(1_700_000_000_000 + n, b"k%d" % (n % 10), b"value", ()) for n in range(start, start + 50)])
    return path


def call(*arguments: str, exit_code: int = 0) -> str:
    result = CliRunner().invoke(main, ["spark", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == exit_code, result.output
    return result.output


def test_verify_reindex_profile_export_and_compact_say_what_they_did(data: Path, tmp_path: Path) -> None:
    assert "1,000 records" in call("verify", str(data))
    assert json.loads(call("reindex", str(data), "--json"))["failures"] == []
    report = tmp_path / "report.html"
    assert "t: 1,000 records, 10 keys, the most frequent has 10.0%" in call("profile", str(data), "--html", str(report))
    assert "<svg" in report.read_text()
    exported = call("export", str(data), "--target", str(tmp_path / "out"), "--json")
    assert json.loads(exported)["records"] == 1000
    refused = call("compact", str(data), "--topic", "t", exit_code=1)
    assert "the cleanup.policy of t is not compact" in refused
    done = json.loads(call("compact", str(data), "--topic", "t", "--force", "--include-active", "--json"))
    assert done["bytes_after"] < done["bytes_before"]


def test_damage_is_listed_and_ends_with_exit_code_1(data: Path) -> None:
    log = sorted((data / "t-0").glob("*.log"))[1]
    content = bytearray(log.read_bytes())
    content[200] ^= 1
    log.write_bytes(content)
    output = call("verify", str(data), exit_code=1)
    assert f"t-0/{log.name}" in output
    assert f"t-0/{log.name}" in call("reindex", str(data), exit_code=1)


def test_error_of_a_job_is_one_line_and_has_another_exit_code_than_damage(data: Path, tmp_path: Path) -> None:
    output = call("export", str(data), "--target", str(tmp_path / "out"), "--topic", "absent", exit_code=1)
    assert output == f"Error: {data}: there is no partition of topic absent\n"
    assert "--columns" in call("export", str(data), "--target", str(tmp_path / "out"), "--columns", "size", exit_code=2)
    (tmp_path / "manifest.json").write_text("mine")
    assert "is no manifest" in call("verify", str(data), "--manifest", str(tmp_path / "manifest.json"), exit_code=3)


def test_error_of_a_worker_that_dies_is_one_line(spark: SparkSession) -> None:
    """PySpark has no class for it."""

    def die(number: int) -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return number

    with pytest.raises(FailedError) as caught, job_session("test", "local") as session:
        session.sparkContext.parallelize([1], 1).map(die).collect()
    assert "Job aborted due to stage failure" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_profile_of_nothing_says_so(tmp_path: Path) -> None:
    with BlockingBroker(tmp_path / "data", durability="os") as broker:
        broker.create_topic("t")
    assert call("profile", str(tmp_path / "data")) == "there are no records\n"


def test_load_writes_rows_to_a_topic(spark: SparkSession, served: tuple[Address, BlockingClient], tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    address, client = served
    BlockingAdmin(client).create_topic("loaded")
    load = ("load", str(tmp_path / "rows.jsonl"), "--format", "json", "--server", f"{address.host}:{address.port}")
    assert call(*load, "--topic", "loaded") == "2 records in loaded\n"
    assert "looking up topic absent" in call(*load, "--topic", "absent", exit_code=1)
