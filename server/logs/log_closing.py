"""Closing all logs when the server stops: in threads, many in one hop, and what they wrote is brought to the device at once.

Closing a log is a dozen operations and six syncs. Nothing is promised before the checkpoints are written, so in which order the
files of all logs reach the device is no matter. A log's recovery point counts once its files are there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Final

import attrs
import trio

from ..partitions.disk import Disk
from ..storage.directory.log_directory import LogDirectory
from ..storage.disk.diskops import FileHandle, Procedure, drive
from ..storage.disk.filesystem import FileSystem
from ..storage.disk.filesystem_layers import LaterSyncs
from ..storage.errors import StorageError
from ..storage.log.log import Log
from .topics import HostedPartition

LOGGER: Final = logging.getLogger(__name__)

CLOSED_PER_HOP: Final = 16
CLOSERS: Final = 2
"""Threads that write; the interpreter runs one of them at a time."""
SYNCING: Final = 4
"""Threads that sync side by side where not everything can be synced at once: the journal takes what comes together."""


@attrs.define(eq=False, repr=False)
class _Closing:
    """A log whose actor has ended."""

    hosted: HostedPartition
    log: Log
    syncs: LaterSyncs
    recovery_point: int
    """What it was before."""
    failure: Exception | None = None
    is_done: bool = False


_Work = Callable[[Sequence[_Closing]], None]


async def close_logs(disk: Disk, partitions: Sequence[HostedPartition]) -> set[int]:
    """Force all logs to the device and trim their files; their actors have ended. Answers the `id` of each directory with a log
    that cannot be called clean. Cancelled: what is not known to be on the device is as if it were not."""
    refused = {id(hosted.directory) for hosted in partitions if hosted.actor.log.refusal is not None}
    whole = [hosted for hosted in partitions if hosted.actor.log.refusal is None]
    closing = [
        _Closing(each, log, LaterSyncs(disk.fs), log.recovery_point)
        for each in whole
        if (log := each.actor.log).modified or log.derived.is_refused or log.distrusted_indexes
    ]
    try:
        async with AsyncExitStack() as at_rest:
            for each in closing:
                await at_rest.enter_async_context(each.hosted.actor.at_rest)
            await _side_by_side(disk, CLOSERS, _write_each, closing)
            for directory in {id(each.hosted.directory): each.hosted.directory for each in closing}.values():
                await _sync(disk, directory, [each for each in closing if each.hosted.directory is directory])
    finally:
        for each in closing:
            if each.failure is not None or not each.is_done:
                each.log.recovery_point = each.recovery_point
            if each.failure is not None:
                each.hosted.actor.take_offline(f"closing failed ({each.failure})")
                refused.add(id(each.hosted.directory))
    return refused


async def _sync(disk: Disk, directory: LogDirectory, closing: Sequence[_Closing]) -> None:
    written = [each for each in closing if each.failure is None]
    syncs = sum(len(each.syncs) for each in written)
    if await disk.call_briefly(directory.sync_all_instead, syncs):
        for each in written:
            each.is_done = True
    else:
        await _side_by_side(disk, SYNCING, _sync_each, written)


async def _side_by_side(
    disk: Disk, threads: int, work: Callable[[Sequence[_Closing]], None], closing: Sequence[_Closing]
) -> None:
    step = max(1, min(CLOSED_PER_HOP, len(closing) // threads))
    remaining = iter(range(0, len(closing), step))

    async def take() -> None:
        for start in remaining:
            await disk.call(work, closing[start : start + step])

    async with trio.open_nursery() as nursery:
        for _ in range(threads):
            nursery.start_soon(take)


# ---- in threads ------------------------------------------------------------------------------------------------------------


def _write_each(closing: Sequence[_Closing]) -> None:
    for each in closing:
        try:
            _drive_apart(each.syncs.fs, each.log.close())
        except Exception as exc:
            if not isinstance(exc, (OSError, StorageError)):
                LOGGER.exception("unhandled exception: closing %s", each.log.topic_partition)
            each.failure = exc.with_traceback(None)


def _sync_each(closing: Sequence[_Closing]) -> None:
    for each in closing:
        try:
            each.syncs.sync_now()
        except OSError as exc:
            each.failure = exc.with_traceback(None)
        else:
            each.is_done = True


def _drive_apart(fs: FileSystem, procedure: Procedure[None]) -> None:
    """`drive` with descriptors of its own: those of the handles belong to the trio thread, where readers may be."""
    apart: dict[int, tuple[FileHandle, FileHandle]] = {}

    def own(file: FileHandle) -> FileHandle:
        return apart.setdefault(id(file), (file, attrs.evolve(file, fd=None)))[1]

    try:
        drive(fs, procedure, own)
    finally:
        for file, mine in apart.values():
            file.failed_sync = mine.failed_sync
