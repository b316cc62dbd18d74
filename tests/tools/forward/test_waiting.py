from __future__ import annotations

import random
import threading
import time
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.types import TopicPartition
from triolog.tools.client.procedures.groups import CommittedOffset
from triolog.tools.forward import pacing
from triolog.tools.forward.errors import LinkStoppedError, TopicStoppedError
from triolog.tools.forward.link import Claims, Link
from triolog.tools.forward.memory import BURST_S, FIRST_PAUSE_S, LONGEST_PAUSE_S, Caution, RateCap, Troubles, Wishes
from triolog.tools.forward.progress import TRANSITIONS, LinkEvent, LinkProgress, LinkState, next_state
from triolog.tools.forward.settings.forward_settings import read_link
from triolog.tools.forward.source.source import Gap, OffsetRange, SourceTopic
from triolog.tools.forward.upstream import connection
from triolog.tools.forward.upstream.connection import Verdict, judge, words
from triolog.tools.forward.upstream.resume import Mark, Resumed, check_last, resume

from tests.support.forwarding import until

PARTITION = TopicPartition("t", 0)


def test_whoever_waits_is_woken_by_a_wish_and_not_missed_by_one_before() -> None:
    wishes = Wishes()
    seen = wishes.version
    wishes.pause()
    assert wishes.wait(60, seen)  # at once
    seen = wishes.version
    teller = threading.Thread(target=wishes.resume)
    teller.start()
    assert wishes.wait(60, seen)
    teller.join()
    assert not wishes.wait(0, wishes.version)


def test_a_drain_ends_with_a_pause_or_when_nothing_is_left_since_it_was_asked_for() -> None:
    wishes = Wishes(drain_and_end=True)
    assert wishes.drains_since_s is not None
    assert wishes.drains_since_s <= time.monotonic()
    wishes.pause()
    assert wishes.drains_since_s is None
    wishes.drain()
    before_s = wishes.drains_since_s
    until(lambda: time.monotonic() != before_s, "a later moment")
    wishes.drain()
    wishes.drained(before_s)
    assert wishes.drains_since_s is not None
    wishes.drained(wishes.drains_since_s)
    assert wishes.drains_since_s is None
    wishes.drain()
    wishes.drained()
    assert wishes.drains_since_s is None
    assert wishes.is_patient()
    wishes.stop()
    assert wishes.is_stopping
    assert wishes.is_patient(), "for a moment"


def test_a_topic_that_cannot_go_on_is_looked_at_less_and_less_often() -> None:
    troubles, now_s = Troubles(), 0.0
    assert troubles.add("t", "no", now_s)
    assert not troubles.add("t", "no", now_s)
    assert troubles.add("t", "other", now_s)
    pauses = []
    for _ in range(10):
        troubles.add("t", "no", now_s)
        begin_s = now_s
        while troubles.blocks("t", now_s):
            now_s += FIRST_PAUSE_S
        assert troubles.is_due(now_s)
        pauses.append(now_s - begin_s)
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE_S
    troubles.add("t", "no", now_s)
    troubles.look_now(now_s)
    assert not troubles.blocks("t", now_s)
    troubles.gone("t")
    assert troubles.messages == {}
    claims = Claims()
    assert claims.claim("there", "x", "a", "t") is claims.claim("there", "x", "a", "t") is None
    assert claims.claim("there", "x", "b", "u") == "topic t of link a", "it belongs to the first that claims it"
    assert claims.claim("elsewhere", "x", "b", "u") is None


def test_progress_counts_what_is_upstream_what_is_left_and_what_is_lost() -> None:
    progress = LinkProgress("a", "there", "exactly-once")
    progress.begins(PARTITION, "x", 10, OffsetRange(0, 100, 1000), avoided=3)
    progress.happened(LinkEvent.CONNECTED)
    found = progress.snapshot()
    told = [found[name] for name in ("state", "backlog_records", "backlog_bytes", "avoided_records")]
    assert told == ["running", 90, 900, 3]
    progress.committed({PARTITION: 60}, {PARTITION: 5}, 50, 400)
    progress.lost(PARTITION, Gap(20, 29))
    progress.seen([SourceTopic(name="t", topic_id="", config={}, partitions={0: OffsetRange(80, 200, 1200)})])
    found = progress.snapshot()
    assert (found["records"], found["bytes"], found["transactions"], found["lost_records"]) == (50, 400, 1, 10)
    assert found["backlog_records"] == 120  # what is gone is no backlog
    assert found["backlog_ms"] > 0
    assert found["partitions"][0]["offset"] == 60

    progress.failed("no")
    progress.troubled({"t": "why"})
    found = progress.snapshot()
    assert (found["error"], found["failures"], found["troubles"]) == ("no", 1, {"t": "why"})


