"""The recipes of docs/spark.md for a cluster, on a standalone cluster with two workers, in client mode."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pyarrow
import pytest
from click.testing import CliRunner
from triolog.tools.cli.main import main
from triolog.tools.client.blocking import BlockingClient, BlockingConsumer
from triolog.tools.spark.bench.cluster import standalone_cluster
from triolog.tools.spark.carried import ADVICE
from triolog.tools.spark.java import find_java
from triolog.tools.spark.pack import INTERPRETER
from triolog.tools.spark.unpacked import unpacked_home

from tests.support.server_process import Address
from tests.tools.spark.jvm.sources import sources_as_installed

pytestmark = pytest.mark.timeout(1200)  # up to seven JVMs start

ROOT: Final = Path(__file__).resolve().parents[4]
INTERPRETER_PATH: Final = sys._base_executable  # type: ignore[attr-defined]
"""The Python from which the virtual environment was made: without triolog and its packages."""
ONE_EXECUTOR: Final = {"spark.cores.max": "1"}
"""Each executor is a JVM and its Python workers. The packed archive is unpacked by executors of both workers."""
JOB: Final = """
import sys
from triolog.tools.spark.session import session

servers, source, target = sys.argv[1:]
spark = session("cluster test")
place = {"kafka.bootstrap.servers": servers}
rows = spark.read.format("triolog").options(**place, subscribe=source, minPartitions="4").load()
rows.select("value").write.format("triolog").options(**place, topic=target).mode("append").save()
print("master", spark.sparkContext.master)
spark.stop()
"""


def bare_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment without this one's packages: nothing on Python's path, no virtual environment on PATH."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK", "TRIOLOG"))}
    path = os.pathsep.join(part for part in kept["PATH"].split(os.pathsep) if part != sysconfig.get_path("scripts"))
    kept |= {"PATH": path, "SPARK_HOME": str(unpacked_home(os.environ))}
    if (java := find_java().home) is not None:
        kept["JAVA_HOME"] = str(java)
    return kept | dict(extra or {})


FAILING_JOB: Final = """
import sys
from triolog.tools.spark.session import session

servers, source, target = sys.argv[1:]
spark = session("cluster test")
rows = spark.read.format("triolog").options(**{"kafka.bootstrap.servers": servers}, subscribe=source).load()
try:
    rows.count()
except Exception as exc:
    with open("error.txt", "w") as file:  # spark-submit mixes the two outputs
        file.write(str(exc))
