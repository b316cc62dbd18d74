"""A real Apache Kafka 4.3 broker of one node (KRaft) in a directory: format, start, ask, stop, kill; nothing is left behind.

It listens on two free ports of the loopback, below those that the system gives to outgoing connections. Between looking and
taking, someone else can take them; a broker that says so is started again on others.

The first broker on a machine writes an archive of the classes that it has loaded. With it a start takes 1.4 s of
processor time instead of 2.5 (2026-11-29).
"""

from __future__ import annotations

import random
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import attrs

from tests.support import class_archive
from tests.support.kafka_jars import JVM_OPTIONS, KafkaCalls

CLUSTER_ID: Final = "dHJpb2xvZy10by1rYWZrYQ"
NODE_ID: Final = 1
LOG_DIRECTORY: Final = "kafka"
DEADLINE_S: Final = 120.0
POLL_S: Final = 0.02
TRIES: Final = 3
STARTED: Final = "Kafka Server started"
PORT_TAKEN: Final = ("BindException", "Address already in use")
SETTINGS: Final = {
    "process.roles": "broker,controller",
    "node.id": str(NODE_ID),
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "log.cleaner.enable": "false",  # what it is given is compared with what it serves
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "background.threads": "1",
}


@attrs.define(eq=False)
class KafkaBroker:
    """A broker's directory and its process, when it runs. Leaving the block kills it."""

    folder: Path
    classes: str
    calls: KafkaCalls
    settings: Mapping[str, str] = attrs.field(factory=dict, kw_only=True)
    """Beside `SETTINGS`."""
    archive: tuple[str, ...] | None = attrs.field(default=None, kw_only=True)
    """Options for the archive of classes; None: read it, after another broker has written it if need be."""
    address: str = ""
    _process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()
        if error is not None:
            error.add_note("\n".join(["Kafka wrote:", *self.log().splitlines()[-60:]]))

    @property
    def log_directory(self) -> Path:
        return self.folder / LOG_DIRECTORY

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    @property
    def _log_file(self) -> Path:
        return self.folder / "kafka.stderr"

    def log(self) -> str:
        return self._log_file.read_text(errors="replace") if self._log_file.exists() else ""

    def format(self) -> None:
        """`kafka-storage.sh format`: what a new installation begins with."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._configure()
        self.calls.call("format", "format", "--config", self._properties, "--cluster-id", CLUSTER_ID).ok()

    def start(self) -> Self:
        """Start it and wait until it serves."""
        for left in reversed(range(TRIES)):
            self._configure()
            self._spawn()
            if self._wait_started(last_try=left == 0):
                break
        return self

    def stop(self) -> None:
        """A clean stop, awaited."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(DEADLINE_S)
        assert code == 128 + signal.SIGTERM, f"exit code {code}\n{self.log()[-4000:]}"
        self._process = None

    def kill(self) -> None:
        """SIGKILL; does nothing when it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def topics(self, *arguments: str) -> str:
        return self.calls.call("topics", *arguments).ok()

    def run_commands(self, commands: Sequence[str]) -> None:
        """Run lines of a shell that call `kafka-topics.sh`."""
        for command in commands:
            program, *arguments = shlex.split(command)
            assert program == "kafka-topics.sh", command
            self.topics(*arguments)

    def _configure(self) -> None:
        broker, controller = _free_ports(2)
        self.address = f"127.0.0.1:{broker}"
        settings = {
            **SETTINGS,
            **self.settings,
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}",
            "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{controller}",
            "log.dirs": str(self.log_directory),
        }
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def _spawn(self) -> None:
        if self.archive is None:
            self.archive = (f"-XX:SharedArchiveFile={_archive(self.classes, self.calls)}",)
        options = (*JVM_OPTIONS, *self.archive, "-Xlog:disable", "-cp", _jars(self.classes))
        command = ("java", *options, "kafka.Kafka", str(self._properties))
        with self._log_file.open("wb") as log:
            self._process = subprocess.Popen(command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _wait_started(self, *, last_try: bool) -> bool:
        """False when its ports were taken meanwhile."""
        assert self._process is not None
        deadline = time.monotonic() + DEADLINE_S
        while STARTED not in self.log():
            ended = self._process.poll() is not None
            if ended and not last_try and any(sign in self.log() for sign in PORT_TAKEN):
                return False
            assert not ended, f"Kafka ended with {self._process.returncode}\n{self.log()[-6000:]}"
            assert time.monotonic() < deadline, f"Kafka did not start within {DEADLINE_S} s\n{self.log()[-6000:]}"
            time.sleep(POLL_S)
        return True


def _jars(classes: str) -> str:
    """Of a class path: a JVM uses no archive where a folder of classes is on it, and a broker needs none."""
    return ":".join(entry for entry in classes.split(":") if entry.endswith(".jar"))


def _archive(classes: str, calls: KafkaCalls) -> Path:
    def make(made: Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            writing = (f"-XX:ArchiveClassesAtExit={made}",)
            with KafkaBroker(Path(folder), classes, calls, archive=writing) as broker:
                broker.format()
                broker.start()
                broker.stop()

    java = Path(shutil.which("java") or "java").resolve()
    return class_archive.archive("kafka", f"{java} {JVM_OPTIONS} {_jars(classes)}", make)


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    rng, ports = random.SystemRandom(), []
    while len(ports) < count:
        port = rng.randrange(15_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            ports.append(port)
    return ports
