"""Appending groups of commands to one log: each is a plan, one write, and the answers (see `partition` for what each
durability promises).

A write that fails is taken back, and the append is answered with an error; the next one may succeed. A sync that fails is
final, because the kernel forgets what it could not write: the log goes offline, as when taking back fails. Where the device
only had no room it is as with a write, and what is not synced yet is written again before the next sync (see `write_again` in
storage). Before it comes to that, an append waits until the guard of the disks has looked or made room (see `Room` in
`backpressure`); the server's own topics and the markers of transactions do not wait.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from itertools import islice, takewhile
from operator import attrgetter
from typing import Any, Final, NamedTuple

import attrs

from ...protocol.errors import ErrorCode, RequestError
from ...protocol.limits import INT64_MAX, MIB
from ...protocol.types import AppendResult
from ..config import DurabilityMode
from ..storage.disk.paths import is_internal
from ..storage.errors import AppendFailedError, LogOfflineError, StorageError, SyncFailedError, is_out_of_space
from ..storage.log.append import AppendPlan, abort_append, commit_append, plan_append
from ..storage.log.log import Log
from ..storage.log.prepare import PreparedAppend
from .backpressure import FILE_BLOCK_BYTES, ROLL_BYTES, Room
from .disk import Disk, OperationFailedError
from .flusher import Flusher, is_final

LOGGER: Final = logging.getLogger(__name__)

MAX_GROUP_COMMANDS: Final = 1024
MAX_GROUP_BYTES: Final = 8 * MIB
"""A group is one write and one sync. Larger ones gain nothing: the device is busy with 8 MiB for 20 ms and more."""

ACKS_ALL: Final = -1

Answer = Callable[[AppendResult | RequestError], None]
"""Called once, in the trio thread, when an append is answered. Must not raise and must not block."""


class AppendCommand(NamedTuple):
    """Append these batches and call `answer`; with acks 0 nobody asks."""

    prepared: PreparedAppend
    acks: int
    answer: Answer


PREPARED: Final = attrgetter("prepared")


class FailedGroup(NamedTuple):
    """A group that was written without the actor's task, and in vain: what is to be taken back, and answered."""

    plan: AppendPlan
    appends: list[AppendCommand]
    failure: OperationFailedError


