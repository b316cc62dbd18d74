"""What the disk and the loopback do without a server: the bare loops that rows are compared with."""

from __future__ import annotations

import os
import socket
import tempfile
import time
from typing import Any

RECORD: bytes = bytes(200)


def sync_times_s(directory: str, *, count: int) -> list[float]:
    """How long each `fdatasync` took after an append of 200 bytes to a new file, which is gone afterwards."""
    sync = getattr(os, "fdatasync", os.fsync)
    times = []
    with tempfile.TemporaryFile(dir=directory) as file:
        fd = file.fileno()
        for number in range(count):
            os.pwrite(fd, RECORD, number * len(RECORD))
            started = time.perf_counter()
            sync(fd)
            times.append(time.perf_counter() - started)
    return times


def sync_rate(*, directory: str, count: int) -> dict[str, float]:
    """Appends of 200 bytes per second, each followed by its `fdatasync`."""
    started = time.perf_counter()
    sync_times_s(directory, count=count)
    return {"rate": count / (time.perf_counter() - started)}


def serve_file(*, path: str, port: int, piece_bytes: int, total_bytes: int) -> dict[str, Any]:
    """Connect to `port` and send a file from its start, again and again, by `pread` and `send` until `total_bytes` went."""
    fd = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        with socket.create_connection(("127.0.0.1", port)) as stream:
            sent = position = 0
            while sent < total_bytes:
                piece = os.pread(fd, min(piece_bytes, total_bytes - sent, size - position), position)
                stream.sendall(piece)
                sent += len(piece)
                position = (position + len(piece)) % size
    finally:
        os.close(fd)
    return {"bytes": sent}


def prepare_file(*, path: str, size: int, how: str) -> None:
    """Make a new file, forced to the device: `empty`, its space `allocated`, or filled with `zeros`."""
    with open(path, "xb", buffering=0) as file:
        if how == "allocated":
            os.posix_fallocate(file.fileno(), 0, size)
        elif how == "zeros":
            file.write(bytes(size))
        os.fsync(file.fileno())


def append_synced(*, path: str, count: int, size: int) -> None:
    """Write so many records from the file's start on, and sync each."""
    sync = getattr(os, "fdatasync", os.fsync)
    descriptor = os.open(path, os.O_WRONLY)
    try:
        for number in range(count):
            os.pwrite(descriptor, RECORD[:size], number * size)
            sync(descriptor)
    finally:
        os.close(descriptor)
