from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console
from rich.tree import Tree
from triolog.tools.demo.terminal import BAR_WIDTH, bar, draw_walk


@pytest.mark.parametrize(
    ("count", "most", "expected"),
    [
        (0, 10, ""),
        (10, 10, "█" * BAR_WIDTH),
        (5, 10, "█" * (BAR_WIDTH // 2)),
        (1, 80, "▍"),
        (1, 10_000, "▏"),
        (0, 0, ""),
    ],
)
def test_a_bar_is_as_long_as_its_share(count: int, most: int, expected: str) -> None:
    assert bar(count, most) == expected


def test_a_bar_on_a_terminal_without_blocks() -> None:
    assert bar(10, 10, ascii_only=True) == "#" * BAR_WIDTH
    assert bar(1, 10_000, ascii_only=True) == "#"


def drawn(walk: dict[str, Any]) -> str:
    tree = Tree("root")
    draw_walk(tree, "EWR", walk)
    console = Console(file=io.StringIO(), width=120)
    with console.capture() as capture:
        console.print(tree)
    return capture.get()


WALK: dict[str, Any] = {
    "segment_count": 3,
    "segments": [
        {
            "segment": 700,
            "number": 1,
            "max_timestamp": 1_372_910_460_000,
            "time_index": {"entries": 5, "slot": -1, "timestamp": -1, "offset": 700},
            "offset_index": {"entries": 6, "looked_up": 700, "slot": 2, "offset": 700, "position": 4096},
            "reads": [{}, {}],
            "bytes_scanned": 12_345,
            "cached": True,
        }
    ],
    "answer": {"offset": 1234, "timestamp": 1_372_910_400_000, "leader_epoch": 0},
}


def test_a_walk_is_drawn_from_segment_to_answer() -> None:
    text = drawn(WALK)
    for said in (
        "EWR: offset 1,234, 2013-07-04 00:00",
        "segment 00000000000000000700, number 2 of 3: its largest timestamp is 2013-07-04 00:01",
        "time index, 5 entries: below its first entry, the segment's start leads to offset 700",
        "offset index, 6 entries: entry 2 leads to position 4,096",
        "log: 12,345 bytes in 2 reads, all of it cached",
    ):
        assert said in text
    assert "EWR: no such record" in drawn(
        WALK | {"segments": [], "answer": {"offset": -1, "timestamp": -1, "leader_epoch": -1}}
    )
