"""A Java program, and `triolog serve` on one directory and one port, in processes that are killed and started again."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import attrs
from triolog.server.config.broker_config import Address
from triolog.server.fake.ports import Ports

from tests.support.forked_servers import ServerForker
from tests.support.kafka_jars import JVM_OPTIONS
from tests.support.server_process import ServerFolder, ServerProcess

DEADLINE_S: Final = 90.0
POLL_S: Final = 0.02
SHOWN_LINES: Final = 60
SINGLE: Final = {
    **{f"{name}.storage.replication.factor": "1" for name in ("config", "offset", "status")},
    **{f"{name}.storage.partitions": "1" for name in ("offset", "status")},
    "plugin.discovery": "service_load",
    "scheduled.rebalance.max.delay.ms": "0",  # the next worker is the one that was killed
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "500",
    "offset.flush.interval.ms": "200",
}
"""Of a worker of Kafka Connect that is alone with a broker that is alone."""


@attrs.define(eq=False)
class JavaProcess:
    """Leaving the block kills it."""

    process: subprocess.Popen[bytes]
    log_file: Path

    @classmethod
    def spawn(cls, folder: Path, classes: str, *words: str, options: Sequence[str] = ()) -> Self:
        """`words`: the main class and its arguments. Each process has a log of its own in `folder`, and its temporary files."""
        number = len(list(folder.glob("java-*.log")))
        log_file = folder / f"java-{number}.log"
        temporary = f"-Djava.io.tmpdir={folder}"  # RocksDB unpacks its library there
        command = ["java", *JVM_OPTIONS, temporary, *options, "-cp", classes, *words]
        with log_file.open("wb") as log:
            return cls(subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=log, stderr=log), log_file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()
        if error is not None:
            error.add_note("\n".join([f"{self.log_file.name}:", *self.log().splitlines()[-SHOWN_LINES:]]))

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def kill(self) -> None:
        self.process.kill()
        self._close()
        self.process.wait()

    def end_input(self) -> int:
        """Let its standard input end, for a program that ends then; answers the exit code."""
        self._close()
        return self.process.wait(DEADLINE_S)

    def terminate(self) -> int:
        """An orderly stop, awaited; answers the exit code."""
        self.process.terminate()
        return self.process.wait(DEADLINE_S)

    def check_running(self) -> None:
        """AssertionError with what it logged when it has ended."""
        assert self.process.poll() is None, f"ended with {self.process.returncode}\n{self.log()[-6000:]}"

    def _close(self) -> None:
        self.process.stdin.close()


QUICK: Final = {
    "TRIOLOG_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "TRIOLOG_GROUP_STREAMS_INITIAL_REBALANCE_DELAY_MS": "0",
    "TRIOLOG_GROUP_STREAMS_SESSION_TIMEOUT_MS": "6000",
}
"""Nothing here is about how long members wait for others, alive or dead."""


@attrs.define(eq=False)
class RestartedServer:
    """Strict, as `triolog serve` is. Owner: the test."""

    address: str
    """Of a port that nobody else is given while no server listens there."""
    _folder: ServerFolder
    _server: ServerProcess

    @classmethod
    @contextmanager
    def running(cls, path: Path, forker: ServerForker) -> Iterator[Self]:
        path.mkdir()
        with ServerFolder(path, command=forker) as folder, closing(Ports()) as ports:
            address = str(ports.keep(Address("127.0.0.1", 0)))
            server = cls(address, folder, folder.start("--kafka", address, extra_environment=QUICK))
            yield server
            assert server._server.stop() == 0
            assert "Traceback" not in folder.wrote()

    def kill(self) -> None:
        self._server.kill()

    def start(self) -> None:
        """On what the last one left behind."""
        self._server = self._folder.start("--kafka", self.address, extra_environment=QUICK)
