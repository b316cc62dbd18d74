"""What `test_device_faults` runs: a broker whose device fails once, a restart, and the device without the page cache."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import trio
from triolog.server.storage.errors import LogOfflineError

from tests.support.brokers import PARTITION, actor_of, one_partition, value, values_from
from tests.support.failing_device import FailingDevice, failing_device

RECORDS = [b"before", b"failed", b"after"]


def main(directory: Path) -> None:
    with failing_device(directory) as device:
        check_that_the_kernel_forgets(device)
        trio.run(tell, device)


def check_that_the_kernel_forgets(device: FailingDevice) -> None:
    """Else the rest would prove nothing: one sync fails, the next one succeeds, and the bytes are not there."""
    fd = os.open(device.path / "probe", os.O_RDWR | os.O_CREAT)
    try:
        device.fail()
        os.pwrite(fd, b"lost", 0)
        assert sync_error(fd) == errno.EIO
        device.heal()
        assert sync_error(fd) is None
        assert os.pread(fd, 4, 0) == b"lost"
    finally:
        os.close(fd)
    device.forget_caches()
    assert (device.path / "probe").read_bytes() != b"lost"


def sync_error(fd: int) -> int | None:
    try:
        os.fdatasync(fd)
    except OSError as exc:
        return exc.errno
    return None


async def tell(device: FailingDevice) -> None:
    data = device.path / "data"
    async with one_partition(data, durability="fsync") as broker:
        await broker.writer.append(PARTITION, value("before"))
        device.fail()
        try:
            await broker.writer.append(PARTITION, value("failed" + "x" * 10_000))
        except LogOfflineError:
            pass
        else:
            raise AssertionError("a sync that failed was acknowledged")
        device.heal()
    async with one_partition(data, durability="fsync") as broker:
        assert [each[:6] for each in await values_from(broker) if each] == [b"before", b"failed"]
        await broker.writer.append(PARTITION, value("after"))
        assert actor_of(broker).log.recovery_point == 3
    device.forget_caches()
    async with one_partition(data, durability="fsync") as broker:
        assert [each[:6] for each in await values_from(broker) if each] == [each[:6] for each in RECORDS]
