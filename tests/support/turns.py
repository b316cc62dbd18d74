"""How long a turn of the event loop is, counted and not timed: lines of Python that a task of the server carries out before
others are served, and what codecs do in the loop's thread, as the lines that would take as long.

A line takes about 1/LINES_PER_MS of a millisecond; counts are the same on every machine, idle or busy.
"""

from __future__ import annotations

import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Any, Final
from unittest.mock import patch

import attrs
import cramjam
import msgpack  # type: ignore[import-untyped]
import trio
from triolog.protocol.records import batch

LINES_PER_MS: Final = 30_000
MOST_LINES: Final = 2 * LINES_PER_MS
"""What may take longer leaves the loop, or lets others have their turn in between."""
BYTES_PER_LINE: Final = {
    "zlib.decompress": 15,
    "zlib.compress": 2,
    "cramjam.decompress": 50,
    "cramjam.compress": 10,
    "crc": 500,
}
LINES_PER_OBJECT: Final = 8
"""Of msgpack, which holds the interpreter for a whole call: in a thread too."""


@attrs.define(eq=False)
class Turns(trio.abc.Instrument):
    """Meter of the tasks that others than the test run. Owner: the test."""

    longest: int = 0
    of: str = ""
    """The name of the task that took it."""
    count: int = 0
    """Turns that were looked at."""
    _lines: int = 0
    _mine: trio.lowlevel.Task = attrs.field(factory=trio.lowlevel.current_task)
    _thread: int = attrs.field(factory=threading.get_ident)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._lines = 0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self._mine:
            return
        self.count += 1
        if self._lines > self.longest:
            self.longest, self.of = self._lines, task.name

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        self._lines += event == "line"
        return self.trace

    def unpacked(self, value: object) -> None:
        """By msgpack, in whichever thread."""
        before = sys.gettrace()
        sys.settrace(None)
        lines = LINES_PER_OBJECT * _objects(value)
        sys.settrace(before)
        if threading.get_ident() == self._thread:
            self._lines += lines
        elif lines > self.longest:
            self.longest, self.of = lines, "msgpack in a thread"

    def work(self, kind: str, size: int) -> None:
        """Of a codec, on so many bytes."""
        if threading.get_ident() == self._thread:
            self._lines += size // BYTES_PER_LINE[kind]


def _objects(value: object) -> int:
    if isinstance(value, list):
        return 1 + sum(map(_objects, value))
    if isinstance(value, dict):
        return 1 + len(value) + sum(map(_objects, value.values()))
    return 1


@contextmanager
def longest_turn() -> Iterator[Turns]:
    """Count in the block; what the test's own task does is left out."""
    turns = Turns()
    before = sys.gettrace()
    trio.lowlevel.add_instrument(turns)
    with _watched_codecs(turns):
        sys.settrace(turns.trace)
        try:
            yield turns
        finally:
            sys.settrace(before)
            trio.lowlevel.remove_instrument(turns)


@contextmanager
def _watched_codecs(turns: Turns) -> Iterator[None]:
    """They do what they always do; it is only noted how much."""

    def noting(function: Callable[..., Any], kind: str) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            answer = function(*args, **options)
            sizes = [len(each) for each in (*args, answer) if hasattr(each, "__len__")]
            turns.work(kind, max([*sizes, answer if isinstance(answer, int) and kind != "crc" else 0]))
            return answer

        return call

    class Stream:
        def __init__(self, made: Any, kind: str) -> None:
            self.made, self.kind = made, kind

        def __getattr__(self, name: str) -> Any:
            found = getattr(self.made, name)
            return noting(found, self.kind) if callable(found) else found

    def streaming(function: Callable[..., Any], kind: str) -> Callable[..., Any]:
        return lambda *args, **options: Stream(function(*args, **options), kind)

    def unpackb(*args: Any, **options: Any) -> Any:
        answer = unpack_all(*args, **options)
        turns.unpacked(answer)
        return answer

    unpack_all = msgpack.unpackb
    patches = [
        patch.object(msgpack, "unpackb", unpackb),
        patch.object(batch, "crc32c", noting(batch.crc32c, "crc")),
        patch.object(zlib, "compress", noting(zlib.compress, "zlib.compress")),
        patch.object(zlib, "decompressobj", streaming(zlib.decompressobj, "zlib.decompress")),
        patch.object(zlib, "compressobj", streaming(zlib.compressobj, "zlib.compress")),
    ]
    names: dict[ModuleType, tuple[str, ...]] = {
        cramjam.zstd: ("compress", "decompress_into"),
        cramjam.lz4: ("compress_block", "decompress_into"),
        cramjam.snappy: ("compress_raw", "decompress_raw_into"),
    }
    for module, functions in names.items():
        for name in functions:
            kind = f"cramjam.{name.partition('_')[0]}"
            patches.append(patch.object(module, name, noting(getattr(module, name), kind)))
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()
