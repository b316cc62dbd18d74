"""Records in columns; JSON lines and raw values are tested with `consume` and `rows`."""

from __future__ import annotations

from triolog.protocol.types import Record, TopicPartition
from triolog.tools.cli.terminal.record_formats import Columns
from triolog.tools.cli.terminal.times import parse_zone

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
