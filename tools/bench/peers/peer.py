"""Other servers, in processes of their own, when they are installed."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ..measuring.child import LoadFailedError

READY_TIMEOUT_S: Final = 20.0


class PeerMissingError(Exception):
    """The peer cannot be measured on this machine; the message is what the row says instead of a figure."""


def program_version(command: Sequence[str]) -> str:
    """First line of what a program says of itself."""
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (run.stdout or run.stderr).splitlines()
    return lines[0].strip() if lines else "unknown version"


def free_port() -> int:
    """A port that nobody listens on now; a peer that cannot choose its own is told this one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(
    command: Sequence[str], port: int, log: Path, *, timeout_s: float = READY_TIMEOUT_S
) -> Iterator[subprocess.Popen[bytes]]:
    """A peer that accepts connections, for the time of the block. Raises LoadFailedError when it does not come up."""
    with ended_after(command, log, timeout_s) as process:
        _wait_until_accepting(process, command[0], port, log, timeout_s)
        yield process


@contextmanager
def ended_after(command: Sequence[str], log: Path, timeout_s: float) -> Iterator[subprocess.Popen[bytes]]:
    """A process for the time of the block, in the folder of its log; killed when it does not end within `timeout_s`."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, cwd=log.parent)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_accepting(process: subprocess.Popen[bytes], name: str, port: int, log: Path, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if process.poll() is not None:
                break
            time.sleep(0.01)
        else:
            return
    raise LoadFailedError(f"{name} did not come up: {log.read_text(encoding='utf-8', errors='replace')[-2000:]}")
