"""A fault, and a copy of the tree in which it is planted and the tests are run that have to notice."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self
from xml.etree import ElementTree

import attrs

from tests.support import bytecode, counts

ROOT: Final = Path(__file__).resolve().parent.parent.parent
PACKAGES: Final = ("protocol", "server", "tools")
TEST_TIMEOUT_S: Final = 120
"""A fault may make a test hang."""


@attrs.frozen(kw_only=True)
class Fault:
    """One text of one file, replaced by another. `old` stands there exactly once; every one of `tests` has to fail."""

    why: str
    """What becomes of someone's records when the line is wrong."""
    file: str
    old: str
    tests: tuple[str, ...] = attrs.field(converter=tuple)
    new: str = ""

    def planted_in(self, text: str) -> str:
        """Return the text of the file with the fault. Raises ValueError when the old text is not there exactly once."""
        if (found := text.count(self.old)) != 1:
            raise ValueError(f"{self.old!r} stands {found} times in {self.file}, not once")
        return text.replace(self.old, self.new)


def read_faults() -> dict[str, Fault]:
    """Return the faults of the TOML files in this folder by name. Their tables are ["file".name]."""
    found: dict[str, Fault] = {}
    for path in sorted(Path(__file__).parent.glob("*.toml")):
        for file, faults in tomllib.loads(path.read_text(encoding="utf-8")).items():
            for name, fields in faults.items():
                if name in found:
                    raise ValueError(f"{path}: the fault {name} of {file} has the name of one of {found[name].file}")
                found[name] = Fault(file=file, **fields)
    return found


@attrs.frozen
class Verdict:
    """What the tests said: of the wanted ones those that failed and those that did not, and all that pytest printed."""

    failed: tuple[str, ...]
    passed: tuple[str, ...]
    seconds: float
    output: str


@attrs.frozen
class Copy:
    """A copy of the tree's files, tracked and new, in which tests import the copied packages."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Self:
        """Raises RuntimeError when tests in the copy would import other packages than the copy's."""
        listed = subprocess.run(
            ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for name in sorted(set(listed.split("\0")) - {""}):
            if (ROOT / name).is_file() or (ROOT / name).is_symlink():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
        copy = cls(folder)
        copy._check_imports()
        return copy

    @contextmanager
    def planted(self, fault: Fault) -> Iterator[None]:
        """Raises ValueError when the old text is not there exactly once."""
        text = (self.folder / fault.file).read_text(encoding="utf-8")
        self._write(fault.file, fault.planted_in(text))
        try:
            yield
        finally:
            self._write(fault.file, text)

    def run(self, tests: Sequence[str]) -> Verdict:
        """Run tests by their node ids, in this order and with the draws of every run, so that a run repeats another. A test
        that outlives its timeout, because a fault has broken its end too, has failed."""
        report = self.folder / "report.xml"
        report.unlink(missing_ok=True)
        arguments = ["-p", "no:randomly", "-p", "no:cacheprovider", "--tb=short", "--no-header"]
        arguments += [f"--timeout={TEST_TIMEOUT_S}", f"--junitxml={report}", *tests]
        started = time.monotonic()
        try:
            run = self.run_module("pytest", arguments, timeout_s=TEST_TIMEOUT_S * (len(tests) + 1))
        except subprocess.TimeoutExpired:
            alone = [self.run([test]) for test in tests if len(tests) > 1]
            failed = tuple(test for each in alone for test in each.failed) if alone else tuple(tests)
            passed = tuple(test for each in alone for test in each.passed)
            return Verdict(failed, passed, time.monotonic() - started, "\n".join(["hung", *(each.output for each in alone)]))
        seconds = time.monotonic() - started
        failures = list(_failures(report)) if report.exists() else []
        failed = tuple(test for test in tests if any(_is_of(case, test) for case in failures))
        passed = tuple(test for test in tests if test not in failed)
        if run.returncode != (1 if failed else 0):
            # Nothing was collected, or something else failed than what was asked: that is no verdict.
            raise RuntimeError(f"pytest ended with {run.returncode}:\n{run.stdout}{run.stderr}")
        return Verdict(failed, passed, seconds, run.stdout)

    def run_module(
        self, name: str, arguments: Sequence[str], timeout_s: float | None = None
    ) -> subprocess.CompletedProcess[str]:
        """`python -m NAME` in the copy, with what it printed. Raises TimeoutExpired: it was killed."""
        return subprocess.run(
            [sys.executable, "-m", name, *arguments],
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )

    def _environment(self) -> dict[str, str]:
        """What is compiled lies where it does for this process, so that `_write` finds it."""
        others = ("TRIOLOG_", "PYTEST_", bytecode.FORBIDDEN)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(others)}
        return {**kept, "PYTHONPATH": str(self.folder), counts.VARIABLE: counts.MERGE}

    def _check_imports(self) -> None:
        program = "; ".join(f"import triolog.{name}; print(triolog.{name}.__file__)" for name in PACKAGES)
        run = subprocess.run(
            [sys.executable, "-c", program],
            cwd=self.folder,
            env=self._environment(),
            check=True,
            capture_output=True,
            text=True,
        )
        for name, path in zip(PACKAGES, run.stdout.splitlines(), strict=True):
            if Path(path).resolve() != (self.folder / name / "__init__.py").resolve():
                raise RuntimeError(f"triolog.{name} is imported from {path}, not from the copy in {self.folder}")

    def _write(self, name: str, text: str) -> None:
        """Also what was compiled goes: it is told by the second and the size of its source, and both may be the same."""
        path = self.folder / name
        compile(text, name, "exec")
        path.write_text(text, encoding="utf-8")
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)


def _failures(report: Path) -> Iterator[tuple[str, str]]:
    """(class name, name) of the cases whose test failed; what a fixture complains about does not count."""
    for case in ElementTree.parse(report).iter("testcase"):
        if case.find("failure") is not None:
            yield case.attrib["classname"], case.attrib["name"]


def _is_of(case: tuple[str, str], test: str) -> bool:
    """Whether a case is of the test with this node id: of one with parameters every case is."""
    path, *names = test.split("::")
    class_name = ".".join([*Path(path).with_suffix("").parts, *names[:-1]])
    return case[0] == class_name and names[-1] in (case[1], case[1].partition("[")[0])
