"""The list of planted faults fits the tree, and planting does what it says. All of them: `python -m tests.planted_faults`."""

from __future__ import annotations

import shutil

import attrs
import pytest

from tests.planted_faults.__main__ import FAULTS
from tests.planted_faults.planting import ROOT, Copy
from tests.test_docs import names_in

SIMPLE = FAULTS["sequence-wrap"]
TESTS_AT_MOST = 3


def test_the_text_to_replace_stands_once_in_its_file_and_what_comes_there_compiles() -> None:
    for name, fault in FAULTS.items():
        text = (ROOT / fault.file).read_text(encoding="utf-8")
        assert text.count(fault.old) == 1, name
        compile(text.replace(fault.old, fault.new), fault.file, "exec")


def test_the_tests_that_have_to_notice_are_there() -> None:
    for name, fault in FAULTS.items():
        assert 1 <= len(fault.tests) <= TESTS_AT_MOST, name
        for test in fault.tests:
            path, function = test.partition("[")[0].split("::")
            assert function in names_in(ROOT / path), name


def test_every_fault_says_why_its_line_is_risky() -> None:
    assert [name for name, fault in FAULTS.items() if not fault.why.endswith(".")] == []


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a git checkout: nothing says which files are the tree's")
    return Copy.make(tmp_path_factory.mktemp("planted"))


@pytest.mark.merge
def test_a_fault_is_noticed_where_it_is_planted_and_nowhere_else(copy: Copy) -> None:
    before = (ROOT / SIMPLE.file).read_bytes()
    with copy.planted(SIMPLE):
        assert copy.run(SIMPLE.tests).failed == SIMPLE.tests
        assert (ROOT / SIMPLE.file).read_bytes() == before
    assert copy.run(SIMPLE.tests).passed == SIMPLE.tests


def test_a_text_that_is_not_there_is_no_fault(copy: Copy) -> None:
    with pytest.raises(ValueError, match="stands 0 times"), copy.planted(attrs.evolve(SIMPLE, old="no such line")):
        pass


@pytest.mark.merge
def test_tests_that_cannot_be_run_are_no_verdict(copy: Copy) -> None:
    with pytest.raises(RuntimeError, match="pytest ended with 4"):
        copy.run(["tests/no_such_test.py::test_nothing"])
