"""The process that compacts, seen from the server (see `server.storage.cleaner.__main__` for its lines).

What compaction has done since the start: numbers that outlive the cleaner, which is loaded when it is first due.

A process that does CPU-bound work for the server, seen from here (see `server.storage.child_process`).

It is a process because such work is Python: in a thread it would take the interpreter from the one that serves.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Protocol

import attrs
import trio

from ...protocol.limits import MIB
from ..config import DataPermissions
from ..storage.cleaner.job import CleanedGroup, CleanedState, CleaningJob, CleaningResult
from ..storage.errors import StorageError

MODULE: Final = "storage.cleaner"


class CleanerFailedError(StorageError):
    """The process gave up. `kind` is as it said."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


@attrs.define(eq=False, repr=False)
class CleanerProcess:
    """A running round. Owner: the task that cleans. Use `open_cleaner_process`."""

    child: Child

    async def go_on(self) -> None:
        """Tell the process to continue: the last group is in place, or is not needed."""
        await self.child.send(b"next\n")

    async def next(self) -> CleanedGroup | CleaningResult:
        """The next group that is clean, or the result at the end. Raises CleanerFailedError, ChildDiedError."""
        message = await self.child.receive()
        if "group" in message:
            base_offsets, cleaned, bytes_read = message["group"]
            return CleanedGroup(base_offsets, None if cleaned is None else CleanedState(*cleaned), bytes_read)
        if "result" in message:
            return CleaningResult(*message["result"])
        raise CleanerFailedError(message["error"], message["kind"])


@asynccontextmanager
async def open_cleaner_process(
    job: CleaningJob, open_child: OpenChild, permissions: DataPermissions = DataPermissions.OWNER
) -> AsyncIterator[CleanerProcess]:
    """A process at work on the job, whose files get these permissions. Leaving the block ends it, whatever it is doing."""
    async with open_child(MODULE, permissions.value) as child:
        await child.send(job.encode())
        yield CleanerProcess(child)


@attrs.define(eq=False, repr=False)
class CleanerCounters:
    """Changed by the cleaner's task only."""

    rounds: int = 0
    """That ended well."""
    given_up: int = 0
    """Because topic or log changed under them."""
    failed: int = 0
    bytes_before: int = 0
    """Sizes of the logs before the rounds that ended well, and after them."""
    bytes_after: int = 0
    seconds: float = 0.0
    uncleanable: int = 0
    """Partitions that are left alone until the next start."""
    cleaning: str | None = None
    """The partition that is compacted right now."""

    def done(self, bytes_before: int, bytes_after: int, seconds: float) -> None:
        """A round ended well."""
        self.rounds += 1
        self.bytes_before += bytes_before
        self.bytes_after += bytes_after
        self.seconds += seconds


SERVER: Final = __name__.partition(".server.")[0] + ".server"
MAX_LINE_BYTES: Final = 16 * MIB


class ChildDiedError(StorageError):
    """The process ended without an answer."""

    kind: Final = "died"


class Child(Protocol):
    """The process that does the work: it receives lines, and sends lines."""

    async def send(self, line: bytes) -> None:
        """Send one line, its newline included. Raises ChildDiedError."""
        ...

    async def receive(self) -> dict[str, Any]:
        """The next line. Raises ChildDiedError."""
        ...


class OpenChild(Protocol):
    """Starts a child; leaving the block ends it, whatever it is doing."""

    def __call__(self, module: str, *arguments: str) -> AbstractAsyncContextManager[Child]:
        """`module` of the storage package, which reads files of the disk that its starter has."""
        ...


@attrs.define(eq=False, repr=False)
class ChildProcess:
    """A running process. Owner: the task that uses it. Use `open_child_process`."""

    process: trio.Process
    _received: bytearray = attrs.field(factory=bytearray)

    async def send(self, line: bytes) -> None:
        """Send one line, its newline included. Raises ChildDiedError."""
        assert self.process.stdin is not None
        try:
            await self.process.stdin.send_all(line)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise await self._ended() from None

    async def receive(self) -> dict[str, Any]:
        """The next line. Raises ChildDiedError."""
        assert self.process.stdout is not None
        while (end := self._received.find(b"\n")) < 0:
            chunk = await self.process.stdout.receive_some()
            if not chunk:
                raise await self._ended()
            self._received += chunk
            assert len(self._received) <= MAX_LINE_BYTES, "a message of the process does not end"
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        return json.loads(line)  # type: ignore[no-any-return]

    async def _ended(self) -> ChildDiedError:
        code = await self.process.wait()
        how = f"was ended by signal {-code}" if code < 0 else f"ended with status {code}"
        return ChildDiedError(f"process {self.process.pid} {how} before its work was done")


@asynccontextmanager
async def open_child_process(module: str, *arguments: str) -> AsyncIterator[ChildProcess]:
    """`module` of the server package, running. Leaving the block ends it, whatever it is doing; what it logs goes where ours
    goes."""
    command = [sys.executable, "-P", "-m", f"{SERVER}.{module}", str(os.getpid()), *arguments]
    process = await trio.lowlevel.open_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield ChildProcess(process)
    finally:
        with trio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    await pipe.aclose()
