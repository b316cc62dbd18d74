"""A producer, a server, a forwarder and an upstream, each but the producer a process that can be killed at any time.

The server and the upstream live as long as the chain, with what they hold. A run has a topic and a link of its own on it: that
is fed, forwarded, and compared at its end. The upstream, a `triolog serve` or an Apache Kafka, is behind a proxy whose weather
changes, so that it keeps its address while it is away.
"""

from __future__ import annotations

import contextlib
import json
import logging
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

import attrs
from confluent_kafka import Consumer, TopicPartition
from triolog.protocol.native.messages import NewTopic
from triolog.protocol.types import Record
from triolog.server.config.values import Address
from triolog.server.fake.ports import Ports
from triolog.tools.client.blocking.admin import BlockingAdmin
from triolog.tools.client.blocking.client import BlockingClient
from triolog.tools.client.blocking.consumer import BlockingConsumer
from triolog.tools.client.blocking.producer import BlockingProducer
from triolog.tools.client.config import ProducerConfig
from triolog.tools.client.errors import ConnectionLostError
from triolog.tools.forward.process.place import CONTROL, ask

from tests.support.forked_servers import ForkedProcess, ServerForker
from tests.support.forwarding import NODE, until
from tests.support.kafka_broker import KafkaBroker
from tests.support.server_process import ServerFolder, ServerProcess, environment

PARTITIONS: Final = 3
PATIENCE_S: Final = 120.0
CONSUME_S: Final = 0.2
LOADED: Final = (
    "confluent_kafka.admin",
    "triolog.tools.cli.forward.command",
    "triolog.tools.cli.forward.options",
    "triolog.tools.forward.process.run_links",
    "triolog.tools.forward.source.server",
)
"""What a forwarder imports, beside what a server does."""
PRODUCER: Final = ProducerConfig(retry_backoff_max_ms=100, delivery_timeout_ms=120_000)

