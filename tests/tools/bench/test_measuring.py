"""Reports of measurements, and counts of a server that does next to nothing, to the last call."""

from __future__ import annotations

import datetime
import json
import math
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.kafka.apis import ApiKey
from triolog.protocol.kafka.messages.groups import HeartbeatResponse
from triolog.protocol.kafka.messages.offsets import (
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
    OffsetPartitionError,
)
from triolog.protocol.schema import codec
from triolog.tools.bench.counting.meters import Counts
from triolog.tools.bench.counting.rounds import Peer, Rounds
from triolog.tools.bench.counting.served import read_kafka_answer
from triolog.tools.bench.measuring.child import LoadFailedError
from triolog.tools.bench.measuring.curves import Curve
from triolog.tools.bench.measuring.machine import IN_MEMORY, Machine, default_parent, filesystem_of, read_machine
from triolog.tools.bench.measuring.report import Line, Report, RowResult, Verdict, absent, at_least, at_most, percentile, ratio


@pytest.fixture
def machine() -> Machine:
    return Machine("A CPU [fast]", 2, 24.0, "6.1", "3.11.7", "ext4", "/dev/vda", 0.12, 0.0)


@pytest.fixture
def report(machine: Machine) -> Report:
    lines = [
        Line("ours", "ms", [1.0, 3.0, 2.0], at_most(2, "ms"), "of [many]"),
        Line("rate", "records/s", [12345.6], at_least(20_000, "records/s")),
        absent("theirs", "redis-server not installed"),
    ]
    rows = [RowResult("one row", lines, ["a note"]), RowResult("another", [], failure="it broke")]
    return Report(datetime.date(2026, 11, 20), machine, "full", rows)


def test_json_holds_every_sample_and_what_follows_from_them(report: Report) -> None:
    row, failed = json.loads(json.dumps(report.to_json()))["rows"]
    assert [line["samples"] for line in row["lines"]] == [[1.0, 3.0, 2.0], [12345.6], []]
    assert [line["median"] for line in row["lines"]] == [2.0, 12345.6, None]
    assert [line["verdict"] for line in row["lines"]] == ["met", "missed", "not measured"]
    assert (row["failure"], failed["failure"]) == (None, "it broke")
    assert report.has_failures


def test_the_page_shows_medians_spreads_verdicts_and_reasons(report: Report) -> None:
    text = report.to_markdown()
    for shown in ("A CPU [fast]", "2 ms", "1 .. 3", "<= 2 ms", "met", "12,346 records/s", "missed", "of [many]"):
        assert shown in text
    for shown in ("not measured", "redis-server not installed", "a note", "it broke", "fdatasync after 200 B p50 0.120 ms"):
        assert shown in text


def test_a_run_is_kept_as_json_and_as_a_page(report: Report, tmp_path: Path) -> None:
    paths = report.save(tmp_path / "docs" / "benchmarks")
    assert [path.name for path in paths] == ["2026-11-20.json", "2026-11-20.md"]
    assert json.loads(paths[0].read_text()) == report.to_json()
    page = paths[1].read_text()
    assert "| ours | 2 ms | 1 .. 3 | <= 2 ms | met | of [many] |" in page
    assert "ext4 on /dev/vda" in page


