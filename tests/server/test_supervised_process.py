"""`triolog serve` under a supervisor, a stand-in for systemd: what it says of itself, and what ends with a restart."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any, Final, Protocol

import pytest
from triolog.server.storage.directory.log_directory import WATCHDOG_FILE
from triolog.server.storage.disk.checkpoints import CLEAN_SHUTDOWN_FILE

from tests.support import failing_device, forked_servers, logs, server_process, wire_client
from tests.support.supervisor import StandInSupervisor

pytestmark = pytest.mark.merge  # servers are watched until they hang

WATCHDOG_S: Final = 1.0
HELD_LOOP: Final = """
import signal, threading
def hold_the_loop(number, frame):
    threading.Event().wait()
signal.signal(signal.SIGUSR1, hold_the_loop)
"""
"""A server whose event loop can be held: a handler of Python's runs in the loop's own thread."""


class Supervised(Protocol):
    def __call__(self, *arguments: str, **settings: Any) -> StandInSupervisor: ...


@pytest.fixture
def supervised(tmp_path: Path, server_forker: forked_servers.ServerForker) -> Supervised:
    """A supervisor of a server in the test's folder; settings as `StandInSupervisor` has them."""

    def make(*arguments: str, **settings: Any) -> StandInSupervisor:
        serve = ["--data-dir", str(tmp_path / "data"), "--native", "127.0.0.1:0", *arguments]
        return StandInSupervisor(tmp_path, serve, **{"command": server_forker, **settings})

    return make


@pytest.mark.parametrize("is_abstract", [False, True])
def test_a_supervisor_is_told_of_start_reload_and_stop(tmp_path: Path, supervised: Supervised, is_abstract: bool) -> None:
    with supervised(is_abstract=is_abstract) as supervisor:
        server = supervisor.start()
        ready = supervisor.await_line("READY=1")
        assert ready == ["READY=1", f"STATUS=serving native={server.address.host}:{server.address.port}"]
        before_us = time.monotonic_ns() // 1000
        server.process.send_signal(signal.SIGHUP)
        [_, moment] = supervisor.await_line("RELOADING=1")
        assert before_us <= int(moment.removeprefix("MONOTONIC_USEC=")) <= time.monotonic_ns() // 1000
        assert supervisor.lines() == ["READY=1"]
        server.terminate()
        stopping = supervisor.await_line("STOPPING=1")
        assert "STATUS=stopping" in stopping
        assert server.wait_exit() == 0
        assert "WATCHDOG=1" not in supervisor.told
        assert not (tmp_path / "data" / WATCHDOG_FILE).exists()


def test_a_start_that_recovers_says_how_far_it_is(supervised: Supervised) -> None:
    with supervised() as supervisor:
        server = supervisor.start()
        with wire_client.WireClient.connect(server.address) as client:
            client.create_topic("topic", 3)
        server.kill()
        supervisor.start()
        supervisor.await_line("READY=1")
        supervisor.told.clear()
        supervisor.await_line("READY=1")
    assert supervisor.told[0].startswith("STATUS=recovering ")
    assert supervisor.told[0].endswith(" of 3 logs")
    assert supervisor.told[1].startswith("EXTEND_TIMEOUT_USEC=")


def test_the_watchdog_is_fed_after_a_write_in_every_log_directory(tmp_path: Path, supervised: Supervised) -> None:
    second = tmp_path / "second"
    with supervised("--data-dir", str(second), watchdog_s=0.02) as supervisor:
        server = supervisor.start()
        files = [tmp_path / "data" / WATCHDOG_FILE, second / WATCHDOG_FILE]
        supervisor.await_line("WATCHDOG=1")
        written = [file.read_bytes() for file in files]
        for _ in range(3):
            supervisor.await_line("WATCHDOG=1")
        assert [file.read_bytes() > before for file, before in zip(files, written, strict=True)] == [True, True]
        assert [file.stat().st_size for file in files] == [21, 21]
        assert server.stop() == 0
        assert all((file.parent / CLEAN_SHUTDOWN_FILE).exists() for file in files)


def test_a_server_that_is_stopped_from_outside_is_started_again(supervised: Supervised) -> None:
    with supervised(watchdog_s=WATCHDOG_S) as supervisor:
        server = supervisor.start()
        with wire_client.WireClient.connect(server.address) as client:
            client.create_topic("topic")
            client.produce("topic", 0, logs.batch(value=b"kept"))
        supervisor.await_line("WATCHDOG=1")
        server.process.send_signal(signal.SIGSTOP)
        assert supervisor.restart_when_silent() == -signal.SIGKILL
        supervisor.await_line("WATCHDOG=1")
        with wire_client.WireClient.connect(supervisor.server.address) as client:
            assert client.high_watermark("topic") == 1
        assert supervisor.server.stop() == 0


def test_a_server_whose_event_loop_is_held_is_started_again_and_says_where_it_was(supervised: Supervised) -> None:
    with supervised(watchdog_s=WATCHDOG_S, command=server_process.python_command(HELD_LOOP)) as supervisor:
        server = supervisor.start()
        supervisor.await_line("WATCHDOG=1")
        server.process.send_signal(signal.SIGUSR1)
        assert supervisor.restart_when_silent() == -signal.SIGABRT
        assert "hold_the_loop" in server.stderr()
        supervisor.await_line("WATCHDOG=1")
        assert supervisor.server.stop() == 0


def test_a_server_whose_device_hangs_is_started_again(tmp_path: Path) -> None:
    """On a real ext4 that is frozen: writes wait in the kernel, where no signal reaches them."""
    if reason := failing_device.run_alone("tests.server.hanging_device_story", tmp_path):
        pytest.skip(reason)
