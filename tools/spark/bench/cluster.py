"""A standalone cluster of Spark on this machine, started from the pip package: a JVM each for the master and the workers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import attrs

from ..java import find_java
from ..unpacked import unpacked_home

CLASSES: Final = "org.apache.spark.deploy"
STARTED: Final = re.compile(r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
TIMEOUT_S: Final = 180.0


class ClusterError(Exception):
    """The master did not start; the message has what it wrote."""


@attrs.frozen
class Cluster:
    """A running cluster. `workers` lead process groups, which have the JVMs of their executors, too."""

    master: str
    workers: tuple[subprocess.Popen[bytes], ...]


@contextmanager
def standalone_cluster(folder: Path, jvm_options: str, environ: Mapping[str, str], workers: int = 2) -> Iterator[Cluster]:
    """Run a master and workers of one core each for the time of the block, in this environment, from `triolog spark home`.
    Raises ClusterError."""
    home = unpacked_home(os.environ)
    variables = dict(environ) | {
        "SPARK_DAEMON_JAVA_OPTS": jvm_options,
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    if (java := find_java().home) is not None:
        variables["JAVA_HOME"] = str(java)
    processes: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> Path:
        log = folder / f"{name}.log"
        command = [str(home / "bin" / "spark-class"), *arguments, "--host", "127.0.0.1", "--webui-port", "0"]
        with log.open("wb") as file:
            processes.append(
                subprocess.Popen(
                    command,
                    cwd=folder,
                    env=variables,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    start_new_session=True,
                )
            )
        return log

    try:
        master = _started(start("master", f"{CLASSES}.master.Master", "--port", "0"), processes[0])
        for number in range(workers):
            work = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{number}"))
            start(f"worker-{number}", f"{CLASSES}.worker.Worker", master, *work)
        yield Cluster(master, tuple(processes[1:]))
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            try:
                process.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def kill_worker(worker: subprocess.Popen[bytes]) -> None:
    """Kill a worker and the JVMs of its executors, as the loss of its machine does. The executors' Python ends by itself."""
    with suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()


def _started(log: Path, process: subprocess.Popen[bytes]) -> str:
    give_up_at = time.monotonic() + TIMEOUT_S
    while (found := STARTED.search(log.read_text(errors="replace"))) is None:
        if process.poll() is not None or time.monotonic() > give_up_at:
            raise ClusterError(f"the master did not start: {log.read_text(errors='replace')[-2000:]}")
        threading.Event().wait(0.05)
    return found[1]
