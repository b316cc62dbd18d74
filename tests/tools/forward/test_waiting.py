from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from triolog.protocol.types import TopicPartition
from triolog.tools.forward.errors import LinkStoppedError
from triolog.tools.forward.link import Claims, Link
from triolog.tools.forward.memory import FIRST_PAUSE_S, LONGEST_PAUSE_S, Troubles
from triolog.tools.forward.progress import LinkProgress
from triolog.tools.forward.settings.forward_settings import read_link
from triolog.tools.forward.source.source import Gap, OffsetRange, SourceTopic
from triolog.tools.forward.states import TRANSITIONS, LinkEvent, LinkState, next_state
from triolog.tools.forward.wishes import Wishes

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
    monkeypatch.setattr("triolog.tools.forward.pacing.retry.FIRST_PAUSE_MS", 1)
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
    assert "link=link has failed" in caplog.text
