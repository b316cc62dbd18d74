"""How far a start is, as a supervisor is told. The rest is said by real servers: `tests/server/test_supervised_process.py`."""

from __future__ import annotations

import attrs
import pytest
from triolog.server.broker import StartProgress
from triolog.server.service.service import EXTENSION_S, LEAST_S, Starting
from triolog.server.system.supervisor import Supervisor


@attrs.define(eq=False)
class Listening(Supervisor):
    """Keeps what it is told, as long as it takes anything."""

    told: list[tuple[str, ...]] = attrs.field(factory=list)
    takes: bool = True

    def tell(self, *lines: str) -> bool:
        if self.takes:
            self.told.append(lines)
        return self.takes


def at(done: int) -> StartProgress:
    return StartProgress(logs=10, logs_done=done, scan_bytes=1, scanned_bytes=0)


def test_only_a_start_that_comes_further_gets_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    supervisor, passed_on = Listening(), list[StartProgress]()
    starting = Starting(supervisor, passed_on.append)
    reports = [at(1), at(1), at(2), at(2), at(2), at(10)]
    for report in reports:
        starting(report)
        now += LEAST_S
    more = f"EXTEND_TIMEOUT_USEC={EXTENSION_S * 1_000_000}"
    assert supervisor.told == [(f"STATUS=recovering {done} of 10 logs", more) for done in (1, 2, 10)]
    assert passed_on == reports


def test_progress_that_was_not_taken_is_said_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic", lambda: 5.0)
    supervisor = Listening(takes=False)
    starting = Starting(supervisor, lambda progress: None)
    starting(at(1))
    supervisor.takes = True
    starting(at(1))
    starting(at(2))
    assert [status for status, _ in supervisor.told] == ["STATUS=recovering 1 of 10 logs"]
