"""Forcing a log to the device beside its appends: when that is due, what is not synced yet, and which failures are final.

A flush is due `<ms>` after the oldest unsynced byte (`durability=group:<ms>`, `flush.ms`), at a roll, and at once for appends
that wait for it. A sync that fails takes the log offline, unless the device only had no room: then what waits is refused, and
the flush is tried again, with the bytes written once more, until it works. So it is with files that cannot be opened.

The kernel tells a failure to one sync of a descriptor: of two that run side by side the other would succeed. So whoever syncs
files of the log holds `lock`.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Awaitable, Callable
from typing import Any, Final

import attrs
import trio

from ...protocol.errors import RequestError
from ...protocol.limits import INT64_MAX
from ..config import DurabilityMode
from ..loop.waiting import Waiters
from ..storage.disk.diskops import Procedure
from ..storage.errors import AppendFailedError, LogOfflineError, SyncFailedError
from ..storage.log.append import AppendPlan
from ..storage.log.log import FlushPlan, Log
from .disk import Disk, OperationFailedError

LOGGER: Final = logging.getLogger(__name__)

FLUSH_RETRY_S: Final = 0.5
"""Between two attempts at a flush whose files cannot be opened. Descriptors come back when others are done."""
LONGEST_RETRY_S: Final = 16.0
"""To which that is doubled where the device has no room: each attempt writes again."""


def is_final(failure: BaseException) -> bool:
    """Return whether a sync has failed and waiting does not help."""
    return isinstance(failure, SyncFailedError) and not failure.is_passing


def flush(log: Log) -> Procedure[int]:
    """Force a log to the device, whatever its durability says, and answer its end. Raises AppendFailedError when its files
    cannot be opened, or the device has no room; another OSError takes the log offline."""
    if log.recovery_point < log.log_end_offset and log.sync_metadata:
        plan = log.plan_flush()
        try:
            yield from (operation for operation in plan.operations)  # a tuple cannot be sent the answers
        except OSError as exc:
            if isinstance(exc, SyncFailedError) and not exc.is_passing:
                raise
            raise AppendFailedError(f"{log.topic_partition}: cannot sync it to the device yet ({exc}). Try again") from exc
        log.commit_flush(plan)
    return log.log_end_offset


@attrs.define(eq=False, repr=False)
class Flusher:
    """State of one log's flushes. Owner: the partition's actor, and the tasks that flush for it in `background`."""

    log: Log
    disk: Disk
    background: trio.Nursery
    """Where flushes run beside the appends; it lives longer than the actor."""
    waiters: Waiters
    go_offline: Callable[[str], LogOfflineError]
    fail: Callable[[Exception], LogOfflineError]
    """The same for an unhandled exception."""
    perform: Callable[[Callable[[Log], Procedure[int]]], Awaitable[int]]
    """Runs a procedure in the actor's turn."""
    lock: trio.Lock = attrs.field(factory=trio.Lock)
    """Held by whoever syncs files of the log, or closes or renames them."""
    syncs: int = 0
    is_deleted: bool = False
    """Whether the topic was deleted: nothing is flushed then, and what fails says nothing."""
    _unsynced_since: float | None = None
    _longest_unsynced_s: float = 0.0
    _flush_at: float = math.inf
    """When the next flush in the background begins, in trio's time."""
    _is_retrying: bool = False
    """Whether a flush that could not be made is tried again."""

    @property
    def unsynced_ms(self) -> float:
        """Age of the oldest byte that a power cut could take back, 0 when there is none."""
        since = self._unsynced_since
        if since is None or self.log.recovery_point >= self.log.log_end_offset:
            return 0.0
        return (trio.current_time() - since) * 1000

    @property
    def longest_unsynced_ms(self) -> float:
        """The largest that `unsynced_ms` has been since the start."""
        return max(self._longest_unsynced_s * 1000, self.unsynced_ms)

    def advance_high_watermark(self) -> None:
        """All that is in the log may be read."""
        self.log.high_watermark_to_end()
        if self.waiters.events:
            self.waiters.wake_all()

    def note_write(self) -> bool:
        """Something was written, or forced to the device. Answers whether there is something that is not there yet."""
        log = self.log
        if log.log_end_offset == log.recovery_point:
            self._set_unsynced_since(None)
            return False
        if self._unsynced_since is None:
            self._set_unsynced_since(trio.current_time())
        return True

    def _set_unsynced_since(self, moment: float | None) -> None:
        """The oldest byte that is not on the device was written then; it never becomes older. None: everything is there."""
        before = self._unsynced_since
        if before is not None:
            moment = None if moment is None else max(before, moment)
            if moment != before:
                self._longest_unsynced_s = max(self._longest_unsynced_s, trio.current_time() - before)
        self._unsynced_since = moment

    async def flush_all(self) -> RequestError | None:
        """Force all that was written to the device and let the high watermark follow. Answers why it did not."""
        async with self.lock:
            failure = await self._sync(self.log.plan_flush())
        if failure is None:
            self._set_unsynced_since(None)
            self.advance_high_watermark()
            return None
        if self.log.offline is not None:
            return self.log.offline
        self.retry_soon(failure)
        remedy = "Free space" if isinstance(failure, SyncFailedError) else "Raise the limit of open files"
        return AppendFailedError(
            f"{self.log.topic_partition}: the append is written but cannot be synced to the device yet "
            f"({failure}). The server keeps trying, and until then it cannot be read. {remedy}, then send it "
            "again"
        )

    async def run_alone(self, plan: AppendPlan) -> None:
        """Execute an append that ends with a sync. Raises as `Disk.run`."""
        try:
            self.lock.acquire_nowait()  # taking it with `async with` costs every group a turn of the loop
        except trio.WouldBlock:
            await self.lock.acquire()
        try:
            await self.disk.run(plan.operations, plan.files, syncs=True)
        finally:
            self.lock.release()

    async def _sync(self, plan: FlushPlan) -> Exception | None:
        """Answers what failed. The log is offline then, unless it was only that files could not be opened, or had no room."""
        if not plan.operations:
            return None
        try:
            await self.disk.run(plan.operations, plan.files, syncs=True)
        except (OperationFailedError, OSError) as exc:
            cause = exc.cause if isinstance(exc, OperationFailedError) else exc
            if (is_final(cause) or isinstance(cause, FileNotFoundError)) and not self.is_deleted:
                self.go_offline(f"a sync failed ({cause}), so unsynced records may be lost")
            return cause
        self.log.commit_flush(plan)
        self.syncs += 1
        return None

    def after_unsynced_write(self) -> None:
        """Let everything in the log be read, and see to it that what was written is flushed in time."""
        log, config = self.log, self.log.config
        # What `advance_high_watermark` does, without its call where `commit_append` has done it.
        if log.high_watermark < log.log_end_offset:
            log.high_watermark_to_end()
        if self.waiters.events:
            self.waiters.wake_all()
        # What `note_write` does, without its call where an older byte waits already.
        if (self._unsynced_since is None or log.log_end_offset == log.recovery_point) and not self.note_write():
            return
        interval_ms, most_ms = config.flush_ms, config.durability.interval_ms
        if most_ms and most_ms < interval_ms:
            interval_ms = most_ms
        if interval_ms == INT64_MAX:
            return
        due = trio.current_time() + interval_ms / 1000
        if due < self._flush_at:
            self._flush_at = due
            self.background.start_soon(self._run, self._flush_when_due, due)

    def flush_soon(self, offset: int) -> None:
        """Force the log up to `offset`, its end for now, to the device beside running appends."""
        self.background.start_soon(self._run, self._flush, offset, trio.current_time())

    async def _run(self, procedure: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """In the background, where an error of this log would be everybody's."""
        try:
            await procedure(*arguments)
        except Exception as exc:
            self.fail(exc)

    async def _flush_when_due(self, due: float) -> None:
        await trio.sleep_until(due)
        if self._flush_at == due:  # else the interval was shortened meanwhile, and another flush came first
            self._flush_at = math.inf
            await self._flush(None)

    async def _flush(self, offset: int | None, reached_at: float | None = None) -> None:
        failure = await self._flush_once(offset, reached_at)
        if failure is not None and self.log.offline is None:
            self.retry_soon(failure)

    def retry_failed(self) -> None:
        """See to it that what a change of the log could not force to the device is written again."""
        failed = self.log.active.log.failed_sync
        if failed is not None and self.log.offline is None and self.log.recovery_point < self.log.log_end_offset:
            self.retry_soon(OSError(failed, os.strerror(failed), self.log.active.log.path))

    def retry_soon(self, failure: Exception) -> None:
        """Keep trying in the background, unless the log is deleted: its directory has another name or is gone then."""
        if not self._is_retrying and not self.is_deleted:
            self._is_retrying = True
            LOGGER.warning(
                "%s: cannot sync written records to the device yet, trying again: %s",
                self.log.topic_partition,
                failure,
            )
            self.background.start_soon(self._run, self._retry)

    async def _retry(self) -> None:
        pause_s = FLUSH_RETRY_S
        while self._is_retrying:
            await trio.sleep(pause_s)
            failure = await self._flush_once(None)
            self._is_retrying = failure is not None and self.log.offline is None
            pause_s = FLUSH_RETRY_S if isinstance(failure, OSError) else min(2 * pause_s, LONGEST_RETRY_S)

    async def _flush_once(self, offset: int | None, reached_at: float | None = None) -> Exception | None:
        """Up to `offset` (None: the log as it is now), where the log ended at `reached_at`. Answers what failed."""
        log = self.log
        async with self.lock:
            if log.offline is not None or self.is_deleted:
                return None
            if reached_at is None:
                reached_at = trio.current_time()
            plan = log.plan_flush(offset)
            failure = None if plan.writes_again else await self._sync(plan)
        if plan.writes_again:
            failure = await self._flush_in_turn()
        if failure is not None:
            return failure
        behind = log.log_end_offset > log.recovery_point
        self._set_unsynced_since(reached_at if behind else None)
        if log.config.durability.mode is DurabilityMode.FSYNC and not behind:
            self.advance_high_watermark()
        return None

    async def _flush_in_turn(self) -> Exception | None:
        """With nothing appended meanwhile: what is written again is read before, and the kernel asked to forget it."""
        try:
            await self.perform(flush)
        except RequestError as exc:
            return exc
        self.syncs += 1
        return None
