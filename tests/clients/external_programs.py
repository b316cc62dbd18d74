"""The programs that drive clients of other languages: built once below `build/clients`, each under a lock of its own.

Node's packages come with npm, Go's with the module proxy, Rust's with Cargo, Java's with Maven; what was built is remembered by
the hash of its sources, so that later runs ask nobody. What is not here makes its tests skip with the reason, and fail where
`CI` is set.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, NoReturn, Self

import attrs
import pytest

from tests.clients.driver import DEADLINE_S
from tests.support.kafka_jars import COMPILER, JVM_OPTIONS, QUICK_MAVEN, KafkaUnavailableError, class_path, clients_jar

ROOT: Final = Path(__file__).resolve().parent.parent.parent
SOURCES: Final = ROOT / "tests" / "clients"
RECIPES: Final = ROOT / "tests" / "recipes"
BROWSER_SOURCES: Final = ROOT / "tests" / "browser"
BUILT: Final = ROOT / "build" / "clients"
BUILD_DEADLINE_S: Final = 900.0
STREAMS_VERSION: Final = "4.3.1"
NPM_INSTALL: Final = (
    *("npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"),
)
BUILDING: Final = {
    "CGO_ENABLED": "0",
    "GOFLAGS": f"{os.environ.get('GOFLAGS', '')} '-gcflags=all=-l -dwarf=false' '-ldflags=-s -w'".strip(),
}
"""For programs that run for seconds. Without inlining, DWARF and C, Go compiles in two thirds of the time."""

Command = Sequence[str]


class ProgramUnavailableError(Exception):
    """A language is not here, or its packages could not be had."""


def unavailable(reason: str) -> NoReturn:
    """Skip, or fail where the tests must run."""
    if os.environ.get("CI", "").lower() not in ("", "0", "false"):
        pytest.fail(f"CI is set, so the clients of all languages must run: {reason}", pytrace=False)
    pytest.skip(f"this client is not here: {reason}")


def node(client: str) -> Command:
    """`client`: the folder of its program."""
    _need("node", "npm")

    def build(folder: Path) -> None:
        _install_packages(SOURCES / client, folder)

    return "node", str(_built(client, build) / "main.js")


def axe_core() -> Path:
    """The script that finds what keeps people out of a page."""
    _need("npm")

    def build(folder: Path) -> None:
        _install_packages(BROWSER_SOURCES / "axe", folder)

    return _built("axe", build, sources=BROWSER_SOURCES) / "node_modules" / "axe-core" / "axe.min.js"


def recipe(language: str, *build: str) -> Path:
    """A copy of `tests/recipes/LANGUAGE` in which the command `build` has installed the dependencies."""
    _need(build[0])

    def copy_and_build(folder: Path) -> None:
        shutil.copytree(RECIPES / language, folder, dirs_exist_ok=True)
        _run(folder, *build)

    sources = RECIPES / language
    beside = [str(path.relative_to(sources)) for path in sorted(sources.rglob("*")) if path.is_dir()]
    return _built(language, copy_and_build, into=f"recipe-{language}", beside=beside, sources=RECIPES)


def frameworks() -> Path:
    """The programs of an environment with the group `frameworks` of pyproject.toml, which excludes versions of the tests."""
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]["frameworks"]

    def build(folder: Path) -> None:
        place, python = str(folder / "environment"), str(folder / "environment" / "bin" / "python")
        wanted = ("install", "--quiet", "--editable", str(ROOT), *packages)
        try:
            _run(folder, "uv", "venv", "--quiet", "--python", sys.executable, place)
            _run(folder, "uv", "pip", *wanted, "--python", python)
        except (FileNotFoundError, ProgramUnavailableError):  # uv reads no pip.conf
            _run(folder, sys.executable, "-m", "venv", "--clear", place)
            _run(folder, python, "-m", "pip", *wanted)

    return _kept("frameworks", "\n".join([sys.version, *packages]).encode(), build) / "environment" / "bin"


def _install_packages(source: Path, folder: Path) -> None:
    for path in source.iterdir():
        if path.is_file():
            shutil.copy(path, folder)
    _run(folder, *NPM_INSTALL)


def _go(program: str, package: str, *, into: str, how: Sequence[str] = ("build",), beside: Sequence[str] = ()) -> Path:
    """A program of the sources in Go."""
    _need("go")

    def build(folder: Path) -> None:
        _run(SOURCES / "go", "go", *how, "-p", "2", "-o", str(folder / program), package)

    return _built("go", build, into=into, beside=beside) / program


def go(client: str) -> Command:
    """`client`: franz-go, kafka-go or sarama, which are one program."""
    return str(_go("clients", ".", into="go")), client


def soaking_go() -> Command:
    return (str(_go("soak", "./soak", into="go-soak", beside=("soak",))),)


def franz_go_tests() -> Path:
    return _go("kgo.test", "github.com/twmb/franz-go/pkg/kgo", into="franz-go-tests", how=("test", "-c"))


def rust() -> Command:
    _need("cargo")

    def build(folder: Path) -> None:
        shutil.copytree(SOURCES / "rust", folder, dirs_exist_ok=True)
        _run(folder, "cargo", "build", "--quiet")

    return (str(_built("rust", build, beside=("src",)) / "target" / "debug" / "clients"),)


def _java(main: str, folder: str, *, into: str, version: str | None = None, beside: Sequence[str] = ()) -> Command:
    """A program of the sources in a folder. `version`: of Kafka's clients; None: that of the other tests."""
    _need("java", "javac")
    try:
        jars = class_path() if version is None else f"{clients_jar(version)}:{class_path()}"
    except KafkaUnavailableError as exc:
        raise ProgramUnavailableError(str(exc)) from exc

    def build(built: Path) -> None:
        _run(built, *COMPILER, "-d", str(built), "-cp", jars, *map(str, sorted((SOURCES / folder).glob("*.java"))))

    return _java_command(main, f"{_built('java', build, into=into, beside=beside)}:{jars}")


