"""`triolog edge-demo` with everything that is in it: a small disk, a slow link, kills; and with an upstream where something is
wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from triolog.protocol.types import Record, TopicPartition
from triolog.server.settings.broker_config import Address
from triolog.tools.client.blocking.client import BlockingClient
from triolog.tools.client.blocking.consumer import BlockingConsumer
from triolog.tools.client.blocking.producer import BlockingProducer
from triolog.tools.client.procedures.topics import delete_records, list_topics
from triolog.tools.demo.edge import terminal
from triolog.tools.demo.edge.command import command
from triolog.tools.demo.edge.week import CANCELLATIONS, DELAYS, DEPARTURES

from tests.support.server_process import ServerFolder, ServerProcess


@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_week_without_an_uplink_adds_up() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "triolog.tools.cli", "edge-demo", "--json"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["ok"]
    assert len(found["checks"]) == 7
    topics = found["topics"]
    assert sum(topic["written"] + topic["refused"] for topic in topics.values()) == 336_776
    assert all(topic["written"] == topic["forwarded"] + topic["dropped"] for topic in topics.values())
    assert topics[DEPARTURES]["dropped"] == topics[DEPARTURES]["told"] > 0
    assert topics[DELAYS]["written"] == topics[DELAYS]["forwarded"] > 20_000
    assert topics[CANCELLATIONS]["refused"] > 0
    assert found["refused_connections"] > 0
    assert found["forwarded_at_kill"] > 0


@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_record_that_was_lost_or_doubled_upstream_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ServerFolder(tmp_path) as servers:
        assert_lost_and_doubled_are_found(servers.start("--kafka", "127.0.0.1:0", "--durability", "os"), monkeypatch)


def assert_lost_and_doubled_are_found(upstream: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = json.loads(upstream.ready_file.read_text())["kafka"]

    class Planted(terminal.EdgeTerminal):
        def drained(self, seconds: float, carried_bytes: int) -> None:
            super().drained(seconds, carried_bytes)
            lose_and_double(upstream.address)

    monkeypatch.setattr(terminal, "EdgeTerminal", Planted)
    result = CliRunner().invoke(command, ["--to", kafka])
    assert result.exit_code == 1, result.output
    assert "1 of 7 checks FAILED" in result.output
    [line] = [line for line in result.output.splitlines() if line.startswith("Error: ")]
    assert f"{DELAYS}-0: " in line
    assert "1 missing, 0 told" in line
    assert f"{CANCELLATIONS}-0: " in line
    assert "0 told, 1 twice" in line
    assert DEPARTURES not in line
    with BlockingClient(upstream.address) as client:
        names = [topic.name for topic in client.run(list_topics())]
    assert [name for name in names if name.startswith("edge-demo-")] == []


def lose_and_double(address: Address) -> None:
    """The first record of the delays goes, that of the cancellations is there once more."""
    with BlockingClient(address) as client:
        topics = {topic.name.rpartition(".")[2]: topic.name for topic in client.run(list_topics())}
        lost, doubled = first_record(client, topics[DELAYS]), first_record(client, topics[CANCELLATIONS])
        client.run(delete_records({TopicPartition(topics[DELAYS], 0): lost.offset + 1}))
        with BlockingProducer(client) as producer:
            producer.send(
                topics[CANCELLATIONS],
                doubled.value,
                key=doubled.key,
                headers=doubled.headers,
                timestamp_ms=doubled.timestamp,
                partition=0,
            )


def first_record(client: BlockingClient, topic: str) -> Record:
    with BlockingConsumer(client, follow=False) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        for batch in consumer:
            for record in batch.records():
                return record
    raise AssertionError(f"{topic} is empty")
