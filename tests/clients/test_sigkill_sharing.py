"""SIGKILL under a share group of librdkafka: what was accepted never comes again, nothing is lost, and delivery counts go on.

A run is a seed, one directory, one port and several servers on them, each killed after a number of acknowledgements. A producer
feeds a topic; members accept most records and give some back. What was acknowledged to the producer before a kill is given to
somebody afterwards, and a record comes with one more delivery than the server has written down when it was given back. At the
end a member that is new to all this is given what is new, and of the old only what nobody knows to be accepted.

`TRIOLOG_TEST_SIGKILL_SHARE_RUNS=100` runs that many, `TRIOLOG_TEST_SIGKILL_SEED=...` repeats one: all choices, though not the
moment to the microsecond.
"""

from __future__ import annotations

import os
import random
import time
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer, ShareConsumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from triolog.server.control.ports import Ports
from triolog.server.settings.broker_config import Address

from tests.clients.confluent_driver import ConfluentDriver
from tests.clients.driver import DEADLINE_S, Access
from tests.clients.sigkill_loads import INPUT, PARTITIONS, PATIENT, Feeder, Progress, Taken
from tests.clients.sigkill_sharers import SHARER, Shared, Sharer
from tests.support.counts import FULL, mode
from tests.support.forked_servers import ServerForker
from tests.support.server_process import ServerFolder, ServerProcess

IS_FULL: Final = mode() == FULL
RUNS: Final = int(os.environ.get("TRIOLOG_TEST_SIGKILL_SHARE_RUNS") or (5 if IS_FULL else 1))
KILLS: Final = 10 if IS_FULL else 5
SEED: Final = os.environ.get("TRIOLOG_TEST_SIGKILL_SEED")
ACKNOWLEDGEMENTS: Final = (50, 400)
"""Of all loads, between two kills."""
KILLED_SOON: Final = 0.25
"""How many of the servers may be killed before they have given out again what the one before had not finished."""
SHARERS: Final = "sharers"
MEMBERS: Final = 3
MARKER: Final = b"behind everything"
RUN_TIMEOUT_S: Final = 240
QUICK: Final = {"TRIOLOG_LENIENT": "true", "TRIOLOG_GROUP_SHARE_HEARTBEAT_INTERVAL_MS": "200"}
GROUP_CONFIG: Final = {
    "share.auto.offset.reset": "earliest",
    "share.delivery.count.limit": "1000",
    "share.session.timeout.ms": "4000",
}
"""Who is closed before it has found the coordinator again does not say that it leaves, and keeps its partitions so long."""


def run_once(folder: ServerFolder, rng: random.Random, address: str) -> None:
    def start() -> ServerProcess:
        durability = rng.choice(("os", "fsync"))
        return folder.spawn("--kafka", address, "--durability", durability, extra_environment=QUICK).wait_ready()

    server = start()
    admin = AdminClient({"bootstrap.servers": address, **PATIENT})
    admin.create_topics([NewTopic(INPUT, PARTITIONS, 1)])[INPUT].result(DEADLINE_S)
    ConfluentDriver(address, Access()).configure_group(SHARERS, GROUP_CONFIG)
    progress, shared = Progress(), Shared()
    feeder = Feeder(address, random.Random(rng.random()), progress)
    sharers = [Sharer(address, random.Random(rng.random()), progress, SHARERS, INPUT, shared) for _ in range(MEMBERS)]
    for load in (feeder, *sharers):
        load.start()
    try:
        for _ in range(KILLS):
            progress.wait_for_more(rng.randint(*ACKNOWLEDGEMENTS))
            server.kill()
            fed = set(feeder.acknowledged)
            server = start()
            shared.servers += 1
            if rng.random() > KILLED_SOON:
                _wait_until_done(fed, shared, progress)
        progress.wait_for_more(rng.randint(*ACKNOWLEDGEMENTS))
        progress.is_over = True
        feeder.thread.join()
        _wait_until_done(set(feeder.acknowledged), shared, progress)
        for sharer in sharers:
            sharer.is_done = True
    except BaseException as exc:
        progress.fail(exc)
        raise
    finally:
        for load in (feeder, *sharers):
            load.thread.join()
    assert progress.error is None, progress.error
    assert shared.outlived
    _check_what_is_left(address, shared)
    assert server.stop() == 0
    assert "Traceback" not in folder.wrote()


def _wait_until_done(wanted: set[Taken], shared: Shared, progress: Progress) -> None:
    """Nothing that was acknowledged is lost."""
    deadline = time.monotonic() + DEADLINE_S
    while missing := wanted - shared.done():
        assert time.monotonic() < deadline, f"{len(missing)} of {len(wanted)} were never given: {sorted(missing)[:20]}"
        shared.wait(0.1)
        if progress.error is not None:
            raise progress.error


def _check_what_is_left(address: str, shared: Shared) -> None:
    """A new member is given what comes new, and nothing that is done."""
    producer = Producer({"bootstrap.servers": address, **PATIENT})
    for partition in range(PARTITIONS):
        producer.produce(INPUT, MARKER, partition=partition)
    assert producer.flush(DEADLINE_S) == 0
    marked: set[int] = set()
    deadline = time.monotonic() + DEADLINE_S
    with closing(ShareConsumer({"bootstrap.servers": address, "group.id": SHARERS, **SHARER})) as consumer:
        consumer.subscribe([INPUT])
        while len(marked) < PARTITIONS:
            assert time.monotonic() < deadline, f"nothing new came in partitions but {marked}"
            for message in consumer.poll(0.1):
                record = Taken.of(message)
                if record.value == MARKER:
                    marked.add(record.partition)
                else:
                    assert record in shared.unsure, f"{record} came again"
                consumer.acknowledge(message)


@pytest.mark.timeout(RUN_TIMEOUT_S)
@pytest.mark.parametrize("run", range(1 if SEED else RUNS))
def test_what_a_share_group_has_accepted_survives_sigkill(run: int, tmp_path: Path, server_forker: ServerForker) -> None:
    seed = int(SEED) if SEED else random.getrandbits(48) * 100_000 + run
    try:
        with ServerFolder(tmp_path, command=server_forker) as folder, closing(Ports()) as ports:
            run_once(folder, random.Random(seed), str(ports.keep(Address("127.0.0.1", 0))))
    except BaseException as exc:
        exc.add_note(f"TRIOLOG_TEST_SIGKILL_SEED={seed} repeats this run's choices")
        raise
