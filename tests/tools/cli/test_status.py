from __future__ import annotations

from typing import Any

import pytest
from triolog.server.config.version import VERSION
from triolog.server.embedded import BlockingBroker
from triolog.tools.cli import status

from .conftest import Cli


def test_a_server_that_works_fits_one_screen_and_exits_with_0(cli: Cli, broker: BlockingBroker) -> None:
    broker.create_topic("t", 2)
    lines = cli.ok("status").splitlines()
    assert len(lines) < 20
    assert lines[0].endswith(f"{cli.address}, version {VERSION}, works")
    assert [line.split()[0] for line in lines] == ["server", "logs", "connections", "lag", "loss", "disk"]
    shown = cli.json("status")
    assert (shown["is_healthy"], shown["problems"], shown["version"]) == (True, [], VERSION)
    assert (shown["topic_count"], shown["partitions"]) == (1, 2)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"partitions_offline": 1}, "1 partition offline"),
        ({"failed_syncs": 2}, "2 syncs failed"),
        ({"directories": [{"path": "/d", "error": "gone", "is_refusing": False}]}, "/d is out of service: gone"),
        ({"directories": [{"path": "/d", "error": None, "is_refusing": True}]}, "/d is full"),
    ],
)
def test_a_problem_is_named(changes: dict[str, Any], problem: str) -> None:
    healthy: dict[str, Any] = {"directories": [], "partitions_offline": 0, "failed_syncs": 0}
    [line] = status._problems({**healthy, **changes})
    assert problem in line


def test_a_server_with_a_problem_exits_with_1(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "_problems", lambda now: ["disk \x1b[31m on fire"])
    result = cli.call("status")
    assert (result.exit_code, result.stdout.splitlines()[-1].split(maxsplit=1)) == (1, ["problem", r"disk \x1b[31m on fire"])
    assert "has problems" in result.stdout


@pytest.mark.parametrize(
    ("clock", "text"),
    [
        (None, None),
        ({"is_plausible": True, "is_trusted": True}, None),
        ({"is_plausible": True, "is_trusted": False}, "it has jumped"),
        ({"is_plausible": False, "is_trusted": False}, "the wall clock is wrong"),
    ],
)
def test_a_clock_that_is_not_trusted_is_shown(clock: dict[str, Any] | None, text: str | None) -> None:
    shown = status._clock({"clock": clock})
    assert shown == text or (shown is not None and text is not None and shown.startswith(text))
