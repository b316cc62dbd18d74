from __future__ import annotations

import time

import click
import pytest
from triolog.protocol.types import MAX_TIMESTAMP
from triolog.server.embedded import BlockingBroker
from triolog.tools.cli.terminal.places import read_position
from triolog.tools.cli.terminal.times import parse_zone
from triolog.tools.client.procedures.topics import EARLIEST, LATEST, AtOffset, AtTime, Place, Shifted

from ..conftest import Cli

UTC = parse_zone("UTC")
MORNING_MS = 1_783_159_200_000


@pytest.mark.parametrize(
    ("text", "place"),
    [
        *((word, EARLIEST) for word in ("start", "earliest", "beginning", "Oldest")),
        *((word, LATEST) for word in ("end", "latest", "END")),
        ("max", AtTime(MAX_TIMESTAMP)),
        ("0", AtOffset(0)),
        ("42", AtOffset(42)),
        ("-10", Shifted(LATEST, -10)),
        ("+10", Shifted(EARLIEST, 10)),
        *((f"{at}2026-07-04T10:00", AtTime(MORNING_MS)) for at in ("", "@")),
        ("@2026-07-04T10:00:00Z", AtTime(MORNING_MS)),
        ("@1783159200", AtTime(MORNING_MS)),
        ("@1783159200.5", AtTime(MORNING_MS + 500)),
        *((f"{at}@{MORNING_MS}", AtTime(MORNING_MS)) for at in ("", "s", "e")),
        ("s@5", AtTime(5)),
    ],
)
def test_every_form_is_one_position(text: str, place: Place) -> None:
    assert read_position(text, UTC, "--offset") == place


@pytest.mark.parametrize("text", ["10m", "@10m"])
def test_a_duration_is_that_long_ago(text: str) -> None:
    place = read_position(text, UTC, "--offset")
    assert isinstance(place, AtTime)
    assert abs(time.time() * 1000 - 600_000 - place.timestamp) < 60_000


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("ernd", "Did you mean end?"),
        ("erliest", "Did you mean earliest?"),
        ("noon", "Write start, end, 42, -10"),
        ("--5", "Write start, end"),
        ("@noon", "invalid time 'noon': use 10m"),
        ("2026-13-04", "invalid time '2026-13-04': use 10m"),
        ("5:10", "Write start, end"),
    ],
)
def test_an_error_names_the_option_and_the_nearest_form(text: str, hint: str) -> None:
    with pytest.raises(click.BadParameter) as raised:
        read_position(text, UTC, "--offset")
    assert f"{text!r} is not a position. {hint}" in raised.value.message
    assert raised.value.param_hint == "--offset"


def test_commands_agree_on_positions(cli: Cli, broker: BlockingBroker) -> None:
    broker.create_topic("t")
    for number in range(20):
        broker.append("t", [(MORNING_MS + number * 1000, None, b"%d" % number, ())])
    cli.ok("topics", "trim", "t", "-o", "5", "-y")
    zone = ("--timezone", "UTC")
    for text, offset in (
        *(("start", 5), ("end", 20), ("7", 7), ("-3", 17), ("-100", 5), ("+2", 7), ("max", 19)),
        *(("@2026-07-04T10:00:12", 12), (f"s@{MORNING_MS + 9000}", 9)),
    ):
        assert [each["offset"] for each in cli.json("offsets", "t", "-o", text, *zone)] == [offset], text
        assert [each["offset"] for each in cli.lines("consume", "t", "-o", text, *zone)][:1] == [offset][: offset < 20], text
        moved = cli.json("groups", "reset", "g", "t", "-o", text, *zone)
        assert [each["offset"] for each in moved["offsets"]] == [offset], text
        if text != "max":
            [walk] = cli.json("explain", "t", "-o", text, *zone) if offset < 20 else [None]
            assert walk is None or walk["walk"]["answer"]["offset"] == offset, text
    assert [each["offset"] for each in cli.lines("consume", "t", "-o", "-5", "--until", "-3")] == [15, 16]
    cli.ok("topics", "trim", "t", "-o", "-2", "-y")
    assert [each["offset"] for each in cli.json("offsets", "t", "-o", "start")] == [18]


def test_spellings_of_the_last_release_and_a_position_exclude_each_other(cli: Cli, broker: BlockingBroker) -> None:
    broker.create_topic("t")
    for arguments in (
        ("consume", "t", "--from", "5", "-o", "start"),
        ("groups", "reset", "g", "t", "--to-time", "5", "--to", "1"),
    ):
        assert " exclude each other" in cli.refused(*arguments, code=2)
    assert "no new position" in cli.refused("groups", "reset", "g", "t", code=2)
