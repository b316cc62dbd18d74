from __future__ import annotations

from datetime import UTC
from typing import Any

import pytest
from triolog.tools.pictures.log_panel import LEFT, MOST_BOXES, RIGHT
from triolog.tools.pictures.segment_panel import MOST_READS, STRIP_LEFT, STRIP_WIDTH
from triolog.tools.pictures.walk_picture import MOST_WALKS, walk_picture

from tests.support.drawings import SVG, Drawing

Walk = dict[str, Any]
HOUR = 3_600_000
START = 1_372_910_400_000
MAX_BYTES = 200_000


def log(count: int, *, least: bool = True, each: int = 1) -> list[Walk]:
    """Segments of 100 offsets and an hour."""
    return [
        {
            "segment": number * 100,
            "segments": each,
            "size_bytes": 1000,
            "least_timestamp": START + number * HOUR if least else -1,
            "max_timestamp": START + (number + 1) * HOUR - 1,
        }
        for number in range(count)
    ]


def step(number: int, **more: Any) -> Walk:
    found: Walk = {
        "segment": number * 100,
        "number": number,
        "size_bytes": 1000,
        "max_timestamp": START + (number + 1) * HOUR - 1,
        "is_active": False,
        "time_index": {"entries": 4, "slot": 1, "timestamp": START + number * HOUR, "offset": number * 100 + 20},
        "offset_index": {"entries": 10, "slot": 2, "looked_up": 1, "offset": number * 100 + 20, "position": 200},
        "reads": [{"position": 200, "bytes": 100, "cached": True}, {"position": 500, "bytes": 250, "cached": False}],
        "bytes_scanned": 350,
        "cached": False,
    }
    return found | more


