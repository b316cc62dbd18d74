"""The producers of a log: entries, open transactions, and the first undecided offset (KIP-98; Kafka:
ProducerStateManager).

An entry is a value; appends work on a `ProducerCursor` that lays new entries over the old ones, so that a plan can be thrown
away. The file format is in `producer_snapshots`.

Transactions whose marker is not on the device yet: a power cut could open them again.

Where nothing is synced for long (`durability=os`) there are many of them in one segment. What is asked of them is where the
earliest begins and who has some, so they are kept as few ranges of offsets: neighbours become one when there are too many. What
a range says holds until all of it is on the device: it may say more than there is, never less.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, NamedTuple

import attrs

from ....protocol.limits import MAX_PRODUCERS_PER_PARTITION
from ....protocol.records.batch import BatchHeader
from ....protocol.types import Bytes
from ..indexes.transaction_index import AbortedTxn
from ..segments.undated import Undated, dated_ms
from .producer_cursor import CompletedTxn, ProducerCursor, ProducerEntry, parse_end_txn_marker

FIRST_KEYED_ID: Final = 1 << 62
"""Producer ids from here on are digests of idempotency keys, which come over HTTP. No other producer gets one."""
KEYED_SHARE: Final = 4
"""A log remembers keys up to this part of the producers that it may remember, and then forgets the oldest: clients name a new
key for each request."""


@attrs.define(eq=False, repr=False)
class ProducerState:
    """All producers of a log. Owner: the log.

    `end_offset` (Kafka: lastMapOffset) is the offset up to which batches are reflected, exclusive; `snapshot_offset` (Kafka:
    lastSnapOffset) that of the newest snapshot file, -1 for none.
    """

    end_offset: int = 0
    entries: dict[int, ProducerEntry] = attrs.field(factory=dict)
    snapshot_offset: int = -1
    has_newest_only: bool = False
    """Whether a snapshot alone said what the batches of the producers are: the log may tell of earlier ones."""
    log_start_offset: int = 0
    """Stored batches that end before it are passed over: of those any may be missing already."""
    unreplicated: list[CompletedTxn] = attrs.field(factory=list)
    """Those whose marker is not below the high watermark yet, without those that begin behind one that ends later: first and
    last offsets ascend, and the first of them begins first."""
    first_unstable_offset: int | None = None
    """First offset of the earliest transaction that is open, or whose marker is not below the high watermark yet."""
    _unsynced: UnsyncedTransactions = attrs.field(factory=lambda: UnsyncedTransactions())
    _ongoing: dict[int, int] = attrs.field(init=False)
    _keyed: OrderedDict[int, None] | None = None
    """Producer ids of idempotency keys, the longest unused first; None where most logs have none."""

    def __attrs_post_init__(self) -> None:
        self._note_keyed(self.entries, len(self.entries))
        self._ongoing = {
            entry.producer_id: entry.current_txn_first_offset
            for entry in self.entries.values()
            if entry.current_txn_first_offset is not None
        }
        self._find_first_unstable()

    @property
    def is_snapshot_due(self) -> bool:
        return self.end_offset > self.snapshot_offset

    @property
    def ongoing(self) -> dict[int, int]:
        """First offset of each open transaction by producer id."""
        return dict(self._ongoing)

    def cursor(self) -> ProducerCursor:
        """For appends that are planned; it sees what is committed meanwhile."""
        return ProducerCursor(self.entries, self._ongoing)

    def commit(
        self, cursor: ProducerCursor, end_offset: int, most_keyed: int = MAX_PRODUCERS_PER_PARTITION // KEYED_SHARE
    ) -> None:
        """Take over what was appended."""
        self.end_offset = end_offset
        if not cursor.changed:
            return
        self.entries.update(cursor.changed)
        self._note_keyed(cursor.changed, most_keyed)
        for txn in cursor.completed:
            self._complete(txn)
            self._unsynced.add(txn)
        if cursor.touches_transactions:
            for entry in cursor.changed.values():
                if entry.current_txn_first_offset is None:
                    self._ongoing.pop(entry.producer_id, None)
                else:
                    self._ongoing[entry.producer_id] = entry.current_txn_first_offset
            self._find_first_unstable()

    def replay(self, header: BatchHeader, batch: Bytes) -> AbortedTxn | None:
        """Take a stored batch in, as recovery and followers do: nothing is refused.

        `batch` needs to hold the records of control batches only. Answers the entry for the transaction index when the batch
        is the ABORT marker of an open transaction.
        """
        aborted = None
        if header.producer_id >= 0 and header.next_offset > self.log_start_offset:
            cursor = self.cursor()
            if header.is_control:
                marker = parse_end_txn_marker(header, batch)
                if marker is not None:
                    aborted = cursor.end(marker, header.last_offset)
            else:
                cursor.add(header, header.base_offset)
            self.commit(cursor, header.next_offset)
        self.end_offset = header.next_offset
        return aborted

    def on_high_watermark(self, offset: int) -> None:
        """Transactions whose marker lies below the high watermark are decided for every reader."""
        if self.unreplicated and self.unreplicated[0].last_offset < offset:
            while self.unreplicated and self.unreplicated[0].last_offset < offset:
                self.unreplicated.pop(0)
            self._find_first_unstable()

    def on_recovery_point(self, offset: int) -> None:
        """Transactions whose marker lies below the recovery point stay decided whatever happens."""
        self._unsynced.on_recovery_point(offset)

    def take_over_unsynced(self, before: ProducerState) -> None:
        """Of a log that was cut back, `before` that: a snapshot tells nothing of markers that are not on the device yet."""
        self._unsynced.take_over(before._unsynced, self.end_offset)

    @property
    def first_unsynced_offset(self) -> int | None:
        """First offset of the earliest transaction whose marker is not on the device: a power cut could open it again."""
        return self._unsynced.first_offset

    @property
    def unsynced_producers(self) -> set[int]:
        """Producers with a marker that is not on the device: what was known of them before may count again."""
        return self._unsynced.producers

    def on_log_start(self, offset: int) -> None:
        """Records below `offset` are gone; their producers are remembered."""
        self.on_high_watermark(offset)
        self.end_offset = max(self.end_offset, offset)

    def expire(self, now_ms: int, expiration_ms: int, undated: Undated = ()) -> int:
        """Forget producers that are silent for `expiration_ms` and have no open transaction; answers how many. `undated`: the
        records whose timestamps do not say when they were appended."""
        gone = [
            entry.producer_id
            for entry in self.entries.values()
            if entry.current_txn_first_offset is None
            and now_ms - entry.last_timestamp >= expiration_ms
            and (not undated or now_ms - dated_ms(undated, entry.last_data_offset, entry.last_data_offset + 1) >= expiration_ms)
        ]
        for producer_id in gone:
            del self.entries[producer_id]
            if self._keyed is not None:
                self._keyed.pop(producer_id, None)
        return len(gone)

    def _note_keyed(self, changed: Iterable[int], most: int) -> None:
        """Let the youngest keys be those of these producers, and forget the oldest ones."""
        for producer_id in changed:
            if producer_id >= FIRST_KEYED_ID:
                keyed = self._keyed = self._keyed or OrderedDict()
                keyed[producer_id] = None
                keyed.move_to_end(producer_id)
                if len(keyed) > most:
                    del self.entries[keyed.popitem(last=False)[0]]

    def _complete(self, txn: CompletedTxn) -> None:
        """Add a completed transaction. It replaces those inside it: it begins earlier and ends later, so it is undecided for
        longer and from a lower offset."""
        while self.unreplicated and self.unreplicated[-1].first_offset >= txn.first_offset:
            self.unreplicated.pop()
        self.unreplicated.append(txn)

    def _find_first_unstable(self) -> None:
        first = min(self._ongoing.values(), default=None)
        if self.unreplicated:
            undecided = self.unreplicated[0].first_offset
            first = undecided if first is None else min(first, undecided)
        self.first_unstable_offset = first


MOST_RANGES: Final = 64


class _Range(NamedTuple):
    """Transactions that ended one after the other, the last one at `last_offset`."""

    first_offset: int
    """Where the earliest begins."""
    last_offset: int
    producers: frozenset[int]


@attrs.define(eq=False, repr=False)
class UnsyncedTransactions:
    """Owner: the state of a log's producers."""

    _ranges: list[_Range] = attrs.field(factory=list)

    def __len__(self) -> int:
        """Of ranges: at most MOST_RANGES, and twice as many when a log was cut back."""
        return len(self._ranges)

    @property
    def first_offset(self) -> int | None:
        """First offset of the earliest one, None where there is none."""
        return min((each.first_offset for each in self._ranges), default=None)

    @property
    def producers(self) -> set[int]:
        """Return the producers of the transactions."""
        return set[int]().union(*(each.producers for each in self._ranges))

    def add(self, txn: CompletedTxn) -> None:
        """Take in one that ends behind the others."""
        if len(self._ranges) >= MOST_RANGES:
            self._ranges = _fewer(self._ranges)
        self._ranges.append(_Range(txn.first_offset, txn.last_offset, frozenset((txn.producer_id,))))

    def on_recovery_point(self, offset: int) -> None:
        """All markers below `offset` are on the device."""
        if self._ranges:
            self._ranges = [each for each in self._ranges if each.last_offset >= offset]

    def take_over(self, others: UnsyncedTransactions, end_offset: int) -> None:
        """Those of a log that was cut back to `end_offset`."""
        kept = (each._replace(last_offset=min(each.last_offset, end_offset - 1)) for each in others._ranges)
        found = [*self._ranges, *(each for each in kept if each.first_offset < end_offset)]
        self._ranges = sorted(found, key=lambda each: each.last_offset)


def _fewer(ranges: list[_Range]) -> list[_Range]:
    """At most half of MOST_RANGES: one for each stretch of offsets, of equal length, in which some end."""
    bits = ((ranges[-1].last_offset - ranges[0].last_offset) // (MOST_RANGES // 2 - 1)).bit_length()
    found: list[_Range] = []
    for _, group in itertools.groupby(ranges, lambda each: each.last_offset >> bits):
        each = list(group)
        producers = frozenset[int]().union(*(one.producers for one in each))
        found.append(_Range(min(one.first_offset for one in each), each[-1].last_offset, producers))
    return found
