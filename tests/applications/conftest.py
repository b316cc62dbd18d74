"""The jars of the applications, and our one class beside them, once a session."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest
from triolog.tools.bench.kafka.jars import PeerMissingError, built_in, locked, resolve

from tests.support.kafka_jars import COMPILER, PROGRAMS, unavailable

FOLDER: Final = Path(__file__).resolve().parent
POM: Final = FOLDER / "pom.xml"
SOURCES: Final = FOLDER / "java"
COMPILE_DEADLINE_S: Final = 480.0


@pytest.fixture(scope="session")
def applications() -> str:
    """The class path of Kafka Streams, Connect and MirrorMaker, and of our class. What was resolved and compiled is
    remembered."""
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        unavailable(f"{', '.join(missing)} not found. Install a JDK (17 or newer) and Maven")
    cache = built_in("kafka-applications")
    with locked(cache / "lock"):
        content = b"".join(path.read_bytes() for path in (POM, *sorted(SOURCES.iterdir())))
        digest = hashlib.sha256(content).hexdigest()[:16]
        ready = cache / f"class-path-{digest}"
        if not ready.exists() or not all(Path(entry).exists() for entry in ready.read_text().split(":")):
            try:
                jars = resolve(POM, cache)
            except PeerMissingError as exc:
                unavailable(str(exc))
            classes = cache / f"classes-{digest}"
            command = [*COMPILER, "-d", str(classes), "-cp", jars, *map(str, SOURCES.glob("*.java"))]
            subprocess.run(command, check=True, timeout=COMPILE_DEADLINE_S, stdin=subprocess.DEVNULL)
            ready.write_text(f"{classes}:{jars}")
        return ready.read_text()
