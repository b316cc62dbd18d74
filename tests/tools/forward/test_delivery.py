from __future__ import annotations

import contextlib
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from triolog.protocol.types import TopicPartition
from triolog.server.embedded import BlockingBroker
from triolog.tools.client.blocking.admin import BlockingAdmin
from triolog.tools.client.blocking.client import BlockingClient
from triolog.tools.client.blocking.producer import BlockingProducer
from triolog.tools.client.procedures.groups import CommittedOffset, fetch_offsets
from triolog.tools.forward.memory import Wishes
from triolog.tools.forward.progress import LinkState
from triolog.tools.forward.source.server import ServerSource
from triolog.tools.forward.source.source import Piece
from triolog.tools.forward.upstream.resume import Mark

from tests.support.counts import by_tier
from tests.support.forwarding import GROUP, TOPIC, Forwarding, Running, forwarding, until

pytestmark = pytest.mark.merge  # clients wait for what does not answer

DATA = st.one_of(st.none(), st.binary(max_size=40))
NAMES = st.text(st.characters(exclude_characters="\0"), max_size=5)
"""librdkafka cuts names of headers at a NUL character: see test_refused_records."""
RECORDS = st.lists(
    st.tuples(st.integers(1, 1_700_000_000_000), DATA, DATA, st.lists(st.tuples(NAMES, DATA), max_size=3).map(tuple)),
    min_size=1,
    max_size=200,
)


def numbered(first: int, end: int, mark: str = "") -> list[bytes]:
    return [f"{mark}{number}".encode() for number in range(first, end)]


def committed(broker: BlockingBroker, group: str = GROUP) -> dict[TopicPartition, int]:
    return broker.groups.committed(group)


def topic_id(broker: BlockingBroker, topic: str = TOPIC) -> str:
    with BlockingClient(broker.native) as client:
        return next(each.topic_id or "" for each in BlockingAdmin(client).list_topics() if each.name == topic)


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(records=RECORDS)
def test_all_fields_of_records_are_the_same_upstream(
    pair: Forwarding, records: list[tuple[int, bytes, bytes, tuple[()]]]
) -> None:
    begin = len(pair.records()) if TOPIC in pair.upstream.topics() else 0
    pair.source.append(TOPIC, records)
    pair.drain()
    assert [(each.timestamp, each.key, each.value, each.headers) for each in pair.records()[begin:]] == records
    pair.source.append(TOPIC, [(-1, None, b"none", ()), (0, None, b"zero", ())])
    pair.drain()
    assert [record.timestamp for record in pair.records()[-2:]] == [-1, 1], "without a time, and at time zero"


@pytest.mark.parametrize("each", [500, by_tier(commit=150_000, merge=150_000, long=500_000)])
def test_partitions_stay_and_each_backlog_arrives_whole_and_in_order(each: int) -> None:
    partitions = 2
    with forwarding() as pair:
        pair.source.create_topic(TOPIC, partitions)
        for partition in range(partitions):
            for first in range(0, each, 10_000):
                pair.append(numbered(first, min(each, first + 10_000), f"{partition}-"), partition=partition)
        link = pair.drain()
        assert link.progress.snapshot()["records"] == partitions * each
        for partition in range(partitions):
            assert pair.values(partition=partition) == numbered(0, each, f"{partition}-")


def test_the_next_process_goes_on_at_the_resume_point_upstream_with_the_topics_id_and_the_last_record(pair: Forwarding) -> None:
    for number in range(2):
        pair.append(numbered(number * 5, number * 5 + 5))
        pair.drain(target="edge.{node}.{link}.{topic}")
    target = f"edge.node.link.{TOPIC}"
    assert pair.values(target) == numbered(0, 10)
    assert committed(pair.upstream) == {TopicPartition(target, 0): 10}
    with BlockingClient(pair.source.native) as client:
        noted = client.run(fetch_offsets(GROUP, None, require_stable=False))
    last = Mark(topic_id(pair.source), 9, pair.records(target)[-1].timestamp)
    assert noted == {TopicPartition(TOPIC, 0): CommittedOffset(10, str(last))}


@pytest.mark.parametrize(
    ("start", "first"),
    [("earliest", 0), ("latest", 10), ("2023-11-14T22:18:20+00:00", 5)],  # five minutes behind the first
)
def test_a_topic_that_was_never_forwarded_begins_where_the_link_says(pair: Forwarding, start: str, first: int) -> None:
    pair.source.append(TOPIC, [(1_700_000_000_000 + number * 60_000, None, b"%d" % number, ()) for number in range(10)])
    pair.drain(start=start)
    assert pair.values() == numbered(first, 10)


def test_a_link_follows_while_it_runs(pair: Forwarding) -> None:
    pair.upstream.create_topic(TOPIC)
    with Running(pair.link()):
        for number in range(5):
            pair.append(numbered(number, number + 1))
            until(lambda end=number + 1: pair.values() == numbered(0, end), "the next record")