@attrs.define(eq=False, repr=False)
class Appender:
    """Owner of what was appended since the start. Owned by the partition's actor, in whose turn it works."""

    log: Log
    disk: Disk
    flusher: Flusher
    go_offline: Callable[[str], LogOfflineError]
    fail: Callable[[Exception], LogOfflineError]
    """The same for an unhandled exception."""
    wait_for_room: Callable[[Room, int], Awaitable[bool]]
    appends: int = 0
    appended_bytes: int = 0
    groups: int = 0
    _room: Room = attrs.field(init=False)
    _is_internal: bool = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._room = self.disk.rooms.of(self.log.directory.rpartition("/")[0])
        self._is_internal = is_internal(self.log.topic_partition.topic)

    async def append_all(self, appends: Sequence[AppendCommand]) -> None:
        """Append what came in, in order, in as few writes as the segments allow, and answer each command."""
        pending = deque(appends)
        try:
            await self._append_pending(pending)
        except Exception as exc:
            self._refuse(pending, self.fail(exc))

    def _refuse(self, appends: Iterable[AppendCommand], error: RequestError) -> None:
        for append in appends:
            with self.disk.errors.isolate("partition", self.log.topic_partition):
                append.answer(error)

    async def _append_pending(self, pending: deque[AppendCommand]) -> None:
        """Takes those out that are answered."""
        most = MAX_GROUP_COMMANDS
        while pending:
            refusal = self.log.refusal
            if refusal is not None:
                self._refuse(pending, refusal)
                return
            prepared = [append.prepared for append in islice(pending, most)]
            plan = plan_append(self.log, prepared, sync=self._wants_sync(pending))
            if not self._has_room(plan):
                markers = _leading_markers(pending)
                if not markers:
                    needed = pending[0].prepared.size if plan.taken else self._roll_bytes
                    most = await self._make_room(pending, needed)
                    continue
                if plan.taken > markers:
                    most = markers
                    continue
            most = MAX_GROUP_COMMANDS
            if plan.taken:
                await self._execute(plan, list(islice(pending, plan.taken)))
                for _ in range(plan.taken):
                    pending.popleft()
            elif (error := await self._roll(plan)) is not None:
                pending.popleft().answer(error)

    def try_append(self, appends: list[AppendCommand]) -> FailedGroup | bool:
        """Append what came in without waiting for anything, where durability is not `fsync`. False: that cannot be done, and
        nothing was. A group that failed is for `settle`."""
        log = self.log
        config = log.config
        if log.offline is not None or log.waiting is not None:
            return False
        if config.flush_messages != INT64_MAX and self._wants_sync(appends):
            return False
        plan = plan_append(log, list(map(PREPARED, appends)), sync=False)
        if plan.roll is not None:
            return False
        if plan.cursor.buffers:
            size = plan.cursor.size - plan.segment.size
            # What `_has_room` answers, without its call.
            if size + FILE_BLOCK_BYTES > self._room.left_bytes and not self._is_internal:
                return False
            log.modified = True
            try:
                if not self.disk.try_run(plan.operations, plan.files):
                    return False
            except OperationFailedError as exc:
                return FailedGroup(plan, appends, exc)
            self._room.wrote(size)
            self._commit(plan, appends)
        elif log.is_black_hole:
            self._commit(plan, appends)
        self.flusher.after_unsynced_write()
        for answer, append in zip(plan.answers, appends, strict=True):
            append.answer(answer)
        return True

    async def settle(self, group: FailedGroup) -> None:
        """Take back what a group of `try_append` wrote, and answer it."""
        try:
            await self._fail(group.plan, group.appends, group.failure)
        except Exception as exc:
            self._refuse(group.appends, self.fail(exc))

    def _has_room(self, plan: AppendPlan) -> bool:
        """Return whether the device has space for a plan, or for the roll that comes before it."""
        if self._is_internal:
            return True
        if plan.taken:
            return not plan.writes or self._room.has(plan.cursor.size - plan.segment.size)
        return self._room.has(self._roll_bytes)

    @property
    def _roll_bytes(self) -> int:
        """Return what a roll takes: small files, and the full size of a preallocated segment."""
        return ROLL_BYTES + (self.log.config.segment_bytes if self.log.config.preallocate else 0)

    async def _make_room(self, pending: deque[AppendCommand], needed: int) -> int:
        """Wait for room, and answer for how many appends there is some then. Where there is none the first one is answered."""
        if not await self.wait_for_room(self._room, needed):
            error = RequestError(
                f"{self.log.topic_partition}: no space for {needed} bytes above disk_reserve_bytes or below "
                "log_max_bytes. Nothing of the append is stored. Free space on the server, then send it again",
                ErrorCode.POLICY_VIOLATION,
            )
            pending.popleft().answer(error)
            return MAX_GROUP_COMMANDS
        count = size = 0
        for append in pending:
            size += append.prepared.size
            if count and not self._room.has(size):
                break
            count += 1
        return count

    def _wants_sync(self, appends: Collection[AppendCommand]) -> bool:
        """Return whether the write and the sync share a hop: not when a producer gets its response between them."""
        config = self.log.config
        if config.durability.mode is DurabilityMode.FSYNC:
            return all(append.acks == ACKS_ALL for append in appends)
        if config.flush_messages == INT64_MAX:
            return False
        unsynced = self.log.log_end_offset - self.log.recovery_point
        return unsynced + sum(append.prepared.records_count for append in appends) >= config.flush_messages

    async def _execute(self, plan: AppendPlan, appends: list[AppendCommand]) -> None:
        if plan.writes:
            self.log.modified = True
            size = plan.cursor.size - plan.segment.size
            self._room.take(size)
            try:
                await (self.flusher.run_alone(plan) if plan.sync else self.disk.run(plan.operations, plan.files))
            except (OperationFailedError, OSError) as exc:
                await self._fail(plan, appends, exc)
                return
            finally:
                self._room.done(size)
            self._commit(plan, appends)
        elif self.log.is_black_hole:
            self._commit(plan, appends)
        if self.log.config.durability.mode is not DurabilityMode.FSYNC:
            self.flusher.syncs += plan.sync and plan.writes
            self.flusher.after_unsynced_write()
            with self.disk.gathering:
                for answer, append in zip(plan.answers, appends, strict=True):
                    append.answer(answer)
            return
        if plan.sync and self.log.recovery_point == self.log.log_end_offset:
            self.flusher.syncs += plan.writes
            self.flusher.note_write()
            self.flusher.advance_high_watermark()
            with self.disk.gathering:
                for answer, append in zip(plan.answers, appends, strict=True):
                    append.answer(answer)
            return
        self.flusher.note_write()
        with self.disk.gathering:
            for answer, append in zip(plan.answers, appends, strict=True):
                if append.acks != ACKS_ALL:
                    append.answer(answer)
        error = await self.flusher.flush_all()
        with self.disk.gathering:
            for answer, append in zip(plan.answers, appends, strict=True):
                if append.acks == ACKS_ALL:
                    append.answer(answer if error is None or isinstance(answer, RequestError) else error)

    def _commit(self, plan: AppendPlan, appends: list[AppendCommand]) -> None:
        """The group is written."""
        size = plan.segment.size
        commit_append(self.log, plan, readable=self.log.config.durability.mode is not DurabilityMode.FSYNC)
        self.appended_bytes += plan.segment.size - size
        self.appends += len(appends)
        self.groups += 1

    async def _fail(self, plan: AppendPlan, appends: list[AppendCommand], failure: OperationFailedError | OSError) -> None:
        """Take back what a failed group wrote and answer it."""
        cause = failure.cause if isinstance(failure, OperationFailedError) else failure
        operation = failure.operation if isinstance(failure, OperationFailedError) else None
        if is_final(cause):
            self.go_offline(f"a sync failed ({cause}), so unsynced records may be lost")
        elif operation is not None:
            await self._take_back(plan, cause)
        error = self.log.offline or self._failed_append(_failed_path(operation, plan), cause)
        LOGGER.error("%s", error)
        with self.disk.gathering:
            for answer, append in zip(plan.answers, appends, strict=True):
                append.answer(answer if isinstance(answer, RequestError) else error)

    def _failed_append(self, path: str, cause: OSError) -> AppendFailedError:
        """Return the error of a failed append. A full directory in memory, such as a test's, is not retriable: clients would
        retry until their timeout."""
        is_full = is_out_of_space(cause) and self.disk.fs.is_instant
        remedy = "Free space or check the device, then send it again"
        if is_full:
            remedy = "Memory for files is full. Give it more (docker run --shm-size=1g), or open the broker on a disk"
        return AppendFailedError(
            f"{self.log.topic_partition}: writing to {path} failed: {cause.strerror or cause}. Nothing of the "
            f"append is stored. {remedy}",
            ErrorCode.POLICY_VIOLATION if is_full else None,
        )

    async def _take_back(self, plan: AppendPlan, cause: OSError) -> None:
        """Cut off what a failed group wrote. That the device has no room for the sync of the cut is no matter: the next one
        is about it too. What was written before and is not synced is tried again."""
        try:
            async with self.flusher.lock:
                await self.disk.run(abort_append(plan), [plan.segment.log])
        except (OperationFailedError, OSError) as exc:
            failure = exc.cause if isinstance(exc, OperationFailedError) else exc
            if not isinstance(failure, SyncFailedError) or is_final(failure):
                self.go_offline(f"a write failed ({cause}) and could not be taken back ({exc})")
                return
        if isinstance(cause, SyncFailedError) and self.log.recovery_point < self.log.log_end_offset:
            self.flusher.retry_soon(cause)

    async def _roll(self, plan: AppendPlan) -> RequestError | None:
        log = self.log
        size = self._roll_bytes
        self._room.take(size)
        try:
            async with self.flusher.lock:
                segment = await self.disk.drive(log.roll(), log.directory)
        except (OSError, StorageError, ValueError) as exc:
            if is_final(exc):
                return self.go_offline(f"a sync failed ({exc}), so unsynced records may be lost")
            error = AppendFailedError(
                f"{log.topic_partition}: starting a new segment in {log.directory} ({plan.roll}) failed: {exc}. "
                "Nothing of the append is stored. Free space or check the device, then send it again"
            )
            LOGGER.error("%s", error)
            return error
        finally:
            self._room.done(size)
        self.adopt_active()
        LOGGER.debug("%s: rolled to offset %d: %s", self.log.topic_partition, segment.base_offset, plan.roll)
        if log.recovery_point < segment.base_offset and log.sync_metadata:
            self.flusher.flush_soon(segment.base_offset)
        return None

    def adopt_active(self) -> None:
        """Count the descriptor that a new active segment was made with."""
        file = self.log.active.log
        fd, file.fd = file.fd, None
        if fd is not None:
            self.disk.files.adopt(file, fd)


def _leading_markers(pending: Iterable[AppendCommand]) -> int:
    """Return the number of leading appends that end transactions: the reserve is for them."""
    return sum(1 for _ in takewhile(lambda append: append.prepared.marker is not None, pending))


def _failed_path(operation: Any, plan: AppendPlan) -> str:
    file = getattr(operation, "file", None)
    return str(getattr(operation, "path", plan.segment.log.path) if file is None else file.path)
