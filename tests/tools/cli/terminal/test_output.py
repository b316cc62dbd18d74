from __future__ import annotations

import json

import click
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from triolog.tools.cli.terminal import output


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
