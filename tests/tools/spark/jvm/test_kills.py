"""A streaming read, transform and write while its driver, or its server, is killed at random: every row once in the sink. On a
cluster, a worker, the server and the driver of one job are killed.

`TRIOLOG_TEST_SPARK_KILLS` multiplies the kills (`make test-spark-kill` takes ten times those of the long tier).
"""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import pyarrow.parquet as pq
import pytest
from triolog.server.config.broker_config import Address
from triolog.server.fake.ports import Ports
from triolog.tools.client.blocking import BlockingAdmin, BlockingClient, BlockingConsumer, BlockingProducer
from triolog.tools.spark.bench.cluster import kill_worker, standalone_cluster

from tests.support import spark_copy
from tests.support.counts import counts
from tests.support.server_process import ServerFolder, ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MORE: Final = int(os.environ.get("TRIOLOG_TEST_SPARK_KILLS") or 1)
DRIVER_KILLS: Final = 3
SERVER_KILLS: Final = 10
ROWS_PER_BATCH: Final = 60
PARTITIONS: Final = 3
LONGEST_WAIT_S: Final = 0.6
"""About two batches: a kill comes at any point of reading, staging and committing."""
TIMEOUT_S: Final = 3000
JOB_TIMEOUT_S: Final = 300


@attrs.define(eq=False)
class Server:
    """A server that comes back on the same port, which nobody else is given meanwhile."""

    folder: ServerFolder
    address: str
    process: ServerProcess
    kills: int = 0

    def kill_and_restart(self) -> None:
        self.process.kill()
        self.kills += 1
        self.process = self.folder.start("--native", self.address)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with closing(Ports()) as ports, ServerFolder(tmp_path, ("--durability", "os")) as folder:
        address = str(ports.keep(Address("127.0.0.1", 0)))
        yield Server(folder, address, folder.start("--native", address))


def _fill(server: Server, count: int) -> None:
    address = server.process.address
    with BlockingClient(address) as client:
        for topic in (spark_copy.SOURCE, spark_copy.SINK):
            BlockingAdmin(client).create_topic(topic, PARTITIONS, {"retention.ms": "-1"})
        with BlockingProducer(client) as producer:
            for number in range(count):
                producer.send(spark_copy.SOURCE, b"row %d" % number, partition=number % PARTITIONS)
            producer.flush()


def _assert_every_row_once(server: Server, count: int) -> None:
    with BlockingClient(server.process.address) as client, BlockingConsumer(client, follow=False) as consumer:
        consumer.assign(spark_copy.SINK)
        _assert_each_once(Counter((record.value or b"").decode() for _, record in consumer.records()), count)


def _assert_each_once(found: Counter[str], count: int) -> None:
    expected = Counter(spark_copy.copied(f"row {number}") for number in range(count))
    assert sorted((expected - found).elements()) == [], "missing"
    assert sorted((found - expected).elements()) == [], "doubled, or no row of the source"


@pytest.mark.long  # in the merge tier the demo's driver is killed twice (`test_demo_command.py`)
@pytest.mark.timeout(TIMEOUT_S)
def test_whenever_the_driver_is_killed_every_row_is_in_the_sink_once(server: Server, jvm_options: str, tmp_path: Path) -> None:
    kills = counts(DRIVER_KILLS) * MORE
    moments = random.Random(5)
    count = (4 * kills + 2) * ROWS_PER_BATCH
    _fill(server, count)
    killed = 0
    while True:
        with spark_copy.copying_process(server.address, tmp_path / "checkpoint", ROWS_PER_BATCH, jvm_options) as process:
            if killed == kills:
                assert process.wait(JOB_TIMEOUT_S) == 0
                break
            assert spark_copy.wait_for_batches(process, moments.randint(1, 2)), (
                f"the job ended before it was killed, {killed} of {kills}"
            )
            threading.Event().wait(moments.uniform(0, LONGEST_WAIT_S))
        assert process.returncode == -9, f"the job was over before it was killed, {killed} of {kills}"
        killed += 1
    _assert_every_row_once(server, count)


@pytest.mark.timeout(TIMEOUT_S)
def test_whenever_a_server_is_killed_every_row_is_in_the_sink_once(server: Server, spark: SparkSession, tmp_path: Path) -> None:
    kills = counts(SERVER_KILLS) * MORE
    moments = random.Random(7)
    count = (5 * kills + 5) * ROWS_PER_BATCH
    _fill(server, count)
    query = spark_copy.start_copying(spark, server.address, tmp_path / "checkpoint", ROWS_PER_BATCH)
    try:
        last = -1
        while server.kills < kills and query.isActive:
            if spark_copy.batches_of(query) > last:
                threading.Event().wait(moments.uniform(0, LONGEST_WAIT_S))
                server.kill_and_restart()
                last = spark_copy.batches_of(query)
            else:
                threading.Event().wait(0.01)
        query.awaitTermination(JOB_TIMEOUT_S)
        assert not query.isActive, f"the query did not end within {JOB_TIMEOUT_S} s: {query.status}"
    finally:
        query.stop()
    assert server.kills == kills, "the query was over before the last kill"
    _assert_every_row_once(server, count)


@pytest.mark.long
@pytest.mark.timeout(TIMEOUT_S)
def test_kills_on_a_cluster_neither_lose_nor_double_a_row(server: Server, jvm_options: str, tmp_path: Path) -> None:
    rows_each = 200
    count = 60 * rows_each
    _fill(server, count)
    target = tmp_path / "files"
    (tmp_path / "cluster").mkdir()
    with standalone_cluster(tmp_path / "cluster", jvm_options, os.environ) as cluster:
        job = (server.address, tmp_path / "checkpoint", rows_each, jvm_options, cluster.master, str(target))
        with spark_copy.copying_process(*job) as driver:
            assert spark_copy.wait_for_batches(driver, 2), "the job ended before a worker was killed"
            kill_worker(cluster.workers[0])
            assert spark_copy.wait_for_batches(driver, 2), "the job ended before the server was killed"
            server.kill_and_restart()
            assert spark_copy.wait_for_batches(driver, 2), "the job ended before its driver was killed"
        assert driver.returncode == -9, "the job was over before it was killed"
        with spark_copy.copying_process(*job) as driver:
            assert driver.wait(JOB_TIMEOUT_S) == 0
    _assert_every_row_once(server, count)
    values = (value for file in spark_copy.committed_files(target) for value in pq.read_table(file)["value"].to_pylist())
    _assert_each_once(Counter(values), count)
