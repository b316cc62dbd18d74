from __future__ import annotations

import pytest
from triolog.protocol.types import TopicPartition
from triolog.server.offline.space import PartitionSpace, SegmentSpace, Space
from triolog.tools.pictures.space_picture import MOST_LINES, MOST_PARTITIONS, MOST_TOPICS, Line, space_picture

from tests.support.drawings import Drawing

MAX_BYTES = 600_000


def segment(log: int, indexes: int) -> SegmentSpace:
    return SegmentSpace(base_offset=0, log=Space(log, log), indexes=Space(10 << 20, indexes), largest_timestamp=0)


def partition(topic: str, number: int, log: int, indexes: int = 0, others: int = 0) -> PartitionSpace:
    return PartitionSpace(
        topic_partition=TopicPartition(topic, number), segments=(segment(log, indexes),), others=Space(0, others)
    )


def drawn(partitions: list[PartitionSpace], rest: int = 0, lines: list[Line] | None = None, name: str = "data") -> Drawing:
    return Drawing(space_picture(name, partitions, Space(rest, rest), lines).markup())


def test_areas_are_the_bytes_of_partitions() -> None:
    drawing = drawn([partition("a", 0, 600 << 20), partition("a", 1, 200 << 20), partition("b", 0, 200 << 20)])
    areas = {hint.partition(":")[0]: hint for hint in drawing.hints if hint[:2] in ("a-", "b-")}
    assert areas == {"a-0": "a-0: 600.0 MiB", "a-1": "a-1: 200.0 MiB", "b-0": "b-0: 200.0 MiB"}
    sizes = sorted(width * height for _, _, width, height in drawing.rects("log") if height > 20)
    assert sizes[2] / sum(sizes) == pytest.approx(0.6, abs=0.03)
    assert {"a (2 partitions)", "b (1 partition)", "800.0 MiB", "80%", "20%"} <= set(drawing.texts)


def test_kinds_of_files_are_told_with_their_shares() -> None:
    drawing = drawn([partition("a", 0, 70 << 20, 20 << 20, 6 << 20)], rest=4 << 20)
    assert {
        "log 70.0 MiB (70%)",
        "indexes and snapshots 20.0 MiB (20%)",
        "other files of partitions 6.0 MiB (6%)",
        "beside partitions 4.0 MiB (4%)",
    } <= set(drawing.texts)
    widths = [drawing.rects(kind)[0][2] for kind in ("log", "index", "other", "beside")]
    assert [width / sum(widths) for width in widths] == pytest.approx([0.7, 0.2, 0.06, 0.04], abs=0.01)
    assert "1 partition, 84.0 MiB of content, 100.0 MiB on disk." in drawing.description


def test_lines_are_of_partitions_where_there_is_one_topic_or_of_something_else_ranked() -> None:
    drawing = drawn([partition("a", number, 1 << 20) for number in range(3)])
    assert {"a-0", "a-1", "a-2"} <= set(drawing.texts)
    assert "a (3 partitions)" not in drawing.texts
    lines = [Line("up to 1 hour", (1 << 20, 0, 0, 0)), Line("older", (3 << 20, 0, 0, 0)), Line("none", (0, 0, 0, 0))]
    drawing = drawn([partition("a", 0, 4 << 20)], lines=lines)
    texts = drawing.texts
    assert texts.index("older") < texts.index("up to 1 hour") < texts.index("none")
    drawing = drawn([partition("a", 0, 0)])
    assert "1 partition, 10.0 MiB of content, 0 B on disk" in drawing.texts


def test_names_from_outside_are_shown_and_never_more() -> None:
    name = '<img src=x onerror="alert(1)">&\x1b[2J\u202e'
    drawing = drawn([partition(name, 0, 1 << 20), partition("b" * 5000, 0, 1 << 20)], name=f"/data/{name}")
    assert any(text.startswith('<img src=x onerror="alert(1)">&\\x1b[2J\\u202e') for text in drawing.texts)


def test_10_000_partitions_make_a_small_picture_and_the_others_are_summed() -> None:
    partitions = [partition(f"topic-{number % 500}", number // 500, (1 + number % 500) << 20) for number in range(10_000)]
    partitions += [partition("large", number, 1 << 30) for number in range(1_000)]
    picture = space_picture("data", partitions, Space()).markup()
    assert len(picture) < MAX_BYTES
    drawing = Drawing(picture)
    assert len(drawing.rects("log")) <= MOST_TOPICS * (MOST_PARTITIONS + 1) + MOST_LINES + 2
    assert f"others: {501 - MOST_LINES + 1} more" in drawing.texts
    assert any(hint.startswith(f"others: {501 - MOST_TOPICS} topics: ") for hint in drawing.hints)
    assert f"large, others: {1000 - MOST_PARTITIONS} partitions: {1000 - MOST_PARTITIONS:.1f} GiB" in drawing.hints
