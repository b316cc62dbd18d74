from __future__ import annotations

import io

import pytest
from rich.console import Console
from triolog.server.broker import StartProgress
from triolog.tools.cli.terminal import progress
from triolog.tools.cli.terminal.progress import NoProgress, ProgressBar, StartBar, open_progress


def drawn_to() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=140, color_system=None)


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def shown(size_bytes: int | None, *updates: tuple[int, int], counts_records: bool = True) -> str:
    console = drawn_to()
    with ProgressBar("t <- f", size_bytes, console, counts_records=counts_records) as bar:
        for done_bytes, records in updates:
            bar.update(done_bytes=done_bytes, records=records)
    return text_of(console)


def test_a_file_has_a_bar_with_its_share_and_rates() -> None:
    text = shown(1000, (100, 5), (500, 1234))
    for part in ("t <- f", " 50%", "1,234 records", "/s", "MB/s"):
        assert part in text
    assert "100%" in shown(1000, (1000, 7)), "the end is shown even when nothing was drawn between"
    endless = shown(None, (100, 5))
    assert "5 records" in endless
    assert "%" not in endless
    assert "0 records" in shown(0)
    of_bytes = shown(1000, (500, 0), counts_records=False)
    assert "records" not in of_bytes
    assert "MB/s" in of_bytes


def test_a_bar_steps_aside_for_lines_on_the_same_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    console = drawn_to()
    with ProgressBar("verifying", 1000, console) as bar:
        bar.step_aside()
        assert "\r\x1b[2K" not in text_of(console)[-5:]
        monkeypatch.setattr("sys.stdout", TerminalOut())
        bar.step_aside()
        assert text_of(console).endswith("\r\x1b[2K")


class TerminalOut(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_there_is_no_bar_without_a_terminal() -> None:
    assert isinstance(open_progress("t <- f", 1000), NoProgress)


def started(monkeypatch: pytest.MonkeyPatch, patience_s: float, *reports: StartProgress) -> str:
    """What is drawn while a server says how far its start is."""
    drawn = io.StringIO()
    monkeypatch.setattr(progress, "PATIENCE_S", patience_s)
    monkeypatch.setattr("sys.stderr", drawn)
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "140")
    with StartBar() as bar:
        for report in reports:
            bar(report)
    return drawn.getvalue()


def at(scanned_bytes: int, *, logs_done: int = 3, scan_bytes: int = 2_000_000) -> StartProgress:
    return StartProgress(logs=1200, logs_done=logs_done, scan_bytes=scan_bytes, scanned_bytes=scanned_bytes)


def test_a_long_start_shows_logs_share_and_rate_and_a_fast_one_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    text = started(monkeypatch, 0.0, at(0), at(500_000))
    for part in ("3 of 1,200 logs", " 25%", "MB/s"):
        assert part in text
    without_a_scan = started(monkeypatch, 0.0, at(0, logs_done=300, scan_bytes=0))
    assert " 25%" in without_a_scan
    assert "MB/s" not in without_a_scan
    assert started(monkeypatch, 60.0, at(0), at(500_000)) == ""
    assert started(monkeypatch, 0.0, at(2_000_000, logs_done=1200)) == ""
