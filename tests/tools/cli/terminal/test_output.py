from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import click
import pytest
import trio
import trio.testing
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from triolog.protocol.types import Record, TopicPartition
from triolog.server.broker import StartProgress
from triolog.tools.cli.terminal import input as cli_input
from triolog.tools.cli.terminal import output, progress
from triolog.tools.cli.terminal.input import Input
from triolog.tools.cli.terminal.progress import NoProgress, ProgressBar, StartBar, open_progress
from triolog.tools.cli.terminal.record_formats import Columns
from triolog.tools.cli.terminal.times import parse_zone


def printed(*values: object) -> str:
    @click.command
    def command() -> None:
        for value in values:
            output.print_json(value)

    return CliRunner().invoke(command).stdout


@given(st.text())
def test_no_control_character_reaches_the_terminal(text: str) -> None:
    shown = output.printable(text)
    assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in shown)
    shown.encode()


def test_keys_and_values_in_tables_and_in_json() -> None:
    assert output.shown(None) == "null"
    assert output.shown(b"") == ""
    assert output.shown("é\t\x1b]0;title\x07".encode()) == r"é\t\x1b]0;title\x07"
    assert output.shown(b"\xff\x00") == "0xff00"
    assert [output.as_json_value(value) for value in (None, "é".encode(), b"\xff")] == [None, "é", {"base64": "/w=="}]


def test_json_is_one_document_that_reads_back() -> None:
    value = {"a": ["é", None, 1.5], "b": "\ud800"}
    assert json.loads(printed(value)) == value
    assert json.loads(output.json_line(value)) == value
    assert output.json_line(value).count(b"\n") == 1


def test_sizes_and_counts() -> None:
    sizes = {0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 5 * 2**30: "5.0 GiB", 3 * 2**41: "6.0 TiB"}
    assert {size: output.size_text(size) for size in sizes} == sizes
    assert [output.count_text(number, "record") for number in (0, 1, 1234)] == ["0 records", "1 record", "1,234 records"]
    assert output.count_text(2, "entry", "entries") == "2 entries"


def test_a_table_that_goes_nowhere_is_as_wide_as_it_must_be_and_has_no_markup() -> None:
    @click.command
    def command() -> None:
        output.draw(output.table({"a": "left", "b": "right"}, [("[red]x", "y" * 300)], title="[bold]t"))

    text = CliRunner().invoke(command).stdout
    assert "[red]x" in text
    assert "[bold]t" in text
    assert "y" * 300 in text
    assert not any(line.endswith(" ") for line in text.splitlines())


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


UTC = parse_zone("UTC")
PLACE = TopicPartition("t", 3)


def test_columns_are_cut_at_the_width_of_the_terminal_and_whole_without_one() -> None:
    columns = Columns(UTC, 100)
    lines = [columns.head(), columns.record(PLACE, Record(7, 0, b"k" * 40, b"v" * 400))]
    head, line = (line.decode() for line in lines)
    assert len(line) == 101
    assert line.endswith("vvv…\n")
    assert "k" * 9 + "…" in line
    assert head.index("value") == line.index("vvv")
    whole = Columns(UTC, None).record(PLACE, Record(7, -1, b"k" * 40, b"v" * 400)).decode()
    assert whole.split() == ["3", "7", "-", "k" * 40, "v" * 400]


async def read_all(source: Input) -> bytes:
    pieces = []
    while piece := await source.read():
        assert len(piece) <= cli_input.PIECE_BYTES
        pieces.append(piece)
    return b"".join(pieces)


async def test_a_file_is_read_to_its_end(tmp_path: Path) -> None:
    content = os.urandom(3 * cli_input.PIECE_BYTES + 7)
    (tmp_path / "f").write_bytes(content)
    with Input.open(str(tmp_path / "f")) as source:
        assert source.size_bytes == len(content)
        assert await read_all(source) == content
    with Input.open("/dev/null") as source:  # which cannot be polled
        assert await source.read() == b""
    for name, words in (("missing", "No such file"), ("", "Is a directory")):
        with pytest.raises(click.BadParameter, match=words):
            Input.open(str(tmp_path / name)).read()


async def test_a_pipe_gives_what_is_there_and_waits_without_a_thread() -> None:
    reading, writing = os.pipe()
    with open(reading, "rb", buffering=0) as stream, open(writing, "wb", buffering=0) as writer:
        source = Input("pipe", stream)
        assert source.size_bytes is None
        writer.write(b"first")
        assert await source.read() == b"first"
        with trio.move_on_after(0) as scope:
            await source.read()
        assert scope.cancelled_caught
        pieces: list[bytes] = []

        async def read() -> None:
            pieces.append(await source.read())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await trio.testing.wait_all_tasks_blocked()
            assert pieces == []
            writer.write(b"second")
        assert pieces == [b"second"]
        writer.close()
        assert await source.read() == b""


def test_input_from_a_terminal_starts_with_how_it_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Terminal(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal(io.BytesIO()))
    Input.open("-")
    assert capsys.readouterr().err == "reading from the terminal: Ctrl-D ends the input\n"
