from __future__ import annotations

from pathlib import Path

import pytest
from triolog.server.embedded import BlockingBroker
from triolog.tools.cli.explain import walk_tree
from triolog.tools.cli.terminal.times import parse_zone

from tests.support.drawings import Drawing

from .conftest import Cli

START_MS = 1_372_910_400_000


@pytest.fixture
def filled(broker: BlockingBroker) -> BlockingBroker:
    """Records a second apart in segments of a few batches, with an index entry for every batch but the first."""
    broker.create_topic("t", 1, {"segment.bytes": "2000", "index.interval.bytes": "1"})
    for number in range(40):
        broker.append("t", [(START_MS + number * 1000, None, b"x" * 100, ())])
    return broker


def test_a_time_is_found_through_both_indexes(cli: Cli, filled: BlockingBroker) -> None:
    tree = cli.ok("explain", "t", "--at", str(START_MS + 20_000), "--timezone", "UTC")
    lines = tree.splitlines()
    assert lines[0] == "t-0: first record at or after 2013-07-04T04:00:20.000Z (1372910420000 ms)?"
    (walk,) = cli.json("explain", "t", "--at", str(START_MS + 20_000))
    (segment,) = walk["walk"]["segments"]
    time_index, offset_index = segment["time_index"], segment["offset_index"]
    base_offset = segment["segment"]
    assert f"segment {base_offset:020d} (number {segment['number']}):" in lines[2]
    assert f"time index: slot {time_index['slot']} of {time_index['entries']}; greatest entry not after it: " in lines[3]
    assert f"-> offset {time_index['offset']}" in lines[3]
    assert f"offset index: slot {offset_index['slot']} of {offset_index['entries']}" in tree
    assert f"-> position {offset_index['position']}" in tree
    assert "log: scanned " in tree
    assert " in 1 read, " in tree
    assert lines[-1] == "└── answer: offset 20, timestamp 2013-07-04T04:00:20.000Z (1372910420000 ms)"
    assert walk["walk"]["answer"]["offset"] == 20


def test_an_offset_is_found_in_its_batch(cli: Cli, filled: BlockingBroker) -> None:
    tree = cli.ok("explain", "t", "--offset", "7")
    assert tree.splitlines()[0] == "t-0: which batch holds offset 7?"
    (walk,) = cli.json("explain", "t", "--offset", "7")
    answer = walk["walk"]["answer"]
    assert (
        f"answer: offset 7 is in the batch of offsets 7 to 7, {answer['batch_bytes']} B at position {answer['position']}"
        in tree
    )
    path = Path(filled.path, "t-0", f"{walk['walk']['segments'][-1]['segment']:020d}.log")
    assert path.read_bytes()[answer["position"] :][:8] == (7).to_bytes(8, "big")


def test_special_times_and_none(cli: Cli, filled: BlockingBroker) -> None:
    for at, question, answer in (
        ("latest", "latest (the high watermark)", "answer: offset 40"),
        ("earliest", "earliest (the log start offset)", "answer: offset 0"),
        ("max", "max (the first record", "answer: offset 39, timestamp"),
        (str(START_MS + 40_000), "first record at or after", "answer: no such record (yet)"),
    ):
        tree = cli.ok("explain", "t", "--at", at)
        assert question in tree
        assert answer in tree


def test_all_partitions_are_explained_unless_one_is_named(cli: Cli, broker: BlockingBroker) -> None:
    broker.create_topic("t", 3)
    assert [walk["partition"] for walk in cli.json("explain", "t", "--at", "10m")] == [0, 1, 2]
    assert [walk["partition"] for walk in cli.json("explain", "t", "--at", "10m", "--partition", "1")] == [1]
    assert "t has 3 partitions. Choose one with --partition" in cli.refused("explain", "t", "--offset", "0", code=2)
    assert "give a position to find" in cli.refused("explain", "t", code=2)
    assert "exclude each other" in cli.refused("explain", "t", "--at", "1h", "--offset", "1", code=2)
    assert "OFFSET_OUT_OF_RANGE" in cli.refused("explain", "t", "--offset", "41", "--partition", "0")
    assert "there is no topic 'nope'" in cli.refused("explain", "nope", "--at", "1h")
    assert "UNKNOWN_TOPIC_OR_PARTITION" in cli.refused("explain", "t", "--at", "1h", "--partition", "5")


