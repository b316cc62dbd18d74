"""SIGKILL at any moment: with `fsync` no acknowledged record is lost, no offset used twice, every lookup is a scan's answer.

A run is a seed: how the log is cut into segments, what is produced over several connections, and when the server is
killed: while it appends, while it recovers from the last kill, while it stops. `TRIOLOG_TEST_SIGKILL_RUNS=5000` runs that
many, `TRIOLOG_TEST_SIGKILL_SEED=...` repeats one (the choices, not the moment to the microsecond).
"""

from __future__ import annotations

import contextlib
import operator
import os
import random
import threading
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from triolog.protocol.errors import RequestError
from triolog.protocol.native import messages
from triolog.protocol.native.connection import Response
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    NO_TIMESTAMP,
    CompressionType,
    Record,
    TopicPartition,
)
from triolog.tools.client.blocking import BlockingClient, BlockingProducer, BlockingRecord

from tests.support.counts import counts
from tests.support.forked_servers import ServerForker
from tests.support.kill_history import KillHistory, Numbered
from tests.support.kill_loads import Progress
from tests.support.logs import scan_for_timestamp
from tests.support.server_process import DEADLINE_S, Address, ServerFolder, ServerProcess
from tests.support.stored_log import read_stored_log
from tests.support.wire_client import WireClient

RUNS: Final = int(os.environ.get("TRIOLOG_TEST_SIGKILL_RUNS") or counts(50, quick=3))
SEED: Final = os.environ.get("TRIOLOG_TEST_SIGKILL_SEED")
TOPIC: Final = "numbers"
FIRST_MS: Final = 1_600_000_000_000
KILLS_WHILE_PRODUCING: Final = 2
MAX_WAIT_AFTER_ACKS_S: Final = 0.02
MAX_RECOVERY_S: Final = 0.06
"""Longer than a recovery here takes; a kill may come before, during or after it."""


@attrs.frozen(kw_only=True)
class Shape:
    """What a run's topic is like and how it is used."""

    partitions: int
    config: dict[str, str]
    connections: int
    max_in_flight: int
    max_records: int
    max_value_bytes: int

    @classmethod
    def choose(cls, rng: random.Random) -> Shape:
        return cls(
            partitions=rng.randint(1, 4),
            config={
                "segment.bytes": str(rng.choice((4096, 8192, 16_384, 65_536))),
                "segment.index.bytes": str(rng.choice((24, 48, 96, 480, 4096))),
                "index.interval.bytes": str(rng.choice((0, 0, 500, 4096))),
                "preallocate": rng.choice(("false", "false", "true")),
            },
            connections=rng.randint(1, 4),
            max_in_flight=rng.choice((1, 4, 16)),
            max_records=rng.choice((1, 5, 20)),
            max_value_bytes=rng.choice((10, 200)),
        )


@attrs.define(eq=False)
class Producer(threading.Thread):
    """One connection that produces numbered records until the server is gone. Owner: its thread."""

    producer: str
    address: Address
    shape: Shape
    history: KillHistory
    progress: Progress
    rng: random.Random
    error: BaseException | None = None
    _number: int = 0

    def __attrs_pre_init__(self) -> None:
        super().__init__(name="producer")

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        try:
            with WireClient.connect(self.address) as client:
                self._produce(client)
        except (ConnectionError, EOFError):
            return
        except BaseException as exc:
            self.error = exc

    def _produce(self, client: WireClient) -> None:
        in_flight: dict[int, tuple[int, list[Numbered]]] = {}
        while True:
            while len(in_flight) < self.rng.randint(1, self.shape.max_in_flight):
                partition, records = self.rng.randrange(self.shape.partitions), self._records()
                self.history.send(TopicPartition(TOPIC, partition), records)
                in_flight[client.send(self._request(partition, records))] = partition, records
            event: Any = client.receive()
            if not isinstance(event, Response):
                return
            assert event.error is None, event.error
            (entry,) = messages.ProduceResponse.from_body(event.body).partitions
            partition, records = in_flight.pop(event.correlation_id)
            if entry.error is not None:
                if _is_stopping(entry.error):
                    return
                raise entry.error
            self.history.acknowledge(TopicPartition(TOPIC, partition), entry.base_offset, records)
            self.progress.count()

    def _records(self) -> list[Numbered]:
        records = []
        for _ in range(self.rng.randint(1, self.shape.max_records)):
            timestamp = FIRST_MS + self._number * 10 + self.rng.randint(-200, 200)
            value = self.rng.randbytes(self.rng.randint(0, self.shape.max_value_bytes))
            records.append(Numbered(self.producer, self._number, timestamp, None, value))
            self._number += 1
        return records

    def _request(self, partition: int, records: list[Numbered]) -> messages.ProduceRequest:
        codec = self.rng.choice(list(CompressionType)) if self.rng.random() < 0.3 else CompressionType.NONE
        batch = build_batch([record.to_build() for record in records], compression_type=codec)
        return messages.ProduceRequest((messages.ProducePartition(TOPIC, partition, batch),))


