"""Looking for damage in closed segments: `python -m triolog.server.offline.scrub`, started by a server.

| who | line | meaning |
|---|---|---|
| server | `{"max_bytes_per_second": n}` | how fast, first of all |
| server | `{"path", "size", "base_offset", "end_offset"}` | look at this segment |
| scrub | `{"damages": [[position, size, first_offset, next_offset, reason], ...]}` | what is damaged in it |
| scrub | `{"gone": path}` | it was deleted or replaced meanwhile |
| scrub | `{"error": text}` | the disk refused it |

A segment's pages are dropped from the page cache before, so that the device is what is looked at, and afterwards, so that a
pass does not push everything else out. The scan is that of recovery (`salvage`); nothing is changed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, TextIO

from ...protocol.limits import MAX_SEGMENT_BYTES
from ..storage.child_process import ParentWatch, ServerGoneError, Throttle, read_line, run_child, say
from ..storage.disk.filesystem import FileSystem, OsFileSystem, opened
from ..storage.recovery.salvage import Damage, scan_batches

MOST_DAMAGES: Final = 100
"""Reported for one segment; whoever sees a hundred will look at the file."""
PIECE_BYTES: Final = 1 << 20


def scrub_file(
    fs: FileSystem, path: str, size: int, base_offset: int, end_offset: int, *, spend: Callable[[int], None]
) -> list[Damage]:
    """The damages in a segment of `size` bytes; `spend` is told of the bytes that were read. Raises OSError."""
    damages: list[Damage] = []
    spent = 0
    for found in scan_batches(fs, path, end=size, base_offset=base_offset, end_offset=end_offset):
        if isinstance(found, Damage):
            stop = found.position + found.size
            if len(damages) < MOST_DAMAGES:
                damages.append(found)
        else:
            stop = found.position + found.header.size_bytes
        if stop - spent >= PIECE_BYTES:
            spend(stop - spent)
            spent = stop
    spend(size - spent)
    return damages


def scrub_for_server(
    fs: FileSystem,
    source: TextIO,
    output: TextIO,
    watch: ParentWatch,
    *,
    make_throttle: Callable[[int], Throttle] = Throttle,
) -> None:
    """Do what the lines of `source` say, until it ends."""
    throttle = make_throttle(int(json.loads(read_line(source))["max_bytes_per_second"]))
    for order in _orders(source):
        try:
            if fs.file_size(order["path"]) != order["size"]:
                say(output, gone=order["path"])
                continue
            _drop_from_cache(fs, order["path"])
            damages = scrub_file(
                fs,
                order["path"],
                order["size"],
                order["base_offset"],
                order["end_offset"],
                spend=lambda size: throttle.spend(size, watch.check),
            )
            _drop_from_cache(fs, order["path"])
        except FileNotFoundError:
            say(output, gone=order["path"])
        except OSError as exc:
            say(output, error=f"{order['path']}: {exc.strerror or exc}")
        else:
            say(output, damages=[(d.position, d.size, d.first_offset, d.next_offset, d.reason) for d in damages])


def _orders(source: TextIO) -> Iterator[dict[str, Any]]:
    while line := source.readline():
        if not line.endswith("\n"):
            raise ServerGoneError
        order = json.loads(line)
        assert 0 <= order["size"] <= MAX_SEGMENT_BYTES
        yield order


def _drop_from_cache(fs: FileSystem, path: str) -> None:
    with opened(fs, path) as fd:
        fs.forget_clean(fd, 0)


if __name__ == "__main__":
    sys.exit(run_child(partial(scrub_for_server, OsFileSystem())))