spark.stop()
"""


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory, jvm_options: str) -> Iterator[str]:
    environ = bare_environment({INTERPRETER: INTERPRETER_PATH})
    with standalone_cluster(tmp_path_factory.mktemp("cluster"), jvm_options, environ) as cluster:
        yield cluster.master


def submit(
    folder: Path,
    master: str,
    jvm_options: str,
    arguments: list[str],
    options: dict[str, str],
    variables: dict[str, str],
    job: str = JOB,
) -> str:
    """Run the job by `spark-submit` in `folder`, and return the last line that it prints."""
    (folder / "job.py").write_text(job, encoding="utf-8")
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": jvm_options,
        "spark.executor.extraJavaOptions": jvm_options,
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
    }
    command = [str(unpacked_home(os.environ) / "bin" / "spark-submit"), "--master", master]
    for name, value in (settings | options).items():
        command += ["--conf", f"{name}={value}"]
    environ = bare_environment(variables)
    done = subprocess.run(
        [*command, "job.py", *arguments], cwd=folder, env=environ, capture_output=True, text=True, timeout=1000, check=False
    )
    assert done.returncode == 0, done.stderr[-6000:]
    return done.stdout.strip().splitlines()[-1]  # pandas may warn before


def written(client: BlockingClient, topic: str) -> list[int]:
    with BlockingConsumer(client, follow=False) as consumer:
        consumer.assign(topic)
        return sorted(int(record.value or b"") for _, record in consumer.records())


@pytest.fixture
def topics(served: tuple[Address, BlockingClient], request: pytest.FixtureRequest) -> tuple[str, str]:
    name = f"{abs(hash(request.node.nodeid)):x}"
    client = served[1]
    client.create_topic(f"from-{name}", 2, {"retention.ms": "-1"})
    client.create_topic(f"to-{name}", 2, {"retention.ms": "-1"})
    for partition in range(2):
        client.append(f"from-{name}", [b"%d" % number for number in range(partition, 100, 2)], partition=partition)
    return f"from-{name}", f"to-{name}"


def test_executors_that_have_nothing_but_the_packed_archive_read_and_write(
    master: str, jvm_options: str, served: tuple[Address, BlockingClient], topics: tuple[str, str], tmp_path: Path
) -> None:
    bare = [INTERPRETER_PATH, "-c", "import triolog"]
    assert subprocess.run(bare, cwd=tmp_path, env=bare_environment(), capture_output=True).returncode == 1
    archive = tmp_path / "triolog-env.tar.gz"
    packed = CliRunner().invoke(main, ["spark", "pack", str(archive)])
    assert packed.exit_code == 0, packed.output
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "env", filter="data")
    address, client = served
    line = submit(
        tmp_path,
        master,
        jvm_options,
        [f"{address.host}:{address.port}", *topics],
        {"spark.archives": f"{archive}#env"},
        {"PYSPARK_PYTHON": "./env/bin/python", INTERPRETER: INTERPRETER_PATH},
    )
    assert line == f"master {master}"
    assert written(client, topics[1]) == list(range(100))


@pytest.mark.long
def test_executors_with_the_package_installed_read_and_write(
    master: str, jvm_options: str, served: tuple[Address, BlockingClient], topics: tuple[str, str], tmp_path: Path
) -> None:
    address, client = served
    with sources_as_installed(tmp_path / "installed"):
        path = os.pathsep.join((str(tmp_path / "installed"), str(ROOT)))
    line = submit(
        tmp_path,
        master,
        jvm_options,
        [f"{address.host}:{address.port}", *topics],
        {"spark.executorEnv.PYTHONPATH": path, **ONE_EXECUTOR},
        {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": path},
    )
    assert line == f"master {master}"
    assert written(client, topics[1]) == list(range(100))


@pytest.mark.long
def test_executors_without_the_package_end_the_query_with_one_line_that_names_the_recipe(
    master: str, jvm_options: str, served: tuple[Address, BlockingClient], topics: tuple[str, str], tmp_path: Path
) -> None:
    """Executors have what Spark itself needs, as those of a service do. Spark passes the driver's PYTHONPATH on to them."""
    address, _ = served
    packages = Path(pyarrow.__file__).parents[1]
    with sources_as_installed(tmp_path / "installed"):
        path = os.pathsep.join((str(tmp_path / "installed"), str(ROOT), str(packages)))
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexport PYTHONPATH="$PYTHONPATH:$PACKAGES_OF_DRIVER"\nexec {INTERPRETER_PATH} "$@"\n')
    python.chmod(0o755)
    (tmp_path / "executor").mkdir()
    for name in ("pyarrow", "pyarrow.libs", "numpy", "numpy.libs"):
        (tmp_path / "executor" / name).symlink_to(packages / name)
    submit(
        tmp_path,
        master,
        jvm_options,
        [f"{address.host}:{address.port}", *topics],
        {"spark.executorEnv.PYTHONPATH": str(tmp_path / "executor"), "spark.task.maxFailures": "1", **ONE_EXECUTOR},
        {"PYSPARK_PYTHON": str(python), "PACKAGES_OF_DRIVER": path},
        FAILING_JOB,
    )
    error = (tmp_path / "error.txt").read_text(encoding="utf-8")
    named = [line for line in error.splitlines() if "triolog" in line]
    assert len(named) == 1, error
    assert named[0].endswith(f"ImportError: {INTERPRETER_PATH} has no package triolog. {ADVICE}")
    assert "Traceback" not in error
