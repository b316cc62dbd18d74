"""A worker of Kafka Connect in distributed mode, asked over its REST interface."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, Self

import attrs
from triolog.server.control.ports import Ports
from triolog.server.settings.broker_config import Address

from tests.applications.java_process import DEADLINE_S, POLL_S, JavaProcess

REQUEST_TIMEOUT_S: Final = 30.0
CONFIG: Final = {
    "group.id": "workers",
    "config.storage.topic": "connect-configs",
    "offset.storage.topic": "connect-offsets",
    "status.storage.topic": "connect-status",
    "config.storage.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
    "offset.storage.partitions": "1",
    "status.storage.partitions": "1",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "exactly.once.source.support": "enabled",
    "plugin.discovery": "service_load",
    "scheduled.rebalance.max.delay.ms": "0",  # the next worker is the one that was killed
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "500",
    "offset.flush.interval.ms": "200",
    "reconnect.backoff.max.ms": "100",
}


@attrs.define(eq=False)
class Worker:
    """Killed and started again on one port. Owner: the test."""

    folder: Path
    classes: str
    port: int
    process: JavaProcess

    @classmethod
    @contextmanager
    def running(cls, folder: Path, classes: str, address: str) -> Iterator[Self]:
        folder.mkdir()
        with closing(Ports()) as ports:
            listener = ports.keep(Address("127.0.0.1", 0))
            assert listener is not None
            config = {**CONFIG, "bootstrap.servers": address, "listeners": f"http://{listener}"}
            (folder / "worker.properties").write_text("".join(f"{key}={value}\n" for key, value in config.items()))
            worker = cls(folder, classes, listener.port, _spawned(folder, classes))
            try:
                yield worker
            except BaseException as exc:
                exc.add_note(worker.process.log()[-6000:])
                raise
            finally:
                worker.process.kill()

    def kill(self) -> None:
        self.process.kill()

    def start(self) -> None:
        self.process = _spawned(self.folder, self.classes)

    def configure(self, name: str, config: Mapping[str, str]) -> None:
        """Make a connector, or another one of it, as soon as the worker takes it."""
        self._until(lambda: self._ask("PUT", f"/connectors/{name}/config", config)[0] in (200, 201), f"{name} was not taken")

    def wait_running(self, name: str) -> None:
        """Wait until the connector and its only task run."""

        def runs() -> bool:
            code, status = self._ask("GET", f"/connectors/{name}/status")
            states = [status["connector"], *status["tasks"]] if code == 200 else []
            assert not [each for each in states if each["state"] == "FAILED"], states
            return [each["state"] for each in states] == ["RUNNING", "RUNNING"]

        self._until(runs, f"{name} does not run")

    def _until(self, is_so: Any, otherwise: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            self.process.check_running()
            try:
                if is_so():
                    return
            except (OSError, http.client.HTTPException):
                pass  # it does not listen yet
            assert time.monotonic() < deadline, f"{otherwise} within {DEADLINE_S:g} s\n{self.process.log()[-6000:]}"
            time.sleep(POLL_S)

    def _ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=REQUEST_TIMEOUT_S)) as connection:
            connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")


def _spawned(folder: Path, classes: str) -> JavaProcess:
    return JavaProcess.spawn(folder, classes, "org.apache.kafka.connect.cli.ConnectDistributed", "worker.properties")
