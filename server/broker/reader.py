"""The reading half of the broker's door: fetch, offsets for times, explain. It owns nothing: every call looks at a snapshot.

Readers never go through a partition's mailbox and never wait for an append. What they read while files were cut or deleted
under their snapshot is looked up again on a new one.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

import attrs
import trio

from ...protocol.errors import InvalidRequestError, RequestError
from ...protocol.limits import INT64_MAX
from ...protocol.records.steps import UNTOLD_STEPS
from ...protocol.types import Isolation, TopicPartition
from ..actors.disk.disk import Disk, WouldWaitError
from ..actors.manager.log_manager import LogManager
from ..actors.partition.waiters import Waiters, waiting_on
from ..storage.disk.diskops import Procedure
from ..storage.errors import LogOfflineError, SnapshotExpiredError, StorageError
from ..storage.log.leader_epochs import LeaderEpochs
from ..storage.log.log_snapshot import LogSnapshot
from ..storage.lookups.at_once import first_at_once
from ..storage.lookups.explain import Walk, explain_offset, explain_timestamp
from ..storage.lookups.fetch import FetchedRecords, fetch_batches, readable_bytes
from ..storage.lookups.fetch_at_once import fetch_at_once
from ..storage.lookups.fetched_records import PlainRecords, WantedRecords, plain_partitions
from ..storage.lookups.split_points import SplitPoint, split_points
from ..storage.lookups.timestamps import check_timestamp, offset_for_timestamp
from ..storage.segments.segment_view import TimestampAndOffset

T = TypeVar("T")

READER_TASKS: Final = 16
"""Partitions of one request that are looked up at a time."""
LOOKUPS_PER_TURN: Final = 8
"""Lookups a reader task does before it lets others run."""
STEPS_PER_LOOKUP: Final = 2 * UNTOLD_STEPS
"""What a lookup, or a partition of a fetch, counts as beside its pauses. It takes no longer on the spot; most take 5 us."""
SNAPSHOT_ATTEMPTS: Final = 10


class FetchPartition(NamedTuple):
    """Read `topic_partition` from `offset`, about `max_bytes` of it."""

    topic_partition: TopicPartition
    offset: int
    max_bytes: int


class ReaderView(NamedTuple):
    """What a reader wants to see: up to where, and whether offsets that damage took out are passed over or refused."""

    isolation: Isolation = Isolation.READ_UNCOMMITTED
    skip_gaps: bool = False


DEFAULT_VIEW: Final = ReaderView()


class FetchAnswer(NamedTuple):
    """What was read, or why not."""

    topic_partition: TopicPartition
    fetched: FetchedRecords | None
    error: RequestError | None


@attrs.define(eq=False)
class LogReader:
    """Fetches and lookups on snapshots. Every method belongs to the trio thread that runs it."""

    _manager: LogManager
    _disk: Disk

    # ---- fetch -----------------------------------------------------------------------------------------------------------

    async def fetch(
        self,
        partitions: Sequence[FetchPartition],
        *,
        max_bytes: int,
        min_bytes: int = 1,
        max_wait_s: float = 0.0,
        view: ReaderView = DEFAULT_VIEW,
    ) -> list[FetchAnswer]:
        """Read from several partitions, in order, until `max_bytes` are there; the first batch comes whole in any case.

        When less than `min_bytes` is there, wait up to `max_wait_s` for more. An error of a partition ends the wait.
        """
        answers, is_enough = await self.fetch_now(partitions, max_bytes=max_bytes, min_bytes=min_bytes, view=view)
        if is_enough or max_wait_s <= 0:
            return answers
        del answers
        with trio.move_on_after(max_wait_s):
            await self.wait_for_bytes(partitions, max_bytes=max_bytes, min_bytes=min_bytes, view=view)
        answers, _ = await self.fetch_now(partitions, max_bytes=max_bytes, view=view)
        return answers

    async def wait_for_bytes(
        self, partitions: Sequence[FetchPartition], *, max_bytes: int, min_bytes: int, view: ReaderView = DEFAULT_VIEW
    ) -> None:
        """Wait until `fetch_now` would answer `min_bytes`, or an error. Nothing is read and held meanwhile."""
        while True:
            with waiting_on(self._waiters(partitions)) as moved:
                if await self._has_bytes(partitions, max_bytes, min_bytes, view):
                    return
                await moved.wait()

    async def _has_bytes(self, partitions: Sequence[FetchPartition], max_bytes: int, min_bytes: int, view: ReaderView) -> bool:
        size = 0
        for each in partitions:
            look = partial(
                readable_bytes,
                offset=each.offset,
                max_bytes=max(0, min(each.max_bytes, max_bytes - size)),
                min_one_batch=size == 0,
                isolation=view.isolation,
                skip_gaps=view.skip_gaps,
            )
            try:
                found = await self._look(each.topic_partition, look)
            except RequestError:
                return True
            size += found.size_bytes
            if found.ends_segment and found.size_bytes:
                return True
        return size >= min_bytes

    def _waiters(self, partitions: Sequence[FetchPartition]) -> Iterator[Waiters]:
        """Those of the partitions that are here; the next look answers the others."""
        for each in partitions:
            with contextlib.suppress(RequestError):
                yield self._manager.topics.actor(each.topic_partition).waiters

    async def fetch_now(
        self,
        partitions: Sequence[FetchPartition],
        *,
        max_bytes: int,
        min_bytes: int = 1,
        view: ReaderView = DEFAULT_VIEW,
    ) -> tuple[list[FetchAnswer], bool]:
        """What is there now, and whether waiting for more is pointless: `min_bytes` are there, or there is an error, or a read
        ended with its segment (Kafka: DelayedFetch)."""
        answers: list[FetchAnswer] = []
        is_enough = False
        left = max_bytes
        size = 0
        for topic_partition, offset, wanted in partitions:
            wanted = max(0, min(wanted, left))
            try:
                fetched = self._fetch_at_once(topic_partition, offset, wanted, view.isolation, min_one_batch=size == 0)
                if fetched is None:
                    fetched = await self._look(
                        topic_partition,
                        partial(
                            fetch_batches,
                            offset=offset,
                            max_bytes=wanted,
                            min_one_batch=size == 0,
                            isolation=view.isolation,
                            skip_gaps=view.skip_gaps,
                        ),
                    )
                    self._count(topic_partition, len(fetched.records))
            except RequestError as exc:
                answers.append(FetchAnswer(topic_partition, None, exc.as_answer()))
                is_enough = True
            else:
                answers.append(FetchAnswer(topic_partition, fetched, None))
                if found := len(fetched.records):
                    size += found
                    left -= found
                    is_enough = is_enough or fetched.ends_segment
            if self._disk.turns.spend(STEPS_PER_LOOKUP):
                await trio.lowlevel.checkpoint()
        return answers, is_enough or size >= min_bytes

    def _fetch_at_once(
        self, topic_partition: TopicPartition, offset: int, max_bytes: int, isolation: Isolation, *, min_one_batch: bool
    ) -> FetchedRecords | None:
        """None where something has to be waited for, and where reading did not work: `_look` says what becomes of that. Raises
        RequestError."""
        actor = self._manager.topics.actor(topic_partition)
        snapshot, cached_bytes = actor.snapshot(), actor.disk.cached_bytes
        try:
            found = fetch_at_once(snapshot, offset, max_bytes, cached_bytes, min_one_batch=min_one_batch, isolation=isolation)
        except (OSError, StorageError):
            return None
        if found is not None:
            actor.fetched_bytes += len(found.records)
        return found

    async def unpack(
        self, answers: Sequence[FetchAnswer], asked: Sequence[FetchPartition], *, max_bytes: int
    ) -> list[PlainRecords | RequestError | None]:
        """The answers as plain records, see `plain_partitions`."""
        wanted = [
            WantedRecords(answer.fetched, question.offset, question.max_bytes)
            for answer, question in zip(answers, asked, strict=True)
        ]
        procedure = plain_partitions(wanted, max_bytes=max_bytes, limits=self._manager.batch_limits)
        return await self._disk.compute(procedure)

    def _count(self, topic_partition: TopicPartition, fetched_bytes: int) -> None:
        with contextlib.suppress(RequestError):  # deleted meanwhile
            self._manager.topics.actor(topic_partition).fetched_bytes += fetched_bytes

    # ---- lookups ---------------------------------------------------------------------------------------------------------

    async def offset_for_time(
        self,
        topic_partition: TopicPartition,
        timestamp: int,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> TimestampAndOffset:
        """The first record with a timestamp >= `timestamp` (ms; -1 latest, -2 earliest, -3 max timestamp).

        Offset and timestamp are -1 when there is none. Raises RequestError.
        """
        _check_timestamp(topic_partition, timestamp)
        return await self._look(topic_partition, partial(offset_for_timestamp, timestamp=timestamp, isolation=isolation))

    async def offsets_for_times(
        self,
        questions: Sequence[tuple[TopicPartition, int]],
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> list[TimestampAndOffset | RequestError]:
        """`offset_for_time` for many partitions, in the order asked: on the spot as long as nothing has to be waited for, the
        rest by at most READER_TASKS tasks."""
        answers: list[TimestampAndOffset | RequestError] = []
        for topic_partition, timestamp in questions:
            try:
                answers.append(self._offset_for_time_nowait(topic_partition, timestamp, isolation))
            except RequestError as exc:
                answers.append(exc.as_answer())
            except WouldWaitError:
                break
            if self._disk.turns.spend(STEPS_PER_LOOKUP):
                await trio.lowlevel.checkpoint()
        if len(answers) < len(questions):
            answers += await self._look_up_all(questions[len(answers) :], isolation)
        return answers

    def _offset_for_time_nowait(
        self, topic_partition: TopicPartition, timestamp: int, isolation: Isolation
    ) -> TimestampAndOffset:
        """`offset_for_time` where nothing has to be waited for. Raises WouldWaitError where something has, and where reading
        did not work: `_look` says what becomes of that."""
        if not 0 <= timestamp <= INT64_MAX:
            _check_timestamp(topic_partition, timestamp)
        actor = self._manager.topics.actor(topic_partition)
        snapshot, disk = actor.snapshot(), actor.disk
        try:
            if timestamp >= 0 and snapshot.end_offset(isolation) == snapshot.high_watermark:
                found = first_at_once(snapshot, timestamp, disk.cached_bytes)
                if found is not None:
                    return found
            return disk.read_nowait(offset_for_timestamp(snapshot, timestamp, isolation))
        except (OSError, StorageError) as exc:
            raise WouldWaitError(None) from exc

    async def _look_up_all(
        self, questions: Sequence[tuple[TopicPartition, int]], isolation: Isolation
    ) -> list[TimestampAndOffset | RequestError]:
        """The answers, by tasks that may wait; what was begun is begun anew."""
        answers: list[TimestampAndOffset | RequestError | None] = [None] * len(questions)
        remaining = iter(enumerate(questions))

        async def look_up() -> None:
            while chunk := list(itertools.islice(remaining, LOOKUPS_PER_TURN)):
                for slot, (topic_partition, timestamp) in chunk:
                    try:
                        answers[slot] = await self.offset_for_time(topic_partition, timestamp, isolation)
                    except RequestError as exc:
                        answers[slot] = exc.as_answer()
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as readers:
            for _ in range(min(READER_TASKS, -(-len(questions) // LOOKUPS_PER_TURN))):
                readers.start_soon(look_up)
        return answers  # type: ignore[return-value]

    async def explain(
        self, topic_partition: TopicPartition, *, offset: int | None = None, timestamp: int | None = None
    ) -> Walk:
        """The walk of a lookup by offset or by timestamp, as data. Raises RequestError."""
        assert (offset is None) != (timestamp is None)
        is_cached = self._manager.topics.actor(topic_partition).disk.is_cached
        if offset is not None:
            return await self._look(topic_partition, partial(explain_offset, offset=offset, is_cached=is_cached))
        assert timestamp is not None
        _check_timestamp(topic_partition, timestamp)
        return await self._look(topic_partition, partial(explain_timestamp, timestamp=timestamp, is_cached=is_cached))

    def end_offset_for_epoch(self, topic_partition: TopicPartition, epoch: int) -> tuple[int, int]:
        """(epoch, end offset, exclusive) of the largest leader epoch <= `epoch` that the log knows, the high watermark for the
        latest; (-1, -1) when it is not known (Kafka: OffsetForLeaderEpoch, KIP-320). Raises RequestError."""
        snapshot = self.snapshot(topic_partition)
        return LeaderEpochs(list(snapshot.leader_epochs)).end_offset_for(epoch, snapshot.high_watermark)

    async def split_points(
        self, topic_partition: TopicPartition, start: int, end: int, target_bytes: int, *, max_points: int
    ) -> list[SplitPoint]:
        """Pieces of about `target_bytes` of the offsets from `start` to `end`, exclusive. Raises RequestError."""
        procedure = partial(split_points, start=start, end=end, target_bytes=target_bytes, max_points=max_points)
        return await self._look(topic_partition, procedure)

    async def _look(self, topic_partition: TopicPartition, procedure: Callable[[LogSnapshot], Procedure[T]]) -> T:
        """Run a reader's procedure on a snapshot; on a new one when files were cut or deleted under the old one."""
        why = ""
        for _ in range(SNAPSHOT_ATTEMPTS):
            actor = self._manager.topics.actor(topic_partition)
            snapshot = actor.snapshot()
            try:
                answer = await actor.disk.read(procedure(snapshot))
            except SnapshotExpiredError as exc:
                why = f" ({exc})"
                continue
            except RequestError:
                if actor.snapshot().truncations == snapshot.truncations:
                    raise
                continue
            except OSError as exc:
                if actor.snapshot().truncations != snapshot.truncations:
                    continue
                raise LogOfflineError(f"{topic_partition}: reading failed: {exc}; check the device") from exc
            except StorageError as exc:
                raise LogOfflineError(
                    f"{topic_partition}: reading failed: {exc}; check the device, and restart the server: it makes indexes anew"
                ) from exc
            if actor.snapshot().truncations == snapshot.truncations:
                return answer
        raise LogOfflineError(f"{topic_partition}: the files changed under {SNAPSHOT_ATTEMPTS} reads{why}; try again")

    def snapshot(self, topic_partition: TopicPartition) -> LogSnapshot:
        """The partition as it is now. Raises RequestError."""
        return self._manager.topics.actor(topic_partition).snapshot()


def _check_timestamp(topic_partition: TopicPartition, timestamp: int) -> None:
    try:
        check_timestamp(timestamp)
    except ValueError as exc:
        raise InvalidRequestError(f"{topic_partition}: {exc}") from exc
