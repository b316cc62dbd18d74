"""SIGKILL at any moment of staging and committing: every version's records are there once and in order.

A writer that loses the server does what a job does: it stages the version again under other tasks and commits it again. A run
is a seed, `TRIOLOG_TEST_SIGKILL_SEED=...` repeats one (the choices, not the moment to the microsecond).
"""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path
from typing import Final

import pytest
from triolog.protocol.native import messages
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.tools.client.blocking import BlockingAdmin, BlockingClient, BlockingConsumer
from triolog.tools.client.errors import ConnectionLostError

from tests.support.counts import counts
from tests.support.forked_servers import ServerForker
from tests.support.logs import START_MS
from tests.support.server_process import ServerFolder

KILLS: Final = counts(60)
SEED: Final = os.environ.get("TRIOLOG_TEST_SIGKILL_SEED")
TOPIC: Final = "t"
APPLICATION: Final = "query"
PARTITIONS: Final = [TopicPartition(TOPIC, number) for number in range(3)]
RECORDS: Final = 40
"""Of a task for a partition, in two batches."""
MAX_WAIT_S: Final = 0.4


def staged_by(version: int, task: int, partition: TopicPartition) -> list[bytes]:
    return [f"{version}/{task}/{partition.partition}/{number}".encode() for number in range(RECORDS)]


def committed_by(version: int, partition: TopicPartition) -> list[bytes]:
    return [value for task in range(2) for value in staged_by(version, task, partition)]


def stage(admin: BlockingAdmin, version: int, attempt: int) -> dict[str, tuple[messages.StagedPartition, ...]]:
    """What two tasks stage in this attempt."""
    tasks = {}
    for task in range(2):
        name = f"{task}.{attempt}"
        for half in (slice(0, RECORDS // 2), slice(RECORDS // 2, RECORDS)):
            batches = {
                partition: build_batch([(START_MS, None, value, ()) for value in staged_by(version, task, partition)[half]])
                for partition in PARTITIONS
            }
            tasks[name] = admin.stage(APPLICATION, version, name, batches)
    return tasks


def write_until_killed(admin: BlockingAdmin, version: int, attempt: int) -> tuple[int, int]:
    """Commit one version after the other; where it got to, and the attempt to make next."""
    try:
        while True:
            done = admin.last_commit(APPLICATION)
            assert done is None or done <= version, "a version was committed that nobody asked for"
            answer = admin.commit_stage(APPLICATION, version, stage(admin, version, attempt))
            assert answer.committed is (done is None or done < version)
            assert [each.end_offset - each.base_offset for each in answer.partitions] == [2 * RECORDS] * len(PARTITIONS)
            version += 1
    except ConnectionLostError:
        return version, attempt + 1


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_every_version_is_there_once_whenever_the_server_is_killed(
    tmp_path: Path, durability: str, server_forker: ServerForker
) -> None:
    seed = int(SEED) if SEED else random.SystemRandom().randrange(2**32)
    rng = random.Random(seed)
    version = attempt = 0
    with ServerFolder(tmp_path, command=server_forker) as folder:
        for number in range(KILLS + 1):
            server = folder.start("--durability", durability)
            with BlockingClient(server.address) as client:
                admin = BlockingAdmin(client)
                if not number:
                    admin.create_topic(TOPIC, len(PARTITIONS), {"segment.bytes": "20000", "retention.ms": "-1"})
                if number < KILLS:
                    killer = threading.Timer(rng.uniform(0, MAX_WAIT_S), server.kill)
                    killer.start()
                    version, attempt = write_until_killed(admin, version, attempt)
                    killer.join()
                    continue
                last = admin.last_commit(APPLICATION)
                assert last is None or last in (version, version - 1), f"seed {seed}"
                versions = 0 if last is None else last + 1
                for partition in PARTITIONS:
                    expected = [value for each in range(versions) for value in committed_by(each, partition)]
                    assert values_of(client, partition) == expected, f"seed {seed}: {partition}"


def values_of(client: BlockingClient, partition: TopicPartition) -> list[bytes | None]:
    """All records of a partition."""
    with BlockingConsumer(client, follow=False) as consumer:
        consumer.assign(partition)
        return [record.value for _, record in consumer.records()]
