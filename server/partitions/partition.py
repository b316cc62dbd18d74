"""The actor of a partition: it owns the log, serializes appends, and groups waiting appends into one disk hop.

A produce puts a command into the mailbox; the actor takes all waiting commands, plans one write, has it executed, commits, and
responds. Lookups and fetches never come here: they take a `LogSnapshot`, synchronously, and work on that.

| durability | one group | `acks=1` is answered | `acks=all` is answered |
|---|---|---|---|
| `fsync` | write and fdatasync | after the write | when the high watermark (= recovery point) passes |
| `group:<ms>` | write; fdatasync at most `<ms>` after the oldest unsynced byte | after the write | after the write |
| `os` | write; `flush.messages` and `flush.ms` are honoured | after the write | after the write |

Failures are described in `appender`. Syncs of one log run one after the other; flushes that run beside the appends are in
`flusher`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeVar

import attrs
import trio

from ...protocol.errors import RequestError, UnknownTopicOrPartitionError
from ...protocol.types import TopicPartition
from ..config import DurabilityMode, LogConfig
from ..loop.waiting import Waiters
from ..storage.disk.diskops import Procedure
from ..storage.errors import LogOfflineError, StorageError
from ..storage.log.log import Log, LogSnapshot
from ..storage.log.prepare import PreparedAppend
from ..storage.lookups.fetch import FetchCached, fetch_cached
from .appender import MAX_GROUP_BYTES, MAX_GROUP_COMMANDS, Answer, AppendCommand, Appender, FailedGroup
from .backpressure import Mailbox, MailboxClosedError, Room
from .disk import MAX_BYTES, Disk
from .flusher import Flusher

LOGGER: Final = logging.getLogger(__name__)

T = TypeVar("T")
FIRST: Final = itemgetter(0)


class PerformCommand(NamedTuple):
    """Run a procedure of the log between two groups of appends, and call `answer` with what it gave or raised."""

    procedure: Callable[[Log], Procedure[Any]]
    answer: Callable[[Any, BaseException | None], None]
    writes: bool
    """Whether it may change files. A log that waits for space has none that may be changed."""


@attrs.frozen
class PartitionStatistics:
    """Counters of one partition's actor, and the work that waits for it."""

    appends: int
    appended_bytes: int
    fetched_bytes: int
    groups: int
    syncs: int
    waiting_commands: int
    unsynced_ms: float
    """Age of the oldest byte that a power cut could take back, 0 when there is none."""
    longest_unsynced_ms: float
    """The largest that this has been since the start."""


