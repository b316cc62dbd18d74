"""One actor per partition: it owns the log, serialises appends, and groups what waits into one disk hop.

A produce puts a command into the mailbox; the actor takes all that waits, plans one write, has it executed, commits, and
answers. Lookups and fetches never come here: they take a `LogSnapshot`, synchronously, and work on that.

| durability | one group | `acks=1` is answered | `acks=all` is answered |
|---|---|---|---|
| `fsync` | write and fdatasync | after the write | when the high watermark (= recovery point) passes |
| `group:<ms>` | write; fdatasync at most `<ms>` after the oldest unsynced byte | after the write | after the write |
| `os` | write; `flush.messages` and `flush.ms` are honoured | after the write | after the write |

A write that fails is taken back, and the append is answered with an error; the next one may succeed. A sync that fails is
final, because the kernel forgets what it could not write: the log goes offline, as when taking back fails. Where the device
only had no room it is as with a write, and what is not synced yet is written again before the next sync (see `write_again` in
storage). Syncs of one log run one after the other. Flushes beside the appends are in `flusher`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

import attrs
import trio

from ...protocol.errors import RequestError, UnknownTopicOrPartitionError
from ...protocol.limits import INT64_MAX, MIB
from ...protocol.types import TopicPartition
from ..config import DurabilityMode, LogConfig
from ..storage.append import AppendPlan, AppendResult, abort, commit, plan_append
from ..storage.diskops import Procedure
from ..storage.errors import AppendFailedError, LogOfflineError, StorageError, SyncFailedError
from ..storage.log import Log
from ..storage.log_snapshot import LogSnapshot
from ..storage.prepare import PreparedAppend
from .disk import Disk, OperationFailedError
from .flusher import Flusher, is_final
from .mailbox import Mailbox, MailboxClosedError
from .waiters import Waiters

LOGGER: Final = logging.getLogger(__name__)

T = TypeVar("T")

MAX_GROUP_COMMANDS: Final = 1024
MAX_GROUP_BYTES: Final = 8 * MIB
"""A group is one write and one sync. Larger ones gain nothing: the device is busy with 8 MiB for 20 ms and more."""

ACKS_ALL: Final = -1

Answer = Callable[[AppendResult | RequestError], None]
"""Called once, in the actor's task, when an append is answered. Must not raise and must not block."""


class Append(NamedTuple):
    """Append these batches and call `answer`; with acks 0 nobody asks."""

    prepared: PreparedAppend
    acks: int
    answer: Answer


class Perform(NamedTuple):
    """Run a procedure of the log between two groups of appends, and call `answer` with what it gave or raised."""

    procedure: Callable[[Log], Procedure[Any]]
    answer: Callable[[Any, BaseException | None], None]
    writes: bool
    """Whether it may change files. A log that waits for space has none that may be changed."""


@attrs.frozen
class PartitionStatistics:
    """What one partition's actor has done and has before it."""

    appends: int
    appended_bytes: int
    fetched_bytes: int
    groups: int
    largest_group: int
    syncs: int
    waiting_commands: int
    waiting_bytes: int
    unsynced_ms: float
    """Age of the oldest byte that a power cut could take back, 0 when there is none."""


