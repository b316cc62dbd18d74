"""Clocks that jump: what retention by time makes of it."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing
from triolog.server.system.clock import HOLD_S, MAX_STEP_MS, ClockWatch
from triolog.server.system.supervisor import Supervisor

from tests.support.brokers import PARTITION, actor_of, one_partition, until, value
from tests.support.logs import Clock


@pytest.fixture
def notified(tmp_path: Path) -> Iterator[socket.socket]:
    """Where a supervisor listens, at `tmp_path / "notify"`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.setblocking(False)
        yield listening


def variables(tmp_path: Path, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": str(tmp_path / "notify"), **more}


@pytest.mark.parametrize(
    ("more", "watchdog_s"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "1500000"}, 1.5),
        ({"WATCHDOG_USEC": "1500000", "WATCHDOG_PID": str(os.getpid())}, 1.5),
        ({"WATCHDOG_USEC": "1500000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
    ],
)
def test_the_watchdog_is_for_the_process_that_is_named(
    tmp_path: Path, notified: socket.socket, more: dict[str, str], watchdog_s: float | None
) -> None:
    supervisor = Supervisor.taken_from(variables(tmp_path, **more))
    assert supervisor.watchdog_s == watchdog_s
    supervisor.close()


def test_children_do_not_find_the_variables(tmp_path: Path, notified: socket.socket) -> None:
    environment = variables(tmp_path, WATCHDOG_USEC="1", WATCHDOG_PID="1", HOME="kept")
    Supervisor.taken_from(environment).close()
    assert environment == {"HOME": "kept"}


def test_lines_are_one_datagram(tmp_path: Path, notified: socket.socket) -> None:
    supervisor = Supervisor.taken_from(variables(tmp_path))
    assert supervisor.tell("READY=1", "STATUS=für alle")
    assert notified.recv(100) == "READY=1\nSTATUS=für alle".encode()
    supervisor.close()


async def test_what_is_not_taken_is_sent_again(tmp_path: Path, notified: socket.socket) -> None:
    supervisor = Supervisor.taken_from(variables(tmp_path))
    sent = 0
    while supervisor.tell(f"STATUS={sent}"):
        sent += 1
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervisor.tell_surely, "READY=1")
        await trio.testing.wait_all_tasks_blocked()
        taken = [notified.recv(100) for _ in range(sent)]
    assert taken == [b"STATUS=%d" % number for number in range(sent)]
    assert notified.recv(100) == b"READY=1"
    supervisor.close()


def test_a_supervisor_that_goes_is_told_nothing_any_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        supervisor = Supervisor.taken_from(variables(tmp_path))
    assert supervisor.tell("READY=1")
    assert supervisor.tell("STATUS=unheard")
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["supervisor is gone, no more notifications"]


@pytest.mark.parametrize("address", ["", "notify", "vsock:2:1234", "/nowhere/notify", "@nobody-listens-here"])
def test_an_address_that_leads_nowhere_leaves_a_server_alone(address: str, caplog: pytest.LogCaptureFixture) -> None:
    assert Supervisor.taken_from({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1"}).tell("READY=1")
    assert len(caplog.records) == (address != "")


YEAR_MS = 365 * 86_400_000
HOUR_MS = 3_600_000


async def test_time_that_passes_is_trusted(mock_clock: trio.testing.MockClock) -> None:
    wall = Clock()
    watch = ClockWatch(wall)
    for seconds in (1, 60, 86_400):
        mock_clock.jump(seconds)
        wall.advance(seconds * 1000)
        watch.look()
        assert watch.is_trusted


async def test_a_jump_ahead_holds_retention_by_time_for_an_hour_and_is_believed_then(
    mock_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    wall = Clock()
    watch = ClockWatch(wall)
    mock_clock.jump(5)
    wall.advance(5000 + YEAR_MS)
    with caplog.at_level(logging.WARNING):
        watch.look()
    assert f"jumped ahead by {YEAR_MS} ms" in caplog.text
    assert not watch.is_trusted
    mock_clock.jump(HOLD_S - 1)
    wall.advance(round(HOLD_S - 1) * 1000)
    watch.look()
    assert not watch.is_trusted
    mock_clock.jump(1)
    assert watch.is_trusted


async def test_a_clock_that_is_set_right_again_is_trusted_at_once(mock_clock: trio.testing.MockClock) -> None:
    wall = Clock()
    watch = ClockWatch(wall)
    wall.advance(YEAR_MS)
    watch.look()
    assert not watch.is_trusted
    wall.advance(-YEAR_MS)
    watch.look()
    assert watch.is_trusted


async def test_a_jump_back_is_said_a_small_step_not(
    mock_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    wall = Clock()
    watch = ClockWatch(wall)
    with caplog.at_level(logging.WARNING):
        wall.advance(MAX_STEP_MS)
        watch.look()
        wall.advance(-MAX_STEP_MS)
        watch.look()
        assert caplog.text == ""
        wall.advance(-HOUR_MS * 2)
        watch.look()
    assert watch.is_trusted
    assert f"jumped back by {2 * HOUR_MS} ms" in caplog.text


async def test_a_clock_a_year_ahead_does_not_expire_everything(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    settings = {"segment.bytes": "100", "retention.bytes": "250", "retention.ms": str(HOUR_MS)}
    async with one_partition(tmp_path, clock=clock, topic=settings, retention_check_interval_ms=100) as broker:
        await broker.writer.append(PARTITION, value("x"))
        with caplog.at_level(logging.WARNING):
            clock.advance(YEAR_MS)
            await until(lambda: "jumped ahead" in caplog.text)
        for _ in range(5):
            await broker.writer.append(PARTITION, value("y"))
        await until(lambda: actor_of(broker).log.log_start_offset > 0)
        assert actor_of(broker).log.log_start_offset == 2, "retention by size goes on"
        await broker._manager.retention.run_pass(by_time=False)
        assert actor_of(broker).log.log_start_offset == 2
