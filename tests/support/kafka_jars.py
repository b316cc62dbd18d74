"""Apache Kafka's own classes beside the suite: its jars, and a JVM in which tests call its tools.

`tools/bench/kafka/jars` has Maven resolve them once, `javac` compiles the one class of ours; both answers are kept under
`build/kafka`, so that later runs ask nobody. Without a JDK or Maven the tests are skipped with the reason,
except where `CI` is set: there they must run.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NoReturn, Self

import attrs
import pytest
from triolog.tools.bench.kafka.jars import POM, PeerMissingError, built_in, kafka_jars, locked

ROOT: Final = Path(__file__).resolve().parent.parent.parent
SOURCES: Final = ROOT / "tests" / "kafka" / "java"
PROGRAMS: Final = ("java", "javac", "mvn")
COMPILER: Final = ("javac", "-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC", "-proc:none")
QUICK_MAVEN: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Both end before the second compiler of the JVM would pay. This halves their processor time."""
COMPILE_DEADLINE_S: Final = 480.0
JVM_OPTIONS: Final = (
    "-Xmx256m",
    "-XX:+UseSerialGC",  # one small heap, few threads
    "-XX:TieredStopAtLevel=1",  # these processes end before the second compiler would pay
    "-XX:-UsePerfData",  # no file in the temporary directory
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)


class KafkaUnavailableError(Exception):
    """There is no JDK, no Maven, or the jars could not be had."""


def unavailable(reason: str) -> NoReturn:
    """Skip, or fail where the tests must run."""
    if os.environ.get("CI", "").lower() not in ("", "0", "false"):
        pytest.fail(f"CI is set, so the tests against Apache Kafka must run: {reason}", pytrace=False)
    pytest.skip(f"Apache Kafka is not here: {reason}")


def class_path() -> str:
    """Our class and Kafka's jars, ready to run. Raises KafkaUnavailableError saying what to install."""
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        raise KafkaUnavailableError(f"{', '.join(missing)} not found. Install a JDK (17 or newer) and Maven")
    try:
        jars = kafka_jars()
    except PeerMissingError as exc:
        raise KafkaUnavailableError(str(exc)) from exc
    cache = built_in("kafka")
    with locked(cache / "lock"):
        content = b"".join(path.read_bytes() for path in (POM, *sorted(SOURCES.iterdir())))
        ready = cache / f"class-path-{hashlib.sha256(content).hexdigest()[:16]}"
        if not ready.exists() or ready.read_text().partition(":")[2] != jars:
            classes = cache / "classes"
            _run(*COMPILER, "-d", str(classes), "-cp", jars, *map(str, SOURCES.glob("*.java")))
            ready.write_text(f"{classes}:{jars}")
        return ready.read_text()


def clients_jar(version: str) -> Path:
    """Kafka's clients of a version, in one jar, without what they need. Raises KafkaUnavailableError."""
    if shutil.which("mvn") is None:
        raise KafkaUnavailableError("mvn not found. Install Maven")
    cache = built_in("kafka")
    with locked(cache / "clients.lock"):
        found = cache / f"kafka-clients-{version}.jar"
        if not found.exists():
            artifact = f"org.apache.kafka:kafka-clients:{version}"
            _run("mvn", "-B", "-q", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={cache}")
        return found


def _run(*command: str) -> None:
    try:
        done = subprocess.run(
            command,
            env={"MAVEN_OPTS": QUICK_MAVEN, **os.environ},
            capture_output=True,
            text=True,
            timeout=COMPILE_DEADLINE_S,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as exc:
        raise KafkaUnavailableError(f"{command[0]} did not end within {COMPILE_DEADLINE_S:.0f} s") from exc
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise KafkaUnavailableError(f"{command[0]} ended with {done.returncode} (offline?): {' | '.join(lines[:4])}")


@attrs.frozen(kw_only=True)
class Outcome:
    """What one of Kafka's tools answered."""

    exit_code: int
    stdout: str
    stderr: str

    def ok(self) -> str:
        """Its output; AssertionError when it failed."""
        assert self.exit_code == 0, f"exit code {self.exit_code}\n{self.stdout}\n{self.stderr}"
        return self.stdout


@attrs.define(eq=False)
class KafkaCalls:
    """A JVM that runs Kafka's tools one after the other. Owner: whoever opened it."""

    _process: subprocess.Popen[str]

    @classmethod
    def start(cls, classes: str) -> Self:
        command = ("java", *JVM_OPTIONS, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", classes, "KafkaCalls")
        return cls(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def call(self, *words: object) -> Outcome:
        """Run a command of KafkaCalls.java."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = "\t".join(map(str, words))
        assert "\n" not in line
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().split()
        assert len(answer) == 3, f"the JVM ended with {self._process.poll()} at {line!r}"
        code, *texts = answer
        stdout, stderr = ("" if text == "-" else base64.b64decode(text).decode() for text in texts)
        return Outcome(exit_code=int(code), stdout=stdout, stderr=stderr)

    def dump(self, files: Iterable[Path], *options: str) -> Outcome:
        """DumpLogSegments on files."""
        return self.call("dump", *options, "--files", ",".join(map(str, files)))

    def load(
        self, directory: Path, *, was_clean: bool, recovery_point: int = 0, log_start: int = 0, config: Sequence[str] = ()
    ) -> LoadedByKafka:
        """Open a partition's directory as a starting broker does, and read all of it."""
        outcome = self.call("load", directory, str(was_clean).lower(), recovery_point, log_start, *config)
        return LoadedByKafka(*map(int, outcome.ok().split()))

    def salvage(self, directory: Path, *, recovery_point: int) -> int | None:
        """Right records that a reader gets of a damaged log after an unclean stop; None when Kafka does not open it."""
        outcome = self.call("salvage", directory, "false", recovery_point, 0)
        return int(outcome.stdout.split()[2]) if outcome.exit_code == 0 else None


@attrs.frozen
class LoadedByKafka:
    log_start_offset: int
    log_end_offset: int
    records: int
    control_batches: int
