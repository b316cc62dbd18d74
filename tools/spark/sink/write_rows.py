"""The rows of a write: which columns they may have, and which partition each goes to. No sockets, no Spark session.

| column | type | |
|---|---|---|
| value | string or binary | required; null is a tombstone |
| key | string or binary | null or absent: the row goes to the partition of its task |
| topic | string | required unless the option `topic` is set, which wins |
| partition | int | null or absent: the key's partition |
| headers | array<struct<key: string, value: binary>> | |
| timestamp | timestamp | null or absent: the time of the write; the millisecond before 1970 is a record without timestamp |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ....protocol.records.columnar.schema import header_type
from ....protocol.types import TopicPartition
from ...client.sending import partitioner
from ...client.sending.key_hashes import partitions_for_keys

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"
TYPES: Final = {
    "value": ("string", "binary"),
    "key": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": (HEADERS_TYPE,),
    "timestamp": ("timestamp",),
}
"""What each column may be, as Spark writes types."""
_RECORD_COLUMNS: Final = ("value", "key", "timestamp", "headers")


class RowError(ValueError):
    """Columns or a row that cannot become a record."""


class Rows(NamedTuple):
    """Rows of one partition, in order, with the columns that `encode_batches` takes."""

    partition: TopicPartition
    rows: pa.RecordBatch


def check_schema(schema: StructType, topic: str | None) -> None:
    """RowError unless rows of this schema can be written; `topic` is the option's."""
    found: dict[str, str] = {}
    for field in schema.fields:
        if field.name in found:
            raise RowError(f"column {field.name} is there twice. Select it once")
        found[field.name] = field.dataType.simpleString()
    for name, kind in found.items():
        if name not in TYPES:
            raise RowError(f"unknown column {name}. A record has {', '.join(TYPES)}: drop the column or put it into value")
        if kind not in TYPES[name]:
            raise RowError(f"column {name} is {kind}, expected {' or '.join(TYPES[name])}. Cast it")
    if "value" not in found:
        raise RowError(f"column value is missing, found: {', '.join(found) or 'no columns'}. A record needs a value")
    if topic is None and "topic" not in found:
        raise RowError("no topic. Set the option topic, or add a column topic")


@attrs.frozen(kw_only=True)
class Routing:
    """The assignment of rows to partitions. `partition_count` returns a topic's number of partitions, or raises."""

    topic: str | None
    application: str
    version: int
    spark_partition: int
    partition_count: Callable[[str], int]

    def group(self, batches: Sequence[pa.RecordBatch]) -> Iterator[Rows]:
        """The rows of each partition, in the order in which they come. RowError names what cannot be written."""
        table = pa.Table.from_batches(list(batches))
        if not table.num_rows:
            return
        rows = table.combine_chunks().to_batches(max_chunksize=table.num_rows)
        for batch in rows:  # one, unless a column has more than 2 GiB
            yield from self._group(batch)

    def _group(self, batch: pa.RecordBatch) -> Iterator[Rows]:
        columns = {name: batch.column(name) for name in batch.schema.names}
        records = _records(columns)
        if self.topic is not None:
            yield from self._group_topic(self.topic, records, columns)
            return
        topics = columns["topic"].dictionary_encode()
        if topics.null_count:
            row = pc.index(pc.is_null(columns["topic"]), True).as_py()
            raise RowError(f"column topic is null in a row (number {row} of {len(topics)}). Fill it, or set the option topic")
        if len(topics.dictionary) == 1:
            yield from self._group_topic(topics.dictionary[0].as_py(), records, columns)
            return
        indices = topics.indices.to_numpy()
        for index, topic in enumerate(topics.dictionary.to_pylist()):
            chosen = pa.array(np.flatnonzero(indices == index))
            of_topic = {name: column.take(chosen) for name, column in columns.items()}
            yield from self._group_topic(topic, records.take(chosen), of_topic)

    def _group_topic(self, topic: str, records: pa.RecordBatch, columns: dict[str, pa.Array]) -> Iterator[Rows]:
        partitions = self._partitions(topic, records, columns)
        order = np.argsort(partitions.astype(np.uint16), kind="stable")  # a radix sort; a topic has at most 10,000 partitions
        found, begins = np.unique(partitions[order], return_index=True)
        if len(found) > 1:
            records = records.take(pa.array(order))
        ends = [*begins[1:].tolist(), len(order)]
        for partition, begin, end in zip(found.tolist(), begins.tolist(), ends, strict=True):
            yield Rows(TopicPartition(topic, partition), records.slice(begin, end - begin))

    def _partitions(
        self, topic: str, records: pa.RecordBatch, columns: dict[str, pa.Array]
    ) -> np.ndarray[Any, np.dtype[np.int64]]:
        count = self.partition_count(topic)
        sticky = sticky_partition(topic, self.application, self.version, self.spark_partition, count)
        partitions = np.full(records.num_rows, sticky, np.int64)
        if "key" in columns and count > 1:
            keys = records.column("key")
            keyed = keys.is_valid().to_numpy(zero_copy_only=False)
            partitions = np.where(keyed, partitions_for_keys(keys, count), partitions)
        if "partition" in columns:
            asked = columns["partition"]
            given = asked.is_valid().to_numpy(zero_copy_only=False)
            partitions = np.where(given, asked.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64), partitions)
            wrong = np.flatnonzero((partitions < 0) | (partitions >= count))
            if len(wrong):
                named = partitions[wrong[0]]
                raise RowError(f"column partition is {named} in a row for topic {topic}, which has partitions 0 to {count - 1}")
        return partitions


def _records(columns: dict[str, pa.Array]) -> pa.RecordBatch:
    """Return the columns that go into records, keys and values as binary."""
    chosen = {name: columns[name] for name in _RECORD_COLUMNS if name in columns}
    for name in ("value", "key"):
        if name in chosen:
            chosen[name] = chosen[name].cast(pa.binary())
    if "headers" in chosen:
        chosen["headers"] = chosen["headers"].cast(pa.list_(pa.field("element", header_type())))
    if "timestamp" in chosen:
        chosen["timestamp"] = chosen["timestamp"].cast(pa.timestamp("us", tz="UTC"))
    return pa.RecordBatch.from_arrays(list(chosen.values()), list(chosen))


def sticky_partition(topic: str, application: str, version: int, spark_partition: int, partitions: int) -> int:
    """The one partition for all rows without a key that a task writes to a topic; the same when the task is tried again."""
    named = f"{topic}/{application}/{version}/{spark_partition}".encode()
    return partitioner.partition_for_key(named, partitions)
