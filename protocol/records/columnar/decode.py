"""Record batches to Arrow columns.

What comes out is what `iter_records` yields, for whatever bytes: the same records, or the same error. Whole groups of
batches are decoded at once (`group_columns`); what that does not recognise is decoded batch by batch, and at last by the
scalar codec, which either understands it after all or says what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ...errors import RecordTooLargeError
from ...limits import INT32_MAX
from ...types import Bytes
from ..batch import iter_batches
from ..record import CommittedFilter, iter_records
from .group_columns import columns_of, group_columns
from .record_starts import BatchGroup, GroupedBatch, Selection, batch_groups
from .schema import Wanted, arrow_schema, arrow_type
from .varints import LeftToScalarError

if TYPE_CHECKING:
    import pyarrow as pa


MAX_DECODED_BYTES: Final = INT32_MAX
"""Of all columns: Arrow's offsets into a column have 32 bits, and compressed batches may become many times their size."""

__all__ = ["MAX_DECODED_BYTES", "Wanted", "decode_batches", "next_offset"]


def decode_batches(data: Bytes, wanted: Wanted, *, committed: CommittedFilter | None = None) -> pa.RecordBatch:
    """The wanted records of consecutive batches, in their order. The result does not keep `data`.

    The first batch may begin below `low`; an incomplete last one is left out.
    Control batches give no rows; `committed`, which is asked for every batch, leaves out those of aborted transactions.
    Batches that hold nothing between `low` and `high` are not looked into, and keys, values and headers only when one of
    them is wanted. Under LogAppendTime every record has its batch's max_timestamp.

    Raises what `iter_batches`, `check_batch` (with `check_crcs`), `iter_records` and the filter raise, InvalidRecordError
    for a timestamp above 2**63 microseconds if that column is wanted, and RecordTooLargeError above MAX_DECODED_BYTES.
    """
    import pyarrow as pa

    parts: list[list[pa.Array]] = []
    size = 0
    least_timestamp = wanted.least_timestamp if wanted.has_times else None
    selection = Selection(wanted.low, wanted.high, wanted.check_crcs, committed, least_timestamp)
    for group in batch_groups(data, selection):
        for part in _group_parts(group, wanted):
            parts.append(part)
            if (size := size + sum(column.nbytes for column in part)) > MAX_DECODED_BYTES:
                raise RecordTooLargeError(
                    f"{wanted.topic}-{wanted.partition}: {len(data)} bytes of batches, the last at offset "
                    f"{group.batches[-1].header.base_offset}, become more than {MAX_DECODED_BYTES}. Decode fewer at once"
                )
    columns = [_joined([part[index] for part in parts], name, wanted) for index, name in enumerate(wanted.columns)]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(wanted.columns, wanted.timestamp_unit))


def next_offset(data: Bytes) -> int | None:
    """The offset behind the last whole batch; None when there is none. CorruptRecordError for bytes that start none."""
    offset = None
    for header, _ in iter_batches(data):
        offset = header.next_offset
    return offset


def _group_parts(group: BatchGroup, wanted: Wanted) -> Iterator[list[pa.Array]]:
    try:
        yield group_columns(group, wanted)
    except LeftToScalarError:
        if len(group.batches) == 1:
            yield _scalar_columns(group.batches[0], wanted)
            return
        for batch in group.batches:
            yield from _group_parts(BatchGroup(group.buffer, [batch]), wanted)


def _scalar_columns(batch: GroupedBatch, wanted: Wanted) -> list[pa.Array]:
    records = [record for record in iter_records(batch.batch, batch.header) if wanted.low <= record.offset < wanted.high]
    if wanted.has_times:
        records = [record for record in records if wanted.holds_timestamp(record.timestamp)]
    return columns_of(records, wanted, batch.header.timestamp_type)


def _joined(parts: list[pa.Array], column: str, wanted: Wanted) -> pa.Array:
    import pyarrow as pa

    if not parts:
        return pa.array([], type=arrow_type(column, wanted.timestamp_unit))
    if len(parts) == 1:
        return parts[0]
    return pa.concat_arrays(parts)
