"""Apache Kafka's jars: Maven resolves `peers/kafka/pom.xml` into its own repository once; later runs ask nobody."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from ..peers.peer import PeerMissingError
from .built import SOURCES, built_in, locked

POM: Final = SOURCES / "pom.xml"
PROGRAMS: Final = ("java", "mvn")
MAVEN_TIMEOUT_S: Final = 480.0


def kafka_jars() -> str:
    """A class path of Kafka's jars. Raises PeerMissingError saying what to install."""
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        raise PeerMissingError(f"{', '.join(missing)} not found; install a JDK (17 or newer) and Maven")
    cache = built_in("kafka")
    with locked(cache / "jars.lock"):
        ready = cache / f"jars-{hashlib.sha256(POM.read_bytes()).hexdigest()[:16]}"
        if not ready.exists() or not all(Path(entry).exists() for entry in ready.read_text().split(":")):
            ready.write_text(_resolve(cache))
        return ready.read_text()


def kafka_version() -> str:
    """The one that the jars have."""
    found = re.search(r"<kafka.version>([^<]+)<", POM.read_text(encoding="utf-8"))
    assert found is not None
    return found[1]


def _resolve(cache: Path) -> str:
    with tempfile.NamedTemporaryFile(dir=cache, mode="r", prefix="answer-") as answer:
        command = ["mvn", "-B", "-q", "-f", str(POM), "dependency:build-classpath", f"-Dmdep.outputFile={answer.name}"]
        try:
            run = subprocess.run(
                command, capture_output=True, text=True, timeout=MAVEN_TIMEOUT_S, stdin=subprocess.DEVNULL, check=False
            )
        except subprocess.TimeoutExpired:
            raise PeerMissingError(f"mvn did not end within {MAVEN_TIMEOUT_S:g} s") from None
        if run.returncode:
            lines = [line for line in (run.stdout + run.stderr).splitlines() if line.strip()]
            raise PeerMissingError(f"mvn ended with {run.returncode} (offline?): {' | '.join(lines[:4])}")
        return Path(answer.name).read_text().strip()
