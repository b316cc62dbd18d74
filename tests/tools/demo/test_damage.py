"""`triolog damage-demo` with a real server that is really killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from triolog.tools.demo import damage

pytestmark = pytest.mark.merge  # whole demos run


def test_a_consumer_reads_on_past_a_flip(tmp_path: Path) -> None:
    result = CliRunner().invoke(damage.command, ["--json", "--data-dir", str(tmp_path / "data")])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["ok"], [check["ok"] for check in told["checks"]]) == (True, [True] * 5)
    assert (tmp_path / "data" / "orders-0" / "quarantine-checkpoint").exists()


def test_a_consumer_that_is_given_less_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damage, "_read", lambda address, group: (list(range(30)), None))
    result = CliRunner().invoke(damage.command, ["--json", "--data-dir", str(tmp_path / "data")])
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert [check["ok"] for check in told["checks"]] == [True, False, False, False, False]
