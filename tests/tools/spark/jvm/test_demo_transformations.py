"""The demo's plans over flights that are there at once, compared with the plain recomputation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from triolog.tools.demo.flights import find_source, load_flights
from triolog.tools.spark.demo import transformations
from triolog.tools.spark.demo.results import add_hour
from triolog.tools.spark.demo.tables import Group, Sums, recompute

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS = """
select cast(text as binary) as value, cast(null as timestamp) as timestamp,
    cast(null as array<struct<key: string, value: binary>>) as headers
from values ('{}'), ('not json'), (cast(null as string)) as texts(text)
"""


def _records(spark: SparkSession, folder: Path, count: int) -> DataFrame:
    """The flights as the source gives them; through a file, as a list of rows would have each of them typed by Python."""
    import pyarrow as pa
    import pyarrow.parquet

    flights = load_flights(find_source(), count)
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    columns = {
        "value": pa.array([flight.value for flight in flights], pa.binary()),
        "timestamp": pa.array([flight.timestamp * 1000 for flight in flights], pa.timestamp("us", tz="UTC")),
        "headers": pa.array([[{"key": "row", "value": flight.row}] for flight in flights], headers),
    }
    pyarrow.parquet.write_table(pa.table(columns), folder / "flights.parquet")
    return spark.read.parquet(str(folder / "flights.parquet"))


@pytest.mark.full  # test_demo_tables.py has the recomputation, and below is a run of the plan of the joins
def test_the_plans_come_to_what_the_files_say(spark: SparkSession, tmp_path: Path) -> None:
    tables = find_source().parent
    weather, planes = transformations.weather_of(spark, tables), transformations.planes_of(spark, tables)
    departures = transformations.enriched(_records(spark, tmp_path, 3000), weather, planes)
    hours: dict[Group, Sums] = {}
    rows = transformations.hourly(departures, 1000).collect()
    assert all(add_hour(hours, json.loads(row["value"])) for row in rows)
    assert hours == recompute(find_source(), load_flights(find_source(), 3000))
    assert {row["key"] for row in rows} == {f"{group.origin} {group.carrier}" for group in hours}


def test_a_record_that_is_no_flight_keeps_its_place(spark: SparkSession) -> None:
    tables = find_source().parent
    weather, planes = transformations.weather_of(spark, tables), transformations.planes_of(spark, tables)
    records = spark.sql(RECORDS)
    assert transformations.enriched(records, weather, planes).count() == 3