def test_curves_become_a_picture_beside_the_page(machine: Machine, tmp_path: Path) -> None:
    curves = [
        Curve(
            "produce, p50",
            "ms",
            "partitions",
            {"triolog": {100: 0.1, 1_000: 0.1, 20_000: 5.0}, "Kafka": {100: 0.2, 1_000: 30.0}},
        ),
        Curve("memory", "MiB", "partitions", {"triolog": {100: 40.0}}),
    ]
    rows = [RowResult("growth: partitions", [Line("a", "ms", [1.0])], curves=curves), RowResult("another", [])]
    names = [path.name for path in Report(datetime.date(2026, 11, 20), machine, "full", rows, "kafka").save(tmp_path)]
    assert names == ["2026-11-20-kafka.json", "2026-11-20-kafka.md", "2026-11-20-kafka-growth-partitions.svg"]
    assert f"![growth: partitions]({names[2]})" in (tmp_path / names[1]).read_text()
    picture = ElementTree.fromstring((tmp_path / names[2]).read_text())
    dots = {dot[0].text: dot for dot in picture.iter("{http://www.w3.org/2000/svg}circle") if len(dot)}
    assert list(dots) == [
        "triolog, 100 partitions: 0.1 ms",
        "triolog, 1,000 partitions: 0.1 ms",
        "triolog, 20,000 partitions: 5 ms",
        "Kafka, 100 partitions: 0.2 ms",
        "Kafka, 1,000 partitions: 30 ms",
        "triolog, 100 partitions: 40 MiB",
    ]
    at = {title: (float(dot.attrib["cx"]), -float(dot.attrib["cy"])) for title, dot in dots.items()}
    first, second, third, slow, slowest, _ = at.values()
    assert first[0] == slow[0] < second[0] == slowest[0] < third[0]
    assert first[1] == second[1] < slow[1] < third[1] < slowest[1]


def test_files_are_on_the_nearest_mount_and_not_in_memory_by_default() -> None:
    assert filesystem_of("/proc/self")[0] == "proc"
    assert filesystem_of("/")[0] != "proc"
    assert filesystem_of(default_parent())[0] not in IN_MEMORY


def test_the_machine_line_says_what_was_measured_on(tmp_path: Path) -> None:
    machine = read_machine(str(tmp_path), syncs=3)
    assert machine.cores >= 1
    assert machine.sync_p50_ms > 0
    assert list(tmp_path.iterdir()) == []


