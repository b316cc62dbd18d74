"""One Spark session for every test that needs a JVM; `tests/conftest.py` has them all run in one process.

Spark's workers live on and keep their connections: a server in this process has to be a test's own (the fixture `server`), or
its side of them is left behind. `served` is one in another process.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest
from triolog.tools.bench.kafka.jars import PeerMissingError
from triolog.tools.client.blocking import BlockingClient
from triolog.tools.spark.bench import kafka_source

from tests.support import leaks
from tests.support.server_process import Address, ServerFolder
from tests.tools.spark.jvm.sources import sources_as_installed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JVM_END_TIMEOUT_S: Final = 60.0


def _as_long_as_it_is_used(fixture_name: str, config: pytest.Config) -> Literal["package", "session"]:
    """In a process of xdist these tests come one after the other: the JVM ends behind them, and not when the suite does."""
    return "package" if hasattr(config, "workerinput") else "session"


@pytest.fixture(scope=_as_long_as_it_is_used)
def spark(tmp_path_factory: pytest.TempPathFactory, jvm_options: str) -> Iterator[SparkSession]:
    """A session on two cores that starts fast and says nothing."""
    from pyspark import SparkContext
    from triolog.tools.spark.session import session

    folder = tmp_path_factory.mktemp("spark")
    config = {
        "spark.driver.extraJavaOptions": f"{jvm_options} -Dderby.system.home={folder}",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.python.worker.faulthandler.enabled": "true",
        "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
    }
    ctrl_c = signal.getsignal(signal.SIGINT)
    with contextlib.suppress(PeerMissingError):
        config["spark.jars"] = kafka_source.jars()
    with sources_as_installed(folder / "installed"):
        made_session = session("triolog tests", master="local[2]", config=config)
    signal.signal(signal.SIGINT, ctrl_c)  # a SparkContext takes it from the loops of the tests after it
    made_session.sparkContext.setLogLevel("OFF")
    try:
        yield made_session
    finally:
        made_session.stop()
        _end_jvm(SparkContext)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Address, BlockingClient]]:
    """A server in a process of its own, for all tests: workers of Spark keep connections to it. Topics are of one test."""
    with ServerFolder(tmp_path_factory.mktemp("server"), ("--durability", "os")) as folder:
        address = folder.start().address
        with BlockingClient(address) as client:
            client.hello()
            yield address, client


def _end_jvm(context: type) -> None:
    """The JVM ends when its input does; a pytest process that goes on (another fixture) must not keep it."""
    gateway = context._gateway  # type: ignore[attr-defined]
    process: subprocess.Popen[bytes] = gateway.proc
    gateway.shutdown()
    context._gateway = context._jvm = None  # type: ignore[attr-defined]
    process.stdin.close()
    try:
        process.wait(JVM_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@pytest.fixture(autouse=True)
def nothing_left_behind(spark: SparkSession) -> Iterator[None]:
    """As everywhere, but for what the session's driver keeps: connections to the JVM that Py4J opens when it needs another one,
    and the one over which the JVM brings accumulators when the first task in Python has ended."""
    before = leaks.snapshot()
    yield
    if found := [line for line in leaks.leaks_since(before) if not _is_the_drivers(line, spark)]:
        pytest.fail("left behind: " + "; ".join(found), pytrace=False)


def _is_the_drivers(line: str, spark: SparkSession) -> bool:
    match = re.match(r"fd (\d+) -> socket:", line)
    if match is None:
        return False
    context: Any = spark.sparkContext
    if int(match[1]) in {connection.socket.fileno() for connection in context._gateway._gateway_client.deque}:
        return True
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(match[1]))) as opened:
        return bool(opened.getsockname() == context._accumulatorServer.server_address)
    return False
