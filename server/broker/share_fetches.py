"""Fetches of share groups: records are read through the partition's reader, acquired for the member, and returned (Kafka:
DelayedShareFetch, ShareFetchUtils)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Final, NamedTuple

import attrs
import trio

from ...protocol.errors import ErrorCode, RequestError
from ...protocol.limits import MIB
from ...protocol.records.batch import BatchHeader, iter_batches
from ...protocol.types import Bytes
from ..logs.gap_passes import GapPasses
from ..logs.reader import FetchPartition, LogReader, ReaderView
from ..logs.topics import Topics
from ..loop.procedures import perform
from ..loop.waiting import Waiters, waiting_on
from ..sharing.partition import AcquireStyle, SharePartition
from ..sharing.partitions import NeverBegunError, SharePartitions
from ..sharing.state.values import AcquiredRecords, AcquireMode, OffsetRange, ShareKey, StateBatch
from ..storage.errors import OffsetInGapError
from ..storage.lookups.fetch import FetchedRecords

NOTHING: Final = b""
SHARES_PER_TURN: Final = 64
READ_BYTES: Final = 2 * MIB
"""Read of a partition at a time. Members want 500 records, mostly of 1 KB, and may have 50 MiB: what is read beyond the former
is thrown away."""


@attrs.frozen(kw_only=True)
class ShareFetch:
    """The fetch of a member."""

    group_id: str
    member_id: str
    partitions: Sequence[ShareKey]
    """In the order in which they are served."""
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    mode: AcquireMode
    waits: bool = True
    """Whether it waits for more. Who does not is not told of partitions in which the group has never begun: Kafka learns that
    only after it has looked for the state."""
    begins_session: bool = False
    """Whether it is the first of its session: if it waits, it is told of partitions that are empty, too."""

    @property
    def wanted_bytes(self) -> int:
        """The largest size of its answer."""
        return min(self.max_bytes, READ_BYTES * len(self.partitions))

    @property
    def wants_nothing(self) -> bool:
        return not self.partitions or self.max_records <= 0 or self.max_bytes <= 0


class ShareFetched(NamedTuple):
    """The records that a member was given of a partition, or the reason why not."""

    key: ShareKey
    records: Bytes = NOTHING
    acquired: Sequence[AcquiredRecords] = ()
    error: RequestError | None = None


@attrs.frozen(eq=False, repr=False)
class ShareFetches:
    """See the module. It owns nothing."""

    shares: SharePartitions
    _topics: Topics
    _reader: LogReader
    _gap_passes: GapPasses

    async def take(self, fetch: ShareFetch, *, is_last: bool) -> tuple[list[ShareFetched], bool]:
        """Return records for a member, and whether waiting for more is pointless. Unless it `is_last` nothing is given before
        `min_bytes` are available. Partitions without records are not among the answers."""
        if fetch.wants_nothing:
            return [], True
        opened, failed, absent = await self._open(fetch.partitions)
        if not opened and not absent:
            return failed, True
        with ExitStack() as reading:
            asked = await self._acquirable(opened, fetch, reading)
            is_enough = bool(asked) and await self._has_bytes(asked, fetch)
            if not is_enough and not is_last:
                return failed, False
            taken = await self._read(asked, fetch)
            if fetch.waits and not any(each.acquired for each in taken):
                failed += absent
            if fetch.waits and fetch.begins_session:
                told = {each.key for each in taken}
                taken += [ShareFetched(share.key) for share in opened if share.key not in told]
            return failed + taken, True

    async def wait(self, fetch: ShareFetch) -> None:
        """Wait until `take` would return records, or an error."""
        while True:
            opened, _, absent = await self._open(fetch.partitions)
            if not opened and not absent:
                return
            begun = [self.shares.begun] if absent else []
            with waiting_on([*self._waiters(opened), *begun]) as moved:
                if not all(self.shares.is_absent(each.key) for each in absent):
                    continue
                asked = await self._acquirable(opened, fetch)
                if any(share.is_over for share in opened) or (asked and await self._has_bytes(asked, fetch)):
                    return
                await moved.wait()

    async def _open(self, keys: Sequence[ShareKey]) -> tuple[list[SharePartition], list[ShareFetched], list[ShareFetched]]:
        """Return the open share-partitions; the errors of others; those of partitions in which the group has not begun yet."""
        opened: list[SharePartition] = []
        failed: list[ShareFetched] = []
        absent: list[ShareFetched] = []
        for number, key in enumerate(keys, 1):
            if not number % SHARES_PER_TURN:
                await trio.lowlevel.checkpoint()
            try:
                opened.append(await self.shares.open(key))
            except NeverBegunError as exc:
                absent.append(ShareFetched(key, error=exc.as_answer()))
            except RequestError as exc:
                failed.append(ShareFetched(key, error=exc.as_answer()))
        return opened, failed, absent

    def _waiters(self, shares: Sequence[SharePartition]) -> Iterator[Waiters]:
        for share in shares:
            yield share.waiters
            with suppress(RequestError):
                yield self._topics.actor(share.topic_partition).waiters

    async def _acquirable(
        self, shares: Sequence[SharePartition], fetch: ShareFetch, reading: ExitStack | None = None
    ) -> dict[SharePartition, FetchPartition]:
        """Return the share-partitions that may have records, and what to read of each: its share of the bytes. `reading`: they
        are being read until that ends."""
        found = []
        for number, share in enumerate(shares, 1):
            if not number % SHARES_PER_TURN:
                await trio.lowlevel.checkpoint()
            if not share.is_being_read and not share.is_over and self._has_more(share):
                found.append(share)
                if reading is not None:
                    reading.enter_context(_reading(share))
        max_bytes = min(READ_BYTES, fetch.max_bytes // max(1, len(found)))
        return {share: FetchPartition(share.topic_partition, share.state.next_fetch_offset(), max_bytes) for share in found}

    def _has_more(self, share: SharePartition) -> bool:
        """Return whether the log has records for the group. A log that lost its end has none until it is as long as before."""
        try:
            snapshot = self._topics.actor(share.topic_partition).snapshot()
        except RequestError:
            return True
        end = snapshot.end_offset(share.state.config.isolation)
        return share.state.can_acquire() and share.state.next_fetch_offset() < end

    async def _has_bytes(self, asked: dict[SharePartition, FetchPartition], fetch: ShareFetch) -> bool:
        min_bytes = min(fetch.min_bytes, fetch.max_bytes, sum(each.max_bytes for each in asked.values()))
        return await self._reader.has_bytes(list(asked.values()), fetch.max_bytes, min_bytes, _view(asked))

    async def _read(self, asked: dict[SharePartition, FetchPartition], fetch: ShareFetch) -> list[ShareFetched]:
        if not asked:
            return []
        answers, _ = await perform(self._reader.read(list(asked.values()), max_bytes=fetch.max_bytes, view=_view(asked)))
        taken: list[ShareFetched] = []
        settled: list[tuple[SharePartition, Sequence[StateBatch]]] = []
        left, style = fetch.max_records, AcquireStyle(fetch.mode, fetch.batch_size)
        for (share, question), answer in zip(asked.items(), answers, strict=True):
            if answer.fetched is None:
                if answer.error is not None and answer.error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    if isinstance(answer.error, OffsetInGapError):
                        self._gap_passes.refused(f"share group {fetch.group_id!r}", answer.error)
                    taken.append(ShareFetched(share.key, error=answer.error))
            elif not share.is_over and left > 0:
                headers = [header for header, _ in iter_batches(answer.fetched.records)]
                acquired, archived = share.acquire(
                    fetch.member_id,
                    style,
                    [OffsetRange(header.base_offset, header.last_offset) for header in headers],
                    fetch_offset=question.offset,
                    max_records=left,
                    aborted=aborted_ranges(answer.fetched, headers),
                )
                if archived:
                    settled.append((share, archived))
                if acquired:
                    left -= sum(each.last_offset - each.first_offset + 1 for each in acquired)
                    first, last = acquired[0].first_offset, acquired[-1].last_offset
                    passed = [gap for gap in answer.fetched.passed if gap.end_offset <= last]
                    self._gap_passes.shared(fetch.group_id, share.topic_partition, passed)
                    taken.append(ShareFetched(share.key, _cut(answer.fetched.records, headers, first, last), acquired))
        for share, batches in settled:  # shielded: the member is answered what it has acquired
            await share.store_settled(batches)
        return taken


@contextmanager
def _reading(share: SharePartition) -> Iterator[None]:
    """Let other fetches wait meanwhile: they would read the same."""
    share.is_being_read = True
    try:
        yield
    finally:
        share.is_being_read = False
        share.waiters.wake_all()


def _view(asked: dict[SharePartition, FetchPartition]) -> ReaderView:
    """Return the isolation of the group; all are of one group."""
    return ReaderView(next(iter(asked)).state.config.isolation)


def aborted_ranges(fetched: FetchedRecords, headers: Sequence[BatchHeader]) -> list[OffsetRange]:
    """Return the batches that belong to aborted transactions."""
    aborted = fetched.aborted or ()
    return [
        OffsetRange(header.base_offset, header.last_offset)
        for header in headers
        if header.is_transactional
        and not header.is_control
        and any(
            each.producer_id == header.producer_id and each.first_offset <= header.base_offset <= each.last_offset
            for each in aborted
        )
    ]


def _cut(records: Bytes, headers: Sequence[BatchHeader], first: int, last: int) -> Bytes:
    """Return the batches from the one with the first offset to the one with the last."""
    start = stop = 0
    for header in headers:
        if header.base_offset > last:
            break
        stop += header.size_bytes
        if header.last_offset < first:
            start = stop
    return memoryview(records)[start:stop]