def test_a_range_is_found_and_what_is_passed_over_is_told(cli: Cli, filled: BlockingBroker) -> None:
    span = ("--from", str(START_MS + 20_000), "--to", str(START_MS + 22_000))
    lines = cli.ok("explain", "t", *span, "--timezone", "UTC").splitlines()
    start, end = "2013-07-04T04:00:20.000Z (1372910420000 ms)", "2013-07-04T04:00:22.000Z (1372910422000 ms)"
    assert lines[0] == f"t-0: records from {start} until before {end}?"
    (walk,) = cli.json("explain", "t", *span)
    walk = walk["walk"]
    (segment,) = walk["segments"]
    assert walk["answer"]["offset"] == 20
    assert f"{walk['segment_count'] - 1} segments skipped" in "\n".join(lines)
    assert f"time index: slot {segment['time_index']['slot']} of" in "\n".join(lines)
    assert lines[-1].startswith(f"└── answer: offsets 20 up to {walk['answer']['end_offset']} (exclusive), ")
    assert "until before the end?" in cli.ok("explain", "t", "-o", "s@0", "--until", "end")
    assert "no such record" in cli.ok("explain", "t", "--to", "1")


def drawn(walk: dict[str, object]) -> str:
    from rich.console import Console

    console = Console(width=200)
    with console.capture() as capture:
        console.print(walk_tree("t-0", walk, parse_zone("UTC")))
    return capture.get()


def test_cold_reads_and_maps_are_told_from_cached_ones_and_few_of_many_are_shown() -> None:
    reads = [{"position": 0, "bytes": 8192, "cached": True}, {"position": 8192, "bytes": 100, "cached": False}]
    segment = {"segment": 0, "number": 0, "reads": reads, "bytes_scanned": 8292, "cached": False}
    tree = drawn({"asked": {"timestamp": 5}, "segments": [segment]})
    assert "log: scanned 8.1 KiB in 2 reads, cold (from the device)" in tree
    assert "bytes 0 to 8192: 8.0 KiB, cached" in tree
    assert "bytes 8192 to 8292: 100 B, cold" in tree
    tree = drawn({"asked": {"timestamp": 5}, "segments": [{**segment, "reads": reads[:1]}]})
    assert "an index had no map in memory" in tree
    assert "in 1 read, cached" in tree
    many = [{"position": number, "bytes": 1, "cached": True} for number in range(20)]
    tree = drawn({"asked": {"offset": 5}, "segments": [{"segment": 0, "reads": many, "cached": True}]})
    assert tree.count("1 B, cached") == 8
    assert "and 12 more reads" in tree
    assert "answer: no such record" in drawn({"asked": {"by": "magic"}, "new": 1}), "of a newer server"


def test_a_picture_shows_all_segments_and_the_answer(cli: Cli, filled: BlockingBroker, tmp_path: Path) -> None:
    said = Drawing(cli.ok("explain", "t", "--at", str(START_MS + 20_000), "--timezone", "UTC", "--svg"))
    (walk,) = cli.json("explain", "t", "--at", str(START_MS + 20_000))
    assert "log_segments" not in walk["walk"]
    assert len(said.rects("segment")) + len(said.rects("chosen")) - 2 == walk["walk"]["segment_count"]
    assert len(said.dots("found")) == 2
    assert any(text.startswith("answer: offset 20, timestamp 2013-07-04T04:00:20.000Z") for text in said.texts)
    path = tmp_path / "range.svg"
    asked = ("--from", str(START_MS + 20_000), "--to", str(START_MS + 22_000))
    assert f" bytes in {path}" in cli.ok("explain", "t", *asked, "--svg", str(path))
    assert len(Drawing(path.read_text()).rects("band")) == 1
    (walk,) = cli.json("explain", "t", "--offset", "7")
    drawing = Drawing(cli.ok("explain", "t", "--offset", "7", "--svg"))
    assert f"the batch at position {walk['walk']['answer']['position']}" in drawing.hints
    nowhere = tmp_path / "no" / "walk.svg"
    asked = ("--offset", "7", "--svg", str(nowhere))
    assert f"{nowhere}: No such file" in cli.refused("explain", "t", *asked)
    assert "--svg and --json exclude each other" in cli.refused("explain", "t", *asked, "--json", code=2)
