"""Kafka Streams 4.3 with `exactly_once_v2`, in groups of both protocols: the applications and the server are killed and started
again, alone and together, and what comes out is what comes out otherwise, every record once and in order.

Four applications are one process: they are killed together, and start as fast as one. Times of records are near to now: Streams
keeps its windows in topics whose retention is a day.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Final

import attrs
import pytest

from tests.applications.processes import JavaProcess, RestartedServer
from tests.applications.topics import Read, Reader, Sent, feed_all, make_topics, read_all
from tests.support.forked_servers import ServerForker

PARTITIONS: Final = 2
LINES: Final = 800
WORDS: Final = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta")
WORDS_A_LINE: Final = 4
PAIRS: Final = 1_600
KEYS: Final = 7
STEP_MS: Final = 1_000
"""Between pairs: those of one key are farther apart than the window of two seconds is wide."""
QUARTER: Final = 0.25
COMMON: Final = {
    "commit.interval.ms": "50",
    "auto.offset.reset": "earliest",
    "reconnect.backoff.max.ms": "100",
    "retry.backoff.max.ms": "200",
}
CLASSIC: Final = "classic"
STREAMS: Final = "streams"
PROTOCOLS: Final = (CLASSIC, STREAMS)

pytestmark = pytest.mark.timeout(600)


@attrs.frozen
class Application:
    """One of the process's, which writes so many records into the topic of its name."""

    topology: str
    protocol: str
    count: int
    config: Mapping[str, str]

    @property
    def name(self) -> str:
        return f"{self.topology}-{self.protocol}"

    @property
    def words(self) -> list[str]:
        return [self.topology, f"application.id={self.name}", *_pairs(self.config)]


EXPIRING: Final = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "500"}
"""A member that is known by no name but its process's: the next one waits until the group has given it up."""
STATIC: Final = {"group.instance.id": "first"}
"""The next one takes the place of the one that was killed."""
BY_SERVER: Final = {"group.protocol": "streams"}
"""Static members there are none; the server says how long a member may be silent."""
APPLICATIONS: Final = (
    Application("count", CLASSIC, LINES * WORDS_A_LINE, EXPIRING),
    Application("count", STREAMS, LINES * WORDS_A_LINE, BY_SERVER),
    Application("join", CLASSIC, PAIRS, STATIC),
    Application("join", STREAMS, PAIRS, BY_SERVER),
)


def _pairs(config: Mapping[str, str]) -> list[str]:
    return [f"{key}={value}" for key, value in config.items()]


@attrs.define(eq=False)
class Applications:
    """The process, killed and started again in its own directory. Owner: the fixture."""

    folder: Path
    classes: str
    words: Sequence[str]
    process: JavaProcess

    @classmethod
    @contextmanager
    def running(cls, folder: Path, classes: str, address: str) -> Iterator[Applications]:
        folder.mkdir()
        common = {"bootstrap.servers": address, "state.dir": str(folder / "state"), **COMMON}
        words = ["Streams", *_pairs(common), *(word for each in APPLICATIONS for word in each.words)]
        applications = cls(folder, classes, words, JavaProcess.spawn(folder, classes, *words))
        try:
            yield applications
        except BaseException as exc:
            exc.add_note(applications.process.log()[-6000:])
            raise
        finally:
            applications.process.kill()

    def kill(self) -> None:
        self.process.kill()

    def start(self) -> None:
        self.process = JavaProcess.spawn(self.folder, self.classes, *self.words)

    def stop(self) -> None:
        assert self.process.end_input() == 0, self.process.log()[-6000:]


def play(server: RestartedServer, applications: Applications, reader: Reader, send: Callable[[float, float], None]) -> None:
    """Kill both, one and the other, each when all applications are at work and have just been given more; they are through with
    it before it goes on. `send` sends a part of all."""

    def wait(part: float) -> None:
        def are_so_far(_: list[Read]) -> bool:
            return all(reader.counts[each.name] >= int(each.count * part) for each in APPLICATIONS)

        reader.wait_for(are_so_far, lambda: applications.process.check_running())

    def kill_both() -> None:
        applications.kill()
        server.kill()
        server.start()
        applications.start()

    def kill_server() -> None:
        server.kill()
        server.start()

    def kill_applications() -> None:
        applications.kill()
        applications.start()

    send(0, QUARTER)
    wait(QUARTER)
    for quarter, kill in enumerate((kill_both, kill_server, kill_applications), start=1):
        part = quarter * QUARTER
        send(part, part + QUARTER / 2)
        wait(part + QUARTER / 4)
        send(part + QUARTER / 2, part + QUARTER)
        kill()
        wait(part + QUARTER)
    applications.stop()


def words() -> list[str]:
    return [WORDS[number * number % len(WORDS)] for number in range(LINES * WORDS_A_LINE)]


def lines() -> list[tuple[str, Sent]]:
    spoken = words()
    return [("lines", Sent(None, " ".join(spoken[at : at + WORDS_A_LINE]))) for at in range(0, len(spoken), WORDS_A_LINE)]


def pairs(topic: str) -> list[tuple[str, Sent]]:
    """One side of them."""
    begin_ms = int(time.time() * 1_000) - PAIRS * STEP_MS
    return [(topic, Sent(f"key-{n % KEYS}", f"{topic}-{n}", begin_ms + n * STEP_MS)) for n in range(PAIRS)]


@pytest.fixture(scope="module")
def written(
    tmp_path_factory: pytest.TempPathFactory, applications: str, server_forker: ServerForker
) -> Mapping[str, Sequence[Read]]:
    """What the applications have written in the end, by name."""
    folder = tmp_path_factory.mktemp("streams")
    inputs = [lines(), pairs("left"), pairs("right")]
    names = [each.name for each in APPLICATIONS]
    with RestartedServer.running(folder / "server", server_forker) as server:

        def send(start: float, stop: float) -> None:
            parts = [each[int(start * len(each)) : int(stop * len(each))] for each in inputs]
            feed_all(server.address, (record for records in zip_longest(*parts) for record in records if record is not None))

        make_topics(server.address, "lines", "left", "right", *names, partitions=PARTITIONS)
        with (
            Applications.running(folder / "applications", applications, server.address) as running,
            Reader.of(server.address, *names, partitions=PARTITIONS) as reader,
        ):
            play(server, running, reader, send)
        return {name: read_all(server.address, name, PARTITIONS) for name in names}


def by_key(records: Sequence[Read]) -> dict[str | None, list[str]]:
    found: dict[str | None, list[str]] = defaultdict(list)
    for record in records:
        found[record.key].append(record.value)
    return found


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_words_are_counted_once_and_in_order(written: Mapping[str, Sequence[Read]], protocol: str) -> None:
    spoken = words()
    counts = {word: [str(number) for number in range(1, spoken.count(word) + 1)] for word in sorted(set(spoken))}
    assert by_key(written[f"count-{protocol}"]) == counts


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_pairs_are_joined_once_and_in_order(written: Mapping[str, Sequence[Read]], protocol: str) -> None:
    pairs = {f"key-{key}": [f"left-{n} right-{n}" for n in range(key, PAIRS, KEYS)] for key in range(KEYS)}
    assert by_key(written[f"join-{protocol}"]) == pairs
