"""Reading logs, half of the broker's door: fetch, offsets for times, explain, with their values. It owns nothing: every call
looks at a snapshot.

Readers never go through a partition's mailbox and never wait for an append. What they read while files were cut or deleted
under their snapshot is looked up again on a new one.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

import attrs
import trio

from ...protocol.errors import InvalidRequestError, RequestError
from ...protocol.limits import INT64_MAX, KIB
from ...protocol.records.steps import UNTOLD_STEPS
from ...protocol.types import LATEST_TIMESTAMP, NO_TIMESTAMP, Isolation, TimeRange, TimestampAndOffset, TopicPartition
from ..loop.procedures import PAUSE, Procedure, perform
from ..loop.waiting import Waiters, waiting_on
from ..partitions.disk import Disk, WouldWaitError
from ..partitions.partition import PartitionActor
from ..storage.disk.diskops import Procedure as DiskProcedure
from ..storage.errors import LogOfflineError, OffsetInGapError, SnapshotExpiredError, StorageError
from ..storage.log.leader_epochs import LeaderEpochs
from ..storage.log.log import LogSnapshot
from ..storage.lookups.explain import Walk, explain_offset, explain_range, explain_timestamp, with_segments
from ..storage.lookups.fetch import FetchedRecords, fetch_batches, readable_bytes
from ..storage.lookups.fetched_records import PlainRecords, WantedRecords, plain_partitions
from ..storage.lookups.split_points import SplitPoint, split_points
from ..storage.lookups.time_range import fetch_range
from ..storage.lookups.timestamps import check_timestamp, first_cached, offset_for_timestamp
from .gap_passes import GapPasses
from .log_manager import LogManager


class FetchPartition(NamedTuple):
    """Read `topic_partition` from `offset`, about `max_bytes` of it. With `times` the batches that can hold records of that
    range come, from `offset` on or, with NO_OFFSET, from the log start; FetchedRecords says where the next page goes on."""

    topic_partition: TopicPartition
    offset: int
    max_bytes: int
    times: TimeRange | None = None


class ReaderView(NamedTuple):
    """The isolation level of a reader, and whether gaps are skipped or refused; None: the topic's gap.policy decides."""

    isolation: Isolation = Isolation.READ_UNCOMMITTED
    skip_gaps: bool | None = None


DEFAULT_VIEW: Final = ReaderView()


class FetchAnswer(NamedTuple):
    """The records read from a partition, or the error."""

    topic_partition: TopicPartition
    fetched: FetchedRecords | None
    error: RequestError | None


def note_gaps(passes: GapPasses, client_id: str, host: str, answers: Iterable[FetchAnswer]) -> None:
    """A client is told these answers: what it passes over, or stands before, is noted."""
    for topic_partition, fetched, error in answers:
        if fetched is not None:
            if fetched.passed:
                passes.passed(f"client {client_id!r} at {host}", topic_partition, fetched.passed)
        elif isinstance(error, OffsetInGapError) and error.by_policy:
            passes.refused(f"client {client_id!r} at {host}", error)


@attrs.define(eq=False, repr=False)
class Fetched:
    """The progress of one fetch. Owner: the fetch."""

    left: int
    """How many bytes it may still answer."""
    answers: list[FetchAnswer] = attrs.field(factory=list)
    size: int = 0
    is_enough: bool = False
    """Whether waiting for more is pointless, however little there is."""
    read: list[tuple[PartitionActor, int]] = attrs.field(factory=list)
    """Whose readers are handed how many bytes, once it is answered."""

    def room(self, asked: FetchPartition) -> int:
        """Return the largest number of bytes that may be read from a partition."""
        room = self.left if self.left < asked.max_bytes else asked.max_bytes
        return room if room > 0 else 0

    def add(self, topic_partition: TopicPartition, found: FetchedRecords, actor: PartitionActor | None) -> None:
        """This was read of it. None: it was deleted meanwhile."""
        # What FetchAnswer(...) makes, without its Python-level call.
        self.answers.append(tuple.__new__(FetchAnswer, (topic_partition, found, None)))
        if size := len(found.records):
            self.size += size
            self.left -= size
            self.is_enough = self.is_enough or found.ends_segment
            if actor is not None:
                self.read.append((actor, size))

    def fail(self, topic_partition: TopicPartition, error: RequestError) -> None:
        """It cannot be read."""
        self.answers.append(FetchAnswer(topic_partition, None, error.as_answer()))
        self.is_enough = True


