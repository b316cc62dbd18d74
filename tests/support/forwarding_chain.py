"""A producer, a server, a forwarder and an upstream, each but the producer a process that can be killed at any time.

The upstream is behind a proxy, so that it keeps its address while it is away. It is a `triolog serve`, or an Apache Kafka.
"""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Final, Protocol

import attrs
from confluent_kafka import Consumer, TopicPartition
from triolog.protocol.native.messages import NewTopic
from triolog.protocol.types import Record
from triolog.server.control.ports import Ports
from triolog.server.settings.broker_config import Address
from triolog.tools.client.blocking.client import BlockingClient
from triolog.tools.client.blocking.consumer import BlockingConsumer
from triolog.tools.client.blocking.producer import BlockingProducer
from triolog.tools.client.config import ProducerConfig
from triolog.tools.client.errors import ConnectionLostError
from triolog.tools.client.procedures.topics import create_topics

from tests.support.forwarding import LINK, NODE, until
from tests.support.kafka_broker import KafkaBroker
from tests.support.server_process import COMMAND, ServerFolder, ServerProcess, environment
from tests.support.weather_proxy import WeatherProxy

TOPIC: Final = "readings"
PARTITIONS: Final = 3
PATIENCE_S: Final = 120.0
CONSUME_S: Final = 10.0
PRODUCER: Final = ProducerConfig(retry_backoff_max_ms=100, delivery_timeout_ms=120_000)

Row = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""Timestamp, key, value, headers."""


class Upstream(Protocol):
    """Something that can be killed and comes back with its data."""

    def start(self) -> None: ...
    def kill(self) -> None: ...
    @property
    def address(self) -> tuple[str, int] | None: ...


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
    """All of it. Owner: one test."""

    folder: Path
    rng: random.Random
    upstream: Upstream
    proxy: WeatherProxy
    source: ServerFolder
    native: Address
    link_options: tuple[str, ...] = ()
    _server: ServerProcess | None = None
    _forwarder: subprocess.Popen[bytes] | None = None
    _log: IO[bytes] | None = None
    _feeder: threading.Thread | None = None
    _over: threading.Event = attrs.field(factory=threading.Event)
    _error: BaseException | None = None
    fed: int = 0

    # ---- processes -----------------------------------------------------------------------------------------------------

    def start_source(self) -> None:
        durability = self.rng.choice(("os", "fsync"))
        self._server = self.source.start(
            *("--native", str(self.native), "--durability", durability), extra_environment={"TRIOLOG_STOP_GRACE_MS": "1000"}
        )

    def kill_source(self) -> None:
        assert self._server is not None
        self._server.kill()

    def start_forwarder(self, *more: str) -> None:
        self._log = (self.folder / "forward.log").open("ab")
        self._forwarder = subprocess.Popen(
            [
                *(*COMMAND, "forward", "--server", str(self.native), "--to", self.proxy.address, "--topics", TOPIC),
                *("--link", LINK, "--node", NODE, "--state-dir", str(self.folder / "links"), "--max-delay-ms", "20"),
                *("--kafka", "reconnect.backoff.max.ms=100", *self.link_options, *more),
            ],
            env=environment(),
            stderr=self._log,
        )

    def kill_forwarder(self) -> None:
        if self._forwarder is not None:
            self._forwarder.kill()
            self._forwarder.wait()
            self._forwarder = None
        if self._log is not None:
            self._log.close()

    def drain(self) -> None:
        """The last forwarder ends when everything is upstream."""
        self.kill_forwarder()
        self.start_forwarder("--drain")
        assert self._forwarder is not None
        code = self._forwarder.wait(PATIENCE_S)
        assert code == 0, self.wrote()

    def wrote(self) -> str:
        return (self.folder / "forward.log").read_text()[-8000:]

    # ---- records -------------------------------------------------------------------------------------------------------

    def feed(self) -> None:
        """Records come all the time, from a thread."""
        with BlockingClient(self.native) as client:
            client.run(create_topics([NewTopic(TOPIC, PARTITIONS, {"retention.ms": "-1", "segment.bytes": "65536"})], False))
        self._feeder = threading.Thread(target=self._feed, name="feeder")
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

    def _feed(self) -> None:
        rng = random.Random(self.rng.random())
        try:
            with BlockingClient(self.native) as client, BlockingProducer(client, PRODUCER) as producer:
                while not self._over.is_set():
                    for _ in range(rng.randrange(1, 100)):
                        producer.send(TOPIC, **_record(rng, self.fed))
                        self.fed += 1
                    with contextlib.suppress(ConnectionLostError):
                        producer.flush()
                    time.sleep(rng.uniform(0, 0.02))
                producer.flush()
        except BaseException as exc:
            self._error = exc

    def in_source(self) -> dict[int, list[Row]]:
        rows: dict[int, list[Row]] = {number: [] for number in range(PARTITIONS)}
        with BlockingClient(self.native) as client, BlockingConsumer(client, follow=False) as consumer:
            consumer.assign(TOPIC)
            for partition, record in consumer.records():
                rows[partition.partition].append(_row(record))
        return rows

    def in_upstream(self) -> dict[int, list[Row]]:
        """What a reader of committed records finds."""
        config = {
            "bootstrap.servers": self.proxy.address,
            "group.id": "check",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
        return {number: list(_read_partition(config, number)) for number in range(PARTITIONS)}


def _read_partition(config: dict[str, Any], number: int) -> Iterator[Row]:
    consumer = Consumer(config)
    try:
        consumer.assign([TopicPartition(TOPIC, number, 0)])
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for message in consumer.consume(500, CONSUME_S):
                error = message.error()
                if error is None:
                    headers = tuple((name, data) for name, data in message.headers() or ())
                    yield message.timestamp()[1], message.key(), message.value(), headers
                elif error.name() == "_PARTITION_EOF":
                    return
        raise AssertionError(f"partition {number} upstream was not read within {PATIENCE_S} s")
    finally:
        consumer.close()


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
def chain(
    folder: Path, rng: random.Random, make_upstream: Callable[[Path, str], contextlib.AbstractContextManager[Upstream]]
) -> Iterator[Chain]:
    """Everything started, records coming; everything ended at the end of the block."""
    ports = Ports()
    native = ports.keep(Address("127.0.0.1", 0))
    assert native is not None
    there: list[Upstream] = []
    (folder / "source").mkdir()
    with (
        contextlib.closing(ports),
        WeatherProxy(lambda: there[0].address if there else None) as proxy,
        make_upstream(folder, proxy.address) as upstream,
        ServerFolder(folder / "source") as source,
    ):
        there.append(upstream)
        made = Chain(folder, rng, upstream, proxy, source, native)
        try:
            upstream.start()
            made.start_source()
            made.feed()
            made.start_forwarder()
            yield made
        except BaseException as exc:
            exc.add_note(f"the forwarder wrote:\n{made.wrote()}")
            raise
        finally:
            made._over.set()
            made.kill_forwarder()
            if made._feeder is not None:
                made._feeder.join()


@contextlib.contextmanager
def triolog_upstream(folder: Path, advertised: str) -> Iterator[Upstream]:
    (folder / "upstream").mkdir()
    with ServerFolder(folder / "upstream") as servers:
        yield TriologUpstream(servers, advertised)
