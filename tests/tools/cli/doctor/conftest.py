"""`triolog doctor` called as a program calls it, and the texts in its report."""

from __future__ import annotations

import itertools
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from ..conftest import call


@attrs.frozen
class Report:
    """What one call printed and wrote."""

    exit_code: int
    document: dict[str, Any]

    @property
    def symptoms(self) -> set[str]:
        return {each["symptom"] for each in self.document["findings"]}

    @property
    def problems(self) -> set[str]:
        return {each["symptom"] for each in self.document["findings"] if each["is_problem"]}

    @property
    def texts(self) -> dict[str, str]:
        with zipfile.ZipFile(self.document["file"]) as file:
            return {name: file.read(name).decode() for name in file.namelist()}

    def part(self, name: str) -> Any:
        return json.loads(self.texts[name])

    def evidence(self, symptom: str) -> str:
        return "\n".join(each["evidence"] for each in self.document["findings"] if each["symptom"] == symptom)


Doctor = Callable[..., Report]


@pytest.fixture
def doctor(tmp_path_factory: pytest.TempPathFactory) -> Doctor:
    """Call the command with targets and options; `log` is the text of a log."""
    folder, numbers = tmp_path_factory.mktemp("reports"), itertools.count()

    def run(*arguments: object, log: str | None = None, **how: Any) -> Report:
        path = folder / f"{next(numbers)}.zip"
        log_file = path.with_suffix(".log")
        options: list[object] = [] if log is None else ["--log", log_file]
        if log is not None:
            log_file.write_text(log)
        result = call("doctor", *arguments, *options, "--json", "--output", path, **how)
        assert result.exit_code in (0, 1), result.output
        report = Report(result.exit_code, json.loads(result.stdout))
        assert report.exit_code == (1 if report.problems else 0)
        return report

    return run


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
