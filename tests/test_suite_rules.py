"""The rules that `conftest.py` and `pyproject.toml` lay on every test do catch what breaks them.

A suite of planted tests runs in its own process under the real configuration; every claim looks at its outcome.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import attrs
import pytest

from tests.conftest import BEGUN_FIRST
from tests.support import counts

ROOT: Final = Path(__file__).resolve().parent.parent

PLANTED: Final = """
import os
import threading

import pytest
import trio
from hypothesis import given, settings, strategies as st


def test_clean():
    pass


async def test_clean_in_trio():
    await trio.to_thread.run_sync(threading.get_ident)


@given(st.integers())
async def test_clean_property(number):
    await trio.lowlevel.checkpoint()


def test_profile():
    assert settings.default.max_examples == int(os.environ["EXPECTED_EXAMPLES"])
    assert settings.default.deadline is None
    assert settings.default.derandomize == (os.environ.get("TRIOLOG_TEST_DRAWS") != "random")


@pytest.mark.full
def test_full():
    pass


def test_leaves_a_descriptor():
    os.pipe()


def test_leaves_a_thread():
    threading.Thread(target=threading.Event().wait, daemon=True).start()


def test_forgets_a_file():
    open(__file__)


def test_forgets_an_await():
    trio.sleep(0)


def test_thread_dies():
    thread = threading.Thread(target=int, args=("not a number",))
    thread.start()
    thread.join()


@pytest.mark.timeout(1)
def test_hangs():
    threading.Event().wait()


def test_warns():
    import warnings
    warnings.warn("planted")


@pytest.mark.xfail
def test_unexpectedly_passes():
    pass
"""


@attrs.frozen(kw_only=True)
class Outcomes:
    cases: dict[str, dict[str, str]]
    """Test name -> the kind of every verdict that is not a plain pass (error, failure, skipped) -> its message."""
    output: str


def _run(folder: Path, mode: str, expected_examples: int) -> Outcomes:
    tests = folder / "tests"
    shutil.copytree(ROOT / "tests" / "support", tests / "support", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "tests" / "conftest.py", tests)
    shutil.copy(ROOT / "pyproject.toml", folder)
    (tests / "__init__.py").touch()
    (tests / "test_planted.py").write_text(PLANTED)
    command = [sys.executable, "-m", "pytest", "--junitxml=report.xml", "-p", "no:cacheprovider"]
    settings = {counts.VARIABLE: mode, "EXPECTED_EXAMPLES": str(expected_examples), "CI": "true"}
    run = subprocess.run(command, cwd=folder, env={**os.environ, **settings}, capture_output=True, text=True)
    cases: dict[str, dict[str, str]] = {}
    for case in ElementTree.parse(folder / "report.xml").iter("testcase"):
        verdicts = {verdict.tag: f"{verdict.get('message')}\n{verdict.text}" for verdict in case}
        cases.setdefault(case.attrib["name"], {}).update(verdicts)
    return Outcomes(cases=cases, output=run.stdout)


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return _run(tmp_path_factory.mktemp("quick"), counts.QUICK, 30)


@pytest.mark.parametrize("name", ["test_clean", "test_clean_in_trio", "test_clean_property", "test_profile"])
def test_clean_tests_pass(quick: Outcomes, name: str) -> None:
    assert quick.cases[name] == {}


@pytest.mark.parametrize(
    ("name", "verdict", "message"),
    [
        ("test_leaves_a_descriptor", "error", "left behind: fd "),
        ("test_leaves_a_thread", "error", "left behind: thread "),
        ("test_forgets_a_file", "failure", "ResourceWarning: unclosed file"),
        ("test_forgets_an_await", "failure", "was never awaited"),
        ("test_thread_dies", "failure", "PytestUnhandledThreadExceptionWarning"),
        ("test_hangs", "failure", "Timeout (>1.0s)"),
        ("test_warns", "failure", "UserWarning: planted"),
        ("test_unexpectedly_passes", "failure", "XPASS(strict)"),
    ],
)
def test_what_breaks_a_rule_fails(quick: Outcomes, name: str, verdict: str, message: str) -> None:
    assert message in quick.cases[name][verdict]


def test_full_tests_are_skipped_with_a_reason_in_the_quick_suite(quick: Outcomes) -> None:
    assert "runs only with TRIOLOG_TEST=full" in quick.cases["test_full"]["skipped"]


def test_the_order_is_random_and_its_seed_is_printed(quick: Outcomes) -> None:
    assert "Using --randomly-seed=" in quick.output


def test_the_output_ends_with_the_closing_line(quick: Outcomes) -> None:
    assert " failed, " in quick.output.rstrip().splitlines()[-1]


@pytest.mark.full
def test_full_tests_run_with_the_full_counts(tmp_path: Path) -> None:
    full = _run(tmp_path, counts.FULL, 300)
    assert full.cases["test_full"] == {}
    assert full.cases["test_profile"] == {}


def test_what_is_begun_first_is_there() -> None:
    assert [place for place in BEGUN_FIRST if not (ROOT / place).exists()] == []


def test_counts_are_a_tenth_or_what_is_said_in_the_quick_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(counts.VARIABLE, raising=False)
    assert [counts.counts(full) for full in (50, 5, 300)] == [5, 1, 30]
    assert counts.counts(50, quick=2) == 2
    monkeypatch.setenv(counts.VARIABLE, counts.FULL)
    assert [counts.counts(full) for full in (50, 5, 300)] == [50, 5, 300]
    assert counts.counts(50, quick=2) == 50


def test_draws_are_random_only_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(counts.DRAWS_VARIABLE, raising=False)
    assert not counts.draws_at_random()
    monkeypatch.setenv(counts.DRAWS_VARIABLE, counts.RANDOM_DRAWS)
    assert counts.draws_at_random()
    monkeypatch.setenv(counts.DRAWS_VARIABLE, "Random")
    with pytest.raises(ValueError, match="TRIOLOG_TEST_DRAWS='Random'"):
        counts.draws_at_random()


def test_an_unknown_suite_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(counts.VARIABLE, "FULL")
    with pytest.raises(ValueError, match="TRIOLOG_TEST='FULL'"):
        counts.mode()
