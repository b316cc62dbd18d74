"""SIGKILL under everything that changes logs at once: producers, transactions, groups, rolls, retention, deletion, compaction.
A run is a seed, one directory and several servers on it, each killed at a moment of load, now and then some time after its
cleaner's process, and now and then again while it starts or stops. The moment is an acknowledgement: the n-th, or the first
one at which a file of a kind is new, so that kills come while the cleaner or retention is at work. After each kill everything
is compared with what was promised (`kill_history`); now and then, and at the end, the server is stopped and the checks of
`triolog verify` go over the directory. `kill_runs` has the runs."""

from __future__ import annotations

import contextlib
import operator
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from triolog.protocol.native import messages
from triolog.protocol.types import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    NO_TIMESTAMP,
    CompressionType,
    TopicPartition,
)
from triolog.server.offline.verify import verify
from triolog.server.storage.directory.inventory import read_directory
from triolog.server.storage.directory.log_directory import DirectoryLock
from triolog.server.storage.disk.filesystem import OsFileSystem

from tests.server.test_sigkill_children import children
from tests.simulation.history import Expires, Made
from tests.support import kill_runs
from tests.support.altered_files import alter_folders, damages_elsewhere
from tests.support.counts import by_tier, counts
from tests.support.forked_servers import ServerForker
from tests.support.kill_history import KillHistory, Numbered, id_of, read_committed, read_stored_log
from tests.support.kill_loads import (
    OLD_MS,
    Caller,
    CommitterLoad,
    Load,
    LoadThread,
    ProducerLoad,
    Progress,
    RecreatingLoad,
    TransactionLoad,
    TrimmingLoad,
)
from tests.support.logs import scan_for_timestamp
from tests.support.server_process import ServerFolder, ServerProcess
from tests.support.stopped_logs import Seen
from tests.support.wire_client import WireClient

KILLS: Final = by_tier(commit=2, merge=4, long=4)
MOST_ACKNOWLEDGEMENTS: Final = 300
MOST_UNTIL_FILE: Final = 800
"""When the file that a kill waits for does not come."""
RUN_TIMEOUT_S: Final = 180
INTERNAL: Final = ("__consumer_offsets", "__transaction_state")


