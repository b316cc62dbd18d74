"""Deleting old records while the server runs: the regular look at every log, DeleteRecords, and unlinking what was taken out.

One pass: every log that may have something to give up raises its log start offset, in its turn; then the log start checkpoints
are written, once a directory; then the segment files are renamed, a few at a time, so that appends are not held up; they are
unlinked `file.delete.delay.ms` later. Kafka keeps the checkpoint for the next minute; here it comes first, because a power cut
can leave any part of the renames. Where there is no room for a checkpoint, and for logs that wait for space, segments are
unlinked at once instead, one after the other (see `storage.retention`).

Who holds what of the logs: the groups of `retention.hold.groups`, with what they have committed.

Committed offsets are the group coordinator's, which stands above the logs. It publishes a look at them, `committed`: a plain
function that reads memory, so nobody waits for it, and it changes nothing. A log is held from the smallest offset that one of
its groups has committed, from its start if one has committed nothing. Until the look is published (the coordinators' logs are
being read) nobody judges, and logs with such groups are left alone.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final

import attrs
import trio

from ...protocol.errors import ErrorCode, InvalidTopicError, OffsetOutOfRangeError, RequestError
from ...protocol.limits import MIB
from ...protocol.types import TopicPartition
from ..config import DiskFullPolicy
from ..loop.procedures import in_turns
from ..partitions.disk import Disk
from ..storage.directory.log_directory import LogDirectory
from ..storage.disk.diskops import Procedure
from ..storage.disk.paths import is_internal
from ..storage.errors import LogOfflineError, StorageError, is_out_of_space
from ..storage.log.derived_files import Dropped
from ..storage.log.log import Doomed, Log
from ..storage.log.mirrored import mirror_error
from ..storage.log.retention import (
    NOTHING_HELD,
    confirm_below,
    confirm_old,
    expire_segments,
    increment_log_start_offset,
    is_past_bounds,
    is_wanted,
    let_go_below,
    may_expire,
    take_out_below,
    unlink_doomed,
)
from ..system.clock import NowMs
from .log_directories import LogDirectories
from .topics import HostedPartition, Topics

LOGGER: Final = logging.getLogger(__name__)

TAKEN_OUT_PER_TURN: Final = 4
"""Segments whose files are renamed in one turn of a log: 0.4 ms in which its appends wait."""
UNLINKED_PER_HOP: Final = 4
PAUSE_S: Final = 0.04
"""Between two of either, because processor, interpreter lock and journal are the appends' too. A thousand segments take 12 s;
nobody waits for them but a full disk, for which there is no pause."""
LOOKS_PER_TURN: Final = 64
"""Logs that are looked at before others run: 0.1 ms."""
HIGH_WATERMARK: Final = -1
OUTGROWN_BYTES: Final = 64 * MIB
"""What a log has above twice its `retention.bytes` and a segment before it is taken out ahead of the next pass."""


def _is_any(_: Log) -> bool:
    return True


def _has_outgrown(log: Log) -> bool:
    most = log.config.retention_bytes
    return most >= 0 and log.size_in_bytes > 2 * most + log.config.segment_bytes + OUTGROWN_BYTES


@attrs.define(eq=False, repr=False)
class LogRetention:
    """Runs retention on the logs of all topics. Owned by the log manager."""

    disk: Disk
    directories: LogDirectories
    topics: Topics
    now_ms: NowMs
    holds: Holds
    trusts_clock: bool = True
    """Whether what is old may be judged by the clock; the maintenance says so."""
    taken_segments: int = 0
    """Taken out since the start, for their age, for the size of their log, or because the disk is full."""

    async def run_pass(self, *, by_time: bool = True) -> int:
        """Take out what retention lets go, and answer how many segments that were. Raises OSError when a checkpoint cannot
        be written, and not for want of space: then nothing was renamed, and the next pass goes on from there."""
        return await self._take_out(await self._expire_all(by_time=by_time), PAUSE_S)

    async def run_outgrown(self) -> int:
        """`run_pass` by size for logs that have doubled beyond `retention.bytes` since the last one: a program that writes fast
        would fill its disk in the minutes between two passes. Raises as `run_pass` does."""
        return await self._take_out(await self._expire_all(by_time=False, only=_has_outgrown), PAUSE_S)

    async def make_room(self) -> bool:
        """`run_pass` without pauses, with files unlinked at once, before appends are refused for want of space. Returns whether
        something was taken out. Raises as `run_pass` does."""
        expired = await self._expire_all(by_time=self.trusts_clock, makes_room=True)
        await self._take_out(expired, 0)
        for hosted in expired:
            await self._give_space_back(hosted)
        return bool(expired)

    async def _expire_all(
        self, *, by_time: bool, makes_room: bool = False, only: Callable[[Log], bool] = _is_any
    ) -> list[HostedPartition]:
        now_ms = self.now_ms()
        expired: list[HostedPartition] = []
        async for hosted in in_turns(self.topics.hosted(), LOOKS_PER_TURN):
            with self.disk.errors.isolate("retention", hosted.actor.topic_partition):
                if only(hosted.actor.log) and await self._expire_one(hosted, now_ms, by_time=by_time, makes_room=makes_room):
                    expired.append(hosted)
        return expired

    async def _expire_one(self, hosted: HostedPartition, now_ms: int, *, by_time: bool, makes_room: bool) -> bool:
        """Expire segments of one log; return whether any was removed from the log."""
        log = hosted.actor.log
        if log.offline is not None or not self.holds.may_judge(log):
            return False
        if not may_expire(log, now_ms, by_time=by_time, held_from=self.holds.held_from(log)):
            return False
        before = log.derived.dropped
        try:
            if by_time:
                await hosted.actor.disk.read(confirm_old(log, now_ms))
            expire = partial(_expire, holds=self.holds, now_ms=now_ms, by_time=by_time)
            count = await hosted.actor.perform(expire, writes=False, makes_room=makes_room)
        except (OSError, StorageError, RequestError) as exc:
            LOGGER.debug("retention skips %s: %s", log.topic_partition, exc)
            return False
        say_dropped(log, before)
        return count > 0

    async def _take_out(self, expired: Sequence[HostedPartition], pause_s: float) -> int:
        if not expired:
            return 0
        starts = [hosted.actor.log.log_start_offset for hosted in expired]
        has_checkpoint = await self._has_checkpoint(list({id(each.directory): each.directory for each in expired}.values()))
        taken = 0
        for hosted, start in zip(expired, starts, strict=True):
            with self.disk.errors.isolate("retention", hosted.actor.topic_partition):
                try:
                    is_renamed = has_checkpoint and hosted.actor.log.waiting is None
                    count = await (self._take_out_of if is_renamed else self._let_go_of)(hosted, start, pause_s)
                    taken += count
                    LOGGER.info("%s: dropped %d segments, from offset %d on", hosted.actor.topic_partition, count, start)
                except RequestError as exc:
                    LOGGER.debug("retention skips %s: %s", hosted.actor.topic_partition, exc)
        return taken

    async def _has_checkpoint(self, directories: Sequence[LogDirectory]) -> bool:
        """Write the checkpoints; return whether the log start offsets are on the device. False when it is full. Raises other
        OSErrors."""
        try:
            await self.directories.write_checkpoints(directories)
        except OSError as exc:
            if not is_out_of_space(exc):
                raise
            LOGGER.warning("no space for a checkpoint (%s): dropping segments one by one without it", exc)
            return False
        return True

    async def _let_go_of(self, hosted: HostedPartition, start: int, pause_s: float) -> int:
        """Take segments out that are unlinked at once, in order, with the next look at what is to be unlinked."""
        taken = await hosted.actor.perform(partial(let_go_below, offset=start), writes=False, makes_room=not pause_s)
        self.taken_segments += taken
        return taken

    async def _take_out_of(self, hosted: HostedPartition, start: int, pause_s: float) -> int:
        """Rename the files of a log below a log start offset that is on the device. It may be above that by now."""
        taken = 0
        take_out = partial(take_out_below, offset=start, most=TAKEN_OUT_PER_TURN)
        while count := await hosted.actor.perform(take_out, makes_room=not pause_s):
            taken += count
            self.taken_segments += count
            if count == TAKEN_OUT_PER_TURN:
                await trio.sleep(pause_s)
        return taken

    async def confirm(self, offsets: Sequence[tuple[HostedPartition, int]]) -> bool:
        """Make the largest timestamps of what `give_up` would take certain. Return whether one was another than it seemed: then
        something else may be older."""
        is_other = False
        for hosted, offset in offsets:
            with contextlib.suppress(OSError, StorageError):
                is_other = await hosted.actor.disk.read(confirm_below(hosted.actor.log, offset)) or is_other
        return is_other

    async def give_up(self, offsets: Sequence[tuple[HostedPartition, int]]) -> int:
        """Take out the segments below the offsets and unlink them at once, whatever `file.delete.delay.ms` says. No pauses: a
        full disk waits for it."""
        partitions = []
        for hosted, offset in offsets:
            log = hosted.actor.log
            before = log.derived.dropped
            with self.disk.errors.isolate("disk-guard", log.topic_partition), contextlib.suppress(RequestError):
                give_up = partial(_give_up, holds=self.holds, offset=offset)
                await hosted.actor.perform(give_up, writes=False, makes_room=True)
                partitions.append(hosted)
            say_dropped(log, before)
        taken = await self._take_out(partitions, 0)
        await self._unlink_each(partitions, self._give_space_back)
        return taken

    async def delete_records(self, wanted: Sequence[tuple[TopicPartition, int]]) -> list[int | RequestError]:
        """Make offsets (-1: the high watermark) the first readable ones, on the device too; answers the log start offsets, or
        why one stays, in the order asked. The files go with the next pass. A checkpoint holds all logs of its directory, so it
        is written once for all that are asked for."""
        answers: list[int | RequestError | None] = [None] * len(wanted)
        raised: dict[int, list[tuple[int, HostedPartition]]] = {}
        for slot, (topic_partition, before_offset) in enumerate(wanted):
            try:
                hosted = await self._raise_log_start(topic_partition, before_offset)
            except RequestError as exc:
                answers[slot] = exc.as_answer()
            else:
                raised.setdefault(id(hosted.directory), []).append((slot, hosted))
        for of_directory in raised.values():
            failure: OSError | None = None
            try:
                await self.directories.write_checkpoints([of_directory[0][1].directory])
            except OSError as exc:
                failure = exc
            for slot, hosted in of_directory:
                error = _checkpoint_error(hosted, failure)
                answers[slot] = hosted.actor.log.log_start_offset if error is None else error
        return answers  # type: ignore[return-value]

    async def prune(self, topic_partition: TopicPartition, before_offset: int) -> None:
        """Delete the records of a topic of the server's own that later ones make needless. Raises RequestError, OSError: they
        may be there again after a restart."""
        hosted = self.topics.partition(topic_partition)
        await hosted.actor.perform(partial(_increment, before_offset=before_offset), writes=False)
        await self.directories.write_checkpoints([hosted.directory])

    async def _raise_log_start(self, topic_partition: TopicPartition, before_offset: int) -> HostedPartition:
        hosted = self.topics.partition(topic_partition)
        if source := hosted.actor.log.mirror_of:
            raise mirror_error(topic_partition, source)
        if is_internal(topic_partition.topic):
            raise InvalidTopicError(f"{topic_partition}: records of the server's own topics cannot be deleted")
        if hosted.actor.config.cleanup_policy == ("compact",):
            raise RequestError(
                f"{topic_partition}: cleanup.policy=compact does not contain delete. Change it, or produce a record "
                "without value for each key",
                ErrorCode.POLICY_VIOLATION,
            )
        if before_offset < HIGH_WATERMARK:
            raise OffsetOutOfRangeError(
                f"{topic_partition}: offset {before_offset} is negative. Only -1, the high watermark, may be"
            )
        await hosted.actor.perform(partial(_increment, before_offset=before_offset), writes=False)
        return hosted

    async def delete_doomed(self) -> None:
        """Unlink the segment files whose delay is over. Raises an OSError once all logs had their turn."""
        now_ms = self.now_ms()

        async def unlink(hosted: HostedPartition) -> None:
            log = hosted.actor.log
            if log.offline is None and (due := [doomed for doomed in log.doomed if doomed.due_ms <= now_ms]):
                await self._unlink(hosted, due, PAUSE_S)

        await self._unlink_each(self.topics.hosted(), unlink)

    async def _unlink_each(
        self, partitions: Iterable[HostedPartition], unlink: Callable[[HostedPartition], Awaitable[None]]
    ) -> None:
        """Raises an OSError once all logs had their turn."""
        refused: OSError | None = None
        for hosted in partitions:
            with self.disk.errors.isolate("segment-deletion", hosted.actor.topic_partition):
                try:
                    await unlink(hosted)
                except OSError as exc:
                    refused = exc
        if refused is not None:
            raise refused

    async def unlink_of(self, directory: LogDirectory) -> bool:
        """Unlink what was taken out of the logs of a directory, due or not, as it is full. Answers whether there was any."""
        doomed = [
            hosted
            for hosted in self.topics.hosted()
            if hosted.directory is directory and hosted.actor.log.doomed and hosted.actor.log.offline is None
        ]
        await self._unlink_each(doomed, self._give_space_back)
        return bool(doomed)

    async def _give_space_back(self, hosted: HostedPartition) -> None:
        await self.unlink_all(hosted)
        await hosted.actor.disk.files.close_released()

    async def unlink_all(self, hosted: HostedPartition) -> None:
        """Unlink what was taken out of a log, due or not, because it is to be opened anew and must not see files go meanwhile.
        Its actor has stopped. Raises OSError."""
        await self._unlink(hosted, list(hosted.actor.log.doomed), 0)

    async def _unlink(self, hosted: HostedPartition, gone: Sequence[Doomed], pause_s: float) -> None:
        """The new names are on the device before the first goes: a later file's old name must not outlive an earlier one. Ends
        with its topic: another one may have the name by now, and files of the same names."""
        log = hosted.actor.log
        if gone and log.sync_metadata:
            await self.disk.call(self.disk.fs.sync_directory, log.directory, at=log.directory)
        files, indexes = [file for each in gone for file in each.files], [index for each in gone for index in each.indexes]
        hosted.actor.disk.files.release(files, indexes)
        for start in range(0, len(gone), UNLINKED_PER_HOP):
            if start:
                await trio.sleep(pause_s)
            async with hosted.unlinking:
                if hosted.actor.is_closed:
                    return
                await self.disk.call(
                    partial(unlink_doomed, durable=log.sync_metadata),
                    self.disk.fs,
                    gone[start : start + UNLINKED_PER_HOP],
                    at=log.directory,
                )
        unlinked = set(map(id, gone))
        log.doomed = [doomed for doomed in log.doomed if id(doomed) not in unlinked]


def _checkpoint_error(hosted: HostedPartition, failure: OSError | None) -> RequestError | None:
    """Return the error of a partition after its checkpoint was written, or failed; None: no error."""
    if failure is not None:
        return LogOfflineError(
            f"{hosted.actor.topic_partition}: the records are deleted, but the checkpoint in "
            f"{hosted.directory.path} cannot be written: {failure}. Free space, then try again"
        )
    offline = hosted.actor.log.offline
    return None if offline is None else offline.as_answer()


def _expire(log: Log, *, holds: Holds, now_ms: int, by_time: bool) -> Procedure[int]:
    """It is asked in the log's turn what is held: groups commit meanwhile."""
    return (yield from expire_segments(log, now_ms, by_time=by_time, held_from=holds.held_from(log)))


