from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.types import TopicPartition
from triolog.server.offline.space import PartitionSpace, SegmentSpace, Space
from triolog.tools.cli.terminal.times import parse_time
from triolog.tools.pictures.canvas import FILLS, PAPER, WIDTH, Canvas, fitted, fitting_size, merged, style, text_width
from triolog.tools.pictures.log_panel import time_ticks
from triolog.tools.pictures.space_picture import MOST_LINES, MOST_PARTITIONS, MOST_TOPICS, Box, Line, space_picture, treemap

from tests.support.drawings import Drawing

HOSTILE = '</text><script>alert("1")</script>&\x00\x1b[31m\ud800\ufffe\u202egpj.exe'


def hostile_canvas(words: str) -> Canvas:
    canvas = Canvas(words)
    canvas.say(words)
    canvas.rect(0, 0, 10, 10, "log", title=words)
    canvas.text(0, 10, words)
    return canvas


def test_words_from_outside_are_words_also_in_a_part_of_a_page() -> None:
    drawing = Drawing(hostile_canvas(HOSTILE).markup())
    expected = '</text><script>alert("1")</script>&\\x00\\x1b[31m\\ud800\\ufffe\\u202egpj.exe'
    assert [drawing.title, drawing.description, *drawing.hints, *drawing.texts] == [expected] * 4
    canvas = hostile_canvas("a")
    assert "<style>" in canvas.markup()
    assert "<style>" not in canvas.markup(is_alone=False)


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_any_words_make_a_document(words: str) -> None:
    Drawing(hostile_canvas(f"a{words}").markup())


@given(st.text(), st.floats(0, 1000), st.sampled_from((10, 12, 16)))
def test_words_keep_to_their_room(words: str, width: float, size: int) -> None:
    said = fitted(words, width, size)
    assert text_width(said, size) <= max(width, text_width("…", size))


def test_words_are_whole_in_the_largest_size_that_has_room_or_end_with_dots() -> None:
    assert fitted("flights-0", 200) == "flights-0"
    assert fitted("flights-0" * 50, 100).endswith("…")
    assert len(fitted("x" * 1_000_000, 1e9)) < 1_100
    assert fitted("flights", 3) == ""
    assert fitting_size("short", WIDTH, (14, 12, 10)) == 14
    assert fitting_size("x" * 100, 750, (14, 12, 10)) == 12
    assert fitting_size("x" * 1000, 750, (14, 12, 10)) == 10


@pytest.mark.parametrize(
    ("spans", "most", "expected"),
    [
        ([], 3, []),
        ([(5, 6), (0, 2), (1, 3)], 3, [(0, 3), (5, 6)]),
        ([(0, 1), (10, 11), (12, 13), (30, 31)], 3, [(0, 1), (10, 13), (30, 31)]),
        ([(0, 1), (10, 11), (12, 13), (30, 31)], 1, [(0, 31)]),
    ],
)
def test_close_spans_become_one(spans: list[tuple[float, float]], most: int, expected: list[tuple[float, float]]) -> None:
    assert merged(spans, most) == expected


LEAST_CONTRAST = 4.5
"""WCAG 2.2, 1.4.3."""


def luminance(color: str) -> float:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("side", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("words", "below"),
    [
        *((words, below) for words in ("ink", "quiet") for below in ("paper", "panel", "zoom")),
        *(("found", "paper"), ("asked", "paper"), ("on-log", "log"), ("on-log", "other")),
    ],
)
def test_words_can_be_read(words: str, below: str, side: int) -> None:
    assert contrast(FILLS[words][side], FILLS[below][side]) >= LEAST_CONTRAST


def test_there_are_rules_for_light_and_for_dark() -> None:
    light, _, dark = style().partition("@media (prefers-color-scheme:dark)")
    assert f".tp .paper{{fill:{PAPER[0]}}}" in light
    assert f".tp .paper{{fill:{PAPER[1]}}}" in dark


WHOLE = Box(20, 50, 840, 250)