@attrs.define(eq=False)
class Run:
    """One seeded run on one directory."""

    folder: ServerFolder
    rng: random.Random
    workload: Workload = attrs.field(init=False)
    altered: dict[str, str] = attrs.field(factory=dict)
    """Derived files that got another content after a kill, and what was done to them. `verify` may still find that."""

    def play(self) -> None:
        self.workload = Workload(self.rng)
        server = self._start()
        with WireClient.connect(server.address) as client:
            for name, (partitions, config) in self.workload.topics.items():
                client.create_topic(name, partitions, config)
        for kill in range(KILLS):
            self._kill_under_load(server)
            self._verify_a_start()
            self._alter_derived_files()
            server = self._restart()
            self._check(server)
            if kill == 0 and self.rng.random() < 0.5:
                self._configure_internal_topics(server)
            if kill == KILLS - 1 or self.rng.random() < 0.2:
                self._stop_and_verify(server)
                server = self._start()
                self._check(server)

    def _start(self) -> ServerProcess:
        return self._spawn().wait_ready()

    def _spawn(self) -> ServerProcess:
        return self.folder.spawn(extra_environment=self.workload.environment)

    def _kill_under_load(self, server: ServerProcess) -> None:
        progress = Progress()
        threads = [LoadThread(load, server.address, progress) for load in self.workload.loads]
        moment = self._choose_moment()
        way, further = self.rng.random(), self.rng.randint(1, MOST_ACKNOWLEDGEMENTS)
        for thread in threads:
            thread.start()
        try:
            progress.wait_until(moment)
            if way < 0.15:
                _kill_cleaner(server)
                progress.wait_until(partial(operator.le, progress.acknowledgements + further))
            elif way < 0.3:
                server.terminate()
                server.wait_stderr("stopping")
        finally:
            server.kill()
            for thread in threads:
                thread.join()
        for thread in threads:
            if thread.error is not None:
                raise thread.error

    def _choose_moment(self) -> Callable[[int], bool]:
        suffix, topics = self.rng.choice(
            (
                (None, ()),
                (".cleaned", ("compacted", TRANSACTIONS)),
                (".swap", ("compacted", TRANSACTIONS)),
                (".deleted", ("compacted", TRANSACTIONS)),
                (".deleted", ("sized", "aged", "trimmed")),
                (".snapshot", ("kept", "sized")),
            )
        )
        number = self.rng.randint(1, MOST_ACKNOWLEDGEMENTS)
        if suffix is None:
            return lambda acknowledgements: acknowledgements >= number
        known = self._files(suffix, topics)

        def is_time(acknowledgements: int) -> bool:
            return acknowledgements >= MOST_UNTIL_FILE or (
                acknowledgements >= number and bool(self._files(suffix, topics) - known)
            )

        return is_time

    def _files(self, suffix: str, topics: tuple[str, ...]) -> set[str]:
        folders = [self.folder.data_dir / str(partition) for partition in self.workload.partitions if partition.topic in topics]
        return {name for folder in folders for name in os.listdir(folder) if name.endswith(suffix)}

    def _restart(self) -> ServerProcess:
        while self.rng.random() < 0.25:
            server = self._spawn()
            if self.rng.random() < 0.5:
                server.wait_locked(self.folder.data_dir)
            else:
                server.wait_ready()
            server.kill()
        return self._start()

    def _alter_derived_files(self) -> None:
        """Give some of them another content: what is served and deleted afterwards is what the logs say."""
        if self.rng.random() < 0.5:
            self.altered |= alter_folders(self.folder.data_dir, self.rng, share=0.5)

    def _configure_internal_topics(self, server: ServerProcess) -> None:
        """Let the server's own logs be rolled and compacted as often as the others."""
        set_to = {"internal.segment.bytes": "2048", "min.cleanable.dirty.ratio": "0", "file.delete.delay.ms": "0"}
        with WireClient.connect(server.address) as client:
            there = {topic.name for topic in client.call(messages.MetadataRequest(INTERNAL)).topics if topic.error is None}
            changes = tuple(messages.ConfigChange(name, set_to) for name in INTERNAL if name in there)
            for answer in client.call(messages.AlterConfigsRequest(changes)).topics:
                assert answer.error is None, answer.error

    def _check(self, server: ServerProcess) -> None:
        """What was promised is there; then what is undecided is decided, and everything is read again."""
        with WireClient.connect(server.address) as client:
            self._read_logs(client)
            caller = Caller(client, Progress())
            for load in self.workload.loads:
                load.settle(caller)
            self._read_logs(client)
            self._read_transactions(client)
            for load in self.workload.loads:
                load.look(client)
            self._check_lookups(client)
        self.workload.history.check()
        assert "Traceback" not in server.stderr()

    def _read_logs(self, client: WireClient) -> None:
        for load in self.workload.loads:
            if isinstance(load, RecreatingLoad):
                load.read(client)
        for partition in self.workload.partitions:
            log = read_stored_log(client, *partition)
            self.workload.history.read(partition, log)
            if "compact" not in self.workload.topics[partition.topic][1].get("cleanup.policy", ""):
                log.check_dense()

    def _check_lookups(self, client: WireClient) -> None:
        """A lookup by time finds what a scan finds."""
        records = read_stored_log(client, "kept", 0).records
        times = [MAX_TIMESTAMP, 0, OLD_MS, 2 * OLD_MS, *(record.timestamp for record in records[-3:])]
        times += [record.timestamp + self.rng.randint(-1, 1) for record in self.rng.sample(records, min(15, len(records)))]
        for timestamp, found in zip(times, client.offsets_for_times(("kept", 0, each) for each in times), strict=True):
            assert found.error is None, found.error
            assert (found.timestamp, found.offset) == scan_for_timestamp(records, timestamp), f"timestamp {timestamp}"
        assert client.offset_for_time("kept", 0, EARLIEST_TIMESTAMP) == (NO_TIMESTAMP, 0)
        assert client.offset_for_time("kept", 0, LATEST_TIMESTAMP) == (NO_TIMESTAMP, len(records))

    def _read_transactions(self, client: WireClient) -> None:
        visible: set[str] = set()
        for partition in (TopicPartition(TRANSACTIONS, number) for number in range(TRANSACTION_PARTITIONS)):
            log = read_committed(client, *partition)
            assert log.last_stable_offset == log.high_watermark, f"something is open in {partition}"
            self.workload.history.read(partition, log, is_committed=True)
            visible |= {id_of(record) for record in log.records}
        for load in self.workload.loads:
            if isinstance(load, TransactionLoad):
                load.see(visible)

    def _verify_a_start(self) -> None:
        """A start and a clean stop on a copy of what the kill has left leave no damage."""
        with tempfile.TemporaryDirectory(dir=self.folder.path) as path:
            copy = attrs.evolve(self.folder, path=Path(path), servers=[])
            shutil.copytree(self.folder.data_dir, copy.data_dir)
            with copy:
                server = copy.start(extra_environment=self.workload.environment)
                self._stop_and_verify(server, copy)

    def _stop_and_verify(self, server: ServerProcess, folder: ServerFolder | None = None) -> None:
        assert server.stop() == 0
        findings = Seen()
        fs, path = OsFileSystem(), str((folder or self.folder).data_dir)
        lock = DirectoryLock.acquire(path)
        try:
            verify(fs, read_directory(fs, path), findings)
        finally:
            lock.release()
        assert damages_elsewhere(findings.damages, path, self.altered) == []


