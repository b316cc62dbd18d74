from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import triolog

from tests.support.damaged_batches import damage_batch

from ..conftest import Cli, call


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Offsets 0 to 8 in three batches, of which the middle one is damaged; the next start finds that."""
    with triolog.blocking.open(
        tmp_path, config={"gap.policy": "refuse", "retention.ms": "-1"}, native="127.0.0.1:0"
    ) as running:
        running.create_topic("t")
        running.create_topic("whole")
        for _ in range(3):
            running.append("t", [b"v"] * 3)
    assert damage_batch(tmp_path, "t-0", 1) == (3, 6)
    return tmp_path


@pytest.fixture
def cli(data_dir: Path) -> Iterator[Cli]:
    with triolog.blocking.open(data_dir, config={"gap.policy": "refuse"}, native="127.0.0.1:0") as running:
        yield Cli(running)


def test_what_is_missing_is_listed_and_accepted_one_by_one(cli: Cli) -> None:
    [gap] = cli.json("gaps", "list")
    place = {"topic": "t", "partition": 0, "start_offset": 3, "end_offset": 6}
    assert {**place, "error": None, "accepted_ms": None}.items() <= gap.items()
    assert gap["file"].startswith(f"{0:020d}.log.corrupt-")
    assert min(gap["size_bytes"], gap["found_ms"]) > 61
    assert cli.json("gaps", "list", "whole") == []
    assert cli.ok("gaps", "list", "whole") == "nothing is missing\n"
    assert "UNKNOWN_TOPIC_OR_PARTITION" in cli.call("gaps", "list", "nowhere").stderr
    [row] = [line.split() for line in cli.ok("gaps", "list", "t").splitlines() if line.strip().startswith("t ")]
    assert row[:5] == ["t", "0", "3", "6", gap["file"]]
    assert row[-1] == "no"

    assert "ontinue from 6" in cli.call("consume", "t", "--offset", "4").stderr
    assert "t-0: no gap starts at offset 4. Offset 4 is in the gap from 3" in cli.call("gaps", "accept", "t", "0", "4").stderr
    assert cli.ok("gaps", "accept", "t", "0", "3") == "accepted: readers of t-0 skip offsets 3 to 5\n"
    assert cli.json("gaps", "accept", "t", "0", "3") == place
    assert cli.json("gaps", "list")[0]["accepted_ms"] > 0
    assert cli.ok("consume", "t", "--offset", "4").count("\n") == 3
    assert "ontinue from 6" in cli.call("consume", "t", "--offset", "4", "--refuse-gaps").stderr
    cli.broker.crash()
    cli.broker.restart()
    assert cli.ok("consume", "t", "--offset", "4").count("\n") == 3


def test_a_stopped_servers_directory_is_listed_and_accepted_in(data_dir: Path) -> None:
    def listed(*arguments: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(call("gaps", "list", "--data-dir", data_dir, "--json", *arguments).stdout)
        return found

    assert listed() == [], "nobody has looked yet"
    assert call("repair", data_dir).exit_code == 0
    [gap] = listed("t")
    assert (gap["start_offset"], gap["end_offset"], gap["accepted_ms"]) == (3, 6, None)
    assert min(gap["size_bytes"], gap["found_ms"]) > 61
    wrong = call("gaps", "accept", "t", 0, 4, "--data-dir", data_dir)
    assert wrong.exit_code == 1
    assert "no gap starts at offset 4" in wrong.stderr
    assert call("gaps", "accept", "t", 1, 3, "--data-dir", data_dir).exit_code == 1
    done = call("gaps", "accept", "t", 0, 3, "--data-dir", data_dir)
    assert (done.exit_code, done.stdout) == (0, "accepted: readers of t-0 skip offsets 3 to 5\n")
    assert listed()[0]["accepted_ms"] > 0
    assert call("verify", data_dir).exit_code == 0
    shown = call("dump", data_dir / "t-0" / "quarantine-checkpoint").stdout
    assert "accepted: readers skip them" in shown
    with triolog.blocking.open(data_dir, config={"gap.policy": "refuse"}, native="127.0.0.1:0") as running:
        assert [record.offset for record in running.fetch("t", 3)] == [6, 7, 8]
        assert call("gaps", "list", "--data-dir", data_dir).exit_code == 3, "a server uses it"
