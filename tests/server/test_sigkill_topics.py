"""SIGKILL while topics are made, deleted, grown and configured: each change is whole or absent, one that was answered is
there. A run is a seed: one or two log directories, what is asked over two connections, and when the server is killed: when
partitions are being made or taken out, at any moment, or while it starts and undoes what the last kill has left. After each
kill every topic has the partitions and the configuration that it was given, nothing else lies in the directories, and `verify`
finds no damage. `kill_runs` has the runs."""

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
from triolog.server.offline.verify import verify
from triolog.server.storage.directory import catalogue, inventory, topics_file
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.disk.paths import DELETE_DIR_SUFFIX, is_marked

from tests.support import forked_servers, kafka_admin, kafka_wire, kill_runs, server_process, stopped_logs
from tests.support.counts import counts

KILLS: Final = 3
NAMES: Final = 4
"""Of each connection: few, so that what is deleted is made again."""
MAX_PARTITIONS: Final = 30
MAX_WAIT_S: Final = 0.1
MAX_WAIT_IN_A_CHANGE_S: Final = 0.02
OF_THE_TOPIC: Final = 1
"""Where a value of a configuration comes from (Kafka: DYNAMIC_TOPIC_CONFIG)."""


@attrs.frozen
class Topic:
    partitions: int
    configs: dict[str, str]


State = dict[str, Topic | None]
"""None: there is no such topic."""


@attrs.define(eq=False)
class Administrator(threading.Thread):
    """One connection that changes topics of its own until the server is gone. Owner of the model: its thread."""

    label: str
    address: server_process.Address
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
            with kafka_wire.KafkaWire.connect(self.address) as wire:
                while True:
                    self._change(wire)
        except ConnectionError:
            return
        except BaseException as exc:
            self.error = exc

    def _change(self, wire: kafka_wire.KafkaWire) -> None:
        rng = self.rng
        names = [f"{self.label}-{number}" for number in range(NAMES)]
        there = {name: topic for name in names if (topic := self.state.get(name)) is not None}
        missing = [name for name in names if name not in there]
        kind = rng.choice(("create", "create", "delete", "grow", "alter"))
        if kind == "create" and missing:
            self._create(wire, rng.sample(missing, rng.randint(1, min(3, len(missing)))))
        elif kind == "delete" and there:
            gone = rng.sample(sorted(there), rng.randint(1, min(2, len(there))))
            self.asked = dict.fromkeys(gone)
            self._answered(wire.call(kafka_admin.delete_topics(*gone), 5).responses)
        elif kind == "grow" and there:
            name = rng.choice(sorted(there))
            total = there[name].partitions + rng.randint(1, 10)
            self.asked = {name: attrs.evolve(there[name], partitions=total)}
            self._answered(wire.call(kafka_admin.more_partitions((name, total)), 3).results)
        elif there:
            name = rng.choice(sorted(there))
            key, value = rng.choice((("retention.ms", str(rng.randint(1, 10**12))), ("cleanup.policy", "compact")))
            self.asked = {name: attrs.evolve(there[name], configs={**there[name].configs, key: value})}
            self._answered(
                wire.call(
                    kafka_admin.alter_incrementally((kafka_admin.TOPIC_TYPE, name, [(key, kafka_admin.SET, value)])), 1
                ).responses
            )

    def _create(self, wire: kafka_wire.KafkaWire, names: list[str]) -> None:
        rng = self.rng
        for name in names:
            configs = {"cleanup.policy": rng.choice(("compact", "delete")), "retention.ms": str(rng.randint(1, 10**12))}
            if rng.random() < 0.3:
                configs |= {"preallocate": "true", "segment.bytes": "20000"}
            self.asked[name] = Topic(rng.randint(1, MAX_PARTITIONS), configs)
        wanted = [
            kafka_admin.new_topic(name, topic.partitions, configs=topic.configs) for name, topic in self.asked.items() if topic
        ]
        self._answered(wire.call(kafka_admin.create_topics(*wanted), 7).topics)

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

    @property
    def directories(self) -> list[Path]:
        return [self.folder.path / name for name in self.folder.data_dirs]

    def play(self) -> None:
        durability = {"TRIOLOG_DURABILITY": self.rng.choice(("os", "fsync"))}
        server = self._spawn(durability)
        for _ in range(KILLS):
            self._kill_while_changing(server)
            self._look_at_files()
            while self.rng.random() < 0.3:
                server = self._spawn(durability)
                server.wait_locked(self.folder.data_dir)
                self._pause(MAX_WAIT_S)
                server.kill()
            server = self._spawn(durability)
            self._check(server)
        assert server.stop() == 0
        self._check(self._spawn(durability))

    def _spawn(self, environment: dict[str, str]) -> server_process.ServerProcess:
        return self.folder.spawn("--kafka", "127.0.0.1:0", extra_environment=environment)

    def _kill_while_changing(self, server: server_process.ServerProcess) -> None:
        address = server.wait_ready().address_of("kafka")
        state = dict(self.state)
        administrators = [
            Administrator(label, address, {name: topic for name, topic in state.items() if name.startswith(label)}, self._rng())
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
            assert not seen.damages
            stored = {topic.name: topic for topic in catalogue.StoredTopics.read(fs, str(directory)).topics}
            assert all(self._may_be(name, Topic(topic.partitions, topic.configs)) for name, topic in stored.items()), stored

    def _check(self, server: server_process.ServerProcess) -> None:
        with kafka_wire.KafkaWire.connect(server.wait_ready().address_of("kafka")) as wire:
            answer = wire.call(MetadataRequest(topics=None), 12)
            found: State = {}
            for topic in answer.topics:
                assert {partition.error_code for partition in topic.partitions} == {ErrorCode.NONE}
                (described,) = wire.call(kafka_admin.describe((kafka_admin.TOPIC_TYPE, topic.name)), 4).results
                configs = {each.name: each.value for each in described.configs if each.config_source == OF_THE_TOPIC}
                found[topic.name] = Topic(len(topic.partitions), configs)
        for name in {*self.state, *self.asked, *found}:
            assert self._may_be(name, found.get(name)), (name, found.get(name), self.state.get(name), self.asked.get(name))
        self.state, self.asked = found, {}
        names = [path.name for directory in self.directories for path in directory.iterdir() if path.is_dir()]
        partitions = {f"{name}-{number}" for name, topic in found.items() if topic for number in range(topic.partitions)}
        assert sorted(name for name in names if not is_marked(name) and not name.startswith(".")) == sorted(partitions)

    def _may_be(self, name: str, topic: Topic | None) -> bool:
        return topic == self.state.get(name) or (name in self.asked and topic == self.asked[name])


@pytest.mark.parametrize("run", kill_runs.runs(counts(20)))
def test_changes_of_topics_are_whole_or_absent_after_sigkill(
    run: int, tmp_path: Path, server_forker: forked_servers.ServerForker
) -> None:
    with kill_runs.choices(run) as rng:
        data_dirs = rng.choice((("data",), ("data", "more")))
        with server_process.ServerFolder(tmp_path, command=server_forker, data_dirs=data_dirs) as folder:
            Run(folder, rng).play()
