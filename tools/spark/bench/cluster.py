"""A standalone cluster of Spark, started from the pip package: a master and workers, each a process with a JVM."""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyspark
from triolog.tools.spark.java import find_java

HOME: Final = Path(pyspark.__file__).parent
CLASSES: Final = "org.apache.spark.deploy"
STARTED: Final = re.compile(r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
TIMEOUT_S: Final = 180.0


def bare_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment without this one's packages: nothing on Python's path, no virtual environment on PATH."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK", "TRIOLOG"))}
    path = os.pathsep.join(part for part in kept["PATH"].split(os.pathsep) if part != sysconfig.get_path("scripts"))
    kept |= {"PATH": path, "SPARK_HOME": str(HOME)}
    if (java := find_java().home) is not None:
        kept["JAVA_HOME"] = str(java)
    return kept | dict(extra or {})


@contextmanager
def standalone_cluster(folder: Path, jvm_options: str, extra: Mapping[str, str], workers: int = 2) -> Iterator[str]:
    """Start a master and workers of one core each, and yield the master. `extra` is in the environment of all of them."""
    environ = bare_environment({"SPARK_DAEMON_JAVA_OPTS": jvm_options, "SPARK_DAEMON_MEMORY": "512m"} | dict(extra))
    environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    processes: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> Path:
        log = folder / f"{name}.log"
        command = [str(HOME / "bin" / "spark-class"), *arguments, "--host", "127.0.0.1", "--webui-port", "0"]
        with log.open("wb") as file:
            processes.append(
                subprocess.Popen(
                    command, cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
                )
            )
        return log

    try:
        master = _started(start("master", f"{CLASSES}.master.Master", "--port", "0"), processes[0])
        for number in range(workers):
            work = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{number}"))
            start(f"worker-{number}", f"{CLASSES}.worker.Worker", master, *work)
        yield master
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            try:
                process.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _started(log: Path, process: subprocess.Popen[bytes]) -> str:
    give_up_at = time.monotonic() + TIMEOUT_S
    while (found := STARTED.search(log.read_text(errors="replace"))) is None:
        assert process.poll() is None, log.read_text(errors="replace")
        assert time.monotonic() < give_up_at, (
            f"the master did not start within {TIMEOUT_S} s: {log.read_text(errors='replace')}"
        )
        threading.Event().wait(0.05)
    return found[1]
