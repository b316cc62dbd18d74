"""`triolog edge-demo` with everything that is in it, and what it claims, judged on accounts that are wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import attrs
import pytest
import trio
from triolog.protocol.limits import MIB
from triolog.protocol.types import Record, TopicPartition
from triolog.tools.demo.edge import devices
from triolog.tools.demo.edge.accounts import Account, DeviceAccount
from triolog.tools.demo.edge.slow_link import CHUNK_BYTES, SlowLink
from triolog.tools.demo.edge.small_disk import LOGS_BYTES, SIZE_BYTES, small_disk
from triolog.tools.demo.edge.story import MESSAGES, judge
from triolog.tools.demo.edge.upstream import Arrived
from triolog.tools.demo.edge.week import (
    CANCELLATIONS,
    DELAYS,
    DEPARTURES,
    PARTITIONS,
    WEEK_MS,
    in_a_week,
    topic_config,
    topic_of,
)
from triolog.tools.demo.flights import find_source, load_flights
from triolog.tools.demo.showing import Demo

from tests.tools.demo.test_flights import departing, flights_of

ROWS = [b"%d" % row for row in range(10)]
DEPARTED = Account(
    place=TopicPartition(DEPARTURES, 2), written=ROWS, arrived=[*ROWS[2:5], *ROWS[7:]], told=[(0, 1), (5, 6)], dropped=4
)
DELAYED = Account(place=TopicPartition(DELAYS, 0), written=ROWS, arrived=ROWS)
CANCELLED = Account(place=TopicPartition(CANCELLATIONS, 0), written=ROWS[:6], refused=4, arrived=ROWS[:6])
ALL = [DEPARTED, DELAYED, CANCELLED]
ADDS_UP, ORDER, EQUAL, GAVE_WAY = range(4)
"""The claims of `judge`, in their order."""


def judged(accounts: Sequence[Account], differing: Sequence[str] = ()) -> tuple[Demo, set[int]]:
    """The demo, and which claims failed."""
    demo = Demo(is_quiet=True)
    judge(demo, accounts, differing)
    return demo, {number for number, check in enumerate(demo.checks) if not check.ok}


def test_everything_adds_up_and_without_anything_nothing_was_shown() -> None:
    other = attrs.evolve(DEPARTED, place=TopicPartition(DEPARTURES, 0))
    demo, failed = judged([*ALL, other])
    assert failed == set()
    assert demo.checks[ADDS_UP].detail == "36 = 28 + 8"
    assert demo.figures["topics"][DEPARTURES] == {
        "written": 20, "refused": 0, "forwarded": 12, "dropped": 8, "told": 8, "duplicates": 0, "adds_up": True
    }  # fmt: skip
    assert {ADDS_UP, EQUAL, GAVE_WAY} <= judged([])[1]


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"arrived": DEPARTED.arrived[1:]}, id="one is missing at the start"),
        pytest.param({"arrived": DEPARTED.arrived[:-1]}, id="one is missing at the end"),
        pytest.param({"arrived": [*DEPARTED.arrived, ROWS[9]]}, id="one came twice"),
        pytest.param({"arrived": [*DEPARTED.arrived, b"99"]}, id="one that nobody wrote"),
        pytest.param({"arrived": [ROWS[0], *DEPARTED.arrived[1:]]}, id="one that was dropped came instead of another"),
        pytest.param({"dropped": 3}, id="the server counted less"),
        pytest.param({"dropped": 5}, id="the server counted more"),
        pytest.param({"told": [(0, 1)]}, id="a gap was not told"),
        pytest.param({"told": [(0, 1), (5, 7)]}, id="more was told than is missing"),
        pytest.param({"told": [(0, 1), (5, 6), (5, 6)]}, id="a gap was told twice"),
        pytest.param({"misplaced": 1}, id="acknowledged at another offset"),
    ],
)
def test_one_that_is_wrong_is_found(wrong: dict[str, object]) -> None:
    demo, failed = judged([attrs.evolve(DEPARTED, **wrong), DELAYED, CANCELLED])
    assert failed == {ADDS_UP}
    assert demo.checks[ADDS_UP].detail.startswith(f"{DEPARTURES}-2: ")
    assert not demo.figures["topics"][DEPARTURES]["adds_up"]


def test_another_order_or_a_record_that_differs_is_found_and_a_duplicate_is_no_other_order() -> None:
    assert ORDER not in judged([DEPARTED, attrs.evolve(DELAYED, arrived=[*ROWS, ROWS[0]]), CANCELLED])[1]
    assert judged([DEPARTED, attrs.evolve(DELAYED, arrived=[ROWS[1], ROWS[0], *ROWS[2:]]), CANCELLED])[1] == {ORDER}
    demo, failed = judged(ALL, ["offset 3 upstream: key"])
    assert (failed, demo.checks[EQUAL].detail) == ({EQUAL}, "1 of 22 differ; offset 3 upstream: key")


@pytest.mark.parametrize(
    "accounts",
    [
        [attrs.evolve(DEPARTED, dropped=0, written=DEPARTED.arrived, told=()), DELAYED, CANCELLED],
        [DEPARTED, attrs.evolve(DELAYED, dropped=1, arrived=ROWS[1:], told=[(0, 0)]), CANCELLED],
        [DEPARTED, DELAYED, attrs.evolve(CANCELLED, dropped=1, arrived=ROWS[1:6], told=[(0, 0)])],
        [DEPARTED, DELAYED, attrs.evolve(CANCELLED, refused=0)],
        [DEPARTED, attrs.evolve(DELAYED, refused=1), CANCELLED],
    ],
)
def test_a_topic_that_got_what_it_was_not_to_get_is_found(accounts: Sequence[Account]) -> None:
    assert judged(accounts)[1] == {GAVE_WAY}


FLIGHT = departing(1000, row=7)
RECORD = Record(3, 1000, FLIGHT.key, FLIGHT.value, (("row", b"7"),))


def arrived(*records: Record) -> Arrived:
    found = Arrived({FLIGHT.row: FLIGHT})
    for record in records:
        found.add(record)
    return found


def test_what_was_written_arrives_with_what_was_lost_before_it() -> None:
    found = arrived(RECORD._replace(headers=(("row", b"7"), ("triolog.gap", b"120-131"))), RECORD)
    assert (found.rows, found.gaps, found.differing) == ([b"7", b"7"], [(120, 131)], [])


@pytest.mark.parametrize(
    "changes",
    [
        {"value": b"{}"},
        {"key": None},
        {"timestamp": 1001},
        {"headers": ()},
        {"headers": (("row", b"8"),)},
        {"headers": (("row", b"7"), ("other", None))},
    ],
)
def test_whatever_is_changed_differs(changes: dict[str, object]) -> None:
    found = arrived(RECORD._replace(**changes), RECORD)
    [difference] = found.differing
    assert difference.startswith("offset 3 upstream: Record(")


DEVICES = DeviceAccount(published=ROWS, acknowledged=ROWS[:8], arrived=[*ROWS[:9], *ROWS[3:5]])
"""Two arrived again, and one that was not acknowledged."""


def test_messages_of_devices_may_arrive_again_or_without_an_acknowledgement() -> None:
    demo = Demo(is_quiet=True)
    judge(demo, ALL, [], DEVICES)
    assert (demo.checks[-1].ok, demo.checks[-1].detail) == (True, "8 acknowledged, 2 duplicates by QoS 1")
    assert demo.figures["devices"] == {
        "written": 8, "refused": 0, "forwarded": 8, "dropped": 0, "told": 0, "duplicates": 2, "adds_up": True
    }  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "detail"),
    [
        ({"arrived": [*ROWS[:7], ROWS[8]]}, "1 acknowledged messages are missing"),
        ({"arrived": [*ROWS, b"99"]}, "1 were never published"),
        ({"acknowledged": [], "arrived": []}, "nothing was acknowledged"),
    ],
)
def test_a_message_that_is_lost_or_invented_fails_the_check(wrong: dict[str, object], detail: str) -> None:
    demo = Demo(is_quiet=True)
    judge(demo, ALL, [], attrs.evolve(DEVICES, **wrong))
    assert (demo.checks[-1].ok, demo.checks[-1].detail) == (False, detail)
    assert not demo.figures["devices"]["adds_up"]


def test_without_mosquitto_the_reason_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "PROGRAM", None)
    assert devices.missing() == "Mosquitto is not installed: apt-get install mosquitto"


END_MS = 2_000_000_000_000


@pytest.mark.parametrize(
    ("delay", "topic"),
    [
        *(("-60", DEPARTURES), ("-5", DEPARTURES), ("0", DEPARTURES), ("59", DEPARTURES), ("60", DELAYS), ("853", DELAYS)),
        ("NA", CANCELLATIONS),
    ],
)
def test_a_flight_goes_to_the_topic_of_its_delay(delay: str, topic: str) -> None:
    (flight,) = flights_of({"dep_delay": delay, "dep_time": "NA" if delay == "NA" else "517"})
    assert topic_of(flight) == topic


def test_a_year_becomes_a_week_in_its_order() -> None:
    flights = load_flights(find_source(), 2000)
    week = in_a_week(flights, END_MS)
    times = [flight.timestamp for _, flight in week]
    assert (times[0], times[-1]) == (END_MS - WEEK_MS, END_MS)
    assert all(one <= other for one, other in pairwise(times))
    assert {flight.row for _, flight in week} == {flight.row for flight in flights}
    assert {topic for topic, _ in week} == PARTITIONS.keys()
    assert all(flight.partition < PARTITIONS[topic] for topic, flight in week)


def test_a_single_moment_is_no_division_by_zero_and_only_cancellations_are_refused() -> None:
    assert len(in_a_week([departing(1000, row=1), departing(1000, row=2)], END_MS)) == 2
    policies = {topic: topic_config(topic, "group")["disk.full.policy"] for topic in PARTITIONS}
    assert policies == {DEPARTURES: "drop-oldest", DELAYS: "drop-oldest", CANCELLATIONS: "refuse"}


@pytest.fixture
async def link(nursery: trio.Nursery) -> AsyncIterator[SlowLink]:
    """To somebody who answers what comes."""

    async def echo(stream: trio.SocketStream) -> None:
        async for data in stream:
            await stream.send_all(data)

    serve = partial(trio.serve_tcp, echo, 0, host="127.0.0.1")
    listeners = await nursery.start(serve)
    made = SlowLink(lambda: listeners[0].socket.getsockname())
    await nursery.start(made.run)
    yield made
    nursery.cancel_scope.cancel()


async def through(link: SlowLink, data: bytes) -> bytes:
    async with await trio.open_tcp_stream("127.0.0.1", link.port) as stream:
        got = b""
        try:
            await stream.send_all(data)
            while len(got) < len(data) and (some := await stream.receive_some()):
                got += some
        except trio.BrokenResourceError:
            pass
        return got


async def test_a_link_carries_both_ways_and_turns_everybody_away_when_it_is_down(link: SlowLink) -> None:
    assert await through(link, b"x") == b""
    assert (link.turned_away, link.carried_bytes) == (1, 0)
    link.is_up = True
    data = bytes(range(256)) * 1000
    assert await through(link, data) == data
    assert link.carried_bytes == 2 * len(data)


async def test_what_stands_behind_it_may_be_gone(link: SlowLink) -> None:
    link.is_up = True
    link._target = lambda: ("127.0.0.1", 1)
    assert await through(link, b"x") == b""


async def test_no_more_goes_than_it_carries(link: SlowLink) -> None:
    """By the clock that it waits on."""
    link.is_up, link.bytes_per_second = True, CHUNK_BYTES * 100
    begin = trio.current_time()
    data = bytes(CHUNK_BYTES * 10)
    assert await through(link, data) == data
    assert trio.current_time() - begin >= 0.2 - 1e-6


@pytest.mark.merge
def test_it_is_small_and_nothing_is_left_of_it(tmp_path: Path) -> None:
    with small_disk(tmp_path) as disk:
        assert 40 * MIB < disk.room_bytes <= SIZE_BYTES
        if not disk.settings:
            assert os.statvfs(disk.folder).f_bavail * os.statvfs(disk.folder).f_frsize == disk.room_bytes
            assert disk.folder.is_mount()
    assert not disk.folder.is_mount()


def test_where_nothing_can_be_mounted_the_logs_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with small_disk(tmp_path) as disk:
        assert disk.settings == {"TRIOLOG_LOG_MAX_BYTES": str(LOGS_BYTES)}
        assert "because no file system of 64 MiB can be mounted" in disk.what


@pytest.mark.merge
@pytest.mark.timeout(300)
def test_a_week_without_an_uplink_adds_up() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "triolog.tools.cli", "edge-demo", "--json"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["ok"]
    assert len(found["checks"]) == (7 if devices.missing() else 8)
    if not devices.missing():
        readings = found["devices"]
        assert readings["written"] == readings["forwarded"] == devices.DEVICES * MESSAGES
    topics = found["topics"]
    assert sum(topic["written"] + topic["refused"] for topic in topics.values()) == 336_776
    assert all(topic["written"] == topic["forwarded"] + topic["dropped"] for topic in topics.values())
    assert topics[DEPARTURES]["dropped"] == topics[DEPARTURES]["told"] > 0
    assert topics[DELAYS]["written"] == topics[DELAYS]["forwarded"] > 20_000
    assert topics[CANCELLATIONS]["refused"] > 0
    assert found["refused_connections"] > 0
    assert found["forwarded_at_kill"] > 0
