from __future__ import annotations

import threading
import time

from triolog.protocol.types import TopicPartition
from triolog.tools.forward.link import Claims
from triolog.tools.forward.memory import FIRST_PAUSE_S, LONGEST_PAUSE_S, Troubles, Wishes
from triolog.tools.forward.progress import LinkEvent, LinkProgress
from triolog.tools.forward.source.source import Gap, OffsetRange, SourceTopic

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
