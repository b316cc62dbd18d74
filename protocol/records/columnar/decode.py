"""Record batches to Arrow columns.

What comes out is what `iter_records` yields, for whatever bytes: the same records, or the same error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from ...limits import INT64_MAX
from ...types import Bytes
from ..batch import BatchHeader, check_batch, iter_batches
from ..committed import CommittedFilter
from ..record import iter_records
from .row_columns import columns_of
from .schema import arrow_schema, arrow_type, check_columns

if TYPE_CHECKING:
    import pyarrow as pa


@attrs.frozen
class Wanted:
    """Which columns of which records. `low` is inclusive, `high` exclusive. ValueError for unknown or repeated columns."""

    topic: str
    partition: int
    columns: tuple[str, ...] = attrs.field()
    low: int = 0
    high: int = INT64_MAX
    check_crcs: bool = False

    @columns.validator
    def _check_columns(self, _: object, columns: tuple[str, ...]) -> None:
        check_columns(columns)


def decode_batches(data: Bytes, wanted: Wanted, *, committed: CommittedFilter | None = None) -> pa.RecordBatch:
    """The wanted records of consecutive batches, in their order.

    The first batch may begin below `low`; an incomplete last one is left out, `complete_bytes` says where it begins.
    Control batches give no rows; `committed`, which is asked for every batch, leaves out those of aborted transactions.
    Batches that hold nothing between `low` and `high` are not looked into. Under LogAppendTime every record has its
    batch's max_timestamp.

    Raises what `iter_batches`, `check_batch` (with `check_crcs`), `iter_records` and the filter raise, and InvalidRecordError
    for a timestamp above 2**63 microseconds, if that column is wanted.
    """
    import pyarrow as pa

    parts = []
    for header, batch in iter_batches(data):
        if _is_wanted(header, batch, wanted, committed):
            records = [record for record in iter_records(batch, header) if wanted.low <= record.offset < wanted.high]
            parts.append(
                columns_of(
                    records,
                    wanted.columns,
                    topic=wanted.topic,
                    partition=wanted.partition,
                    timestamp_type=header.timestamp_type,
                )
            )
    columns = [
        pa.concat_arrays([part[index] for part in parts]) if parts else pa.array([], type=arrow_type(name))
        for index, name in enumerate(wanted.columns)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(wanted.columns))


def complete_bytes(data: Bytes) -> int:
    """Length of the whole batches at the start of `data`. CorruptRecordError where no batch starts where one should."""
    return sum(header.size_bytes for header, _ in iter_batches(data))


def next_offset(data: Bytes) -> int | None:
    """The offset behind the last whole batch; None when there is none. CorruptRecordError as for `complete_bytes`."""
    header = None
    for header, _ in iter_batches(data):  # noqa: B007 - the last one is what is asked for
        pass
    return None if header is None else header.next_offset


def _is_wanted(header: BatchHeader, batch: memoryview, wanted: Wanted, committed: CommittedFilter | None) -> bool:
    is_inside = header.last_offset >= wanted.low and header.base_offset < wanted.high
    if wanted.check_crcs and (is_inside or header.is_control):
        check_batch(batch, header)
    if committed is not None and committed.leaves_out(header, batch):
        return False
    return is_inside and not header.is_control
