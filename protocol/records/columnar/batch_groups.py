"""Which batches are decoded together, and where their records lie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from ...errors import TriologError
from ...limits import INT32_MAX, MAX_DECOMPRESSED_BYTES, MIB
from ...types import Bytes
from ..batch import COMPRESSION_MASK, CONTROL_FLAG, RECORD_BATCH_OVERHEAD, BatchHeader, check_batch, iter_batches
from ..committed import CommittedFilter
from ..payload import records_data

GROUP_BYTES: Final = 8 * MIB
"""Uncompressed, from the first batch to the end of the last. Arrays of a group then stay in the processor's cache."""
GROUP_RECORDS: Final = 1 << 16
_LEAST_RECORD_BYTES: Final = 7
"""Length, attributes, both deltas, two lengths and the headers' count, of one byte each."""


class GroupedBatch(NamedTuple):
    """A batch whose records are wanted."""

    header: BatchHeader
    batch: memoryview
    """As stored."""
    start: int
    """Of its records, in the buffer of the group."""
    stop: int


class BatchGroup(NamedTuple):
    """Batches that are decoded together. Their records lie in `buffer` in order, maybe with other bytes in between."""

    buffer: Bytes
    batches: list[GroupedBatch]


class Selection(NamedTuple):
    """Which batches are looked into: those with offsets from `low` up to, exclusive, `high`."""

    low: int
    high: int
    check_crcs: bool
    committed: CommittedFilter | None
    least_timestamp: int | None = None
    """In ms; batches that say that all of theirs are below it are left out."""


def batch_groups(data: Bytes, selection: Selection) -> Iterator[BatchGroup]:
    """Group the selected batches that have records. Errors come behind the groups of the batches before them.

    Raises what `iter_batches`, `check_batch`, the filter and `records_data` raise.
    """
    view = memoryview(data)
    batches: list[GroupedBatch] = []
    payloads: list[Bytes] = []
    first = position = size = records = 0
    failure: TriologError | None = None
    walk = iter_batches(view)
    while True:
        try:
            if (found := next(walk, None)) is None:
                break
            header, batch = found
            start, position = position, position + len(batch)
            if not _is_selected(header, batch, selection) or not header.records_count:
                continue
            is_stored = not header.attributes & COMPRESSION_MASK and header.records_count > 0
            payload = b"" if is_stored else records_data(batch, header, MAX_DECOMPRESSED_BYTES)
            payload_bytes = len(batch) - RECORD_BATCH_OVERHEAD if is_stored else len(payload)
        except TriologError as exc:
            failure = exc
            break
        if batches and (
            is_stored != (not payloads)
            or size + payload_bytes > GROUP_BYTES
            or position - first > GROUP_BYTES
            or records + header.records_count > GROUP_RECORDS
        ):
            yield _group(view, first, batches, payloads)
            batches, payloads, size, records = [], [], 0, 0
        if not batches:
            first = start + RECORD_BATCH_OVERHEAD
        if is_stored:
            batches.append(GroupedBatch(header, batch, start + RECORD_BATCH_OVERHEAD - first, position - first))
        else:
            batches.append(GroupedBatch(header, batch, size, size + payload_bytes))
            payloads.append(payload)
        size += payload_bytes
        records += header.records_count
    if batches:
        yield _group(view, first, batches, payloads)
    if failure is not None:
        raise failure


def is_plausible(batch: GroupedBatch) -> bool:
    """Whether its records could have their number in their bytes; what needs memory for each of them asks this first."""
    return batch.header.records_count * _LEAST_RECORD_BYTES <= batch.stop - batch.start <= INT32_MAX


def _group(view: memoryview, first: int, batches: list[GroupedBatch], payloads: list[Bytes]) -> BatchGroup:
    if not payloads:
        return BatchGroup(view[first : first + batches[-1].stop], batches)
    return BatchGroup(payloads[0] if len(payloads) == 1 else b"".join(payloads), batches)


def _is_selected(header: BatchHeader, batch: memoryview, selection: Selection) -> bool:
    # The sum and the flag as they stand here, not by their properties: a batch may hold one record only.
    is_inside = header.base_offset + header.last_offset_delta >= selection.low and header.base_offset < selection.high
    is_control = header.attributes & CONTROL_FLAG
    if selection.check_crcs and (is_inside or is_control):
        check_batch(batch, header)
    if selection.committed is not None and selection.committed.leaves_out(header, batch):
        return False
    if not is_inside or is_control:
        return False
    return selection.least_timestamp is None or header.max_timestamp >= selection.least_timestamp