def _kill_cleaner(server: ServerProcess) -> None:
    """SIGKILL for the process that compacts, if there is one at this moment; the server goes on."""
    for child in children(server):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


@pytest.mark.timeout(RUN_TIMEOUT_S)
@pytest.mark.parametrize("run", kill_runs.runs(counts(25, commit=1)))
def test_promises_survive_sigkill_under_every_load(run: int, tmp_path: Path, server_forker: ServerForker) -> None:
    with kill_runs.choices(run) as rng, ServerFolder(tmp_path, command=server_forker) as folder:
        played = Run(folder, rng)
        try:
            played.play()
        except BaseException as exc:
            exc.add_note("\n".join(["altered:", *(f"{path}: {what}" for path, what in played.altered.items())]))
            raise


TRANSACTIONS: Final = "transactions"
TRANSACTION_PARTITIONS: Final = 2
RETENTION_MS: Final = 3_600_000
KEPT: Final = TopicPartition("kept", 0)


@attrs.define(eq=False)
class Workload:
    """The seeded choices of a run, and the loads that outlive its servers. Owner: the run."""

    rng: random.Random
    environment: dict[str, str] = attrs.field(factory=dict)
    """Configuration of the server."""
    topics: dict[str, tuple[int, dict[str, str]]] = attrs.field(factory=dict)
    """Partitions and configuration."""
    history: KillHistory = attrs.field(factory=KillHistory)
    loads: list[Load] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        rng = self.rng
        self.environment = {
            "TRIOLOG_DURABILITY": rng.choice(("fsync", "fsync", "group:5", "os")),
            "TRIOLOG_CLEANER_BACKOFF_MS": rng.choice(("1", "20")),
            "TRIOLOG_RETENTION_CHECK_INTERVAL_MS": "100",
            "TRIOLOG_CHECKPOINT_INTERVAL_MS": rng.choice(("100", "60000")),
        }
        self._add_producer("kept", self._make_plain, {}, producers=2)
        self._add_compacted()
        self._add_retained()
        self._add_transactions()
        self._add_recreated()
        self.loads.append(CommitterLoad("committer", self._rng(), self.history, KEPT))

    def _add_topic(self, name: str, partitions: int, config: dict[str, str]) -> None:
        rng = self.rng
        shared = {
            "retention.ms": "-1",
            "segment.bytes": str(rng.choice((4096, 8192, 32_768))),
            "segment.index.bytes": str(rng.choice((48, 480, 4096))),
            "index.interval.bytes": str(rng.choice((0, 500, 4096))),
            "preallocate": rng.choice(("false", "false", "true")),
            "file.delete.delay.ms": rng.choice(("0", "200", "60000")),
        }
        self.topics[name] = partitions, {**shared, **config}
        self.history.add(Made, "run", topic=name, config=self.topics[name][1])

    def _add_producer(
        self,
        topic: str,
        make: Callable[[str, random.Random, int], Numbered],
        config: dict[str, str],
        *,
        producers: int = 1,
        kind: type[ProducerLoad] = ProducerLoad,
    ) -> None:
        self._add_topic(topic, 1, config)
        for number in range(producers):
            name = f"{topic}-producer-{number}"
            codec = self.rng.choice((CompressionType.NONE, CompressionType.NONE, CompressionType.ZSTD, CompressionType.LZ4))
            load: Any = kind(
                name=name,
                rng=self._rng(),
                history=self.history,
                where=TopicPartition(topic, 0),
                make=partial(make, name),
                max_records=self.rng.choice((1, 4, 10)),
                codec=codec,
            )
            self.loads.append(load)

    def _add_compacted(self) -> None:
        config = {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": self.rng.choice(("0", "0.2")),
            "delete.retention.ms": self.rng.choice(("0", "200", "86400000")),
        }
        keys = self.rng.choice((3, 20, 100))
        self._add_producer("compacted", partial(self._make_keyed, keys), config, producers=2)

    def _add_retained(self) -> None:
        retention_bytes = self.rng.choice((0, 3000, 20_000))
        self._add_producer("sized", self._make_plain, {"retention.bytes": str(retention_bytes)}, producers=2)
        fresh_ms = time.time_ns() // 1_000_000
        self.history.add(Expires, "run", partition=TopicPartition("aged", 0), before_timestamp=fresh_ms)
        make = partial(self._make_old_then_fresh, self.rng.choice((100, 1000)), fresh_ms)
        self._add_producer("aged", make, {"retention.ms": str(RETENTION_MS)})
        self._add_producer("trimmed", self._make_plain, {}, kind=TrimmingLoad)

    def _add_recreated(self) -> None:
        config = {"retention.ms": "-1", "segment.bytes": "4096", "file.delete.delay.ms": self.rng.choice(("0", "60000"))}
        self.loads.append(
            RecreatingLoad(
                name="recreated",
                rng=self._rng(),
                history=self.history,
                where=TopicPartition("recreated", 0),
                make=self._make_plain,
                max_records=self.rng.choice((1, 4, 10)),
                share=0.3,
                config=config,
            )
        )

    def _add_transactions(self) -> None:
        is_compacted = self.rng.random() < 0.5
        config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "delete.retention.ms": "0"}
        self._add_topic(TRANSACTIONS, TRANSACTION_PARTITIONS, config if is_compacted else {})
        partitions = [TopicPartition(TRANSACTIONS, number) for number in range(TRANSACTION_PARTITIONS)]
        for number in range(self.rng.randint(1, 2)):
            name = f"transactional-{number}"
            self.loads.append(TransactionLoad(name, self._rng(), self.history, partitions, KEPT))

    @property
    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for topic, (count, _) in self.topics.items() for number in range(count)]

    def _rng(self) -> random.Random:
        return random.Random(self.rng.getrandbits(64))

    @staticmethod
    def _make_plain(producer: str, rng: random.Random, number: int) -> Numbered:
        return Numbered(producer, number, OLD_MS + number, None, rng.randbytes(rng.randint(0, 100)))

    @staticmethod
    def _make_keyed(keys: int, producer: str, rng: random.Random, number: int) -> Numbered:
        key = b"%s-%d" % (producer.encode(), rng.randrange(keys))
        return Numbered(producer, number, OLD_MS + number, key, None if rng.random() < 0.2 else rng.randbytes(30))

    @staticmethod
    def _make_old_then_fresh(first_fresh: int, fresh_ms: int, producer: str, rng: random.Random, number: int) -> Numbered:
        is_fresh = number >= first_fresh and rng.random() < 0.02
        timestamp = fresh_ms + number if is_fresh else OLD_MS + number
        return Numbered(producer, number, timestamp, None, rng.randbytes(rng.randint(0, 100)))
