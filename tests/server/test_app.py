"""What the server as a process says on the way."""

from __future__ import annotations

import logging

import pytest
from triolog.server.app import LINE_S, StartLines
from triolog.server.broker import StartProgress


def at(scanned_bytes: int) -> StartProgress:
    return StartProgress(logs=10, logs_done=2, scan_bytes=100_000_000, scanned_bytes=scanned_bytes)


def test_a_long_start_says_how_far_it_is_every_few_seconds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    lines = StartLines(begin_s=now, said_s=now)
    with caplog.at_level(logging.INFO):
        for tenths in range(round(LINE_S * 20) + 1):
            now = 1000.0 + tenths / 10
            lines(at(tenths * 500_000))
    assert [record.getMessage() for record in caplog.records] == [
        "recovering logs=2/10 scanned_mb=25/100 mb_s=5.0 left_s=15",
        "recovering logs=2/10 scanned_mb=50/100 mb_s=5.0 left_s=10",
    ]
