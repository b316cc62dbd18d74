"""What the long tier found: a file for each failed test, small enough to become a fixed case.

A file has the command that repeats the failure, the shrunk example of hypothesis as a decorator, and the end of the report.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import attrs
import pytest

from tests.support import counts

_FALSIFYING: Final = re.compile(r"(?:Failing test case|Falsifying example): \w+(\(.*?^\))", re.DOTALL | re.MULTILINE)
_MARGIN: Final = re.compile(r"^E       ", re.MULTILINE)
_REPORT_LINES: Final = 60


@attrs.define(eq=False, repr=False)
class FoundCases:
    """A pytest plug-in that owns the files below `folder`/SEED."""

    folder: Path
    _written: list[Path] = attrs.field(init=False, factory=list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            name = re.sub(r"[^\w.-]+", "-", report.nodeid.removeprefix("tests/"))[:150]
            path = self.folder / str(counts.session_seed()) / f"{name}.md"
            if path in self._written:
                return  # what the teardown of a failed test says is mostly that it was left early
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(case_of(report.nodeid, report.longreprtext), encoding="utf-8")
            self._written.append(path)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for path in self._written:
            terminalreporter.write_line(f"case saved: {path}")


def case_of(nodeid: str, report: str) -> str:
    """Return the text of one case, in Markdown."""
    environment = f"{counts.VARIABLE}={counts.tier()} {counts.SEED_VARIABLE}={counts.session_seed()}"
    parts = [f"# {nodeid}", f"```\n{environment} make test ARGS='{nodeid}'\n```"]
    if found := _FALSIFYING.search(_MARGIN.sub("", report)):
        parts.append(f"```python\n@example{found[1]}\n```")
    parts.append("```\n" + "\n".join(report.splitlines()[-_REPORT_LINES:]) + "\n```")
    return "\n\n".join(parts) + "\n"
