"""The brokers that are compared, started once for a run, each with what it has by default.

All are up while one is measured; those that are not asked are idle. Apache Kafka has the JVM flags of its own start script.
"""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Self

import attrs

from ..measuring.bench import Bench
from ..measuring.child import LoadFailedError
from ..measuring.server import serving, shared_out_mib
from .generator import CLIENT, FAKE, Generator, build_generator, serve_fake, version_in_go_mod
from .jars import REFERENCE_VERSION, PeerMissingError, free_port, kafka_jars, program_version, running

TRIOLOG: Final = "triolog"
KAFKA: Final = "Kafka"
KFAKE: Final = "kfake"
MAX_CONNECTIONS: Final = 2_000
"""More than any row has members."""
CLUSTER_ID: Final = "dHJpb2xvZy1iZW5jaC0wMA"
START_TIMEOUT_S: Final = 120.0
TRIES: Final = 3
JVM_FLAGS: Final = (
    *("-Xms1G", "-Xmx1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"),
    *("-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxInlineLevel=15", "-Djava.awt.headless=true"),
)
"""As in kafka-server-start.sh and kafka-run-class.sh."""
QUIET: Final = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
FORMAT_FLAGS: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", QUIET)


@attrs.frozen
class Broker:
    """A running broker."""

    name: str
    address: str
    pid: int
    idle_mib: float = 0.0
    """Its memory (PSS) before it was asked for anything."""


@attrs.frozen
class Brokers:
    """A run's brokers and the generator that asks them."""

    bench: Bench
    generator: Generator
    running: Mapping[str, Broker]
    missing: Mapping[str, str]
    """Why another one is not there."""
    versions: list[str]
    """Of what is measured, and how it was made ready."""
    starts: int | None = None
    """Of the fixture, when another number was asked for."""
    _numbers: Iterator[int] = attrs.field(factory=itertools.count)

    def run(self, broker: Broker, load: str, topic: str, **flags: object) -> dict[str, Any]:
        """Run one load on one broker; return its figures."""
        return self.generator.run(load, broker.address, topic=topic, **flags)

    @contextmanager
    def topic(self, broker: Broker, **flags: object) -> Iterator[str]:
        """Create a topic for the time of the block."""
        name = f"bench-{next(self._numbers)}"
        self.run(broker, "create", name, **flags)
        yield name
        self.run(broker, "delete", name)


@contextmanager
def open_brokers(bench: Bench, *, starts: int | None = None, quick_compiler: bool = False) -> Iterator[Brokers]:
    """All brokers that can be had here. `quick_compiler`: the JVM does not optimise, for runs in which no figure counts.
    Raises PeerMissingError without a generator."""
    generator = build_generator()
    missing: dict[str, str] = {}
    versions = [f"generator: franz-go {version_in_go_mod(CLIENT)}, a process for each load"]
    with ExitStack() as stack:
        directory = stack.enter_context(bench.workspace())
        found = {TRIOLOG: stack.enter_context(triolog(f"{directory}/triolog"))}
        if bench.with_peers:
            try:
                bench.say("starting Apache Kafka")
                flags = ("-XX:TieredStopAtLevel=1", *JVM_FLAGS) if quick_compiler else JVM_FLAGS
                found[KAFKA] = stack.enter_context(KafkaServer(Path(directory, "kafka"), flags)).start()
                versions.append(f"Apache Kafka {REFERENCE_VERSION}, {program_version(['java', '-version'])}, {' '.join(flags)}")
            except PeerMissingError as exc:
                missing[KAFKA] = str(exc)
            found[KFAKE] = Broker(KFAKE, *stack.enter_context(serve_fake(generator)))
            versions.append(f"kfake {version_in_go_mod(FAKE)}, one node, in memory")
        else:
            missing = dict.fromkeys((KAFKA, KFAKE), "peers are left out")
        found = {name: attrs.evolve(broker, idle_mib=shared_out_mib(broker.pid)) for name, broker in found.items()}
        yield Brokers(bench, generator, found, missing, versions, starts)


@contextmanager
def triolog(directory: str, *, durability: str = "os") -> Iterator[Broker]:
    """`triolog serve`, whose groups do not wait for more members to come, as Kafka's here."""
    Path(directory).mkdir()
    settings = {"group_initial_rebalance_delay_ms": 0, "max_connections": MAX_CONNECTIONS}
    with serving(directory, durability=durability, settings=settings, kafka=True) as server:
        yield Broker(TRIOLOG, server.kafka, server.pid)


@attrs.define(eq=False, repr=False)
class KafkaServer:
    """Apache Kafka on a directory of its own. Leaving the block stops it."""

    directory: Path
    flags: Sequence[str] = JVM_FLAGS
    _running: ExitStack = attrs.field(factory=ExitStack)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Broker:
        """Start it, and format its directory before the first time. Raises LoadFailedError and PeerMissingError."""
        jars, is_new = kafka_jars(), not (self.directory / "data").exists()
        self.directory.mkdir(exist_ok=True)
        for left in reversed(range(TRIES)):  # its ports are free when they are looked for, and may be taken a moment later
            port, properties = _configure(self.directory)
            if is_new:
                _format(jars, properties)
                is_new = False
            command = ["java", *self.flags, QUIET, "-cp", jars, "kafka.Kafka", properties]
            try:
                log = self.directory / "kafka.log"
                process = self._running.enter_context(running(command, port, log, timeout_s=START_TIMEOUT_S))
                return Broker(KAFKA, f"127.0.0.1:{port}", process.pid)
            except LoadFailedError:
                if not left:
                    raise
        raise AssertionError

    def stop(self) -> None:
        """Stop it in order; kill it after START_TIMEOUT_S."""
        self._running.close()


def _configure(directory: Path) -> tuple[int, str]:
    """Choose a port and write the properties, Kafka's defaults but for what a single node needs and the wait for members.

    Returns the port and the path of the file.
    """
    port, controller = free_port(), free_port()
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "log.dirs": f"{directory}/data",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    path = directory / "server.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
    return port, str(path)


def _format(jars: str, properties: str) -> None:
    """Format the directory of a new installation, as kafka-storage.sh format does. Raises LoadFailedError."""
    command = ["java", *FORMAT_FLAGS, "-cp", jars, "kafka.tools.StorageTool", "format"]
    command += ["--config", properties, "--cluster-id", CLUSTER_ID]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        raise LoadFailedError(f"Kafka's directory cannot be formatted: {run.stderr.strip()[-1000:]}")
