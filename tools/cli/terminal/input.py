"""A file or standard input in pieces as they come, without a thread: Ctrl-C ends a wait, and a pipe's lines are not held up."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from io import BytesIO
from types import TracebackType
from typing import BinaryIO, Final, Self

import click

from .output import warn

PIECE_BYTES: Final = 64 * 1024
"""Between two pieces other tasks run: larger ones would let answers wait while rows are parsed."""


class Input:
    """An open input. `size_bytes` is None where it has no end that is known."""

    def __init__(self, name: str, stream: BinaryIO) -> None:
        self.name = name
        self._stream = stream
        self._fd: int | None = None
        self._is_polled = False
        self.size_bytes: int | None = None
        try:
            fd = stream.fileno()
        except OSError:  # messages of the command line
            return
        self._fd = fd
        status = os.fstat(fd)
        if stat.S_ISREG(status.st_mode):
            self.size_bytes = status.st_size
        else:
            self._is_polled = True

    @classmethod
    def open(cls, path: str) -> Self:
        """The file, or standard input for `-`; a usage error when it cannot be opened."""
        if path == "-":
            if sys.stdin.isatty():
                warn("reading from the terminal: Ctrl-D ends the input")
            return cls("standard input", sys.stdin.buffer)
        try:
            return cls(path, open(path, "rb", buffering=0))
        except OSError as exc:
            hint = f". To send the text itself: -m {path}" if isinstance(exc, FileNotFoundError) else ""
            raise click.BadParameter(f"cannot read {path}: {exc.strerror}{hint}", param_hint="FILE") from exc

    @classmethod
    def of_messages(cls, messages: Sequence[str]) -> Self:
        """Messages of the command line, one line each."""
        if broken := next((each for each in messages if "\n" in each), None):
            raise click.BadParameter(f"{broken[:40]!r} has more than one line. Use --format json", param_hint="--message")
        return cls("the command line", BytesIO("".join(f"{each}\n" for each in messages).encode("utf-8", "surrogateescape")))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.name != "standard input":
            self._stream.close()

    async def read(self) -> bytes:
        """Return the available bytes, up to PIECE_BYTES; waits for the first byte; empty at the end. Always a checkpoint."""
        import trio

        if self._fd is None:
            await trio.lowlevel.checkpoint()
            return self._stream.read(PIECE_BYTES)
        if self._is_polled:
            try:
                await trio.lowlevel.wait_readable(self._fd)
            except OSError:  # epoll knows no files such as /dev/null: they never wait
                self._is_polled = False
        if not self._is_polled:
            await trio.lowlevel.checkpoint()
        return os.read(self._fd, PIECE_BYTES)
