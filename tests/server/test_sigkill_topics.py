"""SIGKILL while topics are created, deleted, grown, configured, written to and trimmed: each change is whole or absent, and an
acknowledged one is there. A run is a seed: one or two log directories, the requests of two administrators, and the moment of
the kill: when partitions are being created or deleted, at any moment, or while the server starts and undoes the remains of the
last kill. Before some starts derived files get another content. After each kill every topic has the partitions, configuration
and records that it was given, nothing else is in the directories, and `verify` finds no damage. `kill_runs` has the runs."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Final

import attrs
import pytest
from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.messages.topics import MetadataRequest
from triolog.protocol.native import messages
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import Record
from triolog.server.offline.verify import verify
from triolog.server.storage.directory import catalogue, inventory, topics_file
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.disk.paths import DELETE_DIR_SUFFIX, is_marked

from tests.support import forked_servers, kafka_admin, kafka_wire, kill_runs, server_process, stopped_logs
from tests.support.altered_files import alter_folders, damages_elsewhere
from tests.support.counts import counts
from tests.support.kill_loads import Caller, Progress, ServerGoneError
from tests.support.model_log import lookups
from tests.support.wire_client import WireClient, records_from

KILLS: Final = 3
NAMES: Final = 4
"""Of each connection: few, so that what is deleted is made again."""
MAX_PARTITIONS: Final = 30
MAX_WAIT_S: Final = 0.1
MAX_WAIT_IN_A_CHANGE_S: Final = 0.02
MOST_AGE_MS: Final = 10**9
MOST_STEP_MS: Final = 1000
"""From the last record: mostly later ones, so that a time index has many entries."""
ROUNDS: Final = 10
"""Of appends and trims after each check."""
STARTS_AT_THE_END: Final = counts(10, commit=1, merge=1)
"""Each after a clean stop: such a start believes derived files that nothing contradicts."""
OF_THE_TOPIC: Final = 1
"""Where a value of a configuration comes from (Kafka: DYNAMIC_TOPIC_CONFIG)."""


@attrs.frozen
class Topic:
    partitions: int
    configs: dict[str, str]
    log_start_offset: int = 0
    """Of partition 0, as are the records."""
    records: tuple[tuple[int, bytes], ...] = ()
    """Timestamp and value from the log start offset on. Each value differs from all others of the run."""

    def trimmed(self, count: int) -> Topic:
        return attrs.evolve(self, log_start_offset=self.log_start_offset + count, records=self.records[count:])


State = dict[str, Topic | None]
"""None: there is no such topic."""


@attrs.define(eq=False)
class Administrator(threading.Thread):
    """Two connections that change topics of their own until the server is gone. Owner of the model: its thread."""

    label: str
    address: server_process.Address
    native: server_process.Address
    state: State
    rng: random.Random
    asked: State = attrs.field(factory=dict)
    """What the request makes of topics that has not been answered."""
    error: BaseException | None = None

    def __attrs_pre_init__(self) -> None:
        super().__init__(name="administrator")

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        try:
            with kafka_wire.KafkaWire.connect(self.address) as wire, WireClient.connect(self.native, say_hello=False) as client:
                Caller(client, Progress()).ask(messages.HelloRequest(self.label))
                while True:
                    self.append(client) if self.rng.random() < 0.4 else self._change(wire)
        except (ConnectionError, ServerGoneError):
            return
        except BaseException as exc:
            self.error = exc

    def _change(self, wire: kafka_wire.KafkaWire) -> None:
        rng = self.rng
        names = [f"{self.label}-{number}" for number in range(NAMES)]
        there = {name: topic for name in names if (topic := self.state.get(name)) is not None}
        missing = [name for name in names if name not in there]
        kind = rng.choice(("create", "create", "delete", "grow", "alter", "trim"))
        if kind == "create" and missing:
            self.create(wire, rng.sample(missing, rng.randint(1, min(3, len(missing)))))
        elif kind == "delete" and there:
            gone = rng.sample(sorted(there), rng.randint(1, min(2, len(there))))
            self.asked = dict.fromkeys(gone)
            self._answered(wire.call(kafka_admin.delete_topics(*gone), 5).responses)
        elif kind == "grow" and there:
            name = rng.choice(sorted(there))
            total = there[name].partitions + rng.randint(1, 10)
            self.asked = {name: attrs.evolve(there[name], partitions=total)}
            self._answered(wire.call(kafka_admin.more_partitions((name, total)), 3).results)
        elif kind == "trim":
            self.trim(wire)
        elif there:
            name = rng.choice(sorted(there))
            key, value = rng.choice((("retention.ms", self._retention_ms()), ("cleanup.policy", "compact")))
            self.asked = {name: attrs.evolve(there[name], configs={**there[name].configs, key: value})}
            self._answered(
                wire.call(
                    kafka_admin.alter_incrementally((kafka_admin.TOPIC_TYPE, name, [(key, kafka_admin.SET, value)])), 1
                ).responses
            )

    def create(self, wire: kafka_wire.KafkaWire, names: list[str]) -> None:
        rng = self.rng
        for name in names:
            configs = {"cleanup.policy": rng.choice(("compact", "delete")), "retention.ms": self._retention_ms()}
            if rng.random() < 0.3:
                configs |= {"preallocate": "true", "segment.bytes": "20000"}
            else:
                configs |= {"segment.bytes": "1024", "index.interval.bytes": rng.choice(("0", "200"))}
            self.asked[name] = Topic(rng.randint(1, MAX_PARTITIONS), configs)
        wanted = [
            kafka_admin.new_topic(name, topic.partitions, configs=topic.configs) for name, topic in self.asked.items() if topic
        ]
        self._answered(wire.call(kafka_admin.create_topics(*wanted), 7).topics)

    def trim(self, wire: kafka_wire.KafkaWire) -> None:
        there = {name: topic for name, topic in self.state.items() if topic and topic.configs["cleanup.policy"] == "delete"}
        if there:
            name = self.rng.choice(sorted(there))
            topic = there[name].trimmed(self.rng.randint(0, len(there[name].records) // self.rng.choice((1, 4, 4))))
            self.asked = {name: topic}
            (answer,) = wire.call(kafka_admin.delete_records((name, 0, topic.log_start_offset)), 2).topics
            self._answered(answer.partitions)

    def append(self, client: WireClient) -> None:
        """Some requests, each of one batch."""
        there = sorted(name for name, topic in self.state.items() if topic is not None)
        for name in self.rng.choices(there, k=self.rng.randint(1, 10)) if there else ():
            topic = self.state[name]
            assert topic is not None
            first_ms = topic.records[-1][0] if topic.records else time.time_ns() // 1_000_000 - MOST_AGE_MS
            stamps = [first_ms + self.rng.randrange(-MOST_STEP_MS // 4, MOST_STEP_MS) for _ in range(self.rng.randint(1, 3))]
            records = tuple((stamp, self.rng.randbytes(self.rng.choice((16, 100)))) for stamp in stamps)
            self.asked = {name: attrs.evolve(topic, records=topic.records + records)}
            batch = build_batch([(timestamp, value[:16], value, ()) for timestamp, value in records])
            partition = messages.ProducePartition(name, 0, batch)
            (answer,) = Caller(client, Progress()).ask(messages.ProduceRequest((partition,), messages.ACKS_ALL)).partitions
            assert answer.error is None, answer.error
            self.state |= self.asked
            self.asked = {}

    def _retention_ms(self) -> str:
        """So long that no record is old enough."""
        return str(self.rng.randint(2 * MOST_AGE_MS, 10**12))

    def _answered(self, results: list[object]) -> None:
        assert [result.error_code for result in results] == [ErrorCode.NONE] * len(self.asked), results  # type: ignore[attr-defined]
        self.state |= self.asked
        self.asked = {}


@attrs.define(eq=False)
class Run:
    """One seeded run on one set of directories."""

    folder: server_process.ServerFolder
    rng: random.Random
    state: State = attrs.field(factory=dict)
    asked: State = attrs.field(factory=dict)
    altered: dict[str, str] = attrs.field(factory=dict)
    """Derived files that got another content, and what was done to them. `verify` may still find that."""

    @property
    def directories(self) -> list[Path]:
        return [self.folder.path / name for name in self.folder.data_dirs]

    def play(self) -> None:
        durability = {"TRIOLOG_DURABILITY": self.rng.choice(("os", "fsync")), "TRIOLOG_RETENTION_CHECK_INTERVAL_MS": "100"}
        server = self._spawn(durability)
        for _ in range(KILLS):
            self._kill_while_changing(server)
            self._look_at_files()
            while self.rng.random() < 0.3:
                server = self._spawn(durability)
                server.wait_locked(self.folder.data_dir)
                self._pause(MAX_WAIT_S)
                server.kill()
            self._alter_derived_files()
            server = self._spawn(durability)
            self._check(server)
        for _ in range(STARTS_AT_THE_END):
            assert server.stop() == 0
            self._alter_derived_files(share=1.0)
            server = self._spawn(durability)
            self._check(server)

    def _alter_derived_files(self, share: float = 0.5) -> None:
        for directory in self.directories:
            if self.rng.random() < max(share, 0.7):
                self.altered |= alter_folders(directory, self.rng, share=share, are_lookups_checked=True)

    def _spawn(self, environment: dict[str, str]) -> server_process.ServerProcess:
        return self.folder.spawn("--kafka", "127.0.0.1:0", extra_environment=environment)

    def _kill_while_changing(self, server: server_process.ServerProcess) -> None:
        address = server.wait_ready().address_of("kafka")
        state = dict(self.state)
        administrators = [
            Administrator(
                label,
                address,
                server.address,
                {name: topic for name, topic in state.items() if name.startswith(label)},
                self._rng(),
            )
            for label in ("a", "b")
        ]
        for each in administrators:
            each.start()
        try:
            self._wait(server)
        finally:
            server.kill()
            for each in administrators:
                each.join()
        for each in administrators:
            if each.error is not None:
                raise each.error
            self.state |= each.state
            self.asked |= each.asked

    def _wait(self, server: server_process.ServerProcess) -> None:
        """Until the moment to kill it."""
        self._pause(MAX_WAIT_S)
        moment = self.rng.choice(("creating", "creating", "deleting", "any"))
        deadline = time.monotonic() + server_process.DEADLINE_S
        while moment != "any" and not self._is_at(moment):
            assert server.process.poll() is None, server.stderr()
            assert time.monotonic() < deadline, f"nobody is {moment}\n{server.stderr()}"
            time.sleep(server_process.POLL_S / 10)
        self._pause(MAX_WAIT_IN_A_CHANGE_S)

    def _is_at(self, moment: str) -> bool:
        if moment == "creating":
            return any((directory / topics_file.CREATIONS_FILE).exists() for directory in self.directories)
        return any(path.name.endswith(DELETE_DIR_SUFFIX) for directory in self.directories for path in directory.iterdir())

    def _rng(self) -> random.Random:
        return random.Random(self.rng.getrandbits(64))

    def _pause(self, most_s: float) -> None:
        """Let a seeded moment pass, so that the kill comes at any point of what the server is doing."""
        threading.Event().wait(self.rng.uniform(0, most_s))

    def _look_at_files(self) -> None:
        """As tools do, before a server has put anything right."""
        fs = OsFileSystem()
        for directory in self.directories:
            seen = stopped_logs.Seen()
            verify(fs, inventory.read_directory(fs, str(directory)), seen)
            assert damages_elsewhere(seen.damages, str(directory), self.altered) == []
            stored = {topic.name: topic for topic in catalogue.StoredTopics.read(fs, str(directory)).topics}
            for name, topic in stored.items():
                known = [each for each in (self.state.get(name), self.asked.get(name)) if each is not None]
                assert (topic.partitions, topic.configs) in [(each.partitions, each.configs) for each in known], stored

    def _check(self, server: server_process.ServerProcess) -> None:
        address = server.wait_ready().address_of("kafka")
        with kafka_wire.KafkaWire.connect(address) as wire, WireClient.connect(server.address) as client:
            answer = wire.call(MetadataRequest(topics=None), 12)
            found: State = {}
            for topic in answer.topics:
                assert {partition.error_code for partition in topic.partitions} == {ErrorCode.NONE}
                (described,) = wire.call(kafka_admin.describe((kafka_admin.TOPIC_TYPE, topic.name)), 4).results
                configs = {each.name: each.value for each in described.configs if each.config_source == OF_THE_TOPIC}
                start = client.partition_metadata(topic.name)[0].log_start_offset
                records, end = client.read_all(topic.name, 0, offset=start)
                assert [record.offset for record in records] == list(range(start, end)), topic.name
                self._check_lookups(client, topic.name, records)
                rows = tuple((record.timestamp, bytes(record.value or b"")) for record in records)
                found[topic.name] = Topic(len(topic.partitions), configs, start, rows)
        for name in {*self.state, *self.asked, *found}:
            assert self._may_be(name, found.get(name)), (name, found.get(name), self.state.get(name), self.asked.get(name))
        self.state, self.asked = found, {}
        names = [path.name for directory in self.directories for path in directory.iterdir() if path.is_dir()]
        partitions = {f"{name}-{number}" for name, topic in found.items() if topic for number in range(topic.partitions)}
        assert sorted(name for name in names if not is_marked(name) and not name.startswith(".")) == sorted(partitions)
        self._fill(server)

    def _check_lookups(self, client: WireClient, name: str, records: list[Record]) -> None:
        """By time, and by offset: an index leads to the right record in each segment."""
        for record in self.rng.sample(records, min(5, len(records))):
            [found, *_] = records_from(client.fetch(name, 0, record.offset, partition_max_bytes=1).records, record.offset)
            assert found.offset == record.offset, name
        expected = lookups(records)
        answers = client.offsets_for_times((name, 0, asked) for asked in expected)
        assert [(each.timestamp, each.offset) for each in answers] == [*expected.values()], name

    def _fill(self, server: server_process.ServerProcess) -> None:
        """Let there be topics, records and trimmed logs: a server that is killed soon has time for few."""
        address = server.address_of("kafka")
        administrator = Administrator("", address, server.address, dict(self.state), self._rng())
        with kafka_wire.KafkaWire.connect(address) as wire, WireClient.connect(server.address) as client:
            if missing := [name for name in ("a-0", "b-0") if self.state.get(name) is None]:
                administrator.create(wire, missing)
            for _ in range(ROUNDS):
                administrator.append(client)
                administrator.trim(wire)
        self.state = administrator.state

    def _may_be(self, name: str, topic: Topic | None) -> bool:
        return topic == self.state.get(name) or (name in self.asked and topic == self.asked[name])


@pytest.mark.parametrize("run", kill_runs.runs(counts(20)))
def test_topic_changes_are_whole_or_absent_after_sigkill(
    run: int, tmp_path: Path, server_forker: forked_servers.ServerForker
) -> None:
    with kill_runs.choices(run) as rng:
        data_dirs = rng.choice((("data",), ("data", "more")))
        with server_process.ServerFolder(tmp_path, command=server_forker, data_dirs=data_dirs) as folder:
            Run(folder, rng).play()