def walk(count: int = 10, **more: Any) -> Walk:
    """A time half an hour into segment 3, found."""
    found: Walk = {
        "segment_count": count,
        "log_start_offset": 0,
        "high_watermark": count * 100,
        "asked": {"timestamp": START + 3 * HOUR + HOUR // 2},
        "segments": [step(3)],
        "answer": {"offset": 350, "timestamp": START + 3 * HOUR + HOUR // 2, "leader_epoch": 0},
        "log_segments": log(count),
    }
    return found | more


def drawn(*walks: Walk, name: str = "flights-0") -> Drawing:
    return Drawing(walk_picture([(name, each) for each in walks], UTC).markup())


def panel_rects(drawing: Drawing, kind: str) -> list[tuple[float, float, float, float]]:
    """Without the sample in the legend."""
    return drawing.rects(kind)[:-1]


def test_segments_lie_where_their_times_are_and_the_answer_is_a_dot_in_the_chosen_one() -> None:
    drawing = drawn(walk())
    boxes = sorted([*panel_rects(drawing, "segment"), *panel_rects(drawing, "chosen")])
    assert len(boxes) == 10
    each = (RIGHT - LEFT) / 10
    for number, (x, _, width, _) in enumerate(boxes):
        assert x == pytest.approx(LEFT + number * each, abs=0.11)
        assert width == pytest.approx(each, abs=0.11)
    assert [y for _, y, _, _ in boxes] == sorted((y for _, y, _, _ in boxes), reverse=True)
    assert panel_rects(drawing, "chosen") == [boxes[3]]
    assert "segment 00000000000000000300: 1000 B, timestamps from 2013-07-04T07:00:00.000Z to 2013-07-04T07:59:59.999Z" in (
        drawing.hints
    )
    drawing = drawn(walk())
    (x, y, _, _), *_ = drawing.dots("found")
    left, top, width, height = panel_rects(drawing, "chosen")[0]
    assert x == pytest.approx(left + width / 2, abs=0.2)
    assert top < y < top + height
    assert f"answer: offset 350, timestamp 2013-07-04T07:30:00.000Z ({START + 3 * HOUR + HOUR // 2} ms)" in drawing.texts


def test_slots_lie_at_their_place_and_lead_to_the_bytes_that_were_read() -> None:
    drawing = drawn(walk())
    (time_slot, offset_slot, *_) = drawing.rects("slot")
    assert (time_slot[0], time_slot[2]) == (STRIP_LEFT + STRIP_WIDTH / 4, STRIP_WIDTH / 4)
    assert (offset_slot[0], offset_slot[2]) == pytest.approx((STRIP_LEFT + STRIP_WIDTH * 0.2, STRIP_WIDTH * 0.1), abs=0.1)
    (warm,), (cold,) = panel_rects(drawing, "read"), panel_rects(drawing, "cold")
    assert (warm[0], warm[2]) == pytest.approx((STRIP_LEFT + STRIP_WIDTH * 0.2, STRIP_WIDTH * 0.1), abs=0.1)
    assert (cold[0], cold[2]) == pytest.approx((STRIP_LEFT + STRIP_WIDTH * 0.5, STRIP_WIDTH * 0.25), abs=0.1)
    assert {"slot 1 of 4", "slot 2 of 10", "offset 320 → position 200", "from position 200"} <= set(drawing.texts)
    assert "scanned 350 B in 2 reads, cold (from the device)" in drawing.texts
    assert "Segment 300: time index: slot 1 of 4, offset index: slot 2 of 10, log: scanned 350 B" in drawing.description


def test_without_a_slot_the_search_begins_where_the_segment_does() -> None:
    index = {"entries": 1, "slot": -1, "timestamp": -1, "offset": 300}
    drawing = drawn(walk(segments=[step(3, time_index=index)]))
    assert drawing.rects("slot")[0][0] == STRIP_LEFT - 2
    assert {"none of 1 entry is low enough", "from the start of the segment"} <= set(drawing.texts)


def test_an_offset_is_shown_with_the_batch_that_holds_it() -> None:
    answer = {"offset": 350, "position": 600, "batch_base_offset": 340, "batch_last_offset": 359, "batch_bytes": 200}
    answer["batch_max_timestamp"] = START + 3 * HOUR
    one = step(3)
    del one["time_index"]
    drawing = drawn(walk(asked={"offset": 350}, segments=[one], answer=answer))
    (batch, *_) = drawing.rects("found")
    assert (batch[0], batch[2]) == pytest.approx((STRIP_LEFT + STRIP_WIDTH * 0.6, STRIP_WIDTH * 0.2), abs=0.1)
    assert "which batch holds offset 350?" in drawing.texts
    assert "from position 200; the batch is at 600" in drawing.texts


def test_a_range_is_a_band_and_its_segments_follow_each_other() -> None:
    asked = {"start_timestamp": START + 3 * HOUR, "end_timestamp": START + 5 * HOUR}
    later = step(4, runs=2, run_bytes=700)
    del later["time_index"], later["offset_index"]
    answer = {"offset": 300, "end_offset": 500, "bytes": 1400, "runs": 3}
    told = walk(asked=asked, segments=[step(3, runs=1, run_bytes=700), later], answer=answer, segments_skipped=8)
    drawing = drawn(told)
    (x, _, width, _) = drawing.rects("band")[0]
    assert (x, x + width) == pytest.approx((LEFT + 0.3 * (RIGHT - LEFT), LEFT + 0.5 * (RIGHT - LEFT)), abs=0.2)
    found = drawing.rects("half")[0]
    top, bottom = panel_rects(drawing, "chosen")[1], panel_rects(drawing, "chosen")[0]
    assert (found[0], found[2]) == (x, width)
    assert found[1] == pytest.approx(top[1], abs=0.2)
    assert found[1] + found[3] == pytest.approx(bottom[1] + bottom[3], abs=1.2)
    assert {"400", "700 B in 2 runs of batches"} <= set(drawing.texts)
    assert "8 segments skipped: no timestamp of theirs is in the range" in drawing.texts


def test_of_many_segments_in_a_range_most_are_summed() -> None:
    later = []
    for number in range(1, 500):
        later.append(step(number, runs=1, run_bytes=1 << 20))
        del later[-1]["time_index"], later[-1]["offset_index"]
    asked = {"start_timestamp": START, "end_timestamp": 2**63 - 1}
    drawing = drawn(walk(500, asked=asked, segments=[step(0, runs=1, run_bytes=1), *later]))
    assert "others: 491 segments, 491.0 MiB" in drawing.texts


def test_a_segment_of_which_the_least_timestamp_is_not_known_begins_behind_the_one_before() -> None:
    known, unknown = drawn(walk()), drawn(walk(log_segments=log(10, least=False)))
    dashed = [each for each in unknown.root.iter(f"{SVG}path") if each.get("class") == "unknown"]
    assert len(dashed) == 8  # the first and the second begin at the edge
    assert not [each for each in known.root.iter(f"{SVG}path") if each.get("class") == "unknown"]
    boxes = sorted([*panel_rects(unknown, "segment"), *panel_rects(unknown, "chosen")])
    assert boxes[4][0] == pytest.approx(boxes[3][0] + boxes[3][2], abs=0.2)


def test_what_was_met_in_a_segment_is_known_to_be_in_it() -> None:
    told = walk(log_segments=log(10, least=False))
    told["answer"]["timestamp"] = START + HOUR
    told["segments"][0]["time_index"]["timestamp"] = START + 2 * HOUR
    drawing = drawn(told)
    (x, _, _, _) = panel_rects(drawing, "chosen")[0]
    assert drawing.dots("found")[0][0] == pytest.approx(x, abs=0.1)


def test_small_segments_and_those_that_were_only_looked_into_are_drawn() -> None:
    told = walk(2, high_watermark=1_000_000_100, log_segments=log(2), segments=[])
    heights = [height for _, _, _, height in panel_rects(drawn(told), "segment")]
    assert min(heights) > 8
    told = walk()
    del told["log_segments"]
    assert len(panel_rects(drawn(told), "chosen")) == 1


@pytest.mark.parametrize("at", [-1, -2, -3])
def test_special_times_need_no_segment(at: int) -> None:
    answer = {"offset": 0, "timestamp": -1, "leader_epoch": 0}
    drawing = drawn(walk(asked={"timestamp": at}, segments=[], answer=answer))
    assert "no segment had to be read" in drawing.texts


@pytest.mark.parametrize("at", [0, 2**63 - 1])
def test_a_time_far_away_does_not_squeeze_the_log(at: int) -> None:
    drawing = drawn(walk(asked={"timestamp": at}, segments=[], answer={"offset": -1, "timestamp": -1, "leader_epoch": -1}))
    boxes = panel_rects(drawing, "segment")
    assert max(x + width for x, _, width, _ in boxes) - min(x for x, _, _, _ in boxes) > RIGHT - LEFT - 2
    assert "answer: no such record (yet)" in drawing.texts


def test_names_from_outside_are_shown_and_never_more_and_logs_without_records_are_drawn() -> None:
    name = "<script>alert(1)</script>&\x1b[2J\x00\u202e" + "x" * 100_000
    picture = walk_picture([(name, walk())], UTC).markup()
    assert len(picture) < MAX_BYTES
    drawing = Drawing(picture)
    assert drawing.texts[0].startswith("<script>alert(1)</script>&\\x1b[2J\\x00\\u202ex")
    drawn({})
    drawn(walk(1, high_watermark=0, log_segments=[{"segment": 0, "size_bytes": 0}], segments=[], answer={"offset": -1}))
    bare = [{"segment": 0, "max_timestamp": -1, "least_timestamp": -1}, {"segment": 100, "max_timestamp": -1}]
    drawn(walk(2, log_segments=bare, segments=[step(1, max_timestamp=-1)], asked={"offset": 150}, answer={"offset": 150}))


@pytest.mark.merge
def test_10_000_partitions_of_10_000_segments_make_a_small_picture() -> None:
    reads = [{"position": number * 2 % 1000, "bytes": 1, "cached": number % 2 == 0} for number in range(10_000)]
    index = {"entries": 10_000_000, "slot": 5_000_000, "offset": 1, "position": 1, "looked_up": 1}
    large = walk(10_000, segments=[step(3, reads=reads, offset_index=index)])
    picture = walk_picture([(f"t-{number}", large) for number in range(10_000)], UTC).markup()
    drawing = Drawing(picture)
    assert len(picture) < MOST_WALKS * MAX_BYTES
    assert len(panel_rects(drawing, "segment")) <= MOST_WALKS * MOST_BOXES
    assert len(panel_rects(drawing, "read")) <= MOST_WALKS * MOST_READS
    assert "others: 9,988 partitions, 9,988 of them with an answer" in drawing.texts
    assert drawing.size[1] < MOST_WALKS * 600
