"""The demo's work as Spark plans: a row of a flight with its weather and its aircraft, and the sums of an hour.

`enriched` has no state: one row in, one row out. `hourly` keeps a state for every window that the watermark has not closed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .tables import PLANES, WEATHER

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

FLIGHT: Final = "carrier string, origin string, tailnum string, dep_delay int, time_hour string"
DEPARTURE: Final = "origin string, carrier string, dep_delay int, seats int, is_wet boolean"
HOUR: Final = "hour long, origin string, carrier string, flights int, departed int, delay_minutes long, seats long, wet int"
"""`hour` is the start of the window in ms since the epoch."""


def weather_of(spark: SparkSession, folder: Path) -> DataFrame:
    """Return `origin`, `time_hour` (UTC, as text) and `is_wet`, a row for each airport and hour."""
    table = spark.read.csv(str(folder / WEATHER), header=True, nullValue="NA")
    return table.selectExpr("origin", "time_hour", "coalesce(cast(precip as double) > 0, false) as is_wet")


def planes_of(spark: SparkSession, folder: Path) -> DataFrame:
    """Return `tailnum` and `seats`."""
    table = spark.read.csv(str(folder / PLANES), header=True, nullValue="NA")
    return table.selectExpr("tailnum", "cast(seats as int) as seats")


def enriched(flights: DataFrame, weather: DataFrame, planes: DataFrame) -> DataFrame:
    """Turn records of flights into records of departures: with weather and seats, timestamp and headers as they were.

    A record that is no flight keeps its place, with nothing in it. Expects and gives the columns of the source.
    """
    from pyspark.sql import functions as f

    row = flights.select(f.from_json(f.col("value").cast("string"), FLIGHT).alias("flight"), "timestamp", "headers")
    known = row.select("flight.*", "timestamp", "headers")
    joined = known.join(f.broadcast(weather), ["origin", "time_hour"], "left").join(f.broadcast(planes), "tailnum", "left")
    value = f.to_json(f.struct("origin", "carrier", "dep_delay", "seats", f.coalesce("is_wet", f.lit(False)).alias("is_wet")))
    key = f.concat_ws(" ", "origin", "carrier")
    return joined.select(key.alias("key"), value.alias("value"), "timestamp", "headers")


def hourly(departures: DataFrame, delay_ms: int) -> DataFrame:
    """Turn records of departures into one for every hour, airport and carrier, once the watermark has passed that hour."""
    from pyspark.sql import functions as f

    departure = f.from_json(f.col("value").cast("string"), DEPARTURE).alias("departure")
    rows = departures.select("timestamp", departure).select("timestamp", "departure.*")
    late = rows.withWatermark("timestamp", f"{delay_ms} milliseconds")
    sums = late.groupBy(f.window("timestamp", "1 hour"), "origin", "carrier").agg(
        f.count("*").alias("flights"),
        f.count("dep_delay").alias("departed"),
        f.coalesce(f.sum("dep_delay"), f.lit(0)).alias("delay_minutes"),
        f.coalesce(f.sum("seats"), f.lit(0)).alias("seats"),
        f.count_if("is_wet").alias("wet"),
    )
    named = sums.withColumn("hour", f.unix_millis("window.start"))
    value = f.to_json(f.struct("hour", "origin", "carrier", "flights", "departed", "delay_minutes", "seats", "wet"))
    key = f.concat_ws(" ", "origin", "carrier")
    return named.select(key.alias("key"), value.alias("value"), f.col("window.start").alias("timestamp"))


def hours_as_rows(records: DataFrame) -> DataFrame:
    """Turn records of hours into the rows of the Parquet table."""
    from pyspark.sql import functions as f

    return records.select(f.from_json(f.col("value").cast("string"), HOUR).alias("hour")).select("hour.*")
