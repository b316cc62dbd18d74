"""Kafka Connect 4.3 in distributed mode: lines of a file go through a topic into another file, over a worker that is killed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.applications.connect import Worker
from tests.applications.java_process import DEADLINE_S, POLL_S
from tests.applications.restarted_server import RestartedServer
from tests.applications.topics import make_topics, read_all
from tests.support.forked_servers import ServerForker

LINES: Final = 2_000
TOPIC: Final = "lines"

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]


def wait_until(is_so: Callable[[], bool], check: Callable[[], None]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        check()
        assert time.monotonic() < deadline
        time.sleep(POLL_S)


def first_time_each(lines: list[str]) -> list[str]:
    return list(dict.fromkeys(lines))


def test_lines_of_a_file_are_in_the_topic_once_and_in_the_other_file_in_order(
    tmp_path: Path, applications: str, server_forker: ServerForker
) -> None:
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
