"""SIGKILL under unmodified clients: librdkafka feeds a topic, moves it in transactions and reads the result as a group.

A run is a seed, one directory, one port and several servers on them, each killed, or stopped in order, after a number of
acknowledgements, now and then again while it starts. The clients (`sigkill_loads`, `sigkill_members`) know nothing of that. At
the end every input is exactly once in the output for a reader of committed records, nothing of an aborted transaction was ever
seen, every acknowledged record, aborted or not, is at the offset that its producer was told, no committed offset has gone back,
and both groups have come to the end.

`TRIOLOG_TEST_SIGKILL_CLIENT_RUNS=100` runs that many, `TRIOLOG_TEST_SIGKILL_SEED=...` repeats one: all choices, though not the
moment to the microsecond.
"""

from __future__ import annotations

import os
import random
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from triolog.server.control.ports import Ports
from triolog.server.settings.broker_config import Address

from tests.clients.driver import DEADLINE_S
from tests.clients.sigkill_loads import INPUT, OUTPUT, PARTITIONS, PATIENT, Feeder, Load, Progress, Taken
from tests.clients.sigkill_members import READER, Commits, Member, Mover, Watcher
from tests.support.counts import FULL, mode
from tests.support.forked_servers import ServerForker
from tests.support.server_process import ServerFolder, ServerProcess

IS_FULL: Final = mode() == FULL
RUNS: Final = int(os.environ.get("TRIOLOG_TEST_SIGKILL_CLIENT_RUNS") or (5 if IS_FULL else 1))
KILLS: Final = 4 if IS_FULL else 2
SEED: Final = os.environ.get("TRIOLOG_TEST_SIGKILL_SEED")
ACKNOWLEDGEMENTS: Final = (50, 600)
"""Of all loads, between two kills."""
MOVERS: Final = "movers"
WATCHERS: Final = "watchers"
RUN_TIMEOUT_S: Final = 240
MOST_SHOWN: Final = 20
"""Records of one kind that a failure names."""


