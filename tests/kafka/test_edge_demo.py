"""`triolog edge-demo` with a real Apache Kafka as upstream."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from triolog.tools.demo.edge.command import command

from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_jars import KafkaCalls

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]


def test_a_week_without_an_uplink_adds_up_at_kafka(tmp_path: Path, kafka: KafkaCalls, kafka_class_path: str) -> None:
    with KafkaBroker(tmp_path / "kafka", kafka_class_path, kafka) as broker:
        broker.format()
        broker.start()
        result = CliRunner().invoke(command, ["--to", broker.address, "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert [check["name"] for check in found["checks"] if not check["ok"]] == []
    assert found["topics"]["departures"]["told"] > 0
