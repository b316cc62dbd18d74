"""Logs that no real broker would have, or only after years: for tests of clients.

`OddLogs` has the topics that discard records (black holes) and the ranges of offsets whose records are generated for each
reader. Both use offsets of the log without a byte in it. Their readers' bytes come from the function that takes the place of
`fetch_cached` in the partition's actor, so every protocol serves them. All of it outlives stops and crashes of a broker, but is
in no copy of its directory.

The other functions change a log once, in its actor's turn: a hole, a batch without records, a range that counts as lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from random import Random
from typing import Final

import attrs
import trio

from ...protocol.errors import InvalidRequestError, RequestError
from ...protocol.limits import INT32_MAX, KIB, MIB
from ...protocol.records.batch import STAMP, empty_batch_header, gap_marker, parse_header
from ...protocol.records.builder import build_batch
from ...protocol.types import NO_OFFSET, Bytes, Isolation, TopicPartition
from ..broker import Broker, PlainRecord
from ..partitions.partition import PartitionActor
from ..storage.disk.diskops import Procedure, WriteFile
from ..storage.log.append import commit_append, plan_append
from ..storage.log.gaps import FILE_NAME as GAPS_FILE
from ..storage.log.gaps import NO_FILE, OffsetGap, encode_gaps, merge_gaps
from ..storage.log.log import Log, LogSnapshot
from ..storage.log.prepare import PreparedAppend
from ..storage.log.retention import flush_and_roll
from ..storage.lookups.fetch import FetchedRecords, fetch_cached, fetched
from ..storage.lookups.timestamps import CachedBytes

MAX_SKIPPED_OFFSETS: Final = 2**40
"""Of one call: a log's offsets last for eight million calls."""
MAX_BATCH_OFFSETS: Final = INT32_MAX
"""Of one batch: its last offset is a difference of 32 bits."""
MAX_GENERATED_VALUE_BYTES: Final = 8 * MIB
OLD_MAGICS: Final = (0, 1)

PlaceById = tuple[bytes, int]
"""(topic id, partition): a topic that is created again under its name is another one."""


# ---- changes of a log ------------------------------------------------------------------------------------------------------


def skip_offsets(log: Log, *, count: int) -> Procedure[int]:
    """Leave a hole of `count` offsets at the log's end, as compaction does between batches, and return the next offset. The
    next segment is named by it, so that the hole outlives the process."""
    log.log_end_offset = log.producers.end_offset = log.log_end_offset + count
    yield from flush_and_roll(log)
    log.high_watermark_to_end()
    return log.log_end_offset


def keep_end(log: Log) -> Procedure[None]:
    """Begin a segment at the end of the log, so that its name keeps the end where no batch does."""
    if log.active.base_offset < log.log_end_offset:
        yield from flush_and_roll(log)


def append_empty_batch(log: Log, *, count: int) -> Procedure[int]:
    """Append the batch without records that compaction leaves, with `count` offsets, and return the first of them."""
    start = log.log_end_offset
    batch = empty_batch_header(base_offset=0, last_offset=count - 1, max_timestamp=log.now_ms())
    yield from _append(log, batch)
    return start


def lose_offsets(log: Log, *, count: int) -> Procedure[int]:
    """Append `count` offsets that count as lost to corruption, and return the first of them. Log and list of gaps are then as
    recovery leaves them: a control batch covers the gap."""
    start = log.log_end_offset
    yield from _append(log, gap_marker(base_offset=0, last_offset=count - 1, partition_leader_epoch=log.leader_epoch))
    gaps = merge_gaps([*log.gaps, OffsetGap(start, start + count, NO_FILE, log.now_ms())])
    yield WriteFile(f"{log.directory}/{GAPS_FILE}", encode_gaps(gaps), durable=log.sync_metadata)
    log.gaps = gaps
    log.changed()
    return start


def _append(log: Log, batch: bytes) -> Procedure[None]:
    """Append a batch that no client may send, and force it to the device."""
    append = PreparedAppend.of(((parse_header(batch), batch),))
    while (plan := plan_append(log, [append], sync=log.sync_metadata)).roll is not None:
        yield from log.roll()
    yield from (operation for operation in plan.operations)
    commit_append(log, plan)
    log.high_watermark_to_end()


# ---- records that no log has -----------------------------------------------------------------------------------------------


