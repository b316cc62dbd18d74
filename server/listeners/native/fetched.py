"""The answer to a native fetch: what the broker read, as batches or as plain records."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Final

from ....protocol.errors import RequestError
from ....protocol.native import messages
from ....protocol.types import Isolation
from ...broker import FetchAnswer, FetchedRecords, FetchPartition, PlainRecords, aborted_pairs
from ..access.judging import finish

ENTRIES_PER_PAUSE: Final = 64


def fetch_body(
    answers: Sequence[FetchAnswer],
    asked: Sequence[FetchPartition],
    request: messages.FetchRequest,
    plain: Sequence[PlainRecords | RequestError | None] | None = None,
) -> Any:
    """One entry per partition asked for; `plain` has what `unpack` has made of the answers, if that was wanted."""
    return finish(fetch_body_steps(answers, asked, request, plain))


def fetch_body_steps(
    answers: Sequence[FetchAnswer],
    asked: Sequence[FetchPartition],
    request: messages.FetchRequest,
    plain: Sequence[PlainRecords | RequestError | None] | None = None,
) -> Generator[None, None, Any]:
    """The same, with pauses."""
    entries = []
    is_empty = True
    for slot, (answer, question) in enumerate(zip(answers, asked, strict=True)):
        if slot and not slot % ENTRIES_PER_PAUSE:
            yield
        unpacked = None if plain is None else plain[slot]
        if answer.fetched is None:
            entries.append(messages.FetchPartitionResponse(*answer.topic_partition, answer.error))
            continue
        if isinstance(unpacked, RequestError):
            entries.append(messages.FetchPartitionResponse(*answer.topic_partition, unpacked))
        else:
            entries.append(_entry(answer.fetched, unpacked, question, request, is_first=is_empty))
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
    next_offset = fetched.next_offset if plain is None else plain.next_offset
    range_ended = None
    if question.times is not None:
        range_ended = fetched.ends_range and next_offset >= fetched.next_offset
    elif is_first and not fetched.records:
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
        aborted_pairs(fetched) if plain is None else (),
        fetched.records if plain is None else plain.records,
        next_offset,
        range_ended,
    )
