"""Kafka Connect 4.3 in distributed mode: lines of a file go through a topic into another file, over a worker that is killed."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, Self

import attrs
import pytest
from triolog.server.config.broker_config import Address
from triolog.server.fake.ports import Ports

from tests.applications.processes import DEADLINE_S, POLL_S, SINGLE, JavaProcess, RestartedServer
from tests.applications.topics import make_topics, read_all
from tests.support.forked_servers import ServerForker

LINES: Final = 2_000
TOPIC: Final = "lines"

pytestmark = pytest.mark.timeout(600)
REQUEST_TIMEOUT_S: Final = 30.0
CONFIG: Final = {
    "group.id": "workers",
    "config.storage.topic": "connect-configs",
    "offset.storage.topic": "connect-offsets",
    "status.storage.topic": "connect-status",
    **SINGLE,
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "exactly.once.source.support": "enabled",
    "consumer.session.timeout.ms": "6000",
    "consumer.heartbeat.interval.ms": "500",
    "reconnect.backoff.max.ms": "100",
    # The next worker reads the offsets when the transaction is over that the one before has left open.
    "producer.transaction.timeout.ms": "3000",
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


def wait_until(is_so: Callable[[], bool], check: Callable[[], None]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        check()
        assert time.monotonic() < deadline
        time.sleep(POLL_S)


def first_time_each(lines: list[str]) -> list[str]:
    return list(dict.fromkeys(lines))


def test_lines_go_through_once_and_in_order(tmp_path: Path, applications: str, server_forker: ServerForker) -> None:
    """The source writes in transactions. The sink may write lines again whose offsets were not committed when it was killed."""
    source, target = tmp_path / "source.txt", tmp_path / "target.txt"
    wanted = [f"line {number}" for number in range(LINES)]

    def write(start: int, stop: int) -> None:
        with source.open("a") as file:
            file.writelines(f"{line}\n" for line in wanted[start:stop])

    def written() -> list[str]:
        text = target.read_text() if target.exists() else ""
        return text[: text.rfind("\n") + 1].splitlines()

    with (
        RestartedServer.running(tmp_path / "server", server_forker) as server,
        Worker.running(tmp_path / "worker", applications, server.address) as worker,
    ):
        make_topics(server.address, TOPIC)
        write(0, LINES // 2)
        package = "org.apache.kafka.connect.file.FileStream"
        worker.configure("out", {"connector.class": f"{package}SinkConnector", "topics": TOPIC, "file": str(target)})
        worker.configure("in", {"connector.class": f"{package}SourceConnector", "topic": TOPIC, "file": str(source)})
        wait_until(lambda: len(written()) >= LINES // 4, worker.process.check_running)
        worker.kill()
        server.kill()
        write(LINES // 2, LINES * 3 // 4)
        server.start()
        worker.start()
        wait_until(lambda: f"line {LINES // 2}" in written(), worker.process.check_running)
        worker.wait_running("in")
        worker.wait_running("out")
        server.kill()
        write(LINES * 3 // 4, LINES)
        server.start()
        wait_until(lambda: wanted[-1] in written(), worker.process.check_running)
        assert worker.process.terminate() == 143
        assert [record.value for record in read_all(server.address, TOPIC)] == wanted
    assert first_time_each(written()) == wanted
