from __future__ import annotations

import copy
import io
import json
import os
import pty
import select
import signal
import time
from datetime import UTC
from typing import Any, Final

import pytest
from rich.console import Console
from triolog.protocol.types import TopicPartition
from triolog.server.embedded import BlockingBroker
from triolog.tools.cli.top.view import view, wear_lines
from triolog.tools.client.blocking.admin import BlockingAdmin
from triolog.tools.client.blocking.client import BlockingClient
from triolog.tools.statistics.rates import moment

from tests.tools.cli.conftest import Cli

PATIENCE_S = 60.0


@pytest.fixture
def looked(broker: BlockingBroker) -> dict[str, Any]:
    """What a server answers that has a topic and a group."""
    broker.create_topic("t")
    broker.append("t", [b"v"] * 10)
    with BlockingClient(broker.native) as client:
        admin = BlockingAdmin(client)
        admin.commit_group_offsets("g", {TopicPartition("t", 0): 4})
        return admin.statistics()


def later(looked: dict[str, Any], seconds: int) -> dict[str, Any]:
    """The same, so many seconds later."""
    return {**copy.deepcopy(looked), "time_ms": looked["time_ms"] + 1000 * seconds}


def test_rates_are_what_counters_grew_by_and_a_server_that_was_restarted_counts_from_nothing(looked: dict[str, Any]) -> None:
    after = later(looked, 2)
    after["total"]["appended_records"] += 100
    after["topics"][-1]["appended_bytes"] += 4000
    api = after["protocols"]["native"]["apis"]["commit_offsets"]
    api["count"] += 4
    api["counts"][3] += 3  # 0.5 to 1 ms
    api["counts"][-1] += 1  # above 10 s
    api["errors"]["UNKNOWN_TOPIC_OR_PARTITION"] = 2
    told = moment(looked, after)
    assert told["interval_s"] == 2
    assert told["appended_records_per_second"] == 50
    assert told["topics"][0]["topic"] == "t"
    assert told["topics"][0]["appended_bytes_per_second"] == 2000
    (commits,) = told["apis"]
    assert (commits["api"], commits["per_second"], commits["errors_per_second"]) == ("commit_offsets", 2, 1)
    assert 0.5 < commits["p50_ms"] <= 1
    assert commits["p99_ms"] == 10_000
    assert told["sync_p50_ms"] is None
    assert told["lags"] == [{"group": "g", "topic": "t", "partition": 0, "offset": 4, "lag": 6}]
    before = later(looked, -1)
    before["total"]["appended_bytes"] += 10**9
    before["protocols"]["native"]["apis"]["hello"]["count"] += 1000
    restarted = moment(before, looked)
    assert restarted["appended_bytes_per_second"] == looked["total"]["appended_bytes"]
    assert sum(each["per_second"] for each in restarted["apis"] if each["api"] == "hello") == 1


def test_one_look_is_a_table_or_a_line(cli: Cli, looked: dict[str, Any]) -> None:
    table = cli.ok("top", "--once", "--interval", "0.1")
    assert [line.split()[:1] for line in table.splitlines()[:4]] == [["triolog"], ["connections"], ["requests"], ["traffic"]]
    assert any(line.split() == ["g", "t", "0", "4", "6"] for line in table.splitlines())
    assert "loss window" in table
    (line,) = cli.lines("top", "--once", "--json", "--interval", "0.1")
    assert line["lag"] == 6
    (directory,) = line["wear"]["directories"]
    assert directory["path"] == line["directories"][0]["path"]
    assert line["connections"] == {"native": 1}
    assert cli.ok("top", "--interval", "0.1").startswith("triolog")
    assert "--interval" in cli.refused("top", "--interval", "0", code=2)


def shown(looked: dict[str, Any]) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(view(moment(looked, later(looked, 1)), "a server", UTC, rows=1))
    return console.export_text()


