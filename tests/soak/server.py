"""The server of a run: `triolog serve` on one directory and on ports of its own, killed, stopped, paused, started again."""

from __future__ import annotations

import os
import signal
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs
from triolog.server.config.broker_config import Address
from triolog.server.fake.ports import Ports

from tests.support.control_port import Control
from tests.support.forked_servers import ServerForker
from tests.support.server_process import COMMAND, ServerProcess

SETTINGS: Final = {
    "TRIOLOG_GROUP_INITIAL_REBALANCE_DELAY_MS": "500",
    "TRIOLOG_GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS": "1000",
    "TRIOLOG_GROUP_CONSUMER_SESSION_TIMEOUT_MS": "8000",
    "TRIOLOG_RETENTION_CHECK_INTERVAL_MS": "5000",
    "TRIOLOG_CLEANER_BACKOFF_MS": "2000",
    "TRIOLOG_CHECKPOINT_INTERVAL_MS": "10000",
}
HTTP_S: Final = 10.0
STARTS_WITHIN_S: Final = 300.0
"""Beside all clients, on a machine that is busy with other things."""


@attrs.define(eq=False)
class SoakServer:
    """Lives one after the other. `with_control`: tests may let requests and the disk go wrong."""

    folder: Path
    command: Sequence[str] | ServerForker = COMMAND
    with_control: bool = True
    lives: int = 0
    began_at: float = 0.0
    """When the present life became ready, in monotonic seconds."""
    _ports: Ports = attrs.field(factory=Ports)
    _addresses: dict[str, str] = attrs.field(factory=dict)
    _process: ServerProcess | None = None

    def __attrs_post_init__(self) -> None:
        names = ("native", "kafka", "metrics", *(("control",) if self.with_control else ()))
        self._addresses = {name: str(self._ports.keep(Address("127.0.0.1", 0))) for name in names}

    @property
    def kafka(self) -> str:
        return self._addresses["kafka"]

    @property
    def native(self) -> str:
        return self._addresses["native"]

    @property
    def native_address(self) -> tuple[str, int]:
        host, _, port = self.native.rpartition(":")
        return host, int(port)

    @property
    def data_dir(self) -> Path:
        return self.folder / "data"

    @property
    def process(self) -> ServerProcess:
        assert self._process is not None
        return self._process

    def spawn(self, durability: str) -> None:
        """Start a life; it is not awaited."""
        listeners = [part for name, address in self._addresses.items() for part in (f"--{name}", address)]
        arguments = ["--data-dir", str(self.data_dir), *listeners, "--durability", durability, "--log-level", "warning"]
        variables = {**SETTINGS, "SOAK_MEMORY": str(self.folder / f"memory-{self.lives}.txt")}
        self._process = ServerProcess.spawn(
            self.folder, arguments, name=f"server-{self.lives}", command=self.command, extra_environment=variables
        )
        self.lives += 1

    def start(self, durability: str) -> None:
        self.spawn(durability)
        self.process.wait_ready(STARTS_WITHIN_S)
        self.began_at = time.monotonic()

    def pause(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
        self._ports.close()

    def wrote(self) -> str:
        """What all lives wrote, errors and warnings."""
        files = sorted(self.folder.glob("server-*.stderr"), key=lambda path: int(path.stem.removeprefix("server-")))
        return "".join(f"--- {path.name}\n{text}" for path in files if (text := path.read_text(errors="replace")))

    def add_fault(self, rule: dict[str, Any], *, of_disk: bool = False) -> bool:
        """Whether the server heard of it: it may be away."""
        return self._control("POST", "/disk-faults" if of_disk else "/faults", rule)

    def clear_faults(self) -> None:
        self._control("DELETE", "/faults")
        self._control("DELETE", "/disk-faults")

    def metrics(self) -> str:
        """The text of /metrics; empty when nobody answers."""
        try:
            with urllib.request.urlopen(f"http://{self._addresses['metrics']}/metrics", timeout=HTTP_S) as answer:
                return bytes(answer.read()).decode()
        except OSError:
            return ""

    def _control(self, method: str, path: str, body: dict[str, Any] | None = None) -> bool:
        try:
            Control(self._addresses).do(method, path, body)
        except OSError:
            return False
        return True
