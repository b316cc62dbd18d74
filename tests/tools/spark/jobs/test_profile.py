"""Profiles of a small log against what its records say, and the report that is made of them."""

from __future__ import annotations

import math
import random
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

import pytest
from triolog.server.embedded import BlockingBroker
from triolog.tools.spark.jobs.log_pieces import LogSource, plan_pieces
from triolog.tools.spark.jobs.manifest import Manifest
from triolog.tools.spark.jobs.profile import TopicProfile, merge, profile_piece
from triolog.tools.spark.jobs.profile_report import MAX_BARS, bars, render

HOUR_MS = 3_600_000
Row = tuple[int | None, bytes | None, bytes | None, tuple[()]]


def profiled(path: Path, batches: list[list[Row]]) -> TopicProfile:
    with BlockingBroker(path, durability="os", config={"retention.ms": "-1"}) as broker:
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


def test_report_is_well_formed_whatever_keys_and_topics_hold(tmp_path: Path) -> None:
    found = profiled(tmp_path, [[(number * 50 * HOUR_MS, b"<script>\xff&", b"v", ()) for number in range(100)]])
    text = render([found], "a <title> & more")
    assert "<script>" not in text
    ElementTree.fromstring(text.removeprefix("<!doctype html>").replace('<meta charset="utf-8">', ""))
    assert text.count("<rect") <= MAX_BARS + 30


def test_report_without_records_says_so() -> None:
    assert "There are no records" in render([], "empty")
    assert bars([], "records") == "<p>none</p>"