def test_how_long_a_disk_has_room_is_said_and_a_server_that_tells_no_wear_is_shown_all_the_same(looked: dict[str, Any]) -> None:
    looked["wear"]["directories"][0]["full_in_s"] = 7200.0
    looked["wear"]["longest_unsynced_ms"] = 1500.0
    assert "full in 2.0 hours" in shown(looked)
    assert "at most 1.5 s since the start" in shown(looked)
    del looked["wear"]
    assert moment(looked, later(looked, 1))["wear"] is None
    assert "since the start" not in shown(looked)


def test_programs_get_a_line_each_interval_until_they_have_enough(cli: Cli) -> None:
    with cli.process("top", "--json", "--interval", "0.1") as process:
        lines = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
    assert lines[0]["time_ms"] < lines[1]["time_ms"] < lines[2]["time_ms"]
    assert lines[2]["requests_per_second"] > 0


def test_a_terminal_gets_a_view_that_is_drawn_anew(cli: Cli, looked: dict[str, Any]) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "60", "TRIOLOG_SERVER": cli.address}
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    with cli.process("top", "--interval", "0.1", env=environment, **streams) as process:
        os.close(theirs)
        drawn, deadline = b"", time.monotonic() + PATIENCE_S
        while drawn.count(b"loss window") < 2:
            assert time.monotonic() < deadline, drawn
            if select.select([ours], [], [], 1)[0]:
                drawn += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        while process.poll() is None:
            assert time.monotonic() < deadline
            if select.select([ours], [], [], 0.1)[0]:
                try:
                    drawn += os.read(ours, 65536)
                except OSError:  # the terminal's other end is closed
                    break
        assert process.wait(PATIENCE_S) == 130
    os.close(ours)
    assert b"\x1b[?1049h" in drawn  # a screen of its own
    assert b"\x1b[?1049l" in drawn  # and back
    assert b"call" in drawn


NOTHING_TOLD: Final = (
    *("device", "disk_written_bytes", "disk_bytes_per_second", "disk_bytes_per_appended_byte", "lifetime_written_bytes"),
    *("life_used_percent", "pre_eol", "days_left", "full_in_s"),
)
UNKNOWN: dict[str, Any] = {"path": "/memory", "disks": [], **dict.fromkeys(NOTHING_TOLD)}
KNOWN: dict[str, Any] = {
    **UNKNOWN,
    "path": "/data",
    "device": "mmcblk0p2",
    "disks": ["mmcblk0"],
    "disk_written_bytes": 2048,
    "disk_bytes_per_second": 1024.0,
    "disk_bytes_per_appended_byte": 4.5,
    "lifetime_written_bytes": 4096,
    "life_used_percent": 20,
    "pre_eol": "warning",
    "days_left": 400.0,
}


def told(*directories: dict[str, Any], process: int | None = None, rate: float | None = None) -> list[tuple[str, str]]:
    return list(
        wear_lines(
            {
                "process_written_bytes": process,
                "process_bytes_per_second": rate,
                "process_bytes_per_appended_byte": rate,
                "directories": list(directories),
            }
        )
    )


def test_everything_that_is_known_is_said() -> None:
    wear = "mmcblk0: 4.0 KiB written, 1.0 KiB/s, 4.50 x the appended bytes; 20 % of its life used, blocks in reserve: warning"
    assert told(KNOWN, process=1024, rate=2.0) == [
        ("written", "1.0 KiB by the process, 2 B/s, 2.00 x the appended bytes"),
        ("wear", f"{wear}; lasts 1.1 years"),
    ]


def test_a_disk_is_one_line_and_says_when_it_tells_nothing() -> None:
    assert [label for label, _ in told(KNOWN, {**KNOWN, "path": "/other"})] == ["wear"]
    assert told(UNKNOWN) == []
    assert told({**UNKNOWN, "disks": ["sda"]}) == [("wear", "sda: reports nothing")]
