"""The rules that `conftest.py` and `pyproject.toml` lay on every test do catch what breaks them.

A suite of planted tests runs in its own process under the real configuration; every claim looks at its outcome.
"""

from __future__ import annotations

import os
import random
import re
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

from tests.support.counts import draws


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
    assert settings.default.derandomize == (os.environ["TRIOLOG_TEST"] != "long")


@pytest.mark.merge
def test_merge():
    pass


@pytest.mark.long
def test_long():
    pass


@given(st.integers())
def test_finds_a_fault(number):
    assert number < 1000


def test_draws():
    assert not (drawn := draws().getrandbits(32)), f"drew {drawn}"


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


def _run(folder: Path, tier: str, expected_examples: int, seed: str = "1", only: str = "") -> Outcomes:
    """`only`: for -k; some of the tests wait for their verdict."""
    tests = folder / "tests"
    shutil.copytree(ROOT / "tests" / "support", tests / "support", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "tests" / "conftest.py", tests)
    shutil.copy(ROOT / "pyproject.toml", folder)
    (tests / "__init__.py").touch()
    (tests / "test_planted.py").write_text(PLANTED)
    command = [sys.executable, "-m", "pytest", "--junitxml=report.xml", "-p", "no:cacheprovider", "-k", only]
    settings = {counts.VARIABLE: tier, counts.SEED_VARIABLE: seed, "EXPECTED_EXAMPLES": str(expected_examples), "CI": "true"}
    run = subprocess.run(command, cwd=folder, env={**os.environ, **settings}, capture_output=True, text=True)
    cases: dict[str, dict[str, str]] = {}
    for case in ElementTree.parse(folder / "report.xml").iter("testcase"):
        verdicts = {verdict.tag: f"{verdict.get('message')}\n{verdict.text}" for verdict in case}
        cases.setdefault(case.attrib["name"], {}).update(verdicts)
    return Outcomes(cases=cases, output=run.stdout)


@pytest.fixture(scope="module")
def commit(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return _run(tmp_path_factory.mktemp("commit"), counts.COMMIT, 10)


@pytest.mark.merge
@pytest.mark.parametrize("name", ["test_clean", "test_clean_in_trio", "test_clean_property", "test_profile"])
def test_clean_tests_pass(commit: Outcomes, name: str) -> None:
    assert commit.cases[name] == {}


@pytest.mark.merge
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
def test_what_breaks_a_rule_fails(commit: Outcomes, name: str, verdict: str, message: str) -> None:
    assert message in commit.cases[name][verdict]


def test_tests_of_later_tiers_are_skipped_with_a_reason(commit: Outcomes) -> None:
    assert "runs with TRIOLOG_TEST=merge" in commit.cases["test_merge"]["skipped"]
    assert "runs with TRIOLOG_TEST=long" in commit.cases["test_long"]["skipped"]


def test_the_order_is_random_and_its_seed_is_printed(commit: Outcomes) -> None:
    assert "Using --randomly-seed=" in commit.output


def test_the_output_ends_with_the_closing_line(commit: Outcomes) -> None:
    assert " failed, " in commit.output.rstrip().splitlines()[-1]


@pytest.mark.merge
def test_each_tier_runs_the_tests_of_the_tiers_before_it(tmp_path: Path) -> None:
    for tier, examples, is_long_skipped in ((counts.MERGE, 50, True), (counts.LONG, 300, False)):
        outcomes = _run(tmp_path / tier, tier, examples, only="merge or profile or long")
        assert outcomes.cases["test_merge"] == {} == outcomes.cases["test_profile"]
        assert ("skipped" in outcomes.cases["test_long"]) is is_long_skipped


@pytest.mark.merge
def test_long_run_prints_its_seed_draws_from_it_and_saves_each_failure_as_a_case(tmp_path: Path) -> None:
    seeds = ("7", "7", "8")
    drawn = [_run(tmp_path / str(each), counts.LONG, 300, seed, "finds or draws") for each, seed in enumerate(seeds)]
    examples = [re.findall(r"number=(-?\d+)", outcome.cases["test_finds_a_fault"]["failure"]) for outcome in drawn]
    assert all(f"TRIOLOG_TEST_SEED={seed}" in outcome.output for seed, outcome in zip(seeds, drawn, strict=True))
    draws = [re.search(r"drew (\d+)", outcome.cases["test_draws"]["failure"]) for outcome in drawn]
    assert all(draws)
    assert len({draw[1] for draw in draws if draw}) == 2
    assert examples[0] == examples[1]
    [case] = (tmp_path / "0" / "build" / "long" / "7").glob("test_planted.py-test_finds_a_fault.md")
    text = case.read_text()
    assert "TRIOLOG_TEST=long TRIOLOG_TEST_SEED=7 make test ARGS='tests/test_planted.py::test_finds_a_fault'" in text
    assert re.search(r"^@example\(\s*number=1000,?\s*\)", text, flags=re.MULTILINE)


def test_what_is_begun_first_is_there() -> None:
    assert [place for place in BEGUN_FIRST if not (ROOT / place).exists()] == []


@pytest.mark.parametrize(
    ("tier", "counted", "said"), [("commit", [1, 1, 10], 2), ("merge", [9, 1, 50], 9), ("long", [50, 5, 300], 50)]
)
def test_counts_follow_the_tier(monkeypatch: pytest.MonkeyPatch, tier: str, counted: list[int], said: int) -> None:
    monkeypatch.setenv(counts.VARIABLE, tier)
    assert [counts.counts(long) for long in (50, 5, 300)] == counted
    assert counts.counts(50, commit=2, merge=9) == counts.by_tier(commit=2, merge=9, long=50) == said


def test_seeds_are_fixed_before_the_long_tier_and_follow_its_seed_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(counts.SEED_VARIABLE, "1000")
    monkeypatch.setenv(counts.VARIABLE, counts.MERGE)
    assert (counts.seeds(12, first=3), counts.draws(3).random()) == (range(3, 5), random.Random(3).random())
    monkeypatch.setenv(counts.VARIABLE, counts.LONG)
    assert counts.seeds(6, first=3) == range(1003, 1009)
    assert counts.draws(3).random() == counts.draws(3).random() != random.Random(3).random()


def test_unknown_tier_and_seed_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(counts.VARIABLE, "full")
    with pytest.raises(ValueError, match="TRIOLOG_TEST='full': use commit, merge, long"):
        counts.tier()
    monkeypatch.setenv(counts.VARIABLE, counts.LONG)
    monkeypatch.setenv(counts.SEED_VARIABLE, "-1")
    with pytest.raises(ValueError, match="TRIOLOG_TEST_SEED='-1'"):
        counts.session_seed()
