"""Outages between a link and its upstream, a day of them in the long tier: every record is upstream, in order and once."""

from __future__ import annotations

from functools import partial
from typing import Final

import pytest
from triolog.server.config.values import Address

from tests.support.counts import counts
from tests.support.flapping_link import FlappingLink
from tests.support.forwarding import TOPIC, Running, forwarding, until

pytestmark = pytest.mark.merge

HOURS: Final = counts(24, merge=1)
RECORDS: Final = 20
PATIENCE_S: Final = 120.0


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_outages_lose_no_record_and_exactly_once_doubles_none(monkeypatch: pytest.MonkeyPatch, delivery: str) -> None:
    for name in ("FIRST_PAUSE_MS", "LONGEST_PAUSE_MS", "LONGEST_REFUSED_MS"):
        monkeypatch.setattr(f"triolog.tools.forward.pacing.{name}", 20)
    with FlappingLink(HOURS, seed=len(delivery)) as uplink, forwarding() as pair:
        pair.upstream.call_now(lambda: pair.upstream._target.life.advertise(Address("127.0.0.1", uplink.port)))
        listener = pair.upstream.kafka
        assert listener is not None
        uplink.target = lambda: (listener.host, listener.port)
        pair.source.create_topic(TOPIC)
        quick = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50}
        link = pair.link(to=uplink.address, delivery=delivery, kafka=quick)
        written: list[bytes] = []

        def is_over(left: int, count: int) -> bool:
            return uplink.outages_left < left or link.progress.snapshot()["records"] >= count

        with Running(link):
            while left := uplink.outages_left:
                new = [b"%d" % number for number in range(len(written), len(written) + RECORDS)]
                written += new
                pair.append(new)
                until(partial(is_over, left, len(written)), "an outage, or the records", PATIENCE_S)
            until(lambda: link.progress.snapshot()["backlog_records"] == 0, "the last record", PATIENCE_S)
            until(lambda: pair.values()[-1:] == written[-1:], "the last record upstream", PATIENCE_S)
        found = pair.values()
        assert list(dict.fromkeys(found)) == written, "in order; a batch that is sent again follows itself"
        if delivery == "exactly-once":
            assert found == written
        assert uplink.refused
