"""The demo's plans over flights that are there at once, compared with the plain recomputation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from triolog.tools.demo.flights import find_source
from triolog.tools.spark.demo import transformations

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = """
select cast(text as binary) as value, cast(null as timestamp) as timestamp,
    cast(null as array<struct<key: string, value: binary>>) as headers
from values ('{}'), ('not json'), (cast(null as string)) as texts(text)
"""


def test_a_record_that_is_no_flight_keeps_its_place(spark: SparkSession) -> None:
    tables = find_source().parent
    weather, planes = transformations.weather_of(spark, tables), transformations.planes_of(spark, tables)
    records = spark.sql(RECORDS)
    assert transformations.enriched(records, weather, planes).count() == 3
