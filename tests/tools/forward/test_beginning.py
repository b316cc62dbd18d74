from __future__ import annotations

import pytest
from triolog.tools.forward.link import Link
from triolog.tools.forward.progress import LinkState

from tests.support.forwarding import GROUP, TOPIC, Forwarding, Running, until

from .test_delivery import numbered

NOBODY = "127.0.0.1:1"


@pytest.fixture(autouse=True)
def quick_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triolog.tools.forward.upstream.connection.CONNECT_S", 0.2)


def tried_in_vain(link: Link) -> None:
    with Running(link):
        until(lambda: link.progress.state is LinkState.BACKING_OFF, "a failure")


def test_what_is_lost_before_the_upstream_was_ever_reached_is_told(pair: Forwarding, caplog: pytest.LogCaptureFixture) -> None:
    """It was taken for the beginning, and nobody was told."""
    pair.append(numbered(0, 20))
    tried_in_vain(pair.link(to=NOBODY))
    pair.source.delete_records(TOPIC, 10)
    link = pair.drain()
    assert pair.values() == numbered(10, 20)
    assert pair.records()[0].headers == (("triolog.gap", b"0-9"),)
    assert link.progress.snapshot()["lost_records"] == 10
    assert "offsets 0-9 are gone and were not forwarded" in caplog.text
    assert "the upstream has no offset" not in caplog.text, "nothing was ever sent there"


def test_it_is_noted_while_the_link_is_paused(pair: Forwarding) -> None:
    pair.upstream.create_topic(TOPIC)
    pair.append(numbered(0, 20))
    link = pair.link()
    link.wishes.pause()
    with Running(link):
        until(lambda: pair.source.groups.committed(GROUP), "the note")
        assert link.progress.state is LinkState.PAUSED
        pair.source.delete_records(TOPIC, 10)
        link.wishes.resume()
        until(lambda: pair.values() == numbered(10, 20), "what is left")
    assert pair.records()[0].headers == (("triolog.gap", b"0-9"),)


def test_records_from_before_the_link_are_no_loss(pair: Forwarding, caplog: pytest.LogCaptureFixture) -> None:
    pair.append(numbered(0, 20))
    pair.source.delete_records(TOPIC, 10)
    link = pair.drain()
    assert [record.headers for record in pair.records()] == [()] * 10
    assert link.progress.snapshot()["lost_records"] == 0
    assert "the upstream has no offset" not in caplog.text


def test_latest_is_decided_when_the_upstream_is_reached(pair: Forwarding) -> None:
    pair.append(numbered(0, 20))
    tried_in_vain(pair.link(to=NOBODY, start="latest"))
    pair.append(numbered(20, 30))
    pair.drain(start="latest")
    assert pair.values() == []