def _java_command(main: str, class_path: str) -> Command:
    return "java", *JVM_OPTIONS, "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", class_path, main


def java(version: str | None = None) -> Command:
    return _java("Clients", "java", into="java" if version is None else f"java-{version}", version=version)


def soaking_java() -> Command:
    return _java("Soak", "java/soak", into="java-soak", beside=("soak",))


def streams(version: str = STREAMS_VERSION) -> Command:
    _need("java", "javac", "mvn")
    pom = SOURCES / "streams" / "pom.xml"

    def build(folder: Path) -> None:
        options = (f"-Dkafka.version={version}", f"-Dmdep.outputFile={folder / 'class-path'}")
        _run(folder, "mvn", "-B", "-q", "-f", str(pom), *options, "dependency:build-classpath")
        jars = (folder / "class-path").read_text()
        _run(folder, *COMPILER, "-d", str(folder), "-cp", jars, str(SOURCES / "streams" / "WordCount.java"))

    classes = _built("streams", build, into=f"streams-{version}")
    return _java_command("WordCount", f"{classes}:{(classes / 'class-path').read_text()}")


def _need(*programs: str) -> None:
    if missing := [program for program in programs if shutil.which(program) is None]:
        raise ProgramUnavailableError(f"{', '.join(missing)} not found")


def _built(
    name: str, build: Callable[[Path], None], into: str = "", beside: Sequence[str] = (), sources: Path = SOURCES
) -> Path:
    """The folder with what was built of the sources as they are now, of those in the folders `beside` them too."""
    folders = [sources / name, *(sources / name / more for more in beside)]
    files = sorted(path for folder in folders for path in folder.iterdir() if path.is_file())
    return _kept(into or name, b"".join(path.name.encode() + path.read_bytes() for path in files), build)


def _kept(into: str, contents: bytes, build: Callable[[Path], None]) -> Path:
    """The folder in which `build` has built from these contents, now or earlier."""
    folder = BUILT / into
    ready = folder / f"ready-{hashlib.sha256(contents).hexdigest()[:16]}"
    BUILT.mkdir(parents=True, exist_ok=True)
    with _locked(BUILT / f"{into}.lock"):
        if not ready.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            build(folder)
            ready.touch()
    return folder


def _run(folder: Path, *command: str) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={"MAVEN_OPTS": QUICK_MAVEN, **os.environ, **BUILDING},
            capture_output=True,
            text=True,
            timeout=BUILD_DEADLINE_S,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as exc:
        raise ProgramUnavailableError(f"{command[0]} did not end within {BUILD_DEADLINE_S:.0f} s") from exc
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise ProgramUnavailableError(f"{command[0]} ended with {done.returncode} (offline?): {' | '.join(lines[:4])}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Two suites that run at once build once."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


APPLICATION: Final = "word-count"
WORDS: Final = "words"
COUNTS: Final = "counts"
GUARANTEE: Final = "at_least_once"


@attrs.define(eq=False)
class WordCount:
    """One instance. Owner: the test, which leaves its block before the folder goes."""

    _process: subprocess.Popen[bytes]

    @classmethod
    def start(
        cls,
        program: Sequence[str],
        servers: str,
        folder: Path,
        *,
        number: int = 0,
        name: str = APPLICATION,
        topics: tuple[str, str] = (WORDS, COUNTS),
    ) -> Self:
        """`number`: of the instance, which has a state directory and an endpoint of its own. `topics`: where words come from,
        and where counts go."""
        state = folder / f"state-{number}"
        arguments = (servers, name, str(state), GUARANTEE, f"instance-{number}:1", *topics)
        return cls(
            subprocess.Popen([*program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        )

    def wait_running(self) -> None:
        """Until it has said that it runs, once more."""
        for line in self._process.stdout:
            if line.strip() == b"RUNNING":
                return
        raise AssertionError(f"the application has ended with {self._process.wait()}")

    def stop(self) -> None:
        """In order: it commits, and says that it leaves."""
        self._process.stdin.close()
        assert self._process.wait(DEADLINE_S) == 0

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(DEADLINE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process.poll() is None:
            self.kill()
        self._process.stdin.close()
        self._process.stdout.close()