@attrs.define(eq=False)
class Run:
    """One seeded run on one directory."""

    folder: ServerFolder
    rng: random.Random
    shape: Shape
    history: KillHistory = attrs.field(factory=KillHistory)
    _producers: int = 0

    def play(self) -> None:
        server = self.folder.start()
        with WireClient.connect(server.address) as client:
            client.create_topic(TOPIC, self.shape.partitions, self.shape.config)
        for _ in range(KILLS_WHILE_PRODUCING):
            self._kill_while_producing(server)
            server = self._restart()
            self._check(server)
        if self.rng.random() < 0.3:
            assert server.stop() == 0
            self._check(self.folder.start())

    def _kill_while_producing(self, server: ServerProcess) -> None:
        progress = Progress()
        producers = [self._producer(server, progress) for _ in range(self.shape.connections)]
        for producer in producers:
            producer.start()
        try:
            progress.wait_until(partial(operator.le, self.rng.randint(1, 120)))
            self._pause(MAX_WAIT_AFTER_ACKS_S)
            if self.rng.random() < 0.25:
                server.terminate()
                self._pause(MAX_RECOVERY_S)
        finally:
            server.kill()
            for producer in producers:
                producer.join()
        for producer in producers:
            if producer.error is not None:
                raise producer.error

    def _producer(self, server: ServerProcess, progress: Progress) -> Producer:
        self._producers += 1
        rng = random.Random(self.rng.getrandbits(64))
        return Producer(f"producer-{self._producers}", server.address, self.shape, self.history, progress, rng)

    def _restart(self) -> ServerProcess:
        while self.rng.random() < 0.35:
            server = self.folder.spawn()
            server.wait_locked(self.folder.data_dir)
            self._pause(MAX_RECOVERY_S)
            server.kill()
        return self.folder.start()

    def _pause(self, most_s: float) -> None:
        """Let a seeded moment pass, so that the kill comes at any point of what the server is doing."""
        threading.Event().wait(self.rng.uniform(0, most_s))

    def _check(self, server: ServerProcess) -> None:
        with WireClient.connect(server.address) as client:
            for partition in range(self.shape.partitions):
                log = read_stored_log(client, TOPIC, partition)
                assert log.log_start_offset == 0
                log.check_dense()
                self.history.read(TopicPartition(TOPIC, partition), log)
                records = list(log.records)
                self._check_lookups(client, partition, records)
                middle = len(records) // 2
                assert client.read_all(TOPIC, partition, format=messages.Format.RECORDS)[0][middle:] == records[middle:]
        self.history.check()

    def _check_lookups(self, client: WireClient, partition: int, records: list[Record]) -> None:
        times = [MAX_TIMESTAMP, 0, FIRST_MS, 2 * FIRST_MS, *(record.timestamp for record in records[-3:])]
        times += [record.timestamp + self.rng.randint(-1, 1) for record in self.rng.sample(records, min(15, len(records)))]
        answers = client.offsets_for_times((TOPIC, partition, timestamp) for timestamp in times)
        for timestamp, answer in zip(times, answers, strict=True):
            assert answer.error is None, answer.error
            assert (answer.timestamp, answer.offset) == scan_for_timestamp(records, timestamp), f"timestamp {timestamp}"
        assert client.offset_for_time(TOPIC, partition, EARLIEST_TIMESTAMP) == (NO_TIMESTAMP, 0)
        assert client.offset_for_time(TOPIC, partition, LATEST_TIMESTAMP) == (NO_TIMESTAMP, len(records))


def _is_stopping(error: RequestError) -> bool:
    return "stopping" in error.message


@pytest.mark.parametrize("run", range(1 if SEED else RUNS))
def test_acknowledged_records_survive_sigkill(run: int, tmp_path: Path, server_forker: ServerForker) -> None:
    seed = int(SEED) if SEED else random.getrandbits(48) * 100_000 + run
    rng = random.Random(seed)
    try:
        with ServerFolder(tmp_path, command=server_forker) as folder:
            Run(folder, rng, Shape.choose(rng)).play()
    except BaseException as exc:
        exc.add_note(f"TRIOLOG_TEST_SIGKILL_SEED={seed} repeats this run's choices")
        raise


def test_producers_go_on_over_kills_and_restarts_and_every_record_is_there_once(server_folder: ServerFolder) -> None:
    """Two of them roll each other's segments, so of what was on its way a snapshot may tell the newest batch alone."""
    environment = {"TRIOLOG_CHECKPOINT_INTERVAL_MS": "100"}
    server = server_folder.spawn(extra_environment=environment).wait_ready()
    with WireClient.connect(server.address) as client:
        client.create_topic(TOPIC, 1, {"segment.bytes": "8192"})
    sent: list[tuple[bytes, BlockingRecord]] = []
    with contextlib.ExitStack() as stack:
        producers = []
        for _ in range(2):
            client_of_its_own = stack.enter_context(BlockingClient(lambda: server.address))
            producers.append(stack.enter_context(BlockingProducer(client_of_its_own, linger_ms=0, batch_bytes=1000)))
        for kill in range(3):
            for number in range(kill * 300, kill * 300 + 300):
                for each, producer in enumerate(producers):
                    value = b"%d:%d" % (each, number)
                    sent.append((value, producer.send(TOPIC, value, key=value, partition=0)))
            server.kill()
            server = server_folder.spawn(extra_environment=environment).wait_ready()
        for producer in producers:
            producer.flush(DEADLINE_S)
        offsets = {value: record.result(DEADLINE_S).offset for value, record in sent}
    with WireClient.connect(server.address) as client:
        records, _ = client.read_all(TOPIC, 0)
    assert {record.value: record.offset for record in records} == offsets
    assert len(records) == len(sent)
    for each in range(2):
        own = [record.value for record in records if record.value is not None and record.value.startswith(b"%d:" % each)]
        assert own == [b"%d:%d" % (each, number) for number in range(900)]
