"""A process that does CPU-bound work for the server, seen from here (see `server.storage.child_process`).

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

from ....protocol.limits import MIB
from ...storage.errors import StorageError

STORAGE: Final = __name__.partition(".server.")[0] + ".server.storage"
MAX_LINE_BYTES: Final = 16 * MIB


class ChildDiedError(StorageError):
    """The process ended without an answer."""


class Child(Protocol):
    """Who does the work: it is told lines, and tells lines."""

    async def send(self, line: bytes) -> None:
        """One line, its newline included. Raises ChildDiedError."""
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
        """One line, its newline included. Raises ChildDiedError."""
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
            assert len(self._received) <= MAX_LINE_BYTES, "the process says something endless"
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        return json.loads(line)  # type: ignore[no-any-return]

    async def _ended(self) -> ChildDiedError:
        code = await self.process.wait()
        how = f"was ended by signal {-code}" if code < 0 else f"ended with status {code}"
        return ChildDiedError(f"process {self.process.pid} {how} before its work was done")


@asynccontextmanager
async def open_child_process(module: str, *arguments: str) -> AsyncIterator[ChildProcess]:
    """`module` of the storage package, running. Leaving the block ends it, whatever it is doing; what it logs goes where ours
    goes."""
    command = [sys.executable, "-P", "-m", f"{STORAGE}.{module}", str(os.getpid()), *arguments]
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
