from __future__ import annotations

import math
import random
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

import attrs
import pytest
import triolog
from hypothesis import given
from hypothesis import strategies as st
from triolog.tools.export.log_pieces import LogSource, plan_pieces
from triolog.tools.export.manifest import Manifest
from triolog.tools.spark.jobs import profile_report
from triolog.tools.spark.jobs.profile import TopicProfile, merge, profile_piece

HOUR_MS = 3_600_000
Row = tuple[int | None, bytes | None, bytes | None, tuple[()]]


def profiled(path: Path, batches: list[list[Row]]) -> TopicProfile:
    with triolog.blocking.open(path, durability="os", config={"retention.ms": "-1"}) as broker:
        broker.create_topic("t")
        for rows in batches:
            broker.append("t", rows)
    manifest = Manifest.open(None, "profile", {})
    pieces = plan_pieces(LogSource(directories=(str(path),), topics=("t",)), manifest)
    return merge("t", [{**profile_piece(piece.what), "partition": 0} for piece in pieces])


def test_counts_sizes_keys_and_lateness_are_those_of_the_records(tmp_path: Path) -> None:
    source = random.Random(3)
    rows: list[Row] = []
    for number in range(2000):
        key = None if number % 11 == 0 else b"key %d" % min(source.randrange(50), source.randrange(50))
        value = None if number % 13 == 0 else bytes(source.randrange(300))
        rows.append((1_700_000_000_000 + number * 20_000 + source.randrange(-90_000, 90_000), key, value, ()))
    found = profiled(tmp_path, [rows[start : start + 100] for start in range(0, 2000, 100)])
    keys = Counter(key for _, key, _, _ in rows if key is not None)
    values = [value for _, _, value, _ in rows if value is not None]
    newest, late = 0, []
    for timestamp, *_ in rows:
        assert timestamp is not None
        if timestamp < newest:
            late.append(newest - timestamp)
        newest = max(newest, timestamp)
    assert (found.records, found.partitions) == (2000, {0: 2000})
    assert (found.null_keys, found.null_values) == (2000 - keys.total(), 2000 - len(values))
    assert (found.key_bytes, found.value_bytes) == (sum(len(key) * n for key, n in keys.items()), sum(map(len, values)))
    assert dict(found.hours) == Counter((timestamp or 0) // HOUR_MS for timestamp, *_ in rows)
    assert dict(found.sizes) == Counter(1 << math.ceil(math.log2(max(len(value), 1))) for value in values)
    assert found.distinct_keys == len(keys)
    assert dict(found.top_keys).items() <= keys.items()
    assert [count for _, count in found.top_keys] == sorted(keys.values(), reverse=True)[: len(found.top_keys)]
    assert (found.late_records, found.max_late_ms, sum(found.lateness.values())) == (len(late), max(late), len(late))


def test_number_of_many_different_keys_is_estimated_within_a_tenth(tmp_path: Path) -> None:
    starts = range(0, 20_000, 1000)
    batches: list[list[Row]] = [[(0, b"%d" % number, b"", ()) for number in range(start, start + 1000)] for start in starts]
    assert profiled(tmp_path, batches).distinct_keys == pytest.approx(20_000, rel=0.1)


def parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text.removeprefix("<!doctype html>"))


def cells(text: str) -> list[list[str]]:
    """Every row of every table, as text."""
    return [["".join(cell.itertext()) for cell in row] for row in parsed(text).iter("tr")]


def test_report_is_well_formed_whatever_keys_and_topics_hold(tmp_path: Path) -> None:
    found = profiled(tmp_path, [[(number * 50 * HOUR_MS, b"<script>\xff&", b"v", ()) for number in range(100)]])
    odd = [(b"\x00\x1b[31m", 3), (b"", 2), (b"k" * 1000, 1)]
    text = profile_report.render([found, attrs.evolve(found, top_keys=odd)], "a <title> & more")
    assert "<script>" not in text
    rows = cells(text)
    assert [row[0] for row in rows if row[2:] in (["3", "3.0%"], ["2", "2.0%"], ["1", "1.0%"])][:2] == ["\\x00\\x1b[31m", '""']
    assert max(len(row[0]) for row in rows) < 100
    assert text.count("<rect") <= 2 * profile_report.MAX_BARS


def test_powers_that_nothing_fell_into_have_a_line_too(tmp_path: Path) -> None:
    found = attrs.evolve(profiled(tmp_path, [[(0, b"k", b"v", ())]]), records=4, sizes={512: 3, 4096: 1}, lateness={2048: 1})
    rows = cells(profile_report.render([found], "t"))
    sizes = [row for row in rows if row[0] in ("512 B", "1.0 KiB", "2.0 KiB", "4.0 KiB")]
    assert [row[2:] for row in sizes] == [["3", "75.0%"], ["0", "0.0%"], ["0", "0.0%"], ["1", "25.0%"]]
    assert ["2.0 s", "", "1", "25.0%"] in rows


def test_of_very_many_partitions_those_that_stand_out_are_shown(tmp_path: Path) -> None:
    found = attrs.evolve(profiled(tmp_path, [[(0, b"k", b"v", ())]]), partitions={number: number for number in range(1000)})
    text = profile_report.render([found], "t")
    assert "Of 1,000 partitions those with the most and the fewest records" in text
    named = [int(row[0]) for row in cells(text) if row[0].isdigit()]
    assert named == [*range(profile_report.MAX_PARTITIONS // 2), *range(1000 - profile_report.MAX_PARTITIONS // 2, 1000)]


@given(st.dictionaries(st.integers(0, 10**7), st.integers(1, 100), min_size=1))
def test_bars_of_time_hold_every_record_and_are_not_too_many(hours: dict[int, int]) -> None:
    width, first, counts = profile_report.bars_of_time(hours)
    assert len(counts) <= profile_report.MAX_BARS
    assert first % width == 0
    assert counts[0] > 0 < counts[-1]
    for index, count in enumerate(counts):
        inside = range(first + index * width, first + (index + 1) * width)
        assert count == sum(records for hour, records in hours.items() if hour in inside)


@pytest.mark.parametrize(
    ("hours", "said"),
    [
        ({0: 1, profile_report.MAX_BARS - 1: 1}, ["a bar for an hour", "1970-01-01 00:00", "1970-01-09 07:00"]),
        ({0: 1, profile_report.MAX_BARS: 1}, ["a bar for 2 hours", "1970-01-01 00:00", "1970-01-09 08:00"]),
        ({5: 1, 200 * 24: 7}, ["a bar for 2 days", "1970-01-01", "1970-07-20", "The highest has 7 records"]),
        ({10**9: 1}, ["hour 1000000000"]),
        ({}, ["none"]),
    ],
)
def test_rate_says_what_a_bar_is_and_when_it_begins_and_ends(hours: dict[int, int], said: list[str]) -> None:
    plot = profile_report.rate_plot(hours)
    assert [text for text in said if text not in plot] == []
