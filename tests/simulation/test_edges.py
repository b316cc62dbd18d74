"""Small worlds of what machines at the edge have: programs that append over HTTP, and clocks that start in 1970."""

from __future__ import annotations

from typing import Any, Final

import pytest

from . import history as h
from .script import Script, Step
from .test_misfortunes import SMALL, events

pytestmark = pytest.mark.merge  # worlds are simulated

RETENTION: Final = {"segment.bytes": "700", "retention.ms": "40000", "file.delete.delay.ms": "0"}


def world(steps: list[Step], **fields: Any) -> Script:
    steps = sorted(steps, key=lambda step: step.at_ms)
    topics = {"plain": {"partitions": 1, "config": RETENTION}, "stamped": {"partitions": 2, "config": SMALL}}
    return Script("edges", "fsync", topics, tuple(steps), **fields)


def posts(count: int) -> list[Step]:
    """Bodies for two partitions, and streams, of two programs."""
    bodies = [
        Step(100 * each, "http 0", "post", {"topic": "stamped", "partitions": [0, 1], "count": 3}) for each in range(count)
    ]
    streams = [Step(100 * each, "http 1", "stream", {"topic": "stamped", "partition": 1, "count": 7}) for each in range(count)]
    return [*bodies, *streams]


def test_requests_over_http_that_are_repeated_after_a_lost_response_are_stored_once() -> None:
    """Responses that do not arrive, a kill and a power cut in the middle, and connections that break in a stream."""
    unheard = Step(450, "operator", "restart", {"for_ms": 0, "unheard_ms": 300})
    ends = [
        Step(1500, "operator", "kill", {"for_ms": 0, "after": 3}),
        Step(3000, "operator", "power", {"for_ms": 0, "after": 5}),
    ]
    cuts = [Step(4000 + 40 * number, "operator", "cut") for number in range(10)]
    sent, acknowledged, stored = events(world([*posts(40), unheard, *ends, *cuts]), h.Send, h.Acknowledged, h.Stored)
    names = {record.id for event in sent for record in event.records}
    assert {name for event in acknowledged for name in event.ids} == names
    assert {record.id for event in stored for record in event.records} == names
    assert any(event.base_offset < 0 for event in acknowledged), "no stream was continued"


def test_a_start_in_1970_and_a_jump_to_the_present_delete_nothing_before_its_time() -> None:
    """The log has records of both times when the clock jumps, and a power cut comes before and after."""
    sends = [
        Step(400 * number, f"kafka {at}", "send", {"topic": topic, "partition": 0, "count": 5})
        for number in range(100)
        for at, topic in enumerate(("plain", "stamped"))
    ]
    looks = [
        Step(700 * number, "looker 0", "look", {"topic": "stamped", "partition": 0, "back_ms": 300}) for number in range(60)
    ]
    cuts = [Step(at_ms, "operator", "power", {"for_ms": 100, "after": 2}) for at_ms in (8000, 21_000)]
    jump = Step(15_000, "operator", "set_clock", {"to": "true"})
    looked, stored = events(world([*sends, *looks, *cuts, jump], starts_in_1970=True), h.LookedUp, h.Stored)
    assert {event.found_timestamp > 10**12 for event in looked if event.offset >= 0} == {False, True}
    assert all(event.start_offset for event in stored if event.partition.topic == "plain"), "nothing was old enough"
