"""The progress bar: what it shows, and that there is none without a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from triolog.server.broker import StartProgress
from triolog.tools.cli.terminal import progress
from triolog.tools.cli.terminal.progress import NoProgress, ProgressBar, StartBar, open_progress


def shown(size_bytes: int | None, updates: list[tuple[int, int]]) -> str:
    console = Console(file=io.StringIO(), force_terminal=True, width=140, color_system=None)
    with ProgressBar("t <- f", size_bytes, console) as bar:
        for done_bytes, records in updates:
            bar.update(done_bytes=done_bytes, records=records)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_file_has_a_bar_with_its_share_and_rates() -> None:
    text = shown(1000, [(100, 5), (500, 1234)])
    assert "t <- f" in text
    assert " 50%" in text
    assert "1,234 records" in text
    assert "/s" in text
    assert "MB/s" in text


def test_the_end_is_shown_even_when_nothing_was_drawn_between() -> None:
    assert "100%" in shown(1000, [(1000, 7)])


def test_an_input_without_end_has_a_counter() -> None:
    text = shown(None, [(100, 5)])
    assert "5 records" in text
    assert "%" not in text


def test_an_empty_file_has_no_share() -> None:
    assert "0 records" in shown(0, [])


def test_a_bar_of_bytes_has_no_records() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=140, color_system=None)
    with ProgressBar("copying", 1000, console, counts_records=False) as bar:
        bar.update(done_bytes=500, records=0)
    assert isinstance(console.file, io.StringIO)
    assert "records" not in console.file.getvalue()
    assert "MB/s" in console.file.getvalue()


def test_a_bar_steps_aside_for_lines_on_the_same_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=140, color_system=None)
    assert isinstance(console.file, io.StringIO)
    with ProgressBar("verifying", 1000, console) as bar:
        bar.step_aside()
        assert "\r\x1b[2K" not in console.file.getvalue()[-5:]
        monkeypatch.setattr("sys.stdout", TerminalOut())
        bar.step_aside()
        assert console.file.getvalue().endswith("\r\x1b[2K")


class TerminalOut(io.StringIO):
    """Standard output on a terminal."""

    def isatty(self) -> bool:
        return True


def test_there_is_no_bar_without_a_terminal() -> None:
    assert isinstance(open_progress("t <- f", 1000), NoProgress)


# ---- a server's start -------------------------------------------------------------------------------------------------


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


def test_a_long_start_shows_logs_share_and_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    text = started(monkeypatch, 0.0, at(0), at(500_000))
    assert "3 of 1,200 logs" in text
    assert " 25%" in text
    assert "MB/s" in text


def test_a_start_without_anything_to_scan_counts_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    text = started(monkeypatch, 0.0, at(0, logs_done=300, scan_bytes=0))
    assert " 25%" in text
    assert "MB/s" not in text


def test_a_fast_start_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert started(monkeypatch, 60.0, at(0), at(500_000)) == ""
    assert started(monkeypatch, 0.0, at(2_000_000, logs_done=1200)) == ""
