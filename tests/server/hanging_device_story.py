"""What `test_supervised_process` runs: a server on a device that hangs, until it does not."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from tests.support.failing_device import CannotRunHereError, failing_device
from tests.support.logs import batch
from tests.support.supervisor import StandInSupervisor
from tests.support.wire_client import WireClient

WATCHDOG_S = 1.0


def main(directory: Path) -> None:
    signal.signal(signal.SIGALRM, _too_late)
    with failing_device(directory) as device:
        arguments = ["--data-dir", str(device.path / "data"), "--native", "127.0.0.1:0"]
        with StandInSupervisor(directory, arguments, watchdog_s=WATCHDOG_S) as supervisor:
            server = supervisor.start()
            with WireClient.connect(server.address) as client:
                client.create_topic("topic")
                client.produce("topic", 0, batch(value=b"kept"))
            supervisor.await_line("WATCHDOG=1")
            with frozen(device.path):
                supervisor.await_silence()
                with WireClient.connect(server.address) as client:
                    assert client.high_watermark("topic") == 1, "the loop turns, and only the device hangs"
                server.process.send_signal(signal.SIGABRT)
            server.process.wait()
            supervisor.start()
            supervisor.await_line("WATCHDOG=1")
            with WireClient.connect(supervisor.server.address) as client:
                assert client.high_watermark("topic") == 1
            assert supervisor.server.stop() == 0


@contextmanager
def frozen(path: Path) -> Iterator[None]:
    """Whoever writes there waits for the time of the block."""
    try:
        subprocess.run(["fsfreeze", "--freeze", path], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as exc:
        raise CannotRunHereError(f"no file system can be frozen: {getattr(exc, 'stderr', b'')!r} {exc}") from exc
    try:
        yield
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", path], check=True)


def _too_late(number: int, frame: object) -> NoReturn:
    """Instead of an end that would leave the file system frozen."""
    raise AssertionError("the story took too long")
