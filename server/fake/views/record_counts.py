"""Counts unread records: records, not offsets.

Markers, aborted records, and offsets whose records were compacted, deleted or lost to damage do not count. Records of an open
transaction do not count either. Records after them that are in no transaction do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from ....protocol.records.batch import BatchHeader, iter_batches
from ....protocol.records.control import ControlRecordType, control_record_type
from ....protocol.records.record import iter_records
from ....protocol.types import TopicPartition
from ...broker import Broker, FetchPartition, ReaderView

PAGE_BYTES: Final = 8 * 2**20
VIEW: Final = ReaderView(skip_gaps=True)


async def count_records(
    core: Broker,
    where: TopicPartition,
    offset: int,
    *,
    committed_only: bool = True,
    leaves_out: Callable[[int], bool] | None = None,
) -> int:
    """Records from `offset` up to the high watermark, without those whose offset `leaves_out` holds for. `committed_only`:
    only those that were sent outside of transactions, or whose transaction is committed. Raises RequestError."""
    at = max(offset, core.reader.snapshot(where).log_start_offset)
    count, pending = 0, Counter[int]()
    while at < core.reader.snapshot(where).high_watermark:
        [answer] = await core.reader.fetch([FetchPartition(where, at, PAGE_BYTES)], max_bytes=PAGE_BYTES, view=VIEW)
        if answer.fetched is None:
            assert answer.error is not None
            raise answer.error
        before = at
        for header, batch in iter_batches(answer.fetched.records):
            if header.is_control:
                ended = pending.pop(header.producer_id, 0)
                count += ended if _is_commit(header, batch) else 0
            elif header.is_transactional and committed_only:
                pending[header.producer_id] += _counted(header, batch, at, leaves_out)
            else:
                count += _counted(header, batch, at, leaves_out)
            at = header.next_offset
        if at == before:
            break
    return count


def _counted(header: BatchHeader, batch: memoryview, offset: int, leaves_out: Callable[[int], bool] | None) -> int:
    """Records of a batch from an offset on. They are unpacked only where some of them may not count."""
    if leaves_out is None and header.base_offset >= offset:
        return header.records_count
    return sum(
        record.offset >= offset and not (leaves_out is not None and leaves_out(record.offset))
        for record in iter_records(batch, header)
    )


def _is_commit(header: BatchHeader, batch: memoryview) -> bool:
    return any(control_record_type(record.key) is ControlRecordType.COMMIT for record in iter_records(batch, header))
