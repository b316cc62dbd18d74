"""The interface of a source: topics, ranges, records in order, and a store for the link's offsets; and `Places`, which plans
the next fetch and reads the records of its responses. No sockets.

Topics have ranks. While a topic of some rank is known to have more, topics of higher ranks are not fetched. Topics of lower
ranks always are, before it, so their new records are never more than one response late. Partitions of one rank take turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, Protocol

import attrs

from ....protocol.errors import ErrorCode, RecordTooLargeError, RequestError
from ....protocol.limits import MIB
from ....protocol.native.messages import FetchPartition, FetchPartitionResponse, FetchRequest, Gaps
from ....protocol.records.batch import BatchHeader, check_batch, iter_batches
from ....protocol.records.record import CommittedFilter, iter_records
from ....protocol.types import Isolation, Record, TopicPartition
from ...client.procedures.groups import CommittedOffset
from ...client.procedures.topics import AtTime


class OffsetRange(NamedTuple):
    """Offsets that can be read, `end_offset` exclusive, and how many bytes they take."""

    start_offset: int
    end_offset: int
    size_bytes: int


@attrs.frozen(kw_only=True)
class SourceTopic:
    """A topic as it is at one moment. A topic that is made anew has another id."""

    name: str
    topic_id: str
    config: Mapping[str, str]
    partitions: Mapping[int, OffsetRange]


class Gap(NamedTuple):
    """Offsets that nobody can read any more; both are inclusive."""

    first_offset: int
    last_offset: int

    @property
    def offsets(self) -> int:
        return self.last_offset - self.first_offset + 1

    def __str__(self) -> str:
        return f"{self.first_offset}-{self.last_offset}"


class Piece(NamedTuple):
    """Records of a partition in order, and where it goes on behind them. `gap` lies before the first."""

    partition: TopicPartition
    records: Iterator[Record]
    next_offset: int
    gap: Gap | None


class Source(Protocol):
    """Blocking. Owner: the thread of one link.

    Raises SourceFailedError when the source cannot be reached, TopicStoppedError when a topic's records cannot be read on.
    """

    def node(self) -> str:
        """Return the source's node name, for names upstream."""

    def topics(self, names: Iterable[str] | None = None) -> dict[str, SourceTopic]:
        """All topics, or those of the names that are there."""

    def locate(self, partitions: Iterable[TopicPartition], start: AtTime) -> dict[TopicPartition, int]:
        """The first offsets at or after a time."""

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Return the offsets that are committed for this group."""

    def commit(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Note how far it is."""

    def timestamps(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Of the records at these offsets, those that are there."""

    def read(self, offsets: Mapping[TopicPartition, int], ranks: Mapping[str, int]) -> None:
        """Read these partitions from these offsets on, topics of the lowest rank first."""

    def next(self, timeout_s: float) -> Piece | None:
        """Return the next piece; None when none came in time."""

    @property
    def is_behind(self) -> bool:
        """Return whether more records are known to exist."""

    @property
    def finished_s(self) -> float | None:
        """Return the monotonic time in seconds at which no records were left; None: more exist."""

    def close(self) -> None:
        """No further calls."""


FETCH_BYTES: Final = MIB
"""Of one answer. One is worked on while the next is on its way, so twice as much is in memory. A moderate size, so that a
server is not busy with one for long."""
MAX_WAIT_MS: Final = 500
UNKNOWN: Final = -1


@attrs.define(eq=False, repr=False)
class _Place:
    partition: TopicPartition
    rank: int
    offset: int
    end_offset: int = UNKNOWN
    gap: Gap | None = None
    skips_gaps: bool = False

    @property
    def is_behind(self) -> bool:
        return self.offset < self.end_offset

    def lost_before(self, offset: int) -> None:
        """Nobody can read what lies before `offset`."""
        first = self.offset if self.gap is None else self.gap.first_offset
        self.gap = Gap(first, offset - 1)
        self.offset = offset

    def take_gap(self) -> Gap | None:
        gap, self.gap = self.gap, None
        return gap


class Places:
    """The fetch position of each partition. Owner: the source."""

    def __init__(self, offsets: Mapping[TopicPartition, int], ranks: Mapping[str, int]) -> None:
        places = [_Place(partition, ranks.get(partition.topic, 0), offset) for partition, offset in offsets.items()]
        self._places = {place.partition: place for place in sorted(places, key=lambda place: (place.rank, place.partition))}
        self._turn = 0
        self._asked_for_all = False

    @property
    def is_behind(self) -> bool:
        return any(place.is_behind for place in self._places.values())

    def plan_fetch(self, max_wait_ms: int) -> FetchRequest | None:
        """The next request; None without a partition."""
        if not self._places:
            return None
        skipping = next((place for place in self._places.values() if place.skips_gaps), None)
        if skipping is not None:  # alone: where others have damage they are to be told of it
            self._asked_for_all = False
            return self._fetch([skipping], 0, Gaps.SKIP)
        self._turn += 1
        behind = min((place.rank for place in self._places.values() if place.is_behind), default=None)
        wanted = [place for place in self._places.values() if behind is None or place.rank <= behind]
        self._asked_for_all = len(wanted) == len(self._places)
        last_rank = [place for place in wanted if place.rank == wanted[-1].rank]
        turn = self._turn % len(last_rank)
        wanted[-len(last_rank) :] = last_rank[turn:] + last_rank[:turn]
        return self._fetch(wanted, min(max_wait_ms, MAX_WAIT_MS) if behind is None else 0, Gaps.REFUSE)

    def accept(self, answers: tuple[FetchPartitionResponse, ...]) -> tuple[list[Piece], list[FetchPartitionResponse]]:
        """Return the pieces of the responses, in order, and the responses that are errors. Raises CorruptRecordError, and
        RecordTooLargeError when the responses hold no whole batch: the first one with records always has one, later ones may be
        cut short."""
        pieces: list[Piece] = []
        errors = []
        cut = ""
        for answer in answers:
            place = self._places[TopicPartition(answer.topic, answer.partition)]
            if answer.error is None:
                found = list(self._pieces(place, answer))
                pieces += found
                if answer.records and not found and not cut:
                    cut = f"{len(answer.records)} bytes of {place.partition} at offset {place.offset} hold no whole batch"
            else:
                errors.append(answer)
        if cut and not pieces:
            raise RecordTooLargeError(cut)
        return pieces, errors

    def is_finished(self, pieces: list[Piece], errors: list[FetchPartitionResponse]) -> bool:
        """Return whether a response with these pieces and errors shows that no records are left."""
        return self._asked_for_all and not pieces and not errors and not self.is_behind

    def lost_before(self, partition: TopicPartition, offset: int) -> Gap:
        """The log begins at `offset` by now; answers what is lost."""
        place = self._places[partition]
        gap = Gap(place.offset, offset - 1)
        place.lost_before(offset)
        return gap

    def skip_damage(self, partition: TopicPartition) -> bool:
        """Pass over offsets that were taken out of the log because their bytes were damaged. False when that was tried."""
        place = self._places[partition]
        tried, place.skips_gaps = place.skips_gaps, True
        return not tried

    def offset(self, partition: TopicPartition) -> int:
        return self._places[partition].offset

    def _fetch(self, wanted: list[_Place], max_wait_ms: int, gaps: Gaps) -> FetchRequest:
        return FetchRequest(
            tuple(FetchPartition(*place.partition, place.offset, FETCH_BYTES) for place in wanted),
            max_wait_ms,
            max_bytes=FETCH_BYTES,
            isolation=Isolation.READ_COMMITTED,
            gaps=gaps,
        )

    def _pieces(self, place: _Place, answer: FetchPartitionResponse) -> Iterator[Piece]:
        place.end_offset = answer.last_stable_offset
        data = answer.records
        assert not isinstance(data, tuple), "asked for batches, got records"
        asked = place.offset
        committed = CommittedFilter(answer.aborted)
        if not data and answer.next_offset > asked:
            if place.skips_gaps:
                place.lost_before(answer.next_offset)
            place.offset, place.skips_gaps = answer.next_offset, False
            yield self._piece(place, iter(()), counts=False)
        for header, batch in iter_batches(data):
            if header.last_offset < asked:
                continue
            check_batch(batch, header)
            if place.skips_gaps and header.base_offset > place.offset:
                place.lost_before(header.base_offset)
            place.skips_gaps = False
            place.offset = header.next_offset
            if committed.leaves_out(header, batch) or not header.records_count:
                yield self._piece(place, iter(()), counts=False)
            else:
                yield self._piece(place, _records(header, batch, asked), counts=True)

    def _piece(self, place: _Place, records: Iterator[Record], *, counts: bool) -> Piece:
        """A gap is told with the first record behind it: until then the offset stays before it."""
        next_offset = place.offset
        if place.gap is not None and not counts:
            next_offset = place.gap.first_offset
        return Piece(place.partition, records, next_offset, place.take_gap() if counts else None)


def is_lost(error: RequestError) -> bool:
    """Return whether the error reports an offset outside of the log."""
    return error.code is ErrorCode.OFFSET_OUT_OF_RANGE


def timestamps_at(answer: FetchPartitionResponse, offset: int) -> Iterator[int]:
    """Of the record at an offset, where an answer has it. Raises CorruptRecordError."""
    assert not isinstance(answer.records, tuple), "asked for batches, got records"
    for header, batch in iter_batches(answer.records):
        if header.base_offset <= offset <= header.last_offset and not header.is_control:
            check_batch(batch, header)
            yield from (record.timestamp for record in iter_records(batch, header) if record.offset == offset)


def _records(header: BatchHeader, batch: memoryview, asked: int) -> Iterator[Record]:
    records = iter_records(batch, header)
    if header.base_offset >= asked:
        return records
    return (record for record in records if record.offset >= asked)
