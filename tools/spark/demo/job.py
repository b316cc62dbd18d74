"""The process that is killed: `python -m triolog.tools.spark.demo.job SETTINGS`, with settings as JSON.

Its parts run one after the other, each to the end of what is there (`Trigger.AvailableNow`), each from its checkpoint on, so
a process that starts over does what was left:
1. `departures`: flights with weather and aircraft, from topic to topic, exactly once.
2. `hours`: departures to sums of an hour, exactly once. The watermark closes no window yet.
3. `closing`: one record in the topic of departures, so late that the watermark passes the end of the year. A batch write with
   a name and a version: written by the first process that comes here, by no other.
4. `hours` again: reads that record, and gives out every window.
5. `parquet`: the topic of hours as a table in a folder, overwritten as a whole.

It says what it does on standard output, a JSON object a line.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from ..session import session
from . import transformations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FORMAT: Final = "triolog"
FLIGHTS: Final = "flights"
DEPARTURES: Final = "departures"
HOURS: Final = "hours"
CLOSING: Final = "closing"
PARQUET: Final = "parquet"
POLL_S: Final = 0.05


@attrs.frozen(kw_only=True)
class Settings:
    """The settings of one run of the job; the same for every process of it."""

    servers: str
    folder: str
    """Holds checkpoints and the Parquet table."""
    tables: str
    """Folder of `weather.csv` and `planes.csv`."""
    rows_per_batch: int
    delay_ms: int
    """Of the watermark."""
    closing_ms: int
    """Timestamp of the record that closes the year."""
    config: Mapping[str, str] = attrs.field(factory=dict)
    """For the Spark session."""


class Job:
    """The parts, in one Spark session."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._spark = spark
        self._settings = settings
        self._folder = Path(settings.folder)

    def run(self) -> None:
        """Run all parts; skip those that an earlier process has finished."""
        self.departures()
        self.hours()
        self.closing()
        self.hours()
        self.parquet()

    def departures(self) -> None:
        """Write flights with their weather and their aircraft as records with the same headers."""
        tables = Path(self._settings.tables)
        weather = transformations.weather_of(self._spark, tables)
        planes = transformations.planes_of(self._spark, tables)
        flights = self._stream(FLIGHTS, includeHeaders="true")
        self._run(DEPARTURES, transformations.enriched(flights, weather, planes))

    def hours(self) -> None:
        """Write the sums of each hour."""
        self._run(HOURS, transformations.hourly(self._stream(DEPARTURES), self._settings.delay_ms))

    def closing(self) -> None:
        """Write the record after the last one."""
        row = self._spark.sql(
            f"select '{{}}' as value, cast(null as string) as key, timestamp_millis({self._settings.closing_ms}L) as timestamp"
        )
        writer = row.write.format(FORMAT).mode("append").options(**{"kafka.bootstrap.servers": self._settings.servers})
        writer.options(topic=DEPARTURES, txnAppId="spark-demo-closing", txnVersion="0").save()
        say(part=CLOSING)

    def parquet(self) -> None:
        """Write all hours into one table."""
        reader = self._spark.read.format(FORMAT).option("kafka.bootstrap.servers", self._settings.servers)
        rows = transformations.hours_as_rows(reader.option("subscribe", HOURS).load())
        rows.coalesce(1).write.mode("overwrite").parquet(str(self._folder / PARQUET))
        say(part=PARQUET)

    def _stream(self, topic: str, **options: str) -> DataFrame:
        reader = self._spark.readStream.format(FORMAT).option("kafka.bootstrap.servers", self._settings.servers)
        reader = reader.option("subscribe", topic).option("startingOffsets", "earliest").options(**options)
        return reader.option("maxOffsetsPerTrigger", str(self._settings.rows_per_batch)).load()

    def _run(self, name: str, records: DataFrame) -> None:
        writer = records.writeStream.format(FORMAT).queryName(name).outputMode("append")
        writer = writer.option("kafka.bootstrap.servers", self._settings.servers).option("topic", name)
        writer = writer.option("checkpointLocation", str(self._folder / "checkpoints" / name))
        query = writer.trigger(availableNow=True).start()
        told = -1
        while query.isActive:
            told = _tell(name, query, told)
            time.sleep(POLL_S)
        query.awaitTermination()
        _tell(name, query, told)


def _tell(name: str, query: StreamingQuery, told: int) -> int:
    """Print the batches that have ended since `told`; return the last of them."""
    for progress in query.recentProgress:
        if progress.batchId > told and "addBatch" in progress.durationMs:  # without, a query says that it has nothing to do
            told = progress.batchId
            states = progress.stateOperators
            say(
                part=name,
                batch=progress.batchId,
                rows=progress.numInputRows,
                seconds=progress.batchDuration / 1000,
                dropped=sum(state.numRowsDroppedByWatermark for state in states),
                state_rows=sum(state.numRowsTotal for state in states),
            )
    return told


def say(**facts: Any) -> None:
    """Print a line for the parent."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def main(text: str) -> None:
    """Run the job to its end."""
    settings = Settings(**json.loads(text))
    spark = session("triolog spark demo", config=settings.config)
    spark.sparkContext.setLogLevel("ERROR")
    say(part="session")
    Job(spark, settings).run()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
