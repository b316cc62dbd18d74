"""`triolog export-kafka`: the commands for Kafka, what it reports, what it refuses. tests/kafka has a real Kafka."""

from __future__ import annotations

import itertools
import json
import shlex
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest
import triolog
from click.testing import Result
from triolog.server.storage.disk.checkpoints import META_PROPERTIES_FILE, PARTITION_METADATA_FILE, encode_meta_properties

from .conftest import call


def exporting(*arguments: object) -> Result:
    return call("export-kafka", *arguments)


def ok(*arguments: object) -> str:
    result = exporting(*arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def options(command: str) -> dict[str, str]:
    """Topic key -> value of a `kafka-topics.sh` line."""
    words = shlex.split(command)
    return dict(word.split("=", 1) for flag, word in itertools.pairwise(words) if flag == "--config")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "triolog"
    with triolog.blocking.open(directory, native="127.0.0.1:0") as broker:
        broker.create_topic("flights", 2, {"retention.ms": "-1", "segment.bytes": "5000", "durability": "os"})
        broker.append("flights", [b"one", b"two"])
    return directory


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A log directory as Kafka leaves it when the topic was created."""
    directory = tmp_path / "kafka"
    for partition in range(2):
        (directory / f"flights-{partition}").mkdir(parents=True)
        (directory / f"flights-{partition}" / PARTITION_METADATA_FILE).write_text(
            "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
        )
        (directory / f"flights-{partition}" / f"{0:020d}.log").touch()
    properties = encode_meta_properties(cluster_id="kafka", node_id=1, directory_id=uuid.UUID(int=7))
    (directory / META_PROPERTIES_FILE).write_bytes(properties)
    return directory


def test_commands_create_the_topics_as_they_are_or_with_other_configs(source: Path) -> None:
    *remarks, command = ok(source, "--print-commands", "--bootstrap-server", "kafka:9092").splitlines()
    assert command.startswith("kafka-topics.sh --bootstrap-server kafka:9092 --create --topic flights --partitions 2 ")
    assert options(command) == {"retention.ms": "-1", "segment.bytes": "1048576"}
    assert remarks == [
        "# flights: durability=os is left out, Kafka 4.3 has no such key",
        "# flights: segment.bytes=5000 is raised to 1048576, the smallest that Kafka takes",
    ]
    configs = ("--config", "retention.ms=1000", "--config", "segment.bytes=2000000")
    [command] = json.loads(ok(source, "--print-commands", "--json", *configs))["commands"]
    assert shlex.split(command)[0] == "kafka-topics.sh"
    assert options(command) == {"retention.ms": "1000", "segment.bytes": "2000000"}


def test_an_export_says_what_it_did(source: Path, target: Path) -> None:
    document: dict[str, Any] = json.loads(ok(source, shutil.copytree(target, target.parent / "other"), "--json"))
    [partition] = document["partitions"]
    assert (partition["topic"], partition["log_start_offset"], partition["log_end_offset"]) == ("flights", 0, 2)
    assert document["already_there"] == 1
    assert document["copied_bytes"] == partition["bytes"]
    text = ok(source, target)
    assert text.startswith(f"exported 1 partition to {target}: 0 files linked (0 B), ")
    assert text.endswith("; 1 partition there already\n")  # the empty one
    assert "exported 0 partitions" in ok(source, target)


def test_what_cannot_be_exported_is_refused_with_the_next_step(source: Path, tmp_path: Path) -> None:
    printing = ("--print-commands", "--config")
    for arguments, said in (
        ((), "Give OUT"),
        ((*printing, "retention.ms"), "is not KEY=VALUE"),
        ((*printing, "retention.ms=1", "--config", "retention.ms=2"), "retention.ms is given twice"),
        ((*printing, "durability=os"), "'durability' is not a topic key of Kafka"),
        ((*printing, "segment.bytes=1g"), "'segment.bytes=1g': segment.bytes is not a number"),
        (("nowhere",), "does not exist"),
    ):
        result = exporting(source, *arguments)
        assert result.exit_code == 2
        assert said in result.stderr
    with triolog.blocking.open(source, native="127.0.0.1:0"):
        result = exporting(source, tmp_path)
    assert result.exit_code == 1
    assert f"holds the lock of log directory {source}" in result.stderr
