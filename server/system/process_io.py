"""What this process has written to disks (Linux: proc_pid_io(5))."""

from __future__ import annotations

from typing import Final

from .block_devices import read_text

PROCESS_IO: Final = "/proc/self/io"


def process_written_bytes(path: str = PROCESS_IO) -> int | None:
    """Since the process began, with the children that it has waited for: whole pages, each time one is changed that was not
    waiting to be written anyway. None where the system does not tell."""
    for line in (read_text(path) or "").splitlines():
        name, _, value = line.partition(":")
        if name == "write_bytes" and value.strip().isdigit():
            return int(value)
    return None