@given(st.lists(st.integers(0, 50), min_size=1, max_size=400), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_a_percentile_is_the_smallest_value_that_the_share_does_not_exceed(values: list[int], share: float) -> None:
    needed = math.ceil(round(len(values) * share, 6))
    smallest = min(value for value in values if sum(other <= value for other in values) >= needed)
    assert percentile(values, share) == smallest


def test_a_target_looks_at_the_median_and_is_not_met_by_what_was_not_measured() -> None:
    samples = [1.0, 100.0, 2.0]
    assert Line("a", "ms", samples, at_most(2, "ms")).verdict is Verdict.MET
    assert Line("a", "ms", samples, at_most(1.9, "ms")).verdict is Verdict.MISSED
    assert Line("a", "k/s", samples, at_least(2, "k/s")).verdict is Verdict.MET
    assert Line("a", "k/s", samples, at_least(2.1, "k/s")).verdict is Verdict.MISSED
    assert Line("a", "ms", samples).verdict is Verdict.NO_TARGET
    assert absent("a", "nats-server not installed", at_most(math.inf, "ms")).verdict is Verdict.NOT_MEASURED
    assert list(ratio("a", [2.0, 30.0], [1.0, 10.0]).samples) == [2.0, 3.0]
    with pytest.raises(ValueError, match="shorter"):
        ratio("a", [1.0, 2.0], [1.0])


FRAME = b"\0\0\0\3abc"
STRAY = 2.0
"""Calls of trio's that a request does not always take."""


def add(first: int, second: int) -> int:
    return first + second


@asynccontextmanager
async def echo_rounds(
    *,
    peers: int = 1,
    calls: int = 0,
    turns: int = 0,
    threaded: range = range(0),
    check: Callable[[bytes], None] = lambda _: None,
) -> AsyncIterator[Rounds]:
    """Of a server that answers each request after so many calls of a function and so many turns for others. Those requests that
    are `threaded` take many calls more, and it says that a thread had to do with them. It uses one to say it, too."""
    answered = looks = 0

    async def serve(stream: trio.SocketStream) -> None:
        nonlocal answered
        while await stream.receive_some(1024):
            answered += 1
            for _ in range(calls + 100 * (answered in threaded)):
                add(1, 2)
            for _ in range(turns):
                await trio.lowlevel.checkpoint()
            await stream.send_all(FRAME)

    async def threads() -> int:
        nonlocal looks
        looks += 1
        return looks + len([number for number in threaded if number <= answered])

    async with trio.open_nursery() as nursery:
        [listener] = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        address = ("127.0.0.1", listener.socket.getsockname()[1])
        with ExitStack() as stack:
            clients = [stack.enter_context(Peer(address)) for _ in range(peers)]
            yield Rounds(clients, [FRAME] * peers, check, threads)
        nursery.cancel_scope.cancel()


async def echo_counts(**options: Any) -> Counts:
    async with echo_rounds(**options) as opened:
        return await opened.counts(rounds=10, warm_up=2)


@pytest.mark.parametrize("peers", [1, 3])
async def test_each_call_of_the_server_counts_and_none_of_the_clients(peers: int) -> None:
    def decode(_: bytes) -> None:
        for _ in range(50):
            add(1, 2)

    bare = (await echo_counts(peers=peers)).calls
    assert (await echo_counts(peers=peers, calls=20)).calls == pytest.approx(bare + 20, abs=STRAY)
    assert (await echo_counts(peers=peers, check=decode)).calls == pytest.approx(bare, abs=STRAY)


async def test_calls_are_told_by_function_without_those_of_waiting() -> None:
    async with echo_rounds(calls=7, peers=2) as opened:
        calls = await opened.functions(rounds=10, warm_up=2)
    assert calls["add (bench/test_measuring.py)"] == 7
    assert not any("wait_all_tasks_blocked" in name for name in calls)
    assert list(calls.values()) == sorted(calls.values(), reverse=True)


async def test_each_turn_of_the_loop_counts_and_requests_that_wait_together_share_them() -> None:
    bare = await echo_counts()
    assert bare.turns == round(bare.turns)
    assert (await echo_counts(turns=3)).turns == bare.turns + 3
    bare = await echo_counts()
    assert (await echo_counts(peers=4)).turns == bare.turns / 4


async def test_rounds_in_which_threads_work_are_taken_again() -> None:
    bare = await echo_counts()
    assert (await echo_counts(threaded=range(1, 10))).calls == pytest.approx(bare.calls, abs=STRAY)


async def test_every_answer_is_looked_at_and_nothing_is_left_switched_on() -> None:
    before = sys.getprofile()
    await echo_counts()
    assert sys.getprofile() is before
    seen: list[bytes] = []
    await echo_counts(check=seen.append)
    assert set(seen) == {b"abc"}
    assert len(seen) == 1 + 2 + 2 * 10


async def test_an_answer_may_come_in_pieces_and_an_end_is_an_error() -> None:
    theirs = await trio.open_tcp_listeners(0, host="127.0.0.1")
    with Peer(("127.0.0.1", theirs[0].socket.getsockname()[1])) as peer:
        stream = await theirs[0].accept()
        await stream.send_all(FRAME[:2])
        assert peer.take() is None
        await stream.send_all(FRAME[2:5])
        assert peer.take() is None
        await stream.send_all(FRAME[5:])
        assert peer.take() == b"abc"
        await stream.aclose()
        with pytest.raises(LoadFailedError, match="the server closed a connection"):
            peer.take()
    await theirs[0].aclose()


def answer_of(key: ApiKey, body: object, version: int) -> bytes:
    return bytes(5) + b"".join(codec.write(body, version, flexible=True))


def test_an_error_anywhere_in_an_answer_is_no_load() -> None:
    assert read_kafka_answer(ApiKey.HEARTBEAT, answer_of(ApiKey.HEARTBEAT, HeartbeatResponse(), 4)) == HeartbeatResponse()
    part = OffsetPartitionError(partition_index=0, error_code=25)
    topic = OffsetCommitResponseTopic(name="", topic_id=bytes(16), partitions=[part])
    with pytest.raises(LoadFailedError, match="error_code=25"):
        read_kafka_answer(ApiKey.OFFSET_COMMIT, answer_of(ApiKey.OFFSET_COMMIT, OffsetCommitResponse(topics=[topic]), 10))
