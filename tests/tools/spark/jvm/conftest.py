"""One Spark session for every test that needs a JVM; `tests/conftest.py` has them all run in one process.

Classes come from an archive (AppCDS) that the first run of a machine leaves behind when its JVM ends: with it, C1 alone and
the serial collector, a session starts in 5 s instead of 17. An archive that does not fit the JVM or Spark is ignored by
the JVM, so nothing can go wrong with an old one but time.

Spark's workers live on and keep their connections: a server in this process has to be a test's own (the fixture `server`), or
its side of them is left behind. `served` is one in another process.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest
from triolog.tools.client.blocking import BlockingClient

from tests.support import leaks
from tests.support.server_process import Address, ServerFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAST: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto -Xlog:disable -Xlog:all=off"
JVM_END_TIMEOUT_S: Final = 60.0


def _archive() -> Path:
    import pyspark
    from triolog.tools.spark.java import find_java

    java = find_java()
    text = f"{java} {pyspark.__version__} {pyspark.__file__} {FAST}"
    folder = Path(tempfile.gettempdir()) / f"triolog-tests-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / f"spark-{hashlib.sha256(text.encode()).hexdigest()[:16]}.jsa"


def _as_long_as_it_is_used(fixture_name: str, config: pytest.Config) -> Literal["package", "session"]:
    """In a process of xdist these tests come one after the other: the JVM ends behind them, and not when the suite does."""
    return "package" if hasattr(config, "workerinput") else "session"


@pytest.fixture(scope=_as_long_as_it_is_used)
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two cores that starts fast and says nothing."""
    from pyspark import SparkContext
    from triolog.tools.spark.session import session

    archive = _archive()
    made = archive.with_name(f"{archive.name}.{os.getpid()}")
    classes = f"-XX:SharedArchiveFile={archive}" if archive.is_file() else f"-XX:ArchiveClassesAtExit={made}"
    folder = tmp_path_factory.mktemp("spark")
    config = {
        "spark.driver.extraJavaOptions": f"{FAST} {classes} -Dderby.system.home={folder}",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.python.worker.faulthandler.enabled": "true",
        "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
    }
    with _sources_as_installed(folder / "installed"):
        made_session = session("triolog tests", master="local[2]", config=config)
    made_session.sparkContext.setLogLevel("OFF")
    try:
        yield made_session
    finally:
        made_session.stop()
        _end_jvm(SparkContext)
        if made.is_file():
            made.rename(archive)


@contextmanager
def _sources_as_installed(folder: Path) -> Iterator[None]:
    """The modules that Spark looks for are folders on the path of its workers, as they are where the wheel is installed."""
    from triolog.tools import spark

    folder.mkdir()
    for name in ("pyspark_triolog", "pyspark_triolog_segments"):
        (folder / name).symlink_to(Path(spark.__file__).parent / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        patch.syspath_prepend(folder)
        yield


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Address, BlockingClient]]:
    """A server in a process of its own, for all tests: workers of Spark keep connections to it. Topics are of one test."""
    with ServerFolder(tmp_path_factory.mktemp("server"), ("--durability", "os")) as folder:
        address = folder.start().address
        with BlockingClient(address) as client:
            client.hello()
            yield address, client


@pytest.fixture
def jvm_options() -> str:
    """What starts the JVM of a process of the test's own fast: the archive that `spark` has left behind, once there is one."""
    archive = _archive()
    return f"{FAST} -XX:SharedArchiveFile={archive}" if archive.is_file() else FAST


def _end_jvm(context: type) -> None:
    """The JVM ends when its input does; a pytest process that goes on (another fixture) must not keep it."""
    gateway = context._gateway  # type: ignore[attr-defined]
    process: subprocess.Popen[bytes] = gateway.proc
    gateway.shutdown()
    context._gateway = context._jvm = None  # type: ignore[attr-defined]
    assert process.stdin is not None
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
