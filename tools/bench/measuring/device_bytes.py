"""What reaches a device while something is done: sectors of a loop device of its own, else pages that a process wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import attrs

from .loop_device import LoopDevice, NoLoopDeviceError, loop_device
from .process import bytes_written


@attrs.frozen
class DeviceBytes:
    """Counts for who works in `directory`."""

    directory: str
    device: LoopDevice | None
    reason: str
    """Why there is no device."""

    def during(self, work: Callable[[], Any], pid: int | None = None) -> int:
        """Bytes written for `work`; `pid`: who writes them."""
        before = self._written(pid)
        work()
        return self._written(pid) - before

    def _written(self, pid: int | None) -> int:
        if self.device is not None:
            return self.device.bytes_written()
        assert pid is not None
        return bytes_written(pid)

    @property
    def how(self) -> str:
        """What is counted, for people."""
        if self.device is not None:
            return "sectors written to a loop device formatted ext4, its journal included"
        return f"pages written by the server's process, the file system's journal not included: no loop device ({self.reason})"


@contextmanager
def device_bytes(directory: str, *, size_bytes: int) -> Iterator[DeviceBytes]:
    """On a loop device of so many bytes in `directory` for the time of the block, or in `directory` itself without one."""
    with ExitStack() as stack:
        try:
            device = stack.enter_context(loop_device(directory, size_bytes=size_bytes))
        except NoLoopDeviceError as exc:
            place = DeviceBytes(directory, None, str(exc))
        else:
            place = DeviceBytes(device.directory, device, "")
        yield place