T = TypeVar("T")
Question = tuple[TopicPartition, int]
"""(partition, timestamp in ms, or -1 latest, -2 earliest, -3 max timestamp)"""

ENDS_AT_ONE_MOMENT: Final = 1024
"""Partitions whose ends are read in one turn, 0.7 us each."""
READER_TASKS: Final = 16
"""Partitions of one request that are looked up at a time."""
PARTITIONS_PER_TURN: Final = 64
LOOKUPS_PER_TURN: Final = 8
"""Lookups a reader task does before it lets others run."""
STEPS_PER_LOOKUP: Final = 2 * UNTOLD_STEPS
"""What a lookup, or a partition of a fetch, counts as beside its pauses."""
STEPS_AT_ONCE: Final = 12
"""What a lookup counts as for which one look is enough, of a few headers and records. Most take 5 us."""
STEPS_OF_LONG_LOOKUP: Final = 6 * UNTOLD_STEPS
"""What one counts as for which it is not, where nothing is waited for between lookups."""
BYTES_PER_STEP: Final = 8 * KIB
"""So much is copied from the page cache in about 1 us."""
SNAPSHOT_ATTEMPTS: Final = 10


def _are_ends(questions: Sequence[Question]) -> bool:
    return len(questions) <= ENDS_AT_ONE_MOMENT and all(timestamp == LATEST_TIMESTAMP for _, timestamp in questions)


