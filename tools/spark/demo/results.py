"""What the job left behind, read without Spark: both topics by a consumer, the table by pyarrow."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from ....protocol.types import TopicPartition
from ...client.connection import Client
from ...client.consumer import open_consumer
from ...demo.reading import ROW_HEADER
from .job import DEPARTURES, HOURS, PARQUET
from .tables import NOTHING, Group, Sums

PARTITIONS: Final = 3
"""Of each topic of the demo; an airport's flights are one partition's."""


@attrs.define(eq=False, repr=False)
class Results:
    """Filled by `read_results`."""

    departures: Counter[bytes] = attrs.Factory(Counter)
    """How often the number of a source row is in the topic of departures."""
    without_row: int = 0
    """Records there that name no source row."""
    hours: dict[Group, Sums] = attrs.Factory(dict)
    """Of the topic."""
    repeated_hours: int = 0
    """Records of the topic whose group was there before."""
    parquet: dict[Group, Sums] = attrs.Factory(dict)
    parquet_rows: int = 0


async def read_results(client: Client, folder: Path) -> Results:
    """Everything, from the first offset to the last."""
    results = Results()
    async with open_consumer(client, follow=False) as consumer:
        await consumer.assign([TopicPartition(DEPARTURES, number) for number in range(PARTITIONS)])
        async for batch in consumer:
            for record in batch.records():
                number = dict(record.headers).get(ROW_HEADER)
                if number is None:
                    results.without_row += 1
                else:
                    results.departures[number] += 1
    async with open_consumer(client, follow=False) as consumer:
        await consumer.assign([TopicPartition(HOURS, number) for number in range(PARTITIONS)])
        async for batch in consumer:
            for record in batch.records():
                results.repeated_hours += not add_hour(results.hours, json.loads(record.value or b"{}"))
    for row in _parquet_rows(folder / PARQUET):
        results.parquet_rows += 1
        add_hour(results.parquet, row)
    return results


def add_hour(hours: dict[Group, Sums], row: Mapping[str, Any]) -> bool:
    """Count a row of the result; whether its group is new."""
    group = Group(row["hour"], row["origin"], row["carrier"])
    is_new = group not in hours
    hours[group] = hours.get(group, NOTHING).plus(Sums._make(row[name] for name in Sums._fields))
    return is_new


def _parquet_rows(folder: Path) -> Iterable[dict[str, Any]]:
    import pyarrow.parquet

    rows: Iterable[dict[str, Any]] = pyarrow.parquet.read_table(folder).to_pylist()
    return rows