def test_every_state_has_its_row_and_is_reached_from_the_first_one() -> None:
    assert set(TRANSITIONS) == set(LinkState)
    reached = {LinkState.CONNECTING}
    while more := {after for each in reached for after in TRANSITIONS[each].values()} - reached:
        reached |= more
    assert reached == set(LinkState)


def test_a_link_can_be_stopped_and_can_fail_whatever_it_does_and_then_does_nothing_more() -> None:
    assert [state for state in LinkState if state.is_final] == [LinkState.STOPPED, LinkState.FAILED]
    for state in LinkState:
        if not state.is_final:
            assert next_state(state, LinkEvent.STOP) is LinkState.STOPPED, state
            assert next_state(state, LinkEvent.FAIL) is LinkState.FAILED, state


def test_a_link_that_rests_goes_on_by_connecting_anew_and_a_step_that_does_not_exist_is_a_bug() -> None:
    assert next_state(LinkState.PAUSED, LinkEvent.RESUME) is LinkState.CONNECTING
    assert next_state(LinkState.WAITING, LinkEvent.WINDOW_OPENS) is LinkState.CONNECTING
    assert next_state(LinkState.BACKING_OFF, LinkEvent.TRY_AGAIN) is LinkState.CONNECTING
    with pytest.raises(AssertionError, match="a link that is paused cannot drained"):
        next_state(LinkState.PAUSED, LinkEvent.DRAINED)


