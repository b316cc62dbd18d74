"""What `triolog.tools.arrow.read` is compared with: directories read record by record, by what `triolog export` reads with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.types import TopicPartition
from triolog.server.offline.stored_records import DecidedTransactions, RecordRange, find_transactions, stored_batches
from triolog.server.storage.directory.inventory import read_directory
from triolog.server.storage.disk.checkpoints import LOG_START_FILE, decode_offsets
from triolog.server.storage.disk.filesystem import OsFileSystem

FS = OsFileSystem()
Row = dict[str, Any]


def partitions_in(directory: Path) -> list[TopicPartition]:
    return [files.topic_partition for files in read_directory(FS, str(directory)).partitions]


def scalar_rows(directory: Path, partition: TopicPartition, *, committed: bool) -> list[Row]:
    """Every record from the log start offset on, as a row of `read`."""
    [files] = [files for files in read_directory(FS, str(directory)).partitions if files.topic_partition == partition]
    transactions = find_transactions(FS, files, _pass) if committed else DecidedTransactions()
    wanted = RecordRange(from_offset=_log_start(directory, partition), committed=committed)
    append_timed = _append_timed(directory / str(partition))
    return [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestamp_type": int(record.offset in append_timed),
            "key": record.key,
            "value": record.value,
            "headers": [{"key": name, "value": value} for name, value in record.headers],
        }
        for records in stored_batches(FS, files, wanted, transactions, damaged=_refuse, advance=_pass)
        for record in records
    ]


def rows_of(reader: pa.RecordBatchReader) -> list[Row]:
    """With timestamps as milliseconds. What was handed out is checked whole."""
    rows: list[Row] = []
    for batch in reader:
        batch.validate(full=True)
        assert batch.schema == reader.schema
        rows += with_plain_times(batch)
    return rows


def with_plain_times(batch: pa.RecordBatch) -> list[Row]:
    columns = {
        name: (column.cast(pa.int64()) if name == "timestamp" else column).to_pylist()
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def _log_start(directory: Path, partition: TopicPartition) -> int:
    path = directory / LOG_START_FILE
    return decode_offsets(str(path), path.read_bytes()).get(partition, 0) if path.is_file() else 0


def _append_timed(directory: Path) -> set[int]:
    """Offsets of batches under LogAppendTime."""
    return {
        offset
        for path in directory.glob("*.log")
        for header, _ in iter_batches(path.read_bytes())
        if header.timestamp_type
        for offset in range(header.base_offset, header.next_offset)
    }


def _pass(size: int) -> None:
    """Progress."""


def _refuse(path: str, damage: object) -> None:
    raise AssertionError(f"{path}: {damage}")
