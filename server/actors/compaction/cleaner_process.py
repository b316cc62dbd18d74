"""The process that compacts, seen from the server (see `server.storage.cleaner.__main__` for its lines)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs

from ...config import DataPermissions
from ...storage.cleaner.job import CleanedGroup, CleanedState, CleaningJob, CleaningResult
from ...storage.errors import StorageError
from .child_process import Child, ChildDiedError, OpenChild

MODULE: Final = "cleaner"


class CleanerFailedError(StorageError):
    """The process gave up, or ended without a result. `kind` is as it said; `died` when it did not say anything."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


@attrs.define(eq=False, repr=False)
class CleanerProcess:
    """A running round. Owner: the task that cleans. Use `open_cleaner_process`."""

    child: Child
    bytes_done: int = 0
    """Read and written so far."""

    async def begin(self, job: CleaningJob) -> None:
        await self._send(job.encode())

    async def go_on(self) -> None:
        """What the last group left is in place, or not wanted."""
        await self._send(b"next\n")

    async def next(self) -> CleanedGroup | CleaningResult:
        """The next group that is clean, or the result at the end. Raises CleanerFailedError."""
        while True:
            message = await self._receive()
            if "progress" in message:
                self.bytes_done = message["progress"]
            elif "group" in message:
                base_offsets, cleaned, bytes_read = message["group"]
                return CleanedGroup(base_offsets, None if cleaned is None else CleanedState(*cleaned), bytes_read)
            elif "result" in message:
                return CleaningResult(*message["result"])
            else:
                raise CleanerFailedError(message["error"], message["kind"])

    async def _send(self, line: bytes) -> None:
        try:
            await self.child.send(line)
        except ChildDiedError as exc:
            raise CleanerFailedError(str(exc), "died") from None

    async def _receive(self) -> dict[str, Any]:
        try:
            return await self.child.receive()
        except ChildDiedError as exc:
            raise CleanerFailedError(str(exc), "died") from None


@asynccontextmanager
async def open_cleaner_process(
    job: CleaningJob, open_child: OpenChild, permissions: DataPermissions = DataPermissions.OWNER
) -> AsyncIterator[CleanerProcess]:
    """A process at work on the job, whose files get these permissions. Leaving the block ends it, whatever it is doing."""
    async with open_child(MODULE, permissions.value) as child:
        running = CleanerProcess(child)
        await running.begin(job)
        yield running