@attrs.define(eq=False)
class Run:
    """One seeded run on one directory."""

    folder: ServerFolder
    rng: random.Random
    address: str
    """Of a port that nobody else is given while no server listens there."""
    progress: Progress = attrs.field(factory=Progress)
    commits: Commits = attrs.field(factory=Commits)
    kills: int = 0
    loads: list[Load] = attrs.field(factory=list)
    admin: Any = None

    def play(self) -> None:
        try:
            self._play()
        finally:
            self.admin = None  # its threads and pipes go with it, while the traceback of a failure keeps the run

    def _play(self) -> None:
        server = self._start()
        self._create_topics()
        feeder, movers, watchers = self._loads()
        self.loads = [feeder, *movers, *watchers]
        for load in self.loads:
            load.start()
        try:
            while self.kills < KILLS:
                self.progress.wait_for_more(self.rng.randint(*ACKNOWLEDGEMENTS))
                promised = dict(self.commits.acknowledged)
                self._end(server)
                server = self._restart()
                self._check_committed(promised)
            self.progress.wait_for_more(self.rng.randint(*ACKNOWLEDGEMENTS))
            self._finish(feeder, movers, watchers)
        except BaseException as exc:
            self.progress.fail(exc)
            raise
        finally:
            for load in self.loads:
                load.thread.join()
        self._check(feeder, movers, watchers)
        assert server.stop() == 0
        assert "Traceback" not in self.folder.wrote()

    # ---- servers and loads -----------------------------------------------------------------------------------------------

    def _start(self) -> ServerProcess:
        return self._spawn().wait_ready()

    def _spawn(self) -> ServerProcess:
        # Nothing here is about how long members wait for others.
        quick = {
            "TRIOLOG_LENIENT": "true",
            "TRIOLOG_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
            "TRIOLOG_GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS": "200",
        }
        durability = self.rng.choice(("os", "fsync"))
        return self.folder.spawn("--kafka", self.address, "--durability", durability, extra_environment=quick)

    def _end(self, server: ServerProcess) -> None:
        """A kill, or every third time a stop in order, with the same requests in flight."""
        if self.rng.random() < 1 / 3:
            assert server.stop() == 0
        else:
            server.kill()
        self.kills += 1

    def _restart(self) -> ServerProcess:
        while self.kills < KILLS and self.rng.random() < 0.25:
            server = self._spawn()
            if self.rng.random() < 0.5:
                server.wait_locked(self.folder.data_dir)
            else:
                server.wait_ready()
            server.kill()
            self.kills += 1
        return self._start()

    def _create_topics(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.address, **PATIENT})
        for made in self.admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (INPUT, OUTPUT)]).values():
            made.result(DEADLINE_S)

    def _loads(self) -> tuple[Feeder, list[Mover], list[Watcher]]:
        def base() -> tuple[str, random.Random, Progress]:
            return self.address, random.Random(self.rng.random()), self.progress

        protocols = [self.rng.choice(("classic", "consumer")) for _ in range(2)]
        movers = [Mover(*base(), MOVERS, INPUT, protocols[0], transactional_id=f"mover-{number}") for number in range(2)]
        watchers = [Watcher(*base(), WATCHERS, OUTPUT, protocols[1], commits=self.commits) for _ in range(2)]
        return Feeder(*base()), movers, watchers

    def _finish(self, feeder: Feeder, movers: list[Mover], watchers: list[Watcher]) -> None:
        """Nothing more is fed; both groups come to the end of what there is."""
        self.progress.is_over = True
        feeder.thread.join()
        self._wait_for_end(MOVERS, INPUT, movers)
        self._wait_for_end(WATCHERS, OUTPUT, watchers)

    def _wait_for_end(self, group: str, topic: str, members: list[Mover] | list[Watcher]) -> None:
        ends = {partition: self._last_record(topic, partition) + 1 for partition in range(PARTITIONS)}
        deadline = time.monotonic() + DEADLINE_S
        while any(self._committed(group, topic).get(partition, 0) < end for partition, end in ends.items()):
            assert time.monotonic() < deadline, (group, self._committed(group, topic), ends)
            if self.progress.error is not None:
                raise self.progress.error
        each: Member
        for each in members:
            each.is_done = True
            each.thread.join()

    # ---- what has to hold ------------------------------------------------------------------------------------------------

    def _check_committed(self, promised: dict[int, int]) -> None:
        committed = self._committed(WATCHERS, OUTPUT)
        assert all(committed.get(partition, 0) >= offset for partition, offset in promised.items()), (committed, promised)

    def _check(self, feeder: Feeder, movers: list[Mover], watchers: list[Watcher]) -> None:
        wanted = [str(number).encode() for number in range(feeder.sent)]
        fed = self._read_all(INPUT)
        assert not (wrong := amiss(fed, wanted, feeder.acknowledged)), f"fed by an idempotent producer: {wrong}"
        assert not (lost := absent(fed, feeder.acknowledged)), f"fed, acknowledged, not there: {lost}"
        acknowledged = [each for mover in movers for each in mover.acknowledged]
        moved = self._read_all(OUTPUT)
        assert not (wrong := amiss(moved, wanted, acknowledged)), f"moved in transactions: {wrong}"
        watched = {each for watcher in watchers for each in watcher.records}
        assert not (wrong := amiss(watched, wanted, moved)), f"seen by a group that reads what is committed: {wrong}"
        everything = self._read_all(OUTPUT, committed=False)
        assert not (lost := absent(everything, acknowledged)), f"moved or aborted, acknowledged, not there: {lost}"
        self._check_committed(self.commits.acknowledged)

    def _committed(self, group: str, topic: str) -> dict[int, int]:
        asked = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, number) for number in range(PARTITIONS)])]
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                told = self.admin.list_consumer_group_offsets(asked, require_stable=True)[group].result(DEADLINE_S)
                return {each.partition: each.offset for each in told.topic_partitions}
            except KafkaException as exc:
                if not exc.args[0].retriable() or time.monotonic() > deadline:
                    raise

    def _last_record(self, topic: str, partition: int) -> int:
        """Offset of the last committed record, -1 for none."""
        return max((each.offset for each in self._read(topic, partition)), default=-1)

    def _read_all(self, topic: str, *, committed: bool = True) -> list[Taken]:
        return [each for partition in range(PARTITIONS) for each in self._read(topic, partition, committed=committed)]

    def _read(self, topic: str, partition: int, *, committed: bool = True) -> list[Taken]:
        isolation = "read_committed" if committed else "read_uncommitted"
        settings = {**READER, "bootstrap.servers": self.address, "group.id": "reader", "isolation.level": isolation}
        found: list[Taken] = []
        deadline = time.monotonic() + DEADLINE_S
        with closing(Consumer({**settings, "enable.partition.eof": True, "check.crcs": True})) as consumer:
            consumer.assign([TopicPartition(topic, partition, 0)])
            while time.monotonic() < deadline:
                for message in consumer.consume(500, 0.05):
                    error = message.error()
                    if error is None:
                        found.append(Taken.of(message))
                    elif error.code() == KafkaError._PARTITION_EOF:
                        return found
        raise AssertionError(f"{topic}-{partition} has no end, {len(found)} records were read")


def amiss(found: Iterable[Taken], wanted: Iterable[bytes], told: Iterable[Taken]) -> str:
    """Values that are not just once among the found ones, with their places; a missing one where `told` says it is."""
    places, told_places = defaultdict[bytes, list[str]](list), defaultdict[bytes, list[str]](list)
    for records, known in ((found, places), (told, told_places)):
        for each in sorted(records):
            known[each.value].append(each.place)
    values = set(wanted)
    kinds = {
        "missing, said to be at": {value: told_places.get(value, []) for value in sorted(values - places.keys())},
        "not wanted": {value: at for value, at in places.items() if value not in values},
        "more than once": {value: at for value, at in places.items() if len(at) > 1},
    }
    return "; ".join(f"{len(those)} {kind}: {dict([*those.items()][:MOST_SHOWN])}" for kind, those in kinds.items() if those)


def absent(found: Iterable[Taken], acknowledged: Iterable[Taken]) -> str:
    """What is not where its producer was told."""
    lost = sorted(set(acknowledged) - set(found))
    shown = {each.place: each.value for each in lost[:MOST_SHOWN]}
    return f"{len(lost)}: {shown}" if lost else ""


@pytest.mark.timeout(RUN_TIMEOUT_S)
@pytest.mark.parametrize("run", range(1 if SEED else RUNS))
def test_exactly_once_survives_sigkill(run: int, tmp_path: Path, server_forker: ServerForker) -> None:
    seed = int(SEED) if SEED else random.getrandbits(48) * 100_000 + run
    try:
        with ServerFolder(tmp_path, command=server_forker) as folder, closing(Ports()) as ports:
            Run(folder, random.Random(seed), str(ports.keep(Address("127.0.0.1", 0)))).play()
    except BaseException as exc:
        exc.add_note(f"TRIOLOG_TEST_SIGKILL_SEED={seed} repeats this run's choices")
        raise
