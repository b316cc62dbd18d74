"""The flows of the pipeline that `triolog spark init` writes, run over a real topic; `spark-pipelines` itself is Spark's."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.pipelines.graph_element_registry import GraphElementRegistry, graph_element_registration_context
from triolog.tools.client.blocking import BlockingAdmin, BlockingClient, BlockingProducer
from triolog.tools.spark.init import write_pipeline

from tests.support.server_process import Address

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FLIGHT = {"carrier": "UA", "origin": "EWR", "tailnum": "N14228", "dep_delay": 2, "time_hour": "2013-01-01T10:00:00Z"}
CANCELLED = {**FLIGHT, "tailnum": "N0", "dep_delay": None}
TEXTS = [{name: "NA" if value is None else str(value) for name, value in flight.items()} for flight in (FLIGHT, CANCELLED)]
TIME_MS = 1_357_035_420_000


class Registry(GraphElementRegistry):
    def __init__(self) -> None:
        self.flows: dict[str, Any] = {}

    def register_flow(self, flow: Any) -> None:
        self.flows[flow.name] = flow.func

    def register_output(self, output: Any) -> None:
        return

    def register_auto_cdc_flow(self, flow: Any) -> None:
        return

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        return


def flows_of(path: Path) -> dict[str, Any]:
    registry = Registry()
    spec = importlib.util.spec_from_file_location("departures", path)
    with graph_element_registration_context(registry):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    return registry.flows


@pytest.mark.parametrize(
    "flights",
    [
        pytest.param([FLIGHT, CANCELLED], id="numbers"),
        pytest.param(TEXTS, id="text, as `triolog produce --format csv` sends"),
    ],
)
def test_flights_have_their_delay_seats_and_weather_whatever_form_their_numbers_have(
    spark: SparkSession, served: tuple[Address, BlockingClient], tmp_path: Path, flights: list[dict[str, Any]]
) -> None:
    address, client = served
    topic = f"flights-{type(flights[0]['dep_delay']).__name__}"
    BlockingAdmin(client).create_topic(topic, config={"retention.ms": "-1"})
    with BlockingProducer(client) as producer:
        for flight in flights:
            producer.send(topic, json.dumps(flight).encode(), timestamp_ms=TIME_MS)
    server = f"{address.host}:{address.port}"
    write_pipeline(tmp_path / "pipeline", servers=server, topic=topic, target="departures")
    flows = flows_of(tmp_path / "pipeline" / "transformations" / "departures.py")
    writer = flows["departures"]().writeStream.format("memory").queryName("departures_of_template")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    table = spark.table("departures_of_template")
    rows = table.selectExpr("dep_delay", "seats", "is_wet", "origin", "unix_millis(timestamp)").collect()
    assert sorted(map(tuple, rows), key=str) == [(2, 149, False, "EWR", TIME_MS), (None, None, False, "EWR", TIME_MS)]
    assert dict(table.dtypes)["dep_delay"] == "int"
    spark.catalog.dropTempView("departures_of_template")
