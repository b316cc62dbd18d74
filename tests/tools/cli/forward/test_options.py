from __future__ import annotations

import click
import pytest
from triolog.tools.cli.forward.options import _start
from triolog.tools.cli.terminal.times import parse_iso
from triolog.tools.client.procedures.topics import AtTime
from triolog.tools.forward.settings.link_settings import read_start


@pytest.mark.parametrize(("text", "value"), [("start", "earliest"), ("earliest", "earliest"), ("end", "latest")])
def test_the_ends_of_a_log_are_the_words_of_the_settings(text: str, value: str) -> None:
    assert _start(text) == value


def test_a_time_is_the_same_time_in_the_settings() -> None:
    text = "2026-07-04T10:00Z"
    assert read_start(_start(f"@{text}")) == read_start(_start(text)) == AtTime(parse_iso(text))


@pytest.mark.parametrize("text", ["42", "-10", "+10", "max"])
def test_an_offset_is_refused_because_partitions_have_different_ones(text: str) -> None:
    with pytest.raises(click.UsageError, match="is not start, end or a time"):
        _start(text)
