"""Apache Kafka's jars: Maven resolves `peers/kafka/pom.xml` into its own repository once; later runs ask nobody.

The version in there is the one that triolog is compared with and measured beside. `mirror_maker.xml` is for MirrorMaker 2.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ..peers.peer import PeerMissingError
from .built import SOURCES, built_in, locked

POM: Final = SOURCES / "pom.xml"
MIRROR_MAKER: Final = SOURCES / "mirror_maker.xml"
REFERENCE_VERSION: Final = "4.3.1"
"""What triolog follows, and is measured beside: the version in `POM`."""
PROGRAMS: Final = ("java", "mvn")
MAVEN_TIMEOUT_S: Final = 480.0


def kafka_jars(version: str = REFERENCE_VERSION, pom: Path = POM) -> str:
    """Return the class path of the jars of a POM. Raises PeerMissingError, which says what to install."""
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        raise PeerMissingError(f"{', '.join(missing)} not found; install a JDK (17 or newer) and Maven")
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
                command, capture_output=True, text=True, timeout=MAVEN_TIMEOUT_S, stdin=subprocess.DEVNULL, check=False
            )
        except subprocess.TimeoutExpired:
            raise PeerMissingError(f"mvn did not end within {MAVEN_TIMEOUT_S:g} s") from None
        if run.returncode:
            lines = [line for line in (run.stdout + run.stderr).splitlines() if line.strip()]
            raise PeerMissingError(f"mvn ended with {run.returncode} (offline?): {' | '.join(lines[:4])}")
        return Path(answer.name).read_text().strip()
