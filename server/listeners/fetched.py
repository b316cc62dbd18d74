"""The answer to a native fetch: what the broker read, as batches or as plain records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ...protocol.errors import RequestError
from ...protocol.native import messages
from ...protocol.records.batch import iter_batches
from ...protocol.records.committed import CommittedFilter
from ...protocol.records.record import iter_records
from ...protocol.types import NO_OFFSET, Isolation, Record
from ..broker import FetchAnswer, FetchedRecords, FetchPartition

RECORD_OVERHEAD_BYTES: Final = 32
"""Counted per plain record beside key, value and headers."""


class PlainRecords(NamedTuple):
    """Records to be seen, and where to read on, which may lie behind records that nobody sees."""

    records: tuple[Record, ...]
    next_offset: int
    size_bytes: int


def fetch_body(
    answers: Sequence[FetchAnswer], asked: Sequence[FetchPartition], request: messages.FetchRequest, *, max_bytes: int
) -> Any:
    """One entry per partition asked for. A partition whose batches cannot be unpacked has an error of its own.

    Plain records of all partitions together have about `max_bytes`: what they were read from can be a thousandth of that.
    """
    entries = []
    is_empty = True
    left = max_bytes
    for answer, question in zip(answers, asked, strict=True):
        if answer.fetched is None:
            entries.append(messages.FetchPartitionResponse(*answer.topic_partition, answer.error))
            continue
        try:
            plain = None
            if request.format is messages.Format.RECORDS:
                plain = plain_records(answer.fetched, question, max_bytes=max(0, left) if is_empty else left)
                left -= plain.size_bytes
            entry = _entry(answer.fetched, plain, question, request, is_first=is_empty)
        except RequestError as exc:
            entry = messages.FetchPartitionResponse(*answer.topic_partition, exc.as_answer())
        entries.append(entry)
        is_empty = is_empty and not answer.fetched.records
    return messages.FetchResponse(tuple(entries)).to_body()


def _entry(
    fetched: FetchedRecords,
    plain: PlainRecords | None,
    question: FetchPartition,
    request: messages.FetchRequest,
    *,
    is_first: bool,
) -> messages.FetchPartitionResponse:
    """`is_first`: nothing came before it in the answer, so that a batch would be there if the log had one."""
    next_offset = NO_OFFSET if plain is None else plain.next_offset
    if is_first and not fetched.records:
        committed = request.isolation is Isolation.READ_COMMITTED
        end = fetched.last_stable_offset if committed else fetched.high_watermark
        if question.offset < end:
            next_offset = end
    return messages.FetchPartitionResponse(
        *question.topic_partition,
        None,
        fetched.high_watermark,
        fetched.last_stable_offset,
        fetched.log_start_offset,
        _aborted_pairs(fetched) if plain is None else (),
        fetched.records if plain is None else plain.records,
        next_offset,
    )


def _aborted_pairs(fetched: FetchedRecords) -> tuple[tuple[int, int], ...]:
    """(producer id, first offset) of each aborted transaction, by first offset."""
    aborted = sorted((txn.first_offset, txn.producer_id) for txn in fetched.aborted or ())
    return tuple((producer_id, first_offset) for first_offset, producer_id in aborted)


def plain_records(fetched: FetchedRecords, question: FetchPartition, *, max_bytes: int) -> PlainRecords:
    """The records from the asked offset on, without control batches and aborted transactions; they stop once they are larger
    than `max_bytes` or what was asked for. None if `max_bytes` is negative. Raises what unpacking a batch raises."""
    records: list[Record] = []
    next_offset = question.offset
    size = 0
    if max_bytes < 0:
        return PlainRecords((), next_offset, size)
    limit = min(question.max_bytes, max_bytes)
    committed = CommittedFilter(_aborted_pairs(fetched))
    for header, batch in iter_batches(fetched.records):
        if not committed.leaves_out(header, batch):
            for record in iter_records(batch, header):
                if record.offset < question.offset:
                    continue
                records.append(record)
                size += _size_of(record)
                if size > limit:
                    return PlainRecords(tuple(records), record.offset + 1, size)
        next_offset = max(next_offset, header.next_offset)
    return PlainRecords(tuple(records), next_offset, size)


def _size_of(record: Record) -> int:
    headers = sum(len(key) + len(value or b"") for key, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + RECORD_OVERHEAD_BYTES
