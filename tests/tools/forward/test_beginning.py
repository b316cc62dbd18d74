"""Where a link begins, also in a topic of the source that is deleted and created again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from triolog.tools.forward import session
from triolog.tools.forward.link import Link
from triolog.tools.forward.memory import TopicIds
from triolog.tools.forward.progress import LinkState

from tests.support.forwarding import GROUP, TOPIC, Forwarding, Running, until
from tests.tools.forward.test_delivery import numbered

NOBODY = "127.0.0.1:1"


@pytest.fixture
def quick_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triolog.tools.forward.upstream.connection.CONNECT_S", 0.2)


def tried_in_vain(link: Link) -> None:
    with Running(link):
        until(lambda: link.progress.state is LinkState.BACKING_OFF, "a failure")


@pytest.mark.usefixtures("quick_connections")
def test_what_is_lost_before_the_upstream_was_ever_reached_is_told(pair: Forwarding, caplog: pytest.LogCaptureFixture) -> None:
    """It was taken for the beginning, and nobody was told."""
    pair.append(numbered(0, 20))
    tried_in_vain(pair.link(to=NOBODY))
    pair.source.delete_records(TOPIC, 10)
    link = pair.drain()
    assert pair.values() == numbered(10, 20)
    assert pair.records()[0].headers == (("triolog.gap", b"0-9"),)
    assert link.progress.snapshot()["lost_records"] == 10
    assert "offsets 0-9 are lost and were not forwarded" in caplog.text
    assert "the upstream has lost its offset" not in caplog.text, "nothing was ever sent there"


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
    assert "the upstream has lost its offset" not in caplog.text


@pytest.mark.usefixtures("quick_connections")
def test_latest_is_decided_when_the_upstream_is_reached(pair: Forwarding) -> None:
    pair.append(numbered(0, 20))
    tried_in_vain(pair.link(to=NOBODY, start="latest"))
    pair.append(numbered(20, 30))
    pair.drain(start="latest")
    assert pair.values() == []


OLD, NEW = numbered(0, 20), numbered(20, 60)


def link_of(pair: Forwarding, path: Path, **settings: Any) -> Link:
    link = pair.link(**settings)
    link._topic_ids = TopicIds(path)
    return link


def drained(pair: Forwarding, path: Path, **settings: Any) -> Link:
    link = link_of(pair, path, drain=True, **settings)
    with Running(link) as running:
        running.wait()
    return link


def create_again(pair: Forwarding) -> None:
    pair.source.delete_topic(TOPIC)
    pair.source.create_topic(TOPIC)
    pair.append(NEW)


def trouble(link: Link) -> str:
    return str(link.progress.snapshot()["troubles"].get(TOPIC))


@pytest.mark.merge
@pytest.mark.parametrize("start", ["earliest", "latest"])
@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_topic_created_again_meanwhile_is_stopped(pair: Forwarding, tmp_path: Path, delivery: str, start: str) -> None:
    path, settings = tmp_path / "topics.json", {"delivery": delivery, "start": start}
    drained(pair, path, **settings)
    pair.append(OLD)
    drained(pair, path, **settings)
    assert pair.values() == OLD
    create_again(pair)
    for _ in range(2):
        assert "it was deleted and created again" in trouble(drained(pair, path, **settings))
        assert pair.values() == OLD


@pytest.mark.parametrize("is_seen", [False, True])
def test_a_topic_created_again_under_a_link_is_stopped(pair: Forwarding, tmp_path: Path, *, is_seen: bool) -> None:
    """Whether or not the link has noticed meanwhile that the topic is gone."""
    pair.append(OLD)
    with Running(link_of(pair, tmp_path / "topics.json", delivery="at-least-once")) as running:
        until(lambda: TOPIC in pair.upstream.topics() and pair.values() == OLD, "the old records")
        pair.source.delete_topic(TOPIC)
        if is_seen:
            until(lambda: "no such topic" in trouble(running.link), "that it is gone")
        pair.source.create_topic(TOPIC)
        pair.append(NEW)
        running.link.wishes.drain()
        until(lambda: "created again" in trouble(running.link), "that it stops")
    assert pair.values() == OLD


def test_the_id_is_noted_before_a_record_is_sent(pair: Forwarding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic may go between the first record, which is upstream then, and the note of its offset."""
    pair.append(OLD)
    path = tmp_path / "topics.json"
    known: list[bool] = []
    hand_over = session.hand_over

    def watched(*arguments: Any) -> int:
        known.append(TopicIds(path).known(TOPIC) is not None)
        return hand_over(*arguments)

    monkeypatch.setattr(session, "hand_over", watched)
    drained(pair, path, delivery="at-least-once")
    assert pair.values() == OLD
    assert set(known) == {True}


def test_ids_outlive_the_process_and_damage_begins_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "topics.json"
    TopicIds(path).note({"a": "1", "b": "2"})
    TopicIds(path).note({"b": "3"})
    ids = TopicIds(path)
    assert [ids.known(name) for name in ("a", "b", "c")] == ["1", "3", None]
    for damage in (b"", b"[1]", b"[" * 10**6, b'{"a": 5}'):
        path.write_bytes(damage)
        assert TopicIds(path).known("a") is None
    TopicIds(tmp_path / "nowhere" / "x").note({"a": "1"})
    assert "cannot write" in caplog.text
