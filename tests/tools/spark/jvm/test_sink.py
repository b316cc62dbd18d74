"""

The flows of the pipeline that `triolog spark init` writes, run over a real topic; `spark-pipelines` itself is Spark's.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.pipelines.graph_element_registry import GraphElementRegistry, graph_element_registration_context
from triolog.protocol.types import Record
from triolog.tools.client.blocking import BlockingAdmin, BlockingClient, BlockingConsumer, BlockingProducer
from triolog.tools.spark.init import write_pipeline

from tests.support.server_process import Address

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 1000


class Server:
    def __init__(self, address: Address, client: BlockingClient) -> None:
        self.options = {"kafka.bootstrap.servers": f"{address.host}:{address.port}"}
        self.client = client

    def append(self, topic: str, start: int, stop: int) -> None:
        """Records with these numbers as keys and values."""
        with BlockingProducer(self.client) as producer:
            for number in range(start, stop):
                producer.send(topic, b"v%d" % number, key=b"k%d" % number)

    def records(self, topic: str) -> list[Record]:
        with BlockingConsumer(self.client, follow=False) as consumer:
            consumer.assign(topic)
            return [record for _, record in consumer.records()]

    def values(self, topic: str) -> list[bytes]:
        return sorted(record.value or b"" for record in self.records(topic))


@pytest.fixture
def server(served: tuple[Address, BlockingClient]) -> Server:
    return Server(*served)


@pytest.fixture
def topics(server: Server, request: pytest.FixtureRequest) -> tuple[str, str]:
    """A topic to read, with 300 records, and one to write, with two partitions; of this test alone."""
    name = f"{abs(hash(request.node.nodeid)):x}"
    source, target = f"source-{name}", f"target-{name}"
    admin = BlockingAdmin(server.client)
    admin.create_topic(source, 2)
    admin.create_topic(target, 2)
    server.append(source, 0, 300)
    return source, target


def frame(spark: SparkSession, rows: int = ROWS) -> DataFrame:
    return spark.range(rows).selectExpr(
        "cast(id as string) key",
        "case when id % 10 = 0 then null else concat('value ', id) end value",
        "array(named_struct('key', 'h', 'value', cast(null as binary))) headers",
        "timestamp_millis(1000 + id) timestamp",
    )


def stream(spark: SparkSession, server: Server, source: str, target: str, checkpoint: Path, **options: str) -> None:
    """Read the source to its end, change the values, and write them to the target."""
    read = spark.readStream.format("triolog").options(**server.options).option("subscribe", source)
    rows = read.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 150).load()
    changed = rows.selectExpr("key", "concat('seen ', cast(value as string)) value")
    write = changed.writeStream.format("triolog").options(**server.options, topic=target, **options)
    query = write.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()


def seen(stop: int) -> list[bytes]:
    return sorted(b"seen v%d" % number for number in range(stop))


def test_batch_write_appends_every_column(spark: SparkSession, server: Server, topics: tuple[str, str]) -> None:
    _, target = topics
    frame(spark).write.format("triolog").options(**server.options, topic=target).mode("append").save()
    found = {record.key: record for record in server.records(target)}
    assert len(found) == ROWS
    assert (found[b"7"].value, found[b"7"].timestamp, found[b"7"].headers) == (b"value 7", 1007, (("h", None),))
    assert found[b"10"].value is None


def test_a_write_that_fails_says_why_and_leaves_nothing(spark: SparkSession, server: Server, topics: tuple[str, str]) -> None:
    with pytest.raises(PySparkException, match="mode overwrite is refused"):
        frame(spark, 10).write.format("triolog").options(**server.options, topic=topics[1]).mode("overwrite").save()
    assert server.records(topics[1]) == []
    rows = spark.range(0, 100, 1, 2).selectExpr("if(id = 99, cast(raise_error('the last row') as string), 'v') value")
    with pytest.raises(PySparkException, match="the last row"):
        rows.write.format("triolog").options(**server.options, topic=topics[1]).mode("append").save()
    assert server.records(topics[1]) == []


def test_a_stream_resumes_without_repeats(spark: SparkSession, server: Server, topics: tuple[str, str], tmp_path: Path) -> None:
    """The second run repeats the last batch: Spark has lost its note of the commit, as in a crash between ours and its own."""
    stream(spark, server, *topics, tmp_path)
    assert server.values(topics[1]) == seen(300)
    last = max((path for path in (tmp_path / "commits").iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    for path in (last, last.with_name(f".{last.name}.crc")):
        path.unlink()
    server.append(topics[0], 300, 350)
    stream(spark, server, *topics, tmp_path)
    assert server.values(topics[1]) == seen(350)


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