@given(st.lists(st.integers(0, 10**15), min_size=1, max_size=60).map(lambda sizes: sorted(sizes, reverse=True)))
def test_areas_are_shares_of_the_whole_and_stay_inside(sizes: list[int]) -> None:
    boxes = treemap(sizes, WHOLE)
    assert len(boxes) == len(sizes)
    for size, box in zip(sizes, boxes, strict=True):
        share = size / sum(sizes) if sum(sizes) else 0
        assert box.width * box.height == pytest.approx(share * WHOLE.width * WHOLE.height, abs=0.01)
        assert WHOLE.x - 0.01 <= box.x <= box.x + box.width <= WHOLE.x + WHOLE.width + 0.01
        assert WHOLE.y - 0.01 <= box.y <= box.y + box.height <= WHOLE.y + WHOLE.height + 0.01


def test_boxes_are_about_square_and_do_not_lie_on_each_other() -> None:
    boxes = treemap([50, 30, 10, 5, 3, 1, 1], WHOLE)
    for number, one in enumerate(boxes):
        for other in boxes[number + 1 :]:
            across = min(one.x + one.width, other.x + other.width) - max(one.x, other.x)
            down = min(one.y + one.height, other.y + other.height) - max(one.y, other.y)
            assert across < 0.01 or down < 0.01
    assert all(0.5 < box.width / box.height < 2 for box in treemap([7] * 12, WHOLE))
    assert treemap([0, 0], WHOLE) == [Box(20, 50, 0, 0)] * 2
    assert treemap([5], Box(0, 0, 0, 10)) == [Box(0, 0, 0, 0)]
    assert Box(0, 0, 1, 9).inset(2) == Box(0.5, 0.5, 0, 8)


NEW_YORK = ZoneInfo("America/New_York")


def ms(text: str) -> int:
    return parse_time(text, NEW_YORK)


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        ("2013-07-04T00:00:00.100", "2013-07-04T00:00:00.350", ["00:00:00.100", "00:00:00.150", "00:00:00.200"]),
        ("2013-07-04T23:59:58", "2013-07-05T00:00:02", ["23:59:58", "23:59:59", "00:00:00"]),
        ("2013-07-04T10:01", "2013-07-04T10:20", ["10:05", "10:10", "10:15"]),
        ("2013-07-04T00:00", "2013-07-05T00:00", ["07-04 00:00", "07-04 06:00", "07-04 12:00"]),
        ("2013-07-04T03:00", "2013-07-08T03:00", ["2013-07-05", "2013-07-06", "2013-07-07"]),
        ("2013-01-01T01:00", "2013-12-31", ["2013-03", "2013-05", "2013-07"]),
        ("1995-06-01", "2024-01-01", ["2000", "2005", "2010"]),
    ],
)
def test_marks_are_round_times_of_the_zone(start: str, end: str, words: list[str]) -> None:
    assert [text for _, text in time_ticks(ms(start), ms(end), 7, NEW_YORK)][:3] == words


def test_days_begin_at_midnight_on_both_sides_of_a_change_of_clocks() -> None:
    ticks = time_ticks(ms("2013-03-08T12:00"), ms("2013-03-12T12:00"), 7, NEW_YORK)
    assert [at for at, _ in ticks] == [ms(f"2013-03-{day:02d}") for day in range(9, 13)]


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1), st.sampled_from([UTC, NEW_YORK, None]))
def test_marks_lie_inside_and_are_few(one: int, other: int, zone: ZoneInfo | None) -> None:
    low, high = sorted((one, other))
    found = [at for at, _ in time_ticks(low, high, 7, zone)]
    assert found == sorted(found)
    assert len(found) <= 7
    assert all(low <= at <= high for at in found)


@given(st.integers(0, 4 * 10**12), st.integers(0, 36).map(lambda power: int(2.1**power)))
def test_there_is_a_mark_or_two_in_every_span_with_a_calendar(low: int, span: int) -> None:
    high = min(low + span, int(datetime(2200, 1, 1, tzinfo=UTC).timestamp()) * 1000)
    if high - low >= 2:
        assert time_ticks(low, high, 7, UTC)


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
