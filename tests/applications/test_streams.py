"""Kafka Streams 4.3 with `exactly_once_v2`: the application and the server are killed and started again, alone and together,
and what comes out is what comes out otherwise, every record once and in order.

Times of records are near to now: Streams keeps its windows in topics whose retention is a day.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs
import pytest

from tests.applications.java_process import JavaProcess
from tests.applications.restarted_server import RestartedServer
from tests.applications.topics import Reader, Sent, feed, make_topics, read_all
from tests.support.forked_servers import ServerForker

PARTITIONS: Final = 2
LINES: Final = 800
WORDS: Final = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta")
WORDS_A_LINE: Final = 4
PAIRS: Final = 600
KEYS: Final = 7
STEP_MS: Final = 1_000
"""Between pairs: those of one key are farther apart than the window of two seconds is wide."""

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]


@attrs.define(eq=False)
class Application:
    """One instance of it, killed and started again in its own directory. Owner: the test."""

    folder: Path
    classes: str
    words: tuple[str, ...]
    process: JavaProcess

    @classmethod
    @contextmanager
    def running(cls, folder: Path, classes: str, topology: str, address: str, **config: str) -> Iterator[Application]:
        folder.mkdir()
        pairs = {
            "bootstrap.servers": address,
            "application.id": topology,
            "state.dir": str(folder / "state"),
            "commit.interval.ms": "50",
            "auto.offset.reset": "earliest",
            "reconnect.backoff.max.ms": "100",
            "retry.backoff.max.ms": "200",
            **config,
        }
        words = ("Streams", topology, *(f"{key}={value}" for key, value in pairs.items()))
        application = cls(folder, classes, words, JavaProcess.spawn(folder, classes, *words))
        try:
            yield application
        except BaseException as exc:
            exc.add_note(application.process.log()[-6000:])
            raise
        finally:
            application.process.kill()

    def kill(self) -> None:
        self.process.kill()

    def start(self) -> None:
        self.process = JavaProcess.spawn(self.folder, self.classes, *self.words)

    def stop(self) -> None:
        assert self.process.end_input() == 0, self.process.log()[-6000:]


def play(
    server: RestartedServer, application: Application, reader: Reader, count: int, send: Callable[[float, float], None]
) -> None:
    """Kill one, the other and both, each while about an eighth of what is wanted is on its way. `send` sends a part of all."""

    def fed_and_half_done(part: float) -> None:
        send(part, part + 0.25)
        reader.wait_count(int(count * (part + 0.125)), lambda: application.process.check_running())

    fed_and_half_done(0)
    application.kill()
    server.kill()
    server.start()
    application.start()
    fed_and_half_done(0.25)
    server.kill()
    server.start()
    fed_and_half_done(0.5)
    application.kill()
    application.start()
    fed_and_half_done(0.75)
    reader.wait_count(count, lambda: application.process.check_running())
    application.stop()


@pytest.fixture
def server(tmp_path: Path, server_forker: ServerForker) -> Iterator[RestartedServer]:
    with RestartedServer.running(tmp_path / "server", server_forker) as server:
        yield server


def test_words_are_counted_once_and_in_order(tmp_path: Path, applications: str, server: RestartedServer) -> None:
    """An instance that is known by no name but its process's: the next one waits until the group has given it up."""
    words = [WORDS[number * number % len(WORDS)] for number in range(LINES * WORDS_A_LINE)]
    lines = [" ".join(words[at : at + WORDS_A_LINE]) for at in range(0, len(words), WORDS_A_LINE)]
    make_topics(server.address, "lines", "counts", partitions=PARTITIONS)

    def send(start: float, stop: float) -> None:
        feed(server.address, "lines", [Sent(None, line) for line in lines[int(start * LINES) : int(stop * LINES)]])

    expiring = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "500"}
    with (
        Application.running(tmp_path / "count", applications, "count", server.address, **expiring) as application,
        Reader.of(server.address, "counts", PARTITIONS) as reader,
    ):
        play(server, application, reader, len(words), send)
    counts: dict[str | None, list[int]] = defaultdict(list)
    for record in read_all(server.address, "counts", PARTITIONS):
        counts[record.key].append(int(record.value))
    assert counts == {word: list(range(1, words.count(word) + 1)) for word in sorted(set(words))}


def test_pairs_are_joined_once_and_in_order(tmp_path: Path, applications: str, server: RestartedServer) -> None:
    """A static member: the next instance takes the place of the one that was killed."""
    begin_ms = int(time.time() * 1_000) - PAIRS * STEP_MS
    make_topics(server.address, "left", "right", "joined", partitions=PARTITIONS)

    def send(start: float, stop: float) -> None:
        numbers = range(int(start * PAIRS), int(stop * PAIRS))
        for topic in ("left", "right"):
            records = [Sent(f"key-{n % KEYS}", f"{topic}-{n}", begin_ms + n * STEP_MS) for n in numbers]
            feed(server.address, topic, records)

    with (
        Application.running(
            tmp_path / "join", applications, "join", server.address, **{"group.instance.id": "first"}
        ) as application,
        Reader.of(server.address, "joined", PARTITIONS) as reader,
    ):
        play(server, application, reader, PAIRS, send)
    joined: dict[str | None, list[str]] = defaultdict(list)
    for record in read_all(server.address, "joined", PARTITIONS):
        joined[record.key].append(record.value)
    assert joined == {f"key-{key}": [f"left-{n} right-{n}" for n in range(key, PAIRS, KEYS)] for key in range(KEYS)}
