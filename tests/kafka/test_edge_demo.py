"""`triolog edge-demo` with a real Apache Kafka as upstream."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from triolog.tools.demo.edge.command import command

from tests.support.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]


def test_a_week_without_an_uplink_adds_up_at_kafka(apache: KafkaBroker) -> None:
    result = CliRunner().invoke(command, ["--to", apache.address, "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert [check["name"] for check in found["checks"] if not check["ok"]] == []
    assert found["topics"]["departures"]["told"] > 0