def test_aborted_records_of_the_source_do_not_go_and_committed_ones_do(pair: Forwarding) -> None:
    with BlockingClient(pair.source.native) as client, BlockingProducer(client, transactional_id="id") as producer:
        for number, ends_well in enumerate((True, False, True)):
            with contextlib.suppress(InterruptedError), producer.transaction():
                producer.send(TOPIC, value=b"%d" % number, partition=0)
                if not ends_well:
                    raise InterruptedError
    pair.drain()
    assert pair.values() == [b"0", b"2"]
    assert committed(pair.source)[TopicPartition(TOPIC, 0)] == pair.source.log(TOPIC).end_offsets()[0]


def test_an_answer_that_is_lost_costs_nothing_and_doubles_nothing(pair: Forwarding) -> None:
    pair.upstream.create_topic(TOPIC)
    end = 0
    for api in ("Produce", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn", "InitProducerId"):
        for applied in (False, True):
            pair.append(numbered(end, end + 200))
            end += 200
            pair.upstream.faults.add(api, disconnect=True, applied=applied, once=True)
            pair.drain()
            assert pair.values() == numbered(0, end), (api, applied)


def test_at_least_once_doubles_no_more_than_what_went_since_the_last_note(pair: Forwarding) -> None:
    pair.source.append(TOPIC, [(1, None, value, (("own", b"x"),)) for value in numbered(0, 100)])
    pair.drain(delivery="at-least-once", origin_header=True)
    pair.source.groups.commit(GROUP, {TopicPartition(TOPIC, 0): 60})  # as after a crash behind the acknowledgements
    pair.drain(delivery="at-least-once", origin_header=True)
    assert pair.values() == numbered(0, 100) + numbered(60, 100)
    assert pair.records()[0].headers == (("own", b"x"), ("triolog.origin", f"node/{TOPIC}-0@0".encode()))
    assert len({record.headers for record in pair.records()}) == 100
    assert committed(pair.source) == {TopicPartition(TOPIC, 0): 100}
    assert committed(pair.upstream) == {}


def test_records_may_be_compressed_on_their_way(pair: Forwarding) -> None:
    for number, compression in enumerate(("gzip", "lz4", "zstd", "snappy"), 1):
        pair.append([b"a" * 1000] * 50)
        pair.drain(compression=compression)
        assert pair.values() == [b"a" * 1000] * 50 * number


def test_topics_are_found_by_a_pattern_also_later(pair: Forwarding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triolog.tools.forward.session.REFRESH_S", 0.05)
    for name in ("a.one", "b.one"):
        pair.source.create_topic(name)
        pair.append([name.encode()], topic=name)
    with Running(pair.link(topics=[], topic_pattern=r"a\..*")):
        until(lambda: "a.one" in pair.upstream.topics() and pair.values("a.one") == [b"a.one"], "the first topic")
        pair.source.create_topic("a.two")
        pair.append([b"a.two"], topic="a.two")
        until(lambda: "a.two" in pair.upstream.topics() and pair.values("a.two") == [b"a.two"], "the second topic")
    assert "b.one" not in pair.upstream.topics()


def test_partitions_that_are_added_are_forwarded(pair: Forwarding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triolog.tools.forward.session.REFRESH_S", 0.05)
    pair.upstream.create_topic(TOPIC, 2)
    with Running(pair.link()):
        pair.append(numbered(0, 5))
        until(lambda: pair.values() == numbered(0, 5), "the first partition")
        pair.source.create_partitions(TOPIC, 2)
        pair.append(numbered(5, 9), partition=1)
        until(lambda: pair.values(partition=1) == numbered(5, 9), "the second partition")


class AskedMeanwhile(ServerSource):
    """Somebody asks for a drain while the link looks for more."""

    wishes: Wishes
    left = 3

    def next(self, timeout_s: float) -> Piece | None:
        found = None
        if self.left:
            self.left -= 1
            self.wishes.drain()
            since_s = time.monotonic()
            while found is None and (self.finished_s is None or self.finished_s <= since_s):
                found = super().next(timeout_s)
            return found
        return super().next(timeout_s)


def test_a_drain_that_is_asked_for_at_any_moment_has_its_answer_and_the_link_goes_on(pair: Forwarding) -> None:
    link = pair.link()
    source = AskedMeanwhile(pair.source.native)
    source.wishes = link.wishes
    link._open_source = lambda: source
    with Running(link):
        until(lambda: not source.left and link.wishes.drains_since_s is None, "the answer")
        pair.append([b"a"])
        until(lambda: TOPIC in pair.upstream.topics() and pair.values() == [b"a"], "the record")
        until(lambda: link.progress.state is LinkState.RUNNING, "that it runs on")
