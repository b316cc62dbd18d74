"""A range of offsets as Arrow batches: record batches are fetched as they are stored and decoded here.

While one answer is decoded the next one is on its way. A broker that starts again in between is waited for and the fetch is
repeated from the offset that was reached, so nothing is lost and nothing comes twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import attrs

from ....protocol.errors import CorruptRecordError, ErrorCode, RecordTooLargeError, RequestError
from ....protocol.native.messages import FetchPartitionResponse
from ....protocol.records.columnar.decode import Wanted, decode_batches, next_offset
from ....protocol.records.record import CommittedFilter
from ....protocol.types import Isolation
from ...client.blocking.client import Started
from . import data_loss
from .broker import Broker, TopicMissingError
from .options import Assigned, ReadOptions
from .ranges import OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa

_LOSSES: Final = (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.CORRUPT_MESSAGE)


def read_range(broker: Broker, options: ReadOptions, range_: OffsetRange, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """The range's records, in batches of up to `arrowMaxRecords`. DataLossError, BrokerUnavailableError, the codec's errors."""
    wanted = Wanted(range_.topic, range_.partition, columns, range_.low, range_.high, options.check_crcs)
    position = _Position(broker, options, range_)
    try:
        while position.offset < range_.high:
            answer = position.fetch()
            if answer is None:
                continue
            first = position.offset
            following = position.accept(answer)
            if following is None:
                continue
            committed = CommittedFilter(answer.aborted) if options.isolation is Isolation.READ_COMMITTED else None
            assert isinstance(answer.records, bytes)
            rows = decode_batches(answer.records, attrs.evolve(wanted, low=first), committed=committed)
            for start in range(0, rows.num_rows, options.arrow_max_records):
                yield rows.slice(start, options.arrow_max_records)
    finally:
        position.forget()


class _Position:
    """The position in a range, and the fetch in flight. Owner: the generator."""

    def __init__(self, broker: Broker, options: ReadOptions, range_: OffsetRange) -> None:
        self.offset = range_.low
        self._range = range_
        self._broker = broker
        self._fails = options.fail_on_data_loss
        self._ahead: Started | None = None
        self._skip_gaps = False

    def fetch(self) -> FetchPartitionResponse | None:
        """The next answer; None when there is none and the offset has moved instead."""
        ahead, self._ahead = self._ahead, None
        try:
            return self._broker.fetch(self._range.name, self.offset, ahead, skip_gaps=self._skip_gaps)
        except RequestError as exc:
            if exc.code not in _LOSSES:
                raise
            self._lose(exc)
            return None

    def accept(self, answer: FetchPartitionResponse) -> int | None:
        """Move behind the whole batches of an answer and ask for what follows; None when it has none."""
        following = next_offset(answer.records) if answer.records else None  # type: ignore[arg-type]
        if following is not None:
            self.offset = following
            if following < self._range.high:
                self._ahead = self._broker.fetch_ahead(self._range.name, following, skip_gaps=self._skip_gaps)
        elif answer.records:
            raise RecordTooLargeError(
                f"{len(answer.records)} bytes of {self._range.name} at offset {self.offset} hold no whole record batch; "
                "raise fetchMaxBytes"
            )
        elif answer.next_offset > self.offset:  # compaction has left nothing from here to the end of the log
            self.offset = answer.next_offset
        else:
            data_loss.report(self._fails, data_loss.shrunk(self._range.name, self._range.high, answer.high_watermark))
            self.offset = self._range.high
        return following

    def forget(self) -> None:
        """Drop the fetch in flight: the reader needs no more."""
        if self._ahead is not None:
            self._ahead.forget()

    def _lose(self, error: RequestError) -> None:
        name, wanted = self._range.name, self.offset
        if error.code is ErrorCode.CORRUPT_MESSAGE:
            if self._skip_gaps:  # nobody knows which offset comes behind it
                raise CorruptRecordError(
                    f"{name}: offset {wanted} is damaged and was not taken out of the log, so failOnDataLoss cannot pass over "
                    f"it: {error.message}; stop the server and run `triolog repair`, or read up to there and begin behind it"
                ) from error
            data_loss.report(self._fails, f"{name}: offset {wanted} cannot be read: {error.message}")
            self._skip_gaps = True
            return
        try:
            there = self._broker.ranges(Assigned((name,)))[name]
        except TopicMissingError:
            data_loss.report(self._fails, data_loss.vanished(name, wanted))
            self.offset = self._range.high
            return
        if there.low > wanted:
            data_loss.report(self._fails, data_loss.expired(name, wanted, there.low))
            self.offset = there.low
        else:
            data_loss.report(self._fails, data_loss.shrunk(name, self._range.high, there.high))
            self.offset = self._range.high
