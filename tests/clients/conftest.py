"""What the run of the conformance suite has found so far: the outcome of every cell, and the versions of the clients."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

import attrs
import pytest

from tests.clients.compatibility_table import Outcome

CELL: Final = "conformance_cell"
"""A test's mark with the client and the feature that it is about."""


@attrs.define
class Found:
    """Owner: the session of the process that runs the suite's one file."""

    cells: dict[tuple[str, str], Outcome] = attrs.field(factory=dict)
    versions: dict[str, str] = attrs.field(factory=dict)
    absent: set[str] = attrs.field(factory=set)
    """Clients whose language is not here."""


FOUND: Final = pytest.StashKey[Found]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[FOUND] = Found()
    config.addinivalue_line("markers", f"{CELL}(client, feature): a cell of the table of clients")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    mark = item.get_closest_marker(CELL)
    if mark is not None and not report.skipped and (report.when == "call" or report.failed):
        item.config.stash[FOUND].cells[mark.args] = Outcome.FAILED if report.failed else Outcome.PASSED
    return report


@pytest.fixture(scope="session")
def found(request: pytest.FixtureRequest) -> Found:
    return request.config.stash[FOUND]
