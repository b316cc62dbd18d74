"""Records of a running server, over its native protocol: batches are fetched as they are stored and decoded here.

While one answer is decoded the next one is on its way. A server that starts again in between is waited for, and the fetch is
repeated from the offset that was reached, so nothing is lost and nothing comes twice. `_fetch_request` is the one place that
says what is asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import attrs

from ...protocol.errors import ErrorCode, RecordTooLargeError, RequestError
from ...protocol.limits import MIB
from ...protocol.native.messages import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    Gaps,
    MetadataRequest,
    TopicMetadata,
)
from ...protocol.records.columnar.decode import Wanted, decode_batches, next_offset
from ...protocol.records.record import CommittedFilter
from ...protocol.types import LATEST_TIMESTAMP, Isolation, TopicPartition
from ...server.storage.disk.paths import is_internal
from ..client.backoff import Retries, passes
from ..client.blocking.client import BlockingClient, Started
from ..client.config import Address, ClientConfig, address_text
from ..client.procedures.topics import offsets_at
from .bounds import Bounds
from .report import ArrowError
from .schema import UNIT
from .sources import ReadOptions, Span, chosen_partitions

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

FETCH_BYTES: Final = 4 * MIB
"""Of an answer: arrays of it stay in the processor's cache, and two of them are in memory."""
_UNANSWERED: Final = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT})