Row = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""Timestamp, key, value, headers."""


READER: Final = {
    "group.id": "check",
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "reconnect.backoff.max.ms": 100,
    "fetch.wait.max.ms": 50,
}
QUIET: Final = logging.getLogger("the reader's librdkafka")
QUIET.setLevel(logging.CRITICAL + 1)
FORWARDED_S: Final = 3.0
POLL_S: Final = 0.01


class Upstream(Protocol):
    """Something that can be killed and comes back with its data."""

    def start(self) -> None: ...
    def kill(self) -> None: ...
    @property
    def address(self) -> tuple[str, int] | None: ...


MakeUpstream = Callable[[Path, str, ServerForker], contextlib.AbstractContextManager[Upstream]]
"""A folder, the address that it is to advertise, and what starts processes."""


@attrs.define(eq=False)
class TriologUpstream:
    """`triolog serve`."""

    folder: ServerFolder
    advertised: str
    _server: ServerProcess | None = None

    def start(self) -> None:
        self._server = self.folder.start(
            "--kafka", "127.0.0.1:0", extra_environment={"TRIOLOG_KAFKA_ADVERTISED": self.advertised}
        )

    def kill(self) -> None:
        if self._server is not None:
            self._server.kill()
        self._server = None

    @property
    def address(self) -> tuple[str, int] | None:
        server = self._server
        return None if server is None else Address.parse(json.loads(server.ready_file.read_text())["kafka"])


@attrs.define(eq=False)
class KafkaUpstream:
    """Apache Kafka."""

    broker: KafkaBroker
    _is_up: bool = False

    def start(self) -> None:
        self.broker.start()
        self._is_up = True

    def kill(self) -> None:
        self._is_up = False
        self.broker.kill()

    @property
    def address(self) -> tuple[str, int] | None:
        return Address.parse(self.broker.address) if self._is_up else None


@attrs.define(eq=False)
class Chain:
    """What all runs share. Owner: one test."""

    folder: Path
    forker: ServerForker
    upstream: Upstream
    proxy: WeatherProxy
    source: ServerFolder
    native: Address
    reader: Consumer
    """Of what is committed upstream."""
    _server: ServerProcess | None = None

    def start_source(self, durability: str = "os") -> None:
        self._server = self.source.start(
            *("--native", str(self.native), "--durability", durability), extra_environment={"TRIOLOG_STOP_GRACE_MS": "1000"}
        )

    def kill_source(self) -> None:
        assert self._server is not None
        self._server.kill()

    def in_upstream(self, topics: Sequence[str]) -> dict[tuple[str, int], list[Row]]:
        """What a reader of committed records finds."""
        rows: dict[tuple[str, int], list[Row]] = {(topic, number): [] for topic in topics for number in range(PARTITIONS)}
        left = set(rows)
        deadline = time.monotonic() + PATIENCE_S
        self.reader.assign([TopicPartition(*partition, 0) for partition in rows])
        while left:
            assert time.monotonic() < deadline, f"{left} upstream were not read within {PATIENCE_S} s"
            for message in self.reader.consume(500, CONSUME_S):
                partition, error = (message.topic() or "", message.partition() or 0), message.error()
                if error is None:
                    headers = tuple((name, data) for name, data in message.headers() or ())
                    rows[partition].append((message.timestamp()[1], message.key(), message.value(), headers))
                elif error.name() == "_PARTITION_EOF":
                    left.discard(partition)
        self.reader.unassign()
        return rows

    @contextlib.contextmanager
    def run(self, name: str) -> Iterator[Run]:
        """A topic, a link and a forwarder, and records all the time; ended with the block."""
        made = Run(self, name, random.Random(name))
        try:
            made.feed()
            made.start_forwarder()
            yield made
        except BaseException as exc:
            exc.add_note(f"run {name}; its forwarders wrote:\n{made.wrote()}")
            raise
        finally:
            made.close()


@attrs.define(eq=False)
class Run:
    """Choices are those of `rng`, moments are not. Owner: one test."""

    chain: Chain
    name: str
    rng: random.Random
    """Of the thread of the test."""
    _forwarder: ForkedProcess | None = None
    _feeder: threading.Thread | None = None
    _over: threading.Event = attrs.field(factory=threading.Event)
    _error: BaseException | None = None
    fed: int = 0

    @property
    def topic(self) -> str:
        return f"readings-{self.name}"

    def start_forwarder(self, *more: str) -> None:
        chain = self.chain
        self._log.touch()
        self._forwarder = chain.forker.fork(
            [
                *("forward", "--server", str(chain.native), "--to", chain.proxy.address, "--topics", self.topic),
                *("--link", self.name, "--node", NODE, "--state-dir", str(chain.folder / "links"), "--max-delay-ms", "20"),
                *("--kafka", "reconnect.backoff.max.ms=100", *more),
            ],
            cwd=chain.folder,
            environment=environment(),
            output=self._log,
        )

    def kill_forwarder(self) -> None:
        if self._forwarder is not None:
            self._forwarder.kill()
            self._forwarder.wait()
            self._forwarder = None

    def drain(self) -> None:
        """The link is told to, whatever it does now; it has an answer when everything is upstream."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                told = ask(str(self._control), {"command": "drain", "timeout_s": PATIENCE_S}, PATIENCE_S)
                break
            except OSError:  # it has only begun
                assert self._forwarder is not None
                assert self._forwarder.poll() is None, "the forwarder has ended"
                assert time.monotonic() < deadline, "nobody can be told to drain"
                time.sleep(POLL_S)
        assert told["drained"], told

    @property
    def _control(self) -> Path:
        return self.chain.folder / "links" / self.name / CONTROL

    @property
    def _log(self) -> Path:
        return self.chain.folder / f"forward-{self.name}.log"

    def wrote(self) -> str:
        return self._log.read_text()[-8000:] if self._log.exists() else ""

    def close(self) -> None:
        """Nothing is left running."""
        self._over.set()
        self.kill_forwarder()
        if self._feeder is not None:
            self._feeder.join()

    def feed(self) -> None:
        """Records come all the time, from a thread."""
        config = {"retention.ms": "-1", "segment.bytes": "65536"}
        with BlockingClient(self.chain.native) as client:
            BlockingAdmin(client).create_topics([NewTopic(self.topic, PARTITIONS, config)])
        self._feeder = threading.Thread(target=self._feed, args=(random.Random(self.rng.random()),), name="feeder")
        self._feeder.start()

    def end_feeding(self) -> None:
        self._over.set()
        if self._feeder is not None:
            self._feeder.join()
        if self._error is not None:
            raise self._error

    def wait_fed(self, more: int) -> None:
        """Until so many more are acknowledged by the server."""
        wanted = self.fed + more
        until(lambda: self.fed >= wanted or self._error is not None, f"{more} more records", PATIENCE_S)

    def wait_forwarded(self) -> None:
        """Until the forwarder that runs has sent something; at once when it is slow."""
        deadline = time.monotonic() + FORWARDED_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                if ask(str(self._control), {"command": "status"}, 1.0)["records"]:
                    return
            time.sleep(POLL_S)

    def _feed(self, rng: random.Random) -> None:
        try:
            with BlockingClient(self.chain.native) as client, BlockingProducer(client, PRODUCER) as producer:
                while not self._over.is_set():
                    for _ in range(rng.randrange(1, 40)):
                        producer.send(self.topic, **_record(rng, self.fed))
                        self.fed += 1
                    with contextlib.suppress(ConnectionLostError):
                        producer.flush()
                    time.sleep(rng.uniform(0, 0.04))
                producer.flush()
        except BaseException as exc:
            self._error = exc

    def in_source(self) -> dict[int, list[Row]]:
        rows: dict[int, list[Row]] = {number: [] for number in range(PARTITIONS)}
        with BlockingClient(self.chain.native) as client, BlockingConsumer(client, follow=False) as consumer:
            consumer.assign(self.topic)
            for partition, record in consumer.records():
                rows[partition.partition].append(_row(record))
        return rows