@attrs.frozen
class BlackHole:
    """Every offset from `start` on is gone. A control batch covers them: clients pass it, and reach the end."""

    start: int

    def install(self, actor: PartitionActor) -> None:
        actor.log.is_black_hole = True
        actor.fetch_cached = attrs.evolve(self, start=min(self.start, actor.log.log_end_offset)).fetch

    def fetch(
        self,
        snapshot: LogSnapshot,
        offset: int,
        max_bytes: int,
        cached_bytes: CachedBytes,
        *,
        min_one_batch: bool,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> FetchedRecords | None:
        end = min(snapshot.end_offset(isolation), offset + MAX_BATCH_OFFSETS)
        if not max(self.start, snapshot.log_start_offset) <= offset < end or not (max_bytes or min_one_batch):
            return fetch_cached(snapshot, offset, max_bytes, cached_bytes, min_one_batch=min_one_batch, isolation=isolation)
        marker = gap_marker(base_offset=offset, last_offset=end - 1, partition_leader_epoch=snapshot.leader_epoch)
        return fetched(snapshot, marker, aborted=() if isolation is Isolation.READ_COMMITTED else None)


BATCH_BYTES: Final = 64 * KIB
"""Of values, in a generated batch of more than one record."""
MAX_BATCH_RECORDS: Final = 1000
DIFFERENT_BATCHES: Final = 16
MAX_READ_BYTES: Final = 4 * MIB
"""Of one read: copying them takes half a millisecond."""


@attrs.define(eq=False, repr=False)
class Generated:
    """The records of the offsets [start, end): batches built once, from a seed, and given other base offsets, which no checksum
    covers. So values repeat, after 16 batches of 64 KiB, or after 1 MiB of larger ones. They are random bytes: no codec makes
    them smaller."""

    start: int
    end: int
    hole_start: int
    """No record lies between this offset and `start`."""
    value_bytes: int
    seed: str
    timestamp_ms: int
    _built: dict[tuple[int, int], bytes] = attrs.field(factory=dict)
    """By number and count of records."""

    @property
    def batch_records(self) -> int:
        """Records of every batch but the last."""
        return max(1, min(MAX_BATCH_RECORDS, BATCH_BYTES // max(1, self.value_bytes)))

    def install(self, actor: PartitionActor) -> None:
        actor.fetch_cached, actor.generated_end = self.fetch, self.end

    def fetch(
        self,
        snapshot: LogSnapshot,
        offset: int,
        max_bytes: int,
        cached_bytes: CachedBytes,
        *,
        min_one_batch: bool,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> FetchedRecords | None:
        if not max(self.hole_start, snapshot.log_start_offset) <= offset < self.end:
            return fetch_cached(snapshot, offset, max_bytes, cached_bytes, min_one_batch=min_one_batch, isolation=isolation)
        parts, size = list[Bytes](), 0
        for base_offset, batch in self._batches(offset):
            if size + len(batch) > min(max_bytes, MAX_READ_BYTES) and (parts or not min_one_batch):
                break
            parts += (STAMP.pack(base_offset, len(batch) - LENGTH_END, snapshot.leader_epoch), memoryview(batch)[STAMP.size :])
            size += len(batch)
        return fetched(snapshot, b"".join(parts), aborted=() if isolation is Isolation.READ_COMMITTED else None)

    def _batches(self, offset: int) -> Iterator[tuple[int, bytes]]:
        """Each batch from the one with `offset` on, with its base offset."""
        most, offset = self.batch_records, max(offset, self.start)
        for base_offset in range(offset - (offset - self.start) % most, self.end, most):
            number = (base_offset - self.start) // most % max(1, min(DIFFERENT_BATCHES, MIB // max(1, self.value_bytes)))
            key = number, min(most, self.end - base_offset)
            if key not in self._built:
                self._built[key] = build_batch(self._records(*key))
            yield base_offset, self._built[key]

    def _records(self, number: int, count: int) -> Iterator[tuple[int, None, bytes, tuple[()]]]:
        random = Random(f"{self.seed}/{number}")
        return ((self.timestamp_ms, None, random.randbytes(self.value_bytes), ()) for _ in range(count))


LENGTH_END: Final = 12
"""Where the bytes begin that the length of a batch counts."""


@attrs.define(eq=False, repr=False)
class OddLogs:
    """See the module. Owner: the `Life` of the broker."""

    old_formats: dict[PlaceById, dict[int, int]]
    """By partition: base offsets of batches, and the magic that Kafka clients get them with."""
    _sources: dict[PlaceById, BlackHole | Generated] = attrs.field(factory=dict)
    _holes: dict[PlaceById, tuple[int, int]] = attrs.field(factory=dict)
    """The last hole of each partition, from its first offset to the one after it."""

    def install(self, core: Broker) -> None:
        """Let a core that has just started serve what an earlier one did."""
        for where, source in self._sources_of(core):
            with contextlib.suppress(RequestError):  # the partition is offline
                source.install(core.logs.actor(where))

    async def settle(self, core: Broker) -> None:
        """Let the ends of black holes outlive a core that is about to stop. After a crash nothing of them does."""
        for where, source in self._sources_of(core):
            if isinstance(source, BlackHole):
                with trio.CancelScope(shield=True), contextlib.suppress(RequestError):
                    await core.logs.actor(where).perform(keep_end)

    def _sources_of(self, core: Broker) -> Iterator[tuple[TopicPartition, BlackHole | Generated]]:
        """Those whose topics are still there."""
        for (topic_id, number), source in self._sources.items():
            with contextlib.suppress(RequestError):
                yield TopicPartition(core.topics.named(topic_id), number), source

    def _place(self, core: Broker, where: TopicPartition) -> PlaceById:
        return core.topics.id_of(where.topic), where.partition

    def _add(self, core: Broker, where: TopicPartition, source: BlackHole | Generated) -> None:
        self._sources[self._place(core, where)] = source
        source.install(core.logs.actor(where))

    def _check_new(self, core: Broker, where: TopicPartition) -> None:
        if self._place(core, where) in self._sources:
            raise InvalidRequestError(f"{where} already discards or generates records. Use another topic")

    def discard(self, core: Broker, partitions: Sequence[TopicPartition]) -> None:
        """Keep no record that is appended from now on. Raises RequestError."""
        for each in partitions:
            self._check_new(core, each)
        for each in partitions:
            self._add(core, each, BlackHole(core.reader.snapshot(each).log_end_offset))

    async def generate(
        self, core: Broker, partitions: Sequence[TopicPartition], count: int, *, value_bytes: int, seed: int
    ) -> None:
        """Let each partition have `count` more records, which are generated for each reader. Raises RequestError."""
        _check("count", count, 1, MAX_SKIPPED_OFFSETS)
        _check("value_bytes", value_bytes, 0, MAX_GENERATED_VALUE_BYTES)
        for each in partitions:
            self._check_new(core, each)
            snapshot = core.reader.snapshot(each)
            if snapshot.last_stable_offset < snapshot.log_end_offset:
                raise InvalidRequestError(f"{each} has an open transaction. End it first")
        for each in partitions:
            hole = self._holes.get(self._place(core, each))
            end = await core.logs.actor(each).perform(partial(skip_offsets, count=count))
            hole_start = hole[0] if hole is not None and hole[1] == end - count else end - count
            values = value_bytes, f"{seed}/{each.partition}", core.now_ms()
            self._add(core, each, Generated(end - count, end, hole_start, *values))

    async def skip(self, core: Broker, where: TopicPartition, count: int) -> int:
        """See `skip_offsets`. Raises RequestError."""
        _check("count", count, 1, MAX_SKIPPED_OFFSETS)
        end = await core.logs.actor(where).perform(partial(skip_offsets, count=count))
        place = self._place(core, where)
        start, before = self._holes.get(place, (0, NO_OFFSET))
        self._holes[place] = (start if before == end - count else end - count, end)
        return end

    async def append_empty_batch(self, core: Broker, where: TopicPartition, count: int) -> int:
        """See `append_empty_batch`. Raises RequestError."""
        _check("count", count, 1, MAX_BATCH_OFFSETS)
        return await core.logs.actor(where).perform(partial(append_empty_batch, count=count))

    async def lose(self, core: Broker, where: TopicPartition, count: int) -> int:
        """See `lose_offsets`. Raises RequestError."""
        _check("count", count, 1, MAX_BATCH_OFFSETS)
        return await core.logs.actor(where).perform(partial(lose_offsets, count=count))

    async def append_old(self, core: Broker, where: TopicPartition, records: Sequence[PlainRecord], magic: int) -> int:
        """Append a batch that Kafka clients get as messages with this magic, and return its first offset. Raises
        RequestError."""
        if magic not in OLD_MAGICS:
            raise InvalidRequestError(f"magic is {magic}, expected 0 or 1: the formats before Kafka 0.11")
        if any(headers for *_, headers in records):
            raise InvalidRequestError("records have headers, which messages of magic 0 and 1 cannot have")
        result = await core.writer.append(where, records)
        self.old_formats.setdefault(self._place(core, where), {})[result.base_offset] = magic
        return result.base_offset


def _check(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise InvalidRequestError(f"{name} is {value}, expected {low} to {high}")