class ServerSource:
    """A connection to a server, opened for one read. Owner: the read."""

    def __init__(self, address: Address, options: ReadOptions) -> None:
        self._options = options
        self._where = address_text(address)
        config = ClientConfig(
            client_id="triolog-arrow",
            connect_timeout_ms=min(10_000, options.timeout_ms),
            tls=options.tls,
            login=options.login,
        )
        self._client = BlockingClient(address, config)
        self._log_bytes = 0
        self._was_answered = False

    def topics(self) -> list[str]:
        """Those that this client may see, without the server's own."""
        metadata = self._retried(lambda: self._client.metadata(MetadataRequest()), "looking up topics")
        return sorted(topic.name for topic in metadata.topics if topic.error is None and not is_internal(topic.name))

    def spans(self, topics: Sequence[str], partitions: Sequence[int] | None, bounds: Bounds) -> list[Span]:
        """Return the spans that the server has now, up to the high watermark or the last stable offset."""
        ranges: dict[TopicPartition, tuple[int, int]] = {}
        metadata = self._retried(lambda: self._client.metadata(MetadataRequest(tuple(topics))), "looking up topics")
        for topic in metadata.topics:
            ranges.update(self._ranges_of(topic))
        chosen = chosen_partitions(list(ranges), topics, partitions, bounds, self._where)
        if self._options.isolation is Isolation.READ_COMMITTED:
            ends = self._offsets([(name, LATEST_TIMESTAMP) for name in chosen])
            ranges = {name: (ranges[name][0], end) for name, end in zip(chosen, ends, strict=True)}
        spans = []
        for name in chosen:
            low, high = bounds.of_partition(name)
            low, high = max(low, ranges[name][0]), min(high, ranges[name][1])
            spans.append(Span(name, low, max(low, high)))
        return spans

    def read(self, span: Span, columns: tuple[str, ...], bounds: Bounds) -> Iterator[pa.RecordBatch]:
        """An Arrow batch for each answer that has records of the span. The server goes from one batch that can hold records of
        the bounds' times to the next."""
        wanted = Wanted(
            *span.name,
            columns,
            high=span.high,
            check_crcs=True,
            start_timestamp=bounds.start_timestamp,
            end_timestamp=bounds.end_timestamp,
            timestamp_unit=UNIT,
        )
        offset, ahead = span.low, None
        try:
            while offset < span.high:
                answer = self._fetch(self._fetch_request(span.name, offset, bounds), ahead)
                assert isinstance(answer.records, bytes)
                first, ahead = offset, None
                offset = self._reached(answer, span, offset)
                if offset < span.high:
                    ahead = self._client.fetch_ahead(self._fetch_request(span.name, offset, bounds))
                rows = self._decoded(answer, attrs.evolve(wanted, low=first), offset)
                del answer
                if rows.num_rows:
                    yield rows
        finally:
            if ahead is not None:
                ahead.forget()

    def _decoded(self, answer: FetchPartitionResponse, wanted: Wanted, end: int) -> pa.RecordBatch:
        assert isinstance(answer.records, bytes)
        self._log_bytes += len(answer.records)
        committed = CommittedFilter(answer.aborted) if self._options.isolation is Isolation.READ_COMMITTED else None
        try:
            return decode_batches(answer.records, wanted, committed=committed)
        except RequestError as exc:
            where = f"{wanted.topic}-{wanted.partition} offsets {wanted.low} to {end - 1}"
            raise ArrowError(f"{self._where}: {where}: {exc.message}") from exc

    def log_bytes(self) -> int:
        """Of all answers."""
        return self._log_bytes

    def close(self) -> None:
        """The connection goes with all that is on its way."""
        self._client.close()

    def _ranges_of(self, topic: TopicMetadata) -> dict[TopicPartition, tuple[int, int]]:
        if topic.error is not None:
            if topic.error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise ArrowError(f"{self._where} has no topic {topic.name}")
            raise ArrowError(f"{self._where}: topic {topic.name}: {topic.error}")
        for entry in topic.partitions:
            if entry.error is not None:
                raise ArrowError(f"{self._where}: {topic.name}-{entry.partition}: {entry.error}")
        return {
            TopicPartition(topic.name, entry.partition): (entry.log_start_offset, entry.high_watermark)
            for entry in topic.partitions
        }

    def _offsets(self, questions: Sequence[tuple[TopicPartition, int]]) -> list[int]:
        """The first offset at or after each time, -1 where there is none."""
        procedure = partial(offsets_at, questions, self._options.isolation)
        entries = self._retried(lambda: self._client.run(procedure()), "looking up times")
        for entry in entries:
            if entry.error is not None:
                raise ArrowError(f"{self._where}: {entry.topic}-{entry.partition}: {entry.error}")
        return [entry.offset for entry in entries]

    def _fetch_request(self, name: TopicPartition, offset: int, bounds: Bounds) -> FetchRequest:
        skip_gaps = self._options.skip_gaps
        return FetchRequest(
            (FetchPartition(*name, offset, FETCH_BYTES, bounds.start_timestamp, bounds.end_timestamp),),
            max_bytes=FETCH_BYTES,
            isolation=self._options.isolation,
            gaps=None if skip_gaps is None else Gaps.SKIP if skip_gaps else Gaps.REFUSE,
        )

    def _reached(self, answer: FetchPartitionResponse, span: Span, offset: int) -> int:
        """The offset behind the whole batches of an answer, and behind all that the server has passed over."""
        following = next_offset(answer.records) if answer.records else None  # type: ignore[arg-type]
        if answer.records and following is None:
            raise RecordTooLargeError(
                f"{len(answer.records)} bytes of {span.name} at offset {offset} hold no whole record batch"
            )
        if answer.range_ended and answer.high_watermark >= span.high:
            return span.high
        # Compaction has left nothing from here to the end of the log, or the next record of a range is still to be found.
        reached = max(following or offset, answer.next_offset)
        if reached > offset or answer.range_ended is False:
            return reached
        raise ArrowError(
            f"{self._where}: {span.name}: offsets up to {span.high - 1} were requested, but the log now ends at "
            f"offset {answer.high_watermark}"
        )

    def _fetch(self, request: FetchRequest, ahead: Started | None) -> FetchPartitionResponse:
        [asked] = request.partitions
        with self._told(f"{asked.topic_partition} offset {asked.offset}"):
            return self._client.fetch_partition(request, self._retries(), ahead)

    def _retried(self, ask: Callable[[], T], what: str) -> T:
        with self._told(what):
            return self._client.retried(ask, self._retries())

    def _retries(self) -> Retries:
        """The first time, at once or not at all."""
        patience_s = self._options.timeout_ms / 1000
        return Retries(patience_s, lambda error: passes(error) and self._was_answered, time.monotonic() + patience_s)

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """ArrowError in one line, whatever stays an error."""
        try:
            yield
        except RequestError as exc:
            hint = ". Is `triolog serve` running there?" if exc.code in _UNANSWERED else ""
            raise ArrowError(f"{self._where}: {what}: {exc.message}{hint}") from exc
        self._was_answered = True
