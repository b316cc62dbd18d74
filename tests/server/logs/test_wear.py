"""What a broker says of the flash below it, on a tree like the kernel's, in a time that the test moves."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock
from triolog.server.broker import Broker
from triolog.server.logs.wear import LOOK_S, Look, Looks, Rates, Wear, WearStatistics, days_to_endurance
from triolog.server.system.block_devices import FlashHealth

from tests.support.brokers import PARTITION, TOPIC, actor_of, running_broker
from tests.support.fake_sysfs import FakeSysfs
from tests.support.gate_fs import GateFileSystem


@attrs.define(eq=False)
class Flash:
    """A broker on a disk `mmcblk0`, and somebody who looks at it."""

    broker: Broker
    sysfs: FakeSysfs
    fs: GateFileSystem
    io: Path
    clock: MockClock
    wear: Wear

    def process_wrote(self, total_bytes: int) -> None:
        self.io.write_text(f"write_bytes: {total_bytes}\n")

    async def append(self, size: int = 500) -> int:
        before = actor_of(self.broker).appended_bytes
        await self.broker.writer.append(PARTITION, [(None, None, bytes(size), ())])
        return actor_of(self.broker).appended_bytes - before

    async def later(self, seconds: float) -> WearStatistics:
        self.clock.jump(seconds)
        return await self.wear.look()


@asynccontextmanager
async def flash(tmp_path: Path, clock: MockClock, *names: str, **settings: Any) -> AsyncIterator[Flash]:
    """With a log directory of each name, all of them on the disk."""
    sysfs, fs, io = FakeSysfs(tmp_path / "sys"), GateFileSystem(), tmp_path / "io"
    fs.free = 10**6
    number = os.stat(tmp_path).st_dev
    sysfs.disk("mmcblk0", "179:0")
    sysfs.partition("mmcblk0", "mmcblk0p2", f"{os.major(number)}:{os.minor(number)}")
    directories = [tmp_path / name for name in names or ("data",)]
    for directory in directories:
        directory.mkdir()
    async with running_broker(*directories, fs=fs, **settings) as broker:
        await broker.topics.create(TOPIC)
        wear = Wear(broker._manager, sysfs=sysfs.path, process_io=str(io))
        yield Flash(broker, sysfs, fs, io, clock, wear)


async def test_bytes_to_the_disk_are_reported_for_each_byte_appended(tmp_path: Path, mock_clock: MockClock) -> None:
    """Two directories of one disk share its bytes, and what it says of its health."""
    async with flash(tmp_path, mock_clock, "one", "two") as here:
        here.process_wrote(4096)
        here.sysfs.write("mmcblk0", 10 * 4096)
        (here.sysfs.root / "class/block/mmcblk0/device/life_time").write_text("0x03 0x01\n")
        await here.wear.look()
        appended = await here.append()
        here.process_wrote(4096 + 3 * appended)
        here.sysfs.write("mmcblk0", 10 * 4096 + 512 * appended)
        told = await here.later(10)
        assert told.process_written_bytes == 4096 + 3 * appended
        assert (told.process.written_per_appended, told.process.written_per_s) == (3.0, 3 * appended / 10)
        for directory in told.directories:
            assert directory.device is not None
            assert (directory.device.name, directory.device.disks) == ("mmcblk0p2", ("mmcblk0",))
            assert directory.disk_written_bytes == 10 * 4096 + 512 * appended
            assert directory.recent.written_per_appended == 512.0
            assert directory.health == FlashHealth(life_used_percent=30)
        assert len(told.directories) == 2


async def test_a_disk_is_full_when_its_space_above_the_reserve_is_gone(tmp_path: Path, mock_clock: MockClock) -> None:
    async with flash(tmp_path, mock_clock, disk_reserve_bytes=400_000) as here:
        await here.wear.look()
        here.fs.free = 900_000
        assert (await here.later(10)).directories[0].recent.full_in_s is None  # too little history
        assert (await here.later(290)).directories[0].recent.full_in_s == pytest.approx(1500)
        here.fs.free = 1_100_000
        assert (await here.later(10)).directories[0].recent.full_in_s is None


async def test_the_days_left_count_what_was_written_before_the_start(tmp_path: Path, mock_clock: MockClock) -> None:
    endurance = 2**30
    async with flash(tmp_path, mock_clock, disk_endurance_bytes=endurance) as here:
        here.sysfs.lifetime("mmcblk0p2", 2**19)
        assert (await here.wear.look()).directories[0].days_left is None
        here.sysfs.write("mmcblk0", 512 * 1000)
        (directory,) = (await here.later(1000)).directories
        assert directory.lifetime_written_bytes == 2**29
        assert directory.days_left == pytest.approx(2**29 / 512 / 86_400)


async def test_where_the_system_tells_nothing_nothing_is_told(tmp_path: Path, mock_clock: MockClock) -> None:
    async with running_broker(tmp_path) as broker:
        wear = Wear(broker._manager, sysfs=str(tmp_path / "none"), process_io=str(tmp_path / "none"))
        await wear.look()
        mock_clock.jump(10)
        told = await wear.look()
        (directory,) = told.directories
        assert (told.process_written_bytes, told.process) == (None, Rates())
        assert directory.device is directory.disk_written_bytes is directory.days_left is None
        assert directory.health == FlashHealth()


async def test_what_a_deleted_topic_had_appended_still_counts(tmp_path: Path, mock_clock: MockClock) -> None:
    async with flash(tmp_path, mock_clock) as here:
        await here.wear.look()
        appended = await here.append()
        await here.wear.look()
        await here.broker.topics.delete(TOPIC)
        await here.wear.look()
        await here.broker.topics.create(TOPIC)
        appended += await here.append()
        here.sysfs.write("mmcblk0", 512 * appended)
        assert (await here.later(10)).directories[0].recent.written_per_appended == 512.0


@pytest.mark.merge
async def test_it_is_looked_at_by_itself_and_nothing_piles_up(tmp_path: Path, mock_clock: MockClock) -> None:
    async with flash(tmp_path, mock_clock) as here, trio.open_nursery() as nursery:
        nursery.start_soon(here.wear.run)
        for pause_s in [*[LOOK_S] * 70, *[600.0] * 160]:  # ten minutes of looks, then a day
            here.clock.jump(pause_s)
            await here.wear.look()
        for history in here.wear._histories.values():
            assert len(history.recent) <= 62
            assert len(history.day) <= 146
        assert set(here.wear._histories) == {"", str(tmp_path / "data")}
        nursery.cancel_scope.cancel()


async def test_the_longest_loss_window_stays_when_everything_is_on_the_device(tmp_path: Path, mock_clock: MockClock) -> None:
    async with flash(tmp_path, mock_clock, durability="os", topic={"flush.messages": "3"}) as here:
        for _ in range(2):
            await here.append()
            mock_clock.jump(2)
        assert (await here.wear.look()).longest_unsynced_ms == pytest.approx(4000)
        await here.append()  # the third: all are synced
        mock_clock.jump(60)
        assert actor_of(here.broker).statistics().unsynced_ms == 0
        assert (await here.wear.look()).longest_unsynced_ms == pytest.approx(4000)
        assert (await here.broker.statistics()).partitions[0].longest_unsynced_ms == pytest.approx(4000)


def look(at_s: float, written: int | None = 0, appended: int = 0, room: int | None = None) -> Look:
    return Look(at_s=at_s, written_bytes=written, appended_bytes=appended, room_bytes=room)


BETWEEN = {
    "what happened": (
        look(10, 1000, 100, 5000),
        look(310, 4000, 600, 3000),
        Rates(written_per_s=10.0, written_per_appended=6.0, full_in_s=450.0),
    ),
    "the system says nothing": (look(0, None, 0, None), look(10, None, 50, None), Rates()),
    "the system said nothing before": (look(0, None, 0, None), look(10, 70, 50, 9), Rates()),
    "nothing was appended": (look(0), look(10, 100), Rates(written_per_s=10.0)),
    "another disk": (look(0, 500), look(10, 100, 10), Rates()),
    "emptier": (look(0, None, room=10), look(300, None, room=11), Rates()),
    "as full as before": (look(0, None, room=10), look(300, None, room=10), Rates()),
    "below its reserve": (look(0, None, room=10), look(300, None, room=-5), Rates(full_in_s=0)),
    "too short for a forecast": (look(0, None, room=10), look(299, None, room=5), Rates()),
    "less than a second": (look(0, 0, 0, 100), look(0.9, 100, 100, 0), Rates()),
}


@pytest.mark.parametrize(("first", "second", "expected"), BETWEEN.values(), ids=BETWEEN)
def test_rates_are_what_happened_between_two_looks(first: Look, second: Look, expected: Rates) -> None:
    assert Rates.between(first, second) == expected


def test_rates_begin_at_the_start_of_the_span() -> None:
    looks = Looks(span_s=60, most=6)
    for second in range(0, 200, 10):
        looks.add(look(second, written=0 if second <= 130 else 6000))
    assert looks.until(look(190, written=6000)).written_per_s == 100
    looks.add(look(200, written=6000))
    assert looks.until(look(200, written=6000)).written_per_s == 0


@given(st.lists(st.floats(min_value=0, max_value=50), max_size=300))
def test_looks_are_few_and_reach_back_as_far_as_they_say(pauses: list[float]) -> None:
    looks, now = Looks(span_s=100, most=10), 0.0
    for pause in pauses:
        now += pause
        looks.add(look(now, written=round(now * 1000)))
        assert len(looks) <= 12
        rate = looks.until(look(now, written=round(now * 1000))).written_per_s
        assert rate is None or rate == pytest.approx(1000, rel=0.01)


def test_days_are_what_is_left_at_the_rate() -> None:
    assert days_to_endurance(100 * 86_400, 40 * 86_400, 2.0) == 30
    assert days_to_endurance(10, 20, 1.0) == 0
    assert days_to_endurance(0, 20, 1.0) is days_to_endurance(10, None, 1.0) is None
    assert days_to_endurance(10, 5, None) is days_to_endurance(10, 5, 0.0) is None