class Source:
    """Raises each of the errors when it is asked what node it is."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.is_closed = False

    def node(self) -> str:
        raise self.errors.pop(0)

    def topics(self) -> Any:
        raise self.errors.pop(0)

    def close(self) -> None:
        self.is_closed = True


def link_of(open_source: Any) -> Link:
    table = {"name": "link", "to": "127.0.0.1:1", "topics": ["t"]}
    return Link(read_link("the test", table), None, open_source, Wishes(), Claims())


def test_a_link_retries_after_an_unhandled_exception(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("triolog.tools.forward.pacing.FIRST_PAUSE_MS", 1)
    monkeypatch.setattr(Link, "_look", lambda *_: None)
    source = Source(ZeroDivisionError(), KeyError(), LinkStoppedError("done"))
    link = link_of(lambda: source)
    link.run()
    assert (str(link.error), source.errors, source.is_closed) == ("done", [], True)
    assert caplog.text.count("unhandled exception: link=link; the link retries") == 2


def test_a_link_whose_run_fails_is_the_only_one_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Source:
        raise ZeroDivisionError

    link = link_of(broken)
    link.run()
    assert link.progress.state is LinkState.FAILED
    assert "unhandled exception (ZeroDivisionError())" in str(link.error)
    assert "link=link failed" in caplog.text


def pauses(failure: pacing.Failure, *, is_awaited: bool = False, count: int = 12) -> list[float]:
    retry = pacing.Retry(random.Random(1))
    return [retry.pause_s(failure, is_awaited=is_awaited) for _ in range(count)]


@pytest.mark.parametrize(
    ("failure", "is_awaited", "longest_s"),
    [
        (pacing.Failure.PASSING, False, 10),
        (pacing.Failure.REFUSED, False, 60),
        (pacing.Failure.PASSING, True, 1),
        (pacing.Failure.REFUSED, True, 60),  # a login that is refused once a second is soon locked
    ],
)
def test_pauses_double_up_to_what_the_failure_deserves(failure: pacing.Failure, is_awaited: bool, longest_s: float) -> None:
    found = pauses(failure, is_awaited=is_awaited)
    assert 0.4 <= found[0] <= 0.6
    assert all(longest_s * 0.8 <= pause_s <= longest_s * 1.2 for pause_s in found[8:])
    assert len(set(found)) == len(found)  # links that failed together do not come back together


def test_what_worked_forgets_failures_of_every_kind_and_one_reason_is_said_less_and_less_often() -> None:
    retry = pacing.Retry(random.Random(1))
    for failure in pacing.Failure:
        for _ in range(8):
            retry.pause_s(failure, is_awaited=False)
    assert retry.pause_s(pacing.Failure.PASSING, is_awaited=True) <= 1.2, "nor does one who comes to wait find a long pause"
    retry.reset()
    assert max(retry.pause_s(failure, is_awaited=False) for failure in pacing.Failure) <= 0.6
    said = [number for number in range(1, 20) if retry.is_news("nobody is there")]
    assert said == [1, 2, 4, 8, 16]
    assert retry.is_news("no right")
    assert retry.is_news("nobody is there")
    retry.reset()
    assert retry.is_news("nobody is there")


MOST = 16 * 1024 * 1024


def test_stretches_grow_up_to_their_limit_while_the_link_is_fast() -> None:
    size = pacing.StretchSize(MOST)
    size.went(1000, 0.1)
    assert size.bytes == pacing.FIRST_BYTES, "one that was not full says nothing"
    for _ in range(10):
        size.went(size.bytes, 0.1)
    assert size.bytes == MOST


def test_on_a_slow_link_they_shrink_until_one_takes_no_longer_than_is_well() -> None:
    size, rate = pacing.StretchSize(MOST), 50_000
    for _ in range(20):
        size.went(size.bytes, size.bytes / rate)
    assert pacing.LEAST_BYTES <= size.bytes <= 2 * pacing.SLOW_S * rate
    size = pacing.StretchSize(MOST)
    size.failed()
    assert size.bytes == pacing.FIRST_BYTES // 2
    for _ in range(20):
        size.failed()
    assert size.bytes == pacing.LEAST_BYTES, "one that failed is smaller the next time but never nothing"


def test_a_stretch_is_full_by_bytes_by_records_or_by_age() -> None:
    stretch = pacing.Stretch(begun_s=10.0, max_bytes=1000, max_records=5, max_delay_s=0.5)
    assert not stretch.is_full(10.4)
    assert stretch.is_full(10.5)
    stretch.bytes = 1000
    assert stretch.is_full(10.0)
    stretch.bytes, stretch.records = 0, 5
    assert stretch.is_full(10.0)


RATES = st.integers(1_000, 50_000_000)
SIZES = st.lists(st.integers(1, 20_000), min_size=50, max_size=400)


def sent_by(cap: RateCap, sizes: list[int], now_s: float = 0.0) -> float:
    """When the last of these records has gone, each as early as it may."""
    for size in sizes:
        now_s += cap.wait_s(now_s)
        cap.sent(size, now_s)
    return now_s


@given(rate=RATES, sizes=SIZES)
def test_no_more_goes_than_the_rate_and_one_burst(rate: int, sizes: list[int]) -> None:
    took_s = sent_by(RateCap(rate), sizes)
    assert sum(sizes[:-1]) <= rate * (took_s + BURST_S) + max(sizes) + 1


@given(rate=RATES, sizes=SIZES)
def test_a_link_that_always_has_something_uses_its_rate(rate: int, sizes: list[int]) -> None:
    took_s = sent_by(RateCap(rate), sizes)
    assert took_s <= sum(sizes) / rate + 1e-6


def test_an_idle_link_saves_up_no_more_than_one_burst() -> None:
    cap = RateCap(1000)
    cap.sent(1000, 0.0)
    assert cap.wait_s(1000.0) == 0
    cap.sent(1000, 1000.0)
    assert cap.wait_s(1000.0) == pytest.approx(1.0)


PLACE = ("topic", 0)


def forwarded(total: int, bad: set[int], most: int) -> tuple[list[int], list[int]]:
    """What is taken and what is found out to be refused, by an upstream that takes stretches whole or not at all."""
    caution, taken, refused, offset = Caution(), [], [], 0
    while offset < total:
        end = min(total, offset + most, offset + caution.limit(PLACE))
        stretch = [each for each in range(offset, end) if each not in refused]
        if not bad & set(stretch):
            taken += stretch
            offset = end
            caution.accepted(PLACE, len(stretch))
        elif caution.refused(PLACE, len(stretch)):
            refused += stretch
    return taken, refused


@given(total=st.integers(1, 3000), bad=st.sets(st.integers(0, 2999), max_size=5), most=st.integers(1, 5000))
def test_exactly_the_bad_ones_are_found_and_all_others_go(total: int, bad: set[int], most: int) -> None:
    bad = {each for each in bad if each < total}
    taken, refused = forwarded(total, bad, most)
    assert sorted(refused) == sorted(bad)
    assert taken == [each for each in range(total) if each not in bad]


def test_it_is_trusted_again_after_a_while() -> None:
    caution = Caution()
    caution.accepted(PLACE, 100)
    assert not caution.is_careful(PLACE), "without refusals there is no limit"
    caution.refused(PLACE, 1)
    for _ in range(12):
        caution.accepted(PLACE, caution.limit(PLACE))
    assert not caution.is_careful(PLACE)


BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str, zone: ZoneInfo | None = None) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone or UTC).timestamp()


@pytest.mark.parametrize(
    ("window", "now", "hours"),
    [
        ("22:00-06:00", "2026-11-25T21:00", 1),
        ("22:00-06:00", "2026-11-25T22:00", 0),
        ("22:00-06:00", "2026-11-26T05:59", 0),
        ("22:00-06:00", "2026-11-26T06:00", 16),
        ("sat,sun", "2026-11-27T23:00", 1),  # a Friday
        ("sat,sun", "2026-11-29T23:00", 0),
        ("sat,sun", "2026-11-30T00:00", 5 * 24),
        ("mon-fri 22:00-06:00", "2026-11-28T05:00", 0),  # Saturday, in Friday's
        ("mon-fri 22:00-06:00", "2026-11-28T22:00", 48),
        ("sat-mon 10:00-11:00", "2026-11-30T09:00", 1),
        ("00:00-24:00", "2026-11-25T12:00", 0),
    ],
)
def test_a_link_waits_for_its_window(window: str, now: str, hours: float) -> None:
    assert pacing.opens_in_s([pacing.parse_window(window)], at(now), UTC) == hours * 3600


def test_the_first_of_several_windows_counts_and_without_any_it_may_always_send() -> None:
    windows = [pacing.parse_window("06:00-07:00"), pacing.parse_window("03:00-04:00")]
    assert pacing.opens_in_s(windows, at("2026-11-25T01:00"), UTC) == 2 * 3600
    assert pacing.opens_in_s([], at("2026-11-25T12:00"), UTC) == 0
    before = at("2026-03-28T23:00", BERLIN)  # the night has one hour less
    assert pacing.opens_in_s(windows[:1], before, BERLIN) == 6 * 3600


@given(minutes=st.integers(0, 14 * 24 * 60))
def test_a_window_that_is_waited_for_is_open_then(minutes: int) -> None:
    windows = [pacing.parse_window("tue,thu 23:00-02:30"), pacing.parse_window("sun 04:00-05:00")]
    now_s = at("2026-03-16T00:00", BERLIN) + minutes * 60  # two weeks with a change of the clocks
    wait_s = pacing.opens_in_s(windows, now_s, BERLIN)
    assert pacing.opens_in_s(windows, now_s + wait_s, BERLIN) == 0
    assert wait_s == 0 or pacing.opens_in_s(windows, now_s + wait_s - 1, BERLIN) == 1


def test_what_is_no_window_is_refused() -> None:
    for text in ("", "25:00-26:00", "22:00", "22:00-22:00", "monday 01:00-02:00", "mon tue", "01:60-02:00", "24:00-24:00"):
        with pytest.raises(ValueError, match=r"not a window|not a span|not a day"):
            pacing.parse_window(text)


READINGS = TopicPartition("readings", 2)
ID = "JUj1PIuBQCmVS0Ws5NGv2w"
THERE = OffsetRange(100, 500, 40_000)


def resumed(upstream: CommittedOffset | None, local: CommittedOffset | None) -> Resumed:
    return resume(READINGS, ID, THERE, upstream, local, start=300)


def offset_at(offset: int, topic_id: str = ID) -> CommittedOffset:
    return CommittedOffset(offset, topic_id)


@pytest.mark.parametrize(
    ("upstream", "local", "expected"),
    [
        (None, None, Resumed(offset=300, is_first=True)),  # where the link says
        (offset_at(400), offset_at(350), Resumed(offset=400, avoided=50, mark=Mark(ID))),  # the upstream is believed
        (offset_at(400), offset_at(450), Resumed(offset=400, mark=Mark(ID))),
        (offset_at(20), None, Resumed(offset=20, mark=Mark(ID))),  # before the start of the log, so that the gap is seen
        (CommittedOffset(120, ""), offset_at(350), Resumed(offset=120, avoided=0)),  # set by hand
        (None, offset_at(350), Resumed(offset=350, mark=Mark(ID))),  # an upstream that never had anything has forgotten nothing
    ],
)
def test_upstream_decides(upstream: CommittedOffset | None, local: CommittedOffset | None, expected: Resumed) -> None:
    assert resumed(upstream, local) == expected


def test_an_upstream_that_has_forgotten_leaves_what_the_source_has_noted() -> None:
    found = resumed(None, offset_at(350, f"{ID} 349:1700000000000"))
    assert found.offset == 350
    assert "the upstream has lost its offset" in str(found.note)


@pytest.mark.parametrize("is_upstreams", [True, False])
@pytest.mark.parametrize(
    ("known", "reason"),
    [
        (
            offset_at(400, "other"),
            r"it was deleted and created again.*id other, this one is JUj1.*forward reset --topic readings",
        ),
        (offset_at(501), r"has partition 2 up to 501 and the source ends at 500.*-o end"),
    ],
)
def test_a_topic_that_was_created_again_or_is_behind_stops(known: CommittedOffset, reason: str, is_upstreams: bool) -> None:
    with pytest.raises(TopicStoppedError, match=reason):
        resumed(*((known, None) if is_upstreams else (None, known)))


@pytest.mark.parametrize("mark", [Mark(ID), Mark(ID, 0, 0), Mark(ID, 499, 1_700_000_000_000), Mark(ID, 499, -1)])
def test_a_mark_is_read_as_it_was_written(mark: Mark) -> None:
    assert Mark.parse(str(mark)) == mark
    assert resumed(offset_at(500, str(mark)), None).mark == mark
    assert Mark.parse(None) is Mark.parse("") is None


def test_another_record_where_the_last_one_was_is_seen_by_its_time() -> None:
    mark = Mark(ID, 399, 1_700_000_000_000)
    check_last(READINGS, mark, 1_700_000_000_000)
    check_last(READINGS, mark, -1)
    with pytest.raises(
        TopicStoppedError,
        match=r"offset 399 of partition 2 has time 1700000000001, but the last forwarded one had 1700",
    ):
        check_last(READINGS, mark, 1_700_000_000_001)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (KafkaError._FENCED, Verdict.FENCED),
        (KafkaError.INVALID_PRODUCER_EPOCH, Verdict.FENCED),
        (KafkaError.MSG_SIZE_TOO_LARGE, Verdict.REFUSED),
        (KafkaError.INVALID_RECORD, Verdict.REFUSED),
        (KafkaError.INVALID_TIMESTAMP, Verdict.REFUSED),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Verdict.TOPIC),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, Verdict.TOPIC),
        (KafkaError._UNKNOWN_PARTITION, Verdict.TOPIC),
        (KafkaError._TRANSPORT, Verdict.AGAIN),
        (KafkaError._AUTHENTICATION, Verdict.AGAIN),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, Verdict.AGAIN),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Verdict.AGAIN),
    ],
)
def test_a_code_has_its_verdict(code: int, expected: Verdict) -> None:
    assert judge(code) is expected


def test_numbers_are_those_of_the_library_and_an_error_is_one_line() -> None:
    assert {KafkaError._PURGE_INFLIGHT, KafkaError._PURGE_QUEUE} == connection.PURGED
    assert {KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE} <= connection.HOPELESS
    unknown = {connection.LOCAL_UNKNOWN_TOPIC, connection.LOCAL_UNKNOWN_PARTITION}
    assert {KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION} == unknown
    error = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, "not\n  allowed")
    assert words(error) == "not allowed (GROUP_AUTHORIZATION_FAILED)"
