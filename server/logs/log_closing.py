"""Closing all logs when the server stops: in threads, many in one hop, and what they wrote is brought to the device at once.

Closing a log is a dozen operations and six syncs. Nothing is promised before the checkpoints are written, so in which order the
files of all logs reach the device is no matter. A log's recovery point counts once its files are there.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

import attrs

from ..storage.disk.diskops import FileHandle, Procedure, drive
from ..storage.disk.filesystem import FileSystem
from ..storage.disk.filesystem_layers import LaterSyncs
from ..storage.errors import StorageError
from ..storage.log.log import Log
from .log_directories import LogDirectories, Unsynced, side_by_side
from .topics import HostedPartition

LOGGER: Final = logging.getLogger(__name__)

CLOSED_PER_HOP: Final = 16
CLOSERS: Final = 2
"""Threads that write; the interpreter runs one of them at a time."""


@attrs.define(eq=False, repr=False, kw_only=True)
class _Closing(Unsynced):
    """A log whose actor has ended."""

    hosted: HostedPartition
    log: Log
    recovery_point: int
    """What it was before."""


async def close_logs(directories: LogDirectories, partitions: Sequence[HostedPartition]) -> set[int]:
    """Force all logs to the device and trim their files; their actors have ended. Answers the `id` of each directory with a log
    that cannot be called clean. Cancelled: what is not known to be on the device is as if it were not."""
    refused = {id(hosted.directory) for hosted in partitions if hosted.actor.log.refusal is not None}
    closing = [
        _Closing(
            directory=each.directory,
            syncs=LaterSyncs(directories.disk.fs),
            hosted=each,
            log=log,
            recovery_point=log.recovery_point,
        )
        for each in partitions
        if (log := each.actor.log).refusal is None and (log.modified or log.derived.is_refused or log.distrusted_indexes)
    ]
    is_done = False
    try:
        async with AsyncExitStack() as at_rest:
            for each in closing:
                await at_rest.enter_async_context(each.hosted.actor.at_rest)
            step = max(1, min(CLOSED_PER_HOP, len(closing) // CLOSERS))
            parts = [closing[start : start + step] for start in range(0, len(closing), step)]
            await side_by_side(CLOSERS, parts, partial(directories.disk.call, _write_each))
            await directories.force([each for each in closing if each.failure is None])
            is_done = True
    finally:
        for each in closing:
            if each.failure is not None or not is_done:
                each.log.recovery_point = each.recovery_point
            if each.failure is not None:
                each.hosted.actor.take_offline(f"closing failed ({each.failure})")
                refused.add(id(each.directory))
    return refused


def _write_each(closing: Sequence[_Closing]) -> None:
    for each in closing:
        try:
            _drive_apart(each.syncs.fs, each.log.close())
        except Exception as exc:
            if not isinstance(exc, (OSError, StorageError)):
                LOGGER.exception("unhandled exception: closing %s", each.log.topic_partition)
            each.failure = exc.with_traceback(None)


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