def _record(rng: random.Random, number: int) -> dict[str, Any]:
    text = b"%d" % number
    return {
        "key": rng.choice((None, b"", text)),
        "value": rng.choice((None, b"", text, text + rng.randbytes(rng.randrange(2000)))),
        "headers": [("number", text), *([("empty", None)] if rng.random() < 0.2 else [])],
        "partition": rng.randrange(PARTITIONS),
        "timestamp_ms": 1_700_000_000_000 + number,
    }


def _row(record: Record) -> Row:
    return record.timestamp, record.key, record.value, record.headers


@contextlib.contextmanager
def chain(folder: Path, make_upstream: MakeUpstream) -> Iterator[Chain]:
    """Server and upstream started; everything ended at the end of the block."""
    ports = Ports()
    native = ports.keep(Address("127.0.0.1", 0))
    assert native is not None
    there: list[Upstream] = []
    (folder / "source").mkdir()
    with (
        contextlib.closing(ports),
        ServerForker.running(environment(), *LOADED) as forker,
        WeatherProxy(lambda: there[0].address if there else None) as proxy,
        make_upstream(folder, proxy.address, forker) as upstream,
        ServerFolder(folder / "source", command=forker) as source,
        contextlib.closing(Consumer({**READER, "bootstrap.servers": proxy.address, "logger": QUIET})) as reader,
    ):
        there.append(upstream)
        made = Chain(folder, forker, upstream, proxy, source, native, reader)
        upstream.start()
        made.start_source()
        yield made


@contextlib.contextmanager
def triolog_upstream(folder: Path, advertised: str, forker: ServerForker) -> Iterator[Upstream]:
    (folder / "upstream").mkdir()
    with ServerFolder(folder / "upstream", command=forker) as servers:
        yield TriologUpstream(servers, advertised)


CHUNK_BYTES: Final = 1 << 15
CHANGES_S: Final = (0.05, 0.8)
DARK_S: Final = 2.0
"""The longest black hole of `storm`."""


class WeatherProxy:
    """Leaving the block closes everything and waits for its threads. `delay_s`, `bytes_per_second` (0: no limit) and `is_dark`
    may be set at any time; `cut` ends every connection. With `lives` each connection is cut behind so many pieces of answers,
    before the client has seen the last; `ended` counts those."""

    def __init__(self, target: Callable[[], tuple[str, int] | None], *, lives: Callable[[], int | None] = lambda: None) -> None:
        self._target = target
        self._lives = lives
        self.ended = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept, name="weather")]
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._is_closed = False
        self.port: int = self._listener.getsockname()[1]
        self.delay_s = 0.0
        self.bytes_per_second = 0
        self.is_dark = False
        self.cuts = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._is_closed = True
        self.calm()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self.cut()
        for thread in self._threads[1:]:
            thread.join()
        self._listener.close()

    def calm(self) -> None:
        """All is well again."""
        self.delay_s, self.bytes_per_second, self.is_dark = 0.0, 0, False

    def cut(self) -> None:
        """End every connection."""
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        self.cuts += 1

    def storm(self, rng: random.Random, seconds: float) -> None:
        """Seeded weather for so long, from a cut on; then it is calm."""
        until_s = time.monotonic() + seconds
        self.cut()
        while (left_s := until_s - time.monotonic()) > 0:
            self.calm()
            lasts_s = rng.uniform(*CHANGES_S)
            match rng.choice(("clear", "cut", "late", "slow", "dark")):
                case "cut":
                    self.cut()
                case "late":
                    self.delay_s = rng.uniform(0.01, 0.3)
                case "slow":
                    self.bytes_per_second = rng.randrange(5_000, 500_000)
                case "dark":
                    self.is_dark = True
                    lasts_s = rng.uniform(0.1, DARK_S)
                case _:
                    pass
            time.sleep(min(lasts_s, left_s))
        self.calm()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            target = self._target()
            try:
                if target is None:
                    raise ConnectionRefusedError
                server = socket.create_connection(target)
            except OSError:
                client.close()
                continue
            with self._lock:
                self._open |= {client, server}
            ends = threading.Barrier(2, action=lambda pair=(client, server): self._close(*pair))
            for source, sink, left in ((client, server, None), (server, client, self._lives())):
                pump = threading.Thread(target=self._pump, args=(source, sink, ends, left), name="weather")
                self._threads.append(pump)
                pump.start()

    def _pump(self, source: socket.socket, sink: socket.socket, ends: threading.Barrier, left: int | None) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                left = None if left is None else left - 1
                if left == 0:
                    self.ended += 1
                    break
                if self.delay_s:
                    time.sleep(self.delay_s)
                while self.is_dark and not self._is_closed:
                    time.sleep(POLL_S)
                sink.sendall(data)
                if self.bytes_per_second:
                    time.sleep(min(1.0, len(data) / self.bytes_per_second))
        for connection in (source, sink):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        ends.wait()

    def _close(self, *connections: socket.socket) -> None:
        with self._lock:
            self._open -= set(connections)
        for connection in connections:
            connection.close()