def _give_up(log: Log, *, holds: Holds, offset: int) -> Procedure[bool]:
    return (yield from increment_log_start_offset(log, offset, held_from=holds.held_from(log)))


def _increment(log: Log, *, before_offset: int) -> Procedure[bool]:
    offset = log.high_watermark if before_offset == HIGH_WATERMARK else before_offset
    return (yield from increment_log_start_offset(log, offset))


CommittedOffset = Callable[[str, TopicPartition], int | None]
"""(group, partition) -> what it has committed, None: nothing, or nobody can tell."""


@attrs.define(eq=False, repr=False)
class Holds:
    """See the module. Owned by the log manager; keeps nothing of what it asks."""

    committed: CommittedOffset | None = None
    """Set by the coordinators once they are loaded."""

    def may_judge(self, log: Log) -> bool:
        """Return whether the holders of the log are known."""
        return self.committed is not None or not log.config.retention_hold_groups

    def held_from(self, log: Log) -> int:
        """The first offset that one of the log's groups needs; NOTHING_HELD without such groups."""
        groups = log.config.retention_hold_groups
        if not groups or is_internal(log.topic_partition.topic):
            return NOTHING_HELD
        assert self.committed is not None, "may_judge"
        return min(self.committed(group, log.topic_partition) or 0 for group in groups)

    def refusal(self, log: Log, now_ms: int, *, by_time: bool) -> RequestError | None:
        """Why no more is appended to a log whose policy is `refuse`: retention is to take what a group holds, and the hold is
        at its bounds."""
        config = log.config
        if not config.retention_hold_groups or config.disk_full_policy is not DiskFullPolicy.REFUSE:
            return None
        if config.retention_hold_max_bytes < 0 and config.retention_hold_max_ms < 0:
            return None
        if not self.may_judge(log) or is_internal(log.topic_partition.topic) or not is_wanted(log, now_ms, by_time=by_time):
            return None
        held_from = self.held_from(log)
        if not is_past_bounds(log, held_from, now_ms, by_time=by_time):
            return None
        return RequestError(
            f"{log.topic_partition}: {', '.join(self.behind(log, held_from))} of retention.hold.groups committed "
            f"offset {held_from}, and the records held since have reached "
            f"retention.hold.max.bytes={config.retention_hold_max_bytes} or "
            f"retention.hold.max.ms={config.retention_hold_max_ms}. Nothing of the append is stored. Let the "
            "group read on, or set disk.full.policy=drop-oldest for the topic",
            ErrorCode.POLICY_VIOLATION,
        )

    def behind(self, log: Log, held_from: int) -> Iterable[str]:
        """The groups that hold a log from there on."""
        committed = self.committed
        assert committed is not None
        groups = log.config.retention_hold_groups
        return [group for group in groups if (committed(group, log.topic_partition) or 0) == held_from]


def say_dropped(log: Log, before: Dropped) -> None:
    """Log one line for held records that were dropped since `before`."""
    dropped = log.derived.dropped
    if dropped != before:
        LOGGER.warning(
            "%s: dropped %d records (%d bytes) at offsets %d to %d, which not all of retention.hold.groups=%s "
            "had committed. %d records dropped since the log was created.",
            log.topic_partition,
            dropped.records - before.records,
            dropped.size_bytes - before.size_bytes,
            dropped.first_offset,
            dropped.end_offset - 1,
            ",".join(log.config.retention_hold_groups),
            dropped.records,
        )
