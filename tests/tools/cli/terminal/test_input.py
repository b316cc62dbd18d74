from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import click
import pytest
import trio
import trio.testing
from triolog.tools.cli.terminal import input as cli_input
from triolog.tools.cli.terminal.input import Input


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


def test_a_terminal_as_input_gets_a_line_about_how_it_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Terminal(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal(io.BytesIO()))
    Input.open("-")
    assert capsys.readouterr().err == "reading from the terminal: Ctrl-D ends the input\n"
