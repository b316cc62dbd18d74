"""What a server says to its supervisor."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing
from triolog.server.system.supervisor import Supervisor


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
