"""SIGKILL of ingest and of the server in any order, while programs append to files and rotate them: every line is in the topic
once, and those of a file in order.

A run is a seed. `TRIOLOG_TEST_INGEST_SEED=...` repeats one: all choices, though not the moment.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs
import pytest
from triolog.protocol.types import Isolation
from triolog.server.config.values import Address
from triolog.server.fake.ports import Ports
from triolog.tools.client.blocking.client import BlockingClient
from triolog.tools.client.blocking.consumer import BlockingConsumer

from tests.support.counts import seeds
from tests.support.forked_servers import ForkedProcess, ServerForker
from tests.support.forwarding import until
from tests.support.server_process import ServerFolder, ServerProcess, environment

pytestmark = pytest.mark.merge

SEED: Final = os.environ.get("TRIOLOG_TEST_INGEST_SEED")
SEEDS: Final = [int(SEED)] if SEED else list(seeds(100, merge=3, commit=1))
TOPIC: Final = "lines"
FILES: Final = 3
ROUNDS: Final = 12
PATIENCE_S: Final = 120.0


@attrs.define(eq=False)
class Chain:
    """A folder with logs, ingest and a server, each a process that can be killed and comes back."""

    folder: Path
    forker: ServerForker
    servers: ServerFolder
    native: Address
    rng: random.Random
    written: dict[bytes, list[bytes]] = attrs.field(factory=dict)
    rotations: int = 0
    _server: ServerProcess | None = None
    _ingest: ForkedProcess | None = None

    def start_server(self) -> None:
        self._server = self.servers.start("--native", str(self.native), "--durability", "fsync")

    def kill_server(self) -> None:
        assert self._server is not None
        self._server.kill()
        self.start_server()

    def start_ingest(self) -> None:
        arguments = ("--server", str(self.native), "--name", "logs", "--topic", TOPIC, "--state-dir", str(self.folder))
        output = self.folder / "ingest.out"
        output.touch()
        self._ingest = self.forker.fork(
            ["ingest", "files", *arguments, str(self.folder / "*.log")],
            cwd=self.folder,
            environment=environment(),
            output=output,
        )

    def kill_ingest(self) -> None:
        if self._ingest is not None:
            self._ingest.kill()
            self._ingest.wait()
            self._ingest = None

    def write(self) -> None:
        """Append to a file; it may be renamed before."""
        name = f"app{self.rng.randrange(FILES)}.log"
        path, lines = self.folder / name, self.written.setdefault(name.encode(), [])
        is_stored = bool(lines) and self.rng.random() < 0.3
        if is_stored:
            self.wait_for_lines()  # what was never read has no position, and is not found after a restart
            self.rotations += 1
            path.rename(f"{path}.{self.rotations}")
        with path.open("ab") as stream:
            for _ in range(self.rng.randrange(1, 400)):
                line = b"%s %d %s" % (name.encode(), len(lines), b"x" * self.rng.randrange(200))
                lines.append(line)
                stream.write(line + b"\n")

    def stored(self) -> list[bytes]:
        with BlockingClient((self.native.host, self.native.port)) as client:
            if TOPIC not in client.topics():
                return []
            with BlockingConsumer(client, follow=False, isolation=Isolation.READ_COMMITTED) as consumer:
                consumer.assign(TOPIC)
                return [bytes(record.value or b"") for _, record in consumer.records()]

    def wait_for_lines(self) -> None:
        if self._ingest is None:
            self.start_ingest()
        wanted = sum(map(len, self.written.values()))
        until(lambda: len(self.stored()) >= wanted, "all lines are stored", PATIENCE_S)


@contextlib.contextmanager
def chain(tmp_path: Path, rng: random.Random, forker: ServerForker) -> Iterator[Chain]:
    (tmp_path / "server").mkdir()
    with contextlib.closing(Ports()) as ports, ServerFolder(tmp_path / "server", command=forker) as servers:
        native = ports.keep(Address("127.0.0.1", 0))
        assert native is not None
        found = Chain(tmp_path, forker, servers, native, rng)
        try:
            yield found
        except BaseException as exc:
            exc.add_note((tmp_path / "ingest.out").read_text()[-5000:])
            raise
        finally:
            found.kill_ingest()


@pytest.mark.parametrize("seed", SEEDS)
def test_every_line_is_stored_once_and_in_order_whoever_is_killed(
    tmp_path: Path, ingest_forker: ServerForker, seed: int
) -> None:
    rng = random.Random(seed)
    with chain(tmp_path, rng, ingest_forker) as running:
        running.start_server()
        running.start_ingest()
        for _ in range(ROUNDS):
            running.write()
            for _ in range(rng.randrange(3)):  # until the kill ingest works on
                running.stored()
            victim = rng.choice(["ingest", "server", "both", "none"])
            if victim in ("ingest", "both"):
                running.kill_ingest()
            if victim in ("server", "both"):
                running.kill_server()
            if running._ingest is None and rng.random() < 0.8:
                running.start_ingest()
        running.wait_for_lines()
        found = running.stored()
        for name, lines in running.written.items():
            assert [line for line in found if line.startswith(name)] == lines