@attrs.define(eq=False)
class PartitionActor:
    """Owner of one log. `run` is its task; the other methods are called from any task of the trio thread."""

    log: Log
    disk: Disk
    background: trio.Nursery
    """Where flushes run beside the appends; it lives longer than the actor."""
    waiters: Waiters = attrs.field(factory=Waiters)
    fetched_bytes: int = 0
    """What readers were handed of the log."""
    _mailbox: Mailbox[Append | Perform] = attrs.field(factory=Mailbox)
    _scope: trio.CancelScope = attrs.field(factory=lambda: trio.CancelScope(shield=True))
    _stopped: trio.Event = attrs.field(factory=trio.Event)
    _closed_with: RequestError | None = None
    _appends: int = 0
    _appended_bytes: int = 0
    _groups: int = 0
    _largest_group: int = 0
    _flusher: Flusher = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._flusher = Flusher(self.log, self.disk, self.background, self.waiters, self._go_offline, self.perform)

    @property
    def topic_partition(self) -> TopicPartition:
        return self.log.topic_partition

    @property
    def config(self) -> LogConfig:
        return self.log.config

    @property
    def is_closed(self) -> bool:
        """Whether the topic was deleted."""
        return self._closed_with is not None

    def statistics(self) -> PartitionStatistics:
        return PartitionStatistics(
            self._appends,
            self._appended_bytes,
            self.fetched_bytes,
            self._groups,
            self._largest_group,
            self._flusher.syncs,
            len(self._mailbox),
            self._mailbox.bytes_waiting,
            self._flusher.unsynced_ms,
        )

    # ---- doors ---------------------------------------------------------------------------------------------------------

    def snapshot(self) -> LogSnapshot:
        """What a reader works on. Raises LogOfflineError, or UnknownTopicOrPartitionError when the topic was deleted."""
        if self.log.offline is not None:
            raise self.log.offline.as_answer()
        if self._closed_with is not None:
            raise self._closed_with.as_answer()
        return self.log.snapshot()

    async def append(self, prepared: PreparedAppend, acks: int, answer: Answer) -> None:
        """Enqueue an append, waiting for room in the mailbox. Cancelled: it was not enqueued.

        Once it is enqueued it will happen and `answer` will be called, whatever becomes of the caller.
        """
        try:
            await self._mailbox.put(Append(prepared, acks, answer), prepared.size)
        except MailboxClosedError:
            answer(self._closed_error())

    def try_append(self, prepared: PreparedAppend, acks: int, answer: Answer) -> bool:
        """Enqueue an append if there is room right now."""
        try:
            return self._mailbox.try_put(Append(prepared, acks, answer), prepared.size)
        except MailboxClosedError:
            answer(self._closed_error())
            return True

    async def perform(self, procedure: Callable[[Log], Procedure[T]], *, writes: bool = True) -> T:
        """Run a procedure of the log in its turn; one that `writes` is refused while the log waits for space. Raises what it
        raises, and what `wait_for` does. Cancelled once it is enqueued: it still happens."""
        done = trio.Event()
        outcome: list[tuple[Any, BaseException | None]] = []

        def answer(value: Any, error: BaseException | None) -> None:
            outcome.append((value, error))
            done.set()

        try:
            await self._mailbox.put(Perform(procedure, answer, writes), 0)
        except MailboxClosedError:
            raise self._closed_error() from None
        await self.wait_for(done)
        value, error = outcome[0]
        if error is not None:
            raise error
        return value  # type: ignore[no-any-return]

    async def wait_for(self, answered: trio.Event) -> None:
        """Wait for an event that the actor sets when it answers.

        Raises LogOfflineError when the actor ended before: one that was ended by a bug, or given up by the stop, answers
        nobody, and who waits for it may be shielded.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cancel_when_stopped, nursery.cancel_scope)
            await answered.wait()
            nursery.cancel_scope.cancel()
        if not answered.is_set():
            raise LogOfflineError(
                f"{self.topic_partition}: the server stopped before it answered; whether it took effect is unknown"
            )

    async def _cancel_when_stopped(self, scope: trio.CancelScope) -> None:
        await self._stopped.wait()
        scope.cancel()

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
        return LogOfflineError(f"{self.topic_partition}: the server is stopping; try again later")

    # ---- the task ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve the mailbox until it is closed and drained. Cancelling from outside does not reach in: `close` and then
        `abandon` are the way."""
        try:
            with self._scope:
                while await self._serve_next_group():
                    pass
        except Exception as exc:
            self._go_offline(f"its actor was ended by a bug ({exc!r})")
            raise
        finally:
            self._mailbox.close()
            self._stopped.set()

    def abandon(self) -> None:
        """Give up on what is enqueued, once the time to stop has run out. A running disk operation is still awaited."""
        self._scope.cancel()

    async def _serve_next_group(self) -> bool:
        """Serve what waits, or what comes first; False when the mailbox is closed and empty.

        A frame of its own: in the loop's, an idle partition would keep the bytes of its last group in memory.
        """
        commands = await self._mailbox.take(MAX_GROUP_COMMANDS, MAX_GROUP_BYTES)
        group: list[Append] = []
        for command in commands:
            if isinstance(command, Append):
                group.append(command)
            else:
                await self._append_all(group)
                group = []
                await self._perform(command)
        await self._append_all(group)
        return bool(commands)

    async def _perform(self, command: Perform) -> None:
        """Not while a flush runs in the background: a procedure may close or rename files that the flush works on."""
        before = self.log.active
        try:
            refusal = self.log.refusal if command.writes else self.log.offline
            if refusal is not None:
                raise refusal.as_answer()
            async with self._flusher.lock:
                value = await self.disk.drive(command.procedure(self.log))
        except OSError as exc:
            self._go_offline(f"a change of the log failed half way ({exc})")
            command.answer(None, self.log.offline)
        except (StorageError, RequestError, ValueError) as exc:
            command.answer(None, exc)
        else:
            command.answer(value, None)
        if self.log.active is not before:
            self._adopt_active()
        self.waiters.wake_all()

    def _adopt_active(self) -> None:
        """Count the descriptor that a new active segment was made with."""
        file = self.log.active.log
        fd, file.fd = file.fd, None
        if fd is not None:
            self.disk.adopt(file, fd)

    async def _append_all(self, appends: list[Append]) -> None:
        pending = deque(appends)
        while pending:
            refusal = self.log.refusal
            if refusal is not None:
                for append in pending:
                    append.answer(refusal)
                return
            prepared = [append.prepared for append in islice(pending, MAX_GROUP_COMMANDS)]
            plan = plan_append(self.log, prepared, sync=self._syncs_now(pending))
            taken = [pending.popleft() for _ in range(plan.taken)]
            if taken:
                await self._execute(plan, taken)
            elif (error := await self._roll(plan)) is not None:
                pending.popleft().answer(error)

    def _syncs_now(self, appends: deque[Append]) -> bool:
        """Whether the write and the sync share a hop: not when someone is answered between them."""
        config = self.config
        if config.durability.mode is DurabilityMode.FSYNC:
            return all(append.acks == ACKS_ALL for append in appends)
        if config.flush_messages == INT64_MAX:
            return False
        unsynced = self.log.log_end_offset - self.log.recovery_point
        return unsynced + sum(append.prepared.records_count for append in appends) >= config.flush_messages

    # ---- one group -----------------------------------------------------------------------------------------------------

    async def _execute(self, plan: AppendPlan, appends: list[Append]) -> None:
        if plan.writes:
            self.log.modified = True
            try:
                await (self._flusher.run_alone(plan) if plan.sync else self.disk.run(plan.operations, plan.files))
            except (OperationFailedError, OSError) as exc:
                await self._fail(plan, appends, exc)
                return
            size = plan.segment.size
            commit(self.log, plan)
            self._appended_bytes += plan.segment.size - size
            self._appends += len(appends)
            self._groups += 1
            self._largest_group = max(self._largest_group, len(appends))
        if self.config.durability.mode is not DurabilityMode.FSYNC:
            self._flusher.syncs += plan.sync and plan.writes
            self._flusher.advance_high_watermark()
            self._flusher.after_unsynced_write()
            _answer_all(plan, appends)
            return
        if plan.sync and self.log.recovery_point == self.log.log_end_offset:
            self._flusher.syncs += plan.writes
            self._flusher.advance_high_watermark()
            _answer_all(plan, appends)
            return
        for answer, append in zip(plan.answers, appends, strict=True):
            if append.acks != ACKS_ALL:
                append.answer(answer)
        error = await self._flusher.flush_now()
        for answer, append in zip(plan.answers, appends, strict=True):
            if append.acks == ACKS_ALL:
                append.answer(answer if error is None or isinstance(answer, RequestError) else error)

    async def _fail(self, plan: AppendPlan, appends: list[Append], failure: OperationFailedError | OSError) -> None:
        """Take back what a failed group wrote and answer it."""
        cause = failure.cause if isinstance(failure, OperationFailedError) else failure
        operation = failure.operation if isinstance(failure, OperationFailedError) else None
        if is_final(cause):
            self._go_offline(f"a sync failed ({cause}), so what was written since the last one may be lost")
        elif operation is not None:
            await self._take_back(plan, cause)
        error = self.log.offline or AppendFailedError(
            f"{self.topic_partition}: writing to {_failed_path(operation, plan)} failed: {cause.strerror or cause}; nothing of "
            "the append is stored; free space or check the device, then send it again"
        )
        LOGGER.error("%s", error)
        for answer, append in zip(plan.answers, appends, strict=True):
            append.answer(answer if isinstance(answer, RequestError) else error)

    async def _take_back(self, plan: AppendPlan, cause: OSError) -> None:
        """Cut off what a failed group wrote. That the device has no room for the sync of the cut is no matter: the next one
        is about it too. What was written before and is not synced is tried again."""
        try:
            async with self._flusher.lock:
                await self.disk.run(abort(plan), [plan.segment.log])
        except (OperationFailedError, OSError) as exc:
            failure = exc.cause if isinstance(exc, OperationFailedError) else exc
            if not isinstance(failure, SyncFailedError) or is_final(failure):
                self._go_offline(f"a write failed ({cause}) and could not be taken back ({exc})")
                return
        if isinstance(cause, SyncFailedError) and self.log.recovery_point < self.log.log_end_offset:
            self._flusher.retry_soon(cause)

    async def _roll(self, plan: AppendPlan) -> RequestError | None:
        log = self.log
        try:
            async with self._flusher.lock:
                segment = await self.disk.drive(log.roll())
        except (OSError, StorageError, ValueError) as exc:
            if is_final(exc):
                return self._go_offline(f"a sync failed ({exc}), so what was written since the last one may be lost")
            error = AppendFailedError(
                f"{self.topic_partition}: starting a new segment in {log.directory} ({plan.roll}) failed: {exc}; nothing of "
                "the append is stored; free space or check the device, then send it again"
            )
            LOGGER.error("%s", error)
            return error
        self._adopt_active()
        LOGGER.debug("%s: rolled to offset %d: %s", self.topic_partition, segment.base_offset, plan.roll)
        if log.recovery_point < segment.base_offset and log.sync_metadata:
            self._flusher.flush_soon(segment.base_offset)
        return None

    def _go_offline(self, why: str) -> LogOfflineError:
        if self.log.offline is None:
            self.log.offline = LogOfflineError(
                f"{self.topic_partition} in {self.log.directory} is offline: {why}; check the device and restart the server"
            )
            LOGGER.critical("%s", self.log.offline)
        self.waiters.wake_all()
        return self.log.offline

    # ---- end -----------------------------------------------------------------------------------------------------------

    async def finish(self) -> bool:
        """After `stopped`: force everything to the device and trim the files. False when the log cannot be called clean."""
        if self.log.refusal is not None:
            return False
        async with self._flusher.lock:
            try:
                await self.disk.drive(self.log.close())
            except (OSError, StorageError) as exc:
                self._go_offline(f"closing failed ({exc})")
                return False
        return True


def _answer_all(plan: AppendPlan, appends: list[Append]) -> None:
    for answer, append in zip(plan.answers, appends, strict=True):
        append.answer(answer)


def _failed_path(operation: Any, plan: AppendPlan) -> str:
    file = getattr(operation, "file", None)
    return str(getattr(operation, "path", plan.segment.log.path) if file is None else file.path)


def deleted_error(topic_partition: TopicPartition) -> RequestError:
    """What readers and producers of a topic get that is being deleted."""
    return UnknownTopicOrPartitionError(f"{topic_partition}: the topic was deleted")