@attrs.define(eq=False, repr=False)
class PartitionActor:
    """Owner of one log. `run` is its task; the other methods are called from any task of the trio thread."""

    log: Log
    disk: Disk
    background: trio.Nursery
    """Where flushes run beside the appends; it lives longer than the actor."""
    waiters: Waiters = attrs.field(factory=Waiters)
    fetched_bytes: int = 0
    """What readers were handed of the log."""
    fetch_cached: FetchCached = fetch_cached
    """How readers get records without waiting. A fake broker has others here, which may come from elsewhere than the log."""
    generated_end: int = 0
    """Up to here, exclusive, such a function always has records, so readers need not wait."""
    _mailbox: Mailbox[AppendCommand | PerformCommand | FailedGroup] = attrs.field(factory=Mailbox)
    _urgent: list[PerformCommand] = attrs.field(factory=list)
    """What makes room on the disk."""
    _has_urgent: trio.Event = attrs.field(factory=trio.Event)
    _scope: trio.CancelScope = attrs.field(factory=lambda: trio.CancelScope(shield=True))
    _stopped: trio.Event = attrs.field(factory=trio.Event)
    _awaited: dict[trio.Event, bool] = attrs.field(factory=dict)
    """Events that `wait_for` waits for; False once the actor has ended, which then sets them itself."""
    _closed_with: RequestError | None = None
    _flusher: Flusher = attrs.field(init=False)
    _appender: Appender = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._flusher = Flusher(self.log, self.disk, self.background, self.waiters, self._go_offline, self._fail, self.perform)
        self._appender = Appender(self.log, self.disk, self._flusher, self._go_offline, self._fail, self._wait_for_room)
        self._mailbox.put_off(self._has_mail)

    @property
    def topic_partition(self) -> TopicPartition:
        return self.log.topic_partition

    @property
    def config(self) -> LogConfig:
        return self.log.config

    @property
    def is_closed(self) -> bool:
        """Return whether the topic was deleted."""
        return self._closed_with is not None

    def statistics(self) -> PartitionStatistics:
        return PartitionStatistics(
            self._appender.appends,
            self._appender.appended_bytes,
            self.fetched_bytes,
            self._appender.groups,
            self._flusher.syncs,
            len(self._mailbox),
            self._flusher.unsynced_ms,
            self._flusher.longest_unsynced_ms,
        )

    @property
    def appended_bytes(self) -> int:
        """Since the start."""
        return self._appender.appended_bytes

    @property
    def longest_unsynced_ms(self) -> float:
        """The oldest that a byte has been that a power cut could take back, since the start."""
        return self._flusher.longest_unsynced_ms

    def snapshot(self) -> LogSnapshot:
        """Return the snapshot that a reader works on. Raises LogOfflineError, or UnknownTopicOrPartitionError when the topic
        was deleted."""
        if self.log.offline is not None:
            raise self.log.offline.as_answer()
        if self._closed_with is not None:
            raise self._closed_with.as_answer()
        known = self.log.known_snapshot
        return self.log.snapshot() if known is None else known

    async def append(self, prepared: PreparedAppend, acks: int, answer: Answer) -> None:
        """Enqueue an append, waiting for room in the mailbox. Cancelled: it was not enqueued.

        Once it is enqueued it will happen and `answer` will be called, whatever becomes of the caller.
        """
        try:
            await self._mailbox.put(AppendCommand(prepared, acks, answer), prepared.size)
        except MailboxClosedError:
            answer(self._closed_error())

    def try_append(self, prepared: PreparedAppend, acks: int, answer: Answer) -> bool:
        """Enqueue an append if there is room right now."""
        try:
            # What AppendCommand(...) makes, without its Python-level call.
            return self._mailbox.try_put(tuple.__new__(AppendCommand, (prepared, acks, answer)), prepared.size)
        except MailboxClosedError:
            answer(self._closed_error())
            return True

    async def perform(self, procedure: Callable[[Log], Procedure[T]], *, writes: bool = True, makes_room: bool = False) -> T:
        """Run a procedure of the log in its turn; one that `writes` is refused while the log waits for space. One that
        `makes_room` overtakes others, and has its turn while an append waits for room. Raises what it raises, and what
        `wait_for` does. Cancelled once it is enqueued: it still happens."""
        done = trio.Event()
        outcome: list[tuple[Any, BaseException | None]] = []

        def answer(value: Any, error: BaseException | None) -> None:
            outcome.append((value, error))
            done.set()

        command = PerformCommand(procedure, answer, writes)
        try:
            if makes_room:
                self._urgent.append(command)
                self._has_urgent.set()
                self._mailbox.try_put(
                    PerformCommand(_nothing, _nobody, False), 0
                )  # lets the task come by, if nothing else does
            else:
                await self._mailbox.put(command, 0)
        except MailboxClosedError:
            if makes_room:
                self._urgent.remove(command)
            raise self._closed_error() from None
        await self.wait_for(done)
        value, error = outcome[0]
        if error is not None:
            raise error
        return value  # type: ignore[no-any-return]

    async def _wait_for_room(self, room: Room, size: int) -> bool:
        """See Room.wait_for. Whoever makes the room may need this log's turn for it, which is held meanwhile."""
        outcome = False

        async def wait(scope: trio.CancelScope) -> None:
            nonlocal outcome
            outcome = await room.wait_for(size)
            scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, nursery.cancel_scope)
            while True:
                await self._has_urgent.wait()
                with trio.CancelScope(shield=True):
                    await self._perform_urgent()
        return outcome

    async def _perform_urgent(self) -> None:
        self._has_urgent = trio.Event()
        while self._urgent:
            await self._perform(self._urgent.pop(0))

    async def wait_for(self, answered: trio.Event) -> None:
        """Wait for an event that the actor sets when it answers.

        Raises LogOfflineError when the actor ended before: one that was ended by a bug, or given up by the stop, answers
        nobody, and who waits for it may be shielded.
        """
        if answered.is_set() or not self._stopped.is_set():
            self._awaited[answered] = True
            try:
                await answered.wait()
            finally:
                is_answered = self._awaited.pop(answered)
            if is_answered:
                return
        raise LogOfflineError(f"{self.topic_partition}: the server stopped before it responded. The outcome is unknown")

    def close(self, reason: RequestError | None = None) -> None:
        """Take no more commands. What is enqueued is still done; readers and later commands get `reason`."""
        self._closed_with = reason
        self._flusher.is_deleted = reason is not None
        self._mailbox.close()
        self.waiters.wake_all()

    def take_offline(self, why: str) -> None:
        """Refuse reads and appends until the server is restarted: the log's files cannot be used."""
        self._go_offline(why)

    async def stopped(self) -> None:
        """Wait until the mailbox was closed and everything in it is done."""
        await self._stopped.wait()

    def _closed_error(self) -> RequestError:
        reason = self._closed_with or self.log.refusal
        if reason is not None:
            return reason.as_answer()
        return LogOfflineError(f"{self.topic_partition}: the server is stopping. Try again later")

    async def run(self) -> None:
        """Serve the mailbox until it is closed and drained. Cancelling from outside does not reach in: `close` and then
        `abandon` are the way."""
        try:
            with self._scope:
                while await self._serve_next_group():
                    pass
        except Exception as exc:
            self._fail(exc)
        finally:
            self._mailbox.close()
            self._stopped.set()
            for event in [each for each in self._awaited if not each.is_set()]:
                self._awaited[event] = False
                event.set()

    def abandon(self) -> None:
        """Give up on what is enqueued, once the time to stop has run out. A running disk operation is still awaited."""
        self._scope.cancel()

    async def _serve_next_group(self) -> bool:
        """Serve what waits, or what comes first; False when the mailbox is closed and empty.

        A frame of its own: in the loop's, an idle partition would keep the bytes of its last group in memory.
        """
        commands = await self._mailbox.take(MAX_GROUP_COMMANDS, MAX_GROUP_BYTES)
        if self._urgent:
            await self._perform_urgent()
        group: list[AppendCommand] = []
        for command in commands:
            if isinstance(command, AppendCommand):
                group.append(command)
                continue
            await self._appender.append_all(group)
            group = []
            if isinstance(command, FailedGroup):
                await self._appender.settle(command)
            else:
                await self._perform(command)
        await self._appender.append_all(group)
        return bool(commands)

    def _has_mail(self) -> None:
        """Something came in while the task waits. With `fsync` it is the task's in any case: a sync takes a thread."""
        if self.disk.gathering.is_open and self.log.config.durability.mode is not DurabilityMode.FSYNC:
            self.disk.gathering.writers[self] = None
        else:
            self._mailbox.wake()

    def end_turn(self) -> None:
        """Serve what a turn has brought at its end, if the task waits and need not be woken for it: all is appended by one
        write, which takes 10 us where it is small, and a turn of the task twice that."""
        waiting = self._mailbox.try_take(MAX_BYTES)
        if waiting is None:
            self._mailbox.wake()
            return
        done: FailedGroup | bool = False
        try:
            for command, _ in waiting:
                if command.__class__ is not AppendCommand:
                    break
            else:
                done = self._appender.try_append(list(map(FIRST, waiting)))
        except Exception as exc:
            self._fail(exc)  # the task answers what waits
        if done is True:
            return
        self._mailbox.put_back([(done, 0)] if isinstance(done, FailedGroup) else waiting)
        self._mailbox.wake()

    async def _perform(self, command: PerformCommand) -> None:
        """Not while a flush runs in the background: a procedure may close or rename files that the flush works on."""
        before = self.log.active
        try:
            refusal = self.log.refusal if command.writes else self.log.offline
            if refusal is not None:
                raise refusal.as_answer()
            async with self._flusher.lock:
                value = await self.disk.drive(command.procedure(self.log), self.log.directory)
        except OSError as exc:
            self._go_offline(f"a change of the log failed half way ({exc})")
            command.answer(None, self.log.offline)
        except (StorageError, RequestError, ValueError) as exc:
            command.answer(None, exc)
        except Exception as exc:
            command.answer(None, self._fail(exc))
        else:
            command.answer(value, None)
        self._flusher.note_write()
        self._flusher.retry_failed()
        if self.log.active is not before:
            self._appender.adopt_active()
        self.waiters.wake_all()

    def _fail(self, error: Exception) -> LogOfflineError:
        """Take the log offline after an unhandled exception: the extent of the unfinished change is unknown."""
        self.disk.errors.note("partition", self.topic_partition, error)
        return self._go_offline(f"unhandled exception ({error!r})")

    def _go_offline(self, why: str) -> LogOfflineError:
        if self.log.offline is None:
            self.log.offline = LogOfflineError(
                f"{self.topic_partition} in {self.log.directory} is offline: {why}. Check the device and restart the server"
            )
            LOGGER.log(logging.DEBUG if self.disk.fs.is_dead else logging.CRITICAL, "%s", self.log.offline)
        self.waiters.wake_all()
        return self.log.offline

    @property
    def at_rest(self) -> trio.Lock:
        """After `stopped`: held by whoever closes the log, while no flush runs in the background."""
        return self._flusher.lock


def _nothing(log: Log) -> Procedure[None]:
    return
    yield


def _nobody(value: Any, error: BaseException | None) -> None:
    """Nobody waits for what it gave."""


def deleted_error(topic_partition: TopicPartition) -> RequestError:
    """Return the error that readers and producers of a topic under deletion get."""
    return UnknownTopicOrPartitionError(f"{topic_partition}: the topic was deleted")