@attrs.define(eq=False, repr=False)
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

        When less than `min_bytes` is there, wait up to `max_wait_s` for more. An error of a partition ends the wait, and a
        range of times is not waited for: it ends with what is there. What is cached is answered on the spot, as by
        `read`; it can be cancelled all the same.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        answers, is_enough = await perform(self.read(partitions, max_bytes=max_bytes, min_bytes=min_bytes, view=view))
        if is_enough or max_wait_s <= 0:
            return answers
        del answers
        with trio.move_on_after(max_wait_s):
            await self.wait_for_bytes(partitions, max_bytes=max_bytes, min_bytes=min_bytes, view=view)
        answers, _ = await perform(self.read(partitions, max_bytes=max_bytes, view=view))
        return answers

    async def wait_for_bytes(
        self, partitions: Sequence[FetchPartition], *, max_bytes: int, min_bytes: int, view: ReaderView = DEFAULT_VIEW
    ) -> None:
        """Wait until `read` would return `min_bytes`, or an error. Nothing is read and held meanwhile."""
        while True:
            with waiting_on(await self._waiters(partitions)) as moved:
                if await self.has_bytes(partitions, max_bytes, min_bytes, view):
                    return
                await moved.wait()

    async def has_bytes(self, partitions: Sequence[FetchPartition], max_bytes: int, min_bytes: int, view: ReaderView) -> bool:
        """Return whether `read` would return `min_bytes`, or an error. It reads no records."""
        size = 0
        for number, each in enumerate(partitions, 1):
            if not number % PARTITIONS_PER_TURN:
                await trio.lowlevel.checkpoint()
            if each.times is not None:
                return True
            look = partial(
                readable_bytes,
                offset=each.offset,
                max_bytes=max(0, min(each.max_bytes, max_bytes - size)),
                min_one_batch=size == 0,
                isolation=view.isolation,
                skip_gaps=view.skip_gaps,
            )
            try:
                if each.offset < self._manager.topics.actor(each.topic_partition).generated_end:
                    return True
                found = await self._look(each.topic_partition, look)
            except RequestError:
                return True
            size += found.size_bytes
            if found.ends_segment and found.size_bytes:
                return True
        return size >= min_bytes

    async def _waiters(self, partitions: Sequence[FetchPartition]) -> list[Waiters]:
        """Those of the partitions that are here; the next look answers the others."""
        found = []
        for number, each in enumerate(partitions, 1):
            if not number % PARTITIONS_PER_TURN:
                await trio.lowlevel.checkpoint()
            with contextlib.suppress(RequestError):
                found.append(self._manager.topics.actor(each.topic_partition).waiters)
        return found

    def read(
        self,
        partitions: Sequence[FetchPartition],
        *,
        max_bytes: int,
        min_bytes: int = 1,
        view: ReaderView = DEFAULT_VIEW,
    ) -> Procedure[tuple[list[FetchAnswer], bool]]:
        """Read what is available now. Returns also whether waiting for more is pointless: `min_bytes` are there, or there is an
        error, or a read ended with its segment (Kafka: DelayedFetch), or no partition is named. Yields for each partition that
        is not cached, and a pause when the turn is used up."""
        fetched = Fetched(max_bytes)
        turns, before = self._disk.turns, 0
        try:
            for each in partitions:
                steps = STEPS_PER_LOOKUP + (fetched.size - before) // BYTES_PER_STEP
                before = fetched.size
                if not turns.fit(steps):
                    yield PAUSE
                    turns.spend(steps)
                if not self._take_cached(fetched, each, view):
                    yield partial(self._take, fetched, each, view)
            turns.done((fetched.size - before) // BYTES_PER_STEP)
        finally:
            for actor, size in fetched.read:
                actor.fetched_bytes += size
        return fetched.answers, fetched.is_enough or fetched.size >= min_bytes or not partitions

    def _take_cached(self, fetched: Fetched, asked: FetchPartition, view: ReaderView) -> bool:
        """The answer of one partition, if that is not to be waited for. False also where reading did not work: `_look` says
        what becomes of that."""
        topic_partition, offset, _, times = asked
        if times is not None:
            return False
        try:
            actor = self._manager.topics.partition(topic_partition).actor
            found = actor.fetch_cached(
                actor.snapshot(),
                offset,
                fetched.room(asked),
                actor.disk.cached_bytes,
                min_one_batch=not fetched.size,
                isolation=view.isolation,
            )
        except RequestError as exc:
            fetched.fail(topic_partition, exc)
            return True
        except (OSError, StorageError):
            return False
        if found is None:
            return False
        fetched.add(topic_partition, found, actor)
        return True

    async def _take(self, fetched: Fetched, asked: FetchPartition, view: ReaderView) -> None:
        topic_partition, offset, _, times = asked
        reads = fetch_batches if times is None else partial(fetch_range, times=times)
        procedure = partial(
            reads,
            offset=offset,
            max_bytes=fetched.room(asked),
            min_one_batch=not fetched.size,
            isolation=view.isolation,
            skip_gaps=view.skip_gaps,
        )
        try:
            found = await self._look(topic_partition, procedure)
        except RequestError as exc:
            fetched.fail(topic_partition, exc)
        else:
            actor: PartitionActor | None = None
            with contextlib.suppress(RequestError):  # deleted meanwhile
                actor = self._manager.topics.actor(topic_partition)
            fetched.add(topic_partition, found, actor)
            fetched.is_enough = fetched.is_enough or times is not None

    async def unpack(
        self, answers: Sequence[FetchAnswer], asked: Sequence[FetchPartition], *, max_bytes: int
    ) -> list[PlainRecords | RequestError | None]:
        """The answers as plain records, see `plain_partitions`."""
        wanted = [
            WantedRecords(answer.fetched, question.offset, question.max_bytes, question.times)
            for answer, question in zip(answers, asked, strict=True)
        ]
        procedure = plain_partitions(wanted, max_bytes=max_bytes, limits=self._manager.batch_limits)
        return await self._disk.compute(procedure)

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
        await self._disk.turns.checkpoint(STEPS_PER_LOOKUP)
        _check_timestamp(topic_partition, timestamp)
        return await self._look(topic_partition, partial(offset_for_timestamp, timestamp=timestamp, isolation=isolation))

    def offsets_for_times(
        self,
        questions: Sequence[Question],
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Procedure[list[TimestampAndOffset | RequestError]]:
        """`offset_for_time` for many partitions, in the order asked: without yielding while all is cached and fits the turn;
        the rest by at most READER_TASKS tasks."""
        answers: list[TimestampAndOffset | RequestError] = []
        turns = self._disk.turns
        if questions and questions[0][1] == LATEST_TIMESTAMP and _are_ends(questions):
            # In one turn: a mirror takes such ends for the state at one moment.
            return list(map(partial(self._end, isolation), questions))
        if turns.fit(STEPS_AT_ONCE * len(questions)):
            try:
                # What is found before the exception stays in `answers`.
                answers.extend(map(partial(self._answer_nowait, isolation, True), questions))
            except WouldWaitError:
                """Continue below."""
            else:
                return answers
        yield PAUSE
        for question in questions[len(answers) :]:
            try:
                answers.append(self._answer_nowait(isolation, False, question))
            except WouldWaitError:
                break
            if turns.spend(STEPS_PER_LOOKUP):
                yield PAUSE
        if len(answers) < len(questions):
            answers += yield partial(self._look_up_all, questions[len(answers) :], isolation)
        return answers

    def _answer_nowait(self, isolation: Isolation, within_turn: bool, question: Question) -> TimestampAndOffset | RequestError:
        """Return the result or the error of `offset_for_time` when the lookup need not wait. Raises WouldWaitError when it must
        wait, when it does not fit this turn, and when the read failed: `_look` handles that failure."""
        topic_partition, timestamp = question
        try:
            if not 0 <= timestamp <= INT64_MAX:
                _check_timestamp(topic_partition, timestamp)
            actor = self._manager.topics.partition(topic_partition).actor
            snapshot, disk = actor.snapshot(), actor.disk
            sees_all = isolation is Isolation.READ_UNCOMMITTED or snapshot.last_stable_offset == snapshot.high_watermark
            if timestamp >= 0 and sees_all:
                found = first_cached(snapshot, timestamp, disk.cached_bytes)
                if found is not None:
                    return found
            if within_turn and not disk.turns.fit(STEPS_OF_LONG_LOOKUP):
                raise WouldWaitError(None)
            return disk.try_read(offset_for_timestamp(snapshot, timestamp, isolation))
        except RequestError as exc:
            return exc.as_answer()
        except (OSError, StorageError) as exc:
            raise WouldWaitError(None) from exc

    def _end(self, isolation: Isolation, question: Question) -> TimestampAndOffset | RequestError:
        """Return the end of a partition, or the error."""
        try:
            snapshot = self._manager.topics.partition(question[0]).actor.snapshot()
        except RequestError as exc:
            return exc.as_answer()
        return TimestampAndOffset(NO_TIMESTAMP, snapshot.end_offset(isolation), snapshot.leader_epoch)

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
        self,
        topic_partition: TopicPartition,
        *,
        offset: int | None = None,
        timestamp: int | None = None,
        times: TimeRange | None = None,
        and_segments: bool = False,
    ) -> Walk:
        """The walk of a lookup by offset, by timestamp or by a range of times, as data; `and_segments`: and what is
        known of all segments afterwards. Raises RequestError."""
        assert [offset, timestamp, times].count(None) == 2
        is_cached = self._manager.topics.actor(topic_partition).disk.is_cached
        explained: Callable[[LogSnapshot], DiskProcedure[Walk]]
        if times is not None:
            explained = partial(explain_range, times=times, is_cached=is_cached)
        elif offset is not None:
            explained = partial(explain_offset, offset=offset, is_cached=is_cached)
        else:
            assert timestamp is not None
            _check_timestamp(topic_partition, timestamp)
            explained = partial(explain_timestamp, timestamp=timestamp, is_cached=is_cached)
        return await self._look(topic_partition, partial(with_segments, explained=explained) if and_segments else explained)

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

    async def _look(self, topic_partition: TopicPartition, procedure: Callable[[LogSnapshot], DiskProcedure[T]]) -> T:
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
                raise LogOfflineError(f"{topic_partition}: reading failed: {exc}. Check the device") from exc
            except StorageError as exc:
                raise LogOfflineError(
                    f"{topic_partition}: reading failed: {exc}. Check the device, and restart the server: it rebuilds indexes"
                ) from exc
            if actor.snapshot().truncations == snapshot.truncations:
                return answer
        raise LogOfflineError(f"{topic_partition}: the files changed during each of {SNAPSHOT_ATTEMPTS} reads{why}. Try again")

    def snapshot(self, topic_partition: TopicPartition) -> LogSnapshot:
        """The partition as it is now. Raises RequestError."""
        return self._manager.topics.actor(topic_partition).snapshot()


def _check_timestamp(topic_partition: TopicPartition, timestamp: int) -> None:
    try:
        check_timestamp(timestamp)
    except ValueError as exc:
        raise InvalidRequestError(f"{topic_partition}: {exc}") from exc
