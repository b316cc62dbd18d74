"""Other servers, in processes of their own, and Apache Kafka's jars: Maven resolves `peers/kafka/pom.xml` into its own
repository once; later runs ask nobody.

The version in there is the one that triolog is compared with and measured beside. `mirror_maker.xml` is for MirrorMaker 2.
Programs and answers that are made once are kept in a folder below `build/`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ..measuring.child import LoadFailedError

ROOT: Final = Path(__file__).resolve().parents[3]
SOURCES: Final = Path(__file__).resolve().parents[1] / "peers" / "kafka"


def built_in(name: str) -> Path:
    """Return a folder for built programs and answers; create it if need be."""
    folder = ROOT / "build" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock, so that two runs at once build it once."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


POM: Final = SOURCES / "pom.xml"
MIRROR_MAKER: Final = SOURCES / "mirror_maker.xml"
REFERENCE_VERSION: Final = "4.3.1"
"""What triolog follows, and is measured beside: the version in `POM`."""
PROGRAMS: Final = ("java", "mvn")
MAVEN_TIMEOUT_S: Final = 480.0


def kafka_jars(version: str = REFERENCE_VERSION, pom: Path = POM) -> str:
    """Return the class path of the jars of a POM. Raises PeerMissingError, which says what to install."""
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        raise PeerMissingError(f"{', '.join(missing)} not found. Install a JDK (17 or newer) and Maven")
    cache = built_in("kafka")
    with locked(cache / "jars.lock"):
        named = () if version == REFERENCE_VERSION else (f"-Dkafka.version={version}",)
        ready = cache / f"jars-{hashlib.sha256(pom.read_bytes() + ''.join(named).encode()).hexdigest()[:16]}"
        if not ready.exists() or not all(Path(entry).exists() for entry in ready.read_text().split(":")):
            ready.write_text(resolve(pom, cache, named))
        return ready.read_text()


def resolve(pom: Path, cache: Path, options: Sequence[str] = ()) -> str:
    """Return the class path that Maven finds for a POM, with temporary files in `cache`. Raises PeerMissingError."""
    with tempfile.NamedTemporaryFile(dir=cache, mode="r", prefix="answer-") as answer:
        command = ["mvn", "-B", "-q", "-f", str(pom), *options, "dependency:build-classpath"]
        command += [f"-Dmdep.outputFile={answer.name}"]
        try:
            run = subprocess.run(
                command,
                env={"MAVEN_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", **os.environ},  # it ends soon
                capture_output=True,
                text=True,
                timeout=MAVEN_TIMEOUT_S,
                stdin=subprocess.DEVNULL,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise PeerMissingError(f"mvn did not end within {MAVEN_TIMEOUT_S:g} s") from None
        if run.returncode:
            lines = [line for line in (run.stdout + run.stderr).splitlines() if line.strip()]
            raise PeerMissingError(f"mvn ended with {run.returncode} (offline?): {' | '.join(lines[:4])}")
        return Path(answer.name).read_text().strip()


READY_TIMEOUT_S: Final = 20.0


class PeerMissingError(Exception):
    """The peer cannot be measured on this machine; the message is what the row says instead of a figure."""


def program_version(command: Sequence[str]) -> str:
    """Return the first line that a program prints about its version."""
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (run.stdout or run.stderr).splitlines()
    return lines[0].strip() if lines else "unknown version"


def free_port() -> int:
    """Return a free port, for a peer that cannot choose its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(
    command: Sequence[str], port: int, log: Path, *, timeout_s: float = READY_TIMEOUT_S
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a peer for the time of the block, once it accepts connections. Raises LoadFailedError when it does not come up."""
    with ended_after(command, log, timeout_s) as process:
        _wait_until_accepting(process, command[0], port, log, timeout_s)
        yield process


@contextmanager
def ended_after(command: Sequence[str], log: Path, timeout_s: float) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process for the time of the block, in the folder of its log; kill it when it does not end within `timeout_s`."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, cwd=log.parent)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_accepting(process: subprocess.Popen[bytes], name: str, port: int, log: Path, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if process.poll() is not None:
                break
            time.sleep(0.01)
        else:
            return
    raise LoadFailedError(f"{name} did not start: {log.read_text(encoding='utf-8', errors='replace')[-2000:]}")
