"""A topic of the source that is deleted and created again: the link stops it, whatever it delivers and wherever it starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from triolog.tools.forward import session
from triolog.tools.forward.link import Link
from triolog.tools.forward.memory import TopicIds

from tests.support.forwarding import TOPIC, Forwarding, Running, until

from .test_delivery import numbered

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


@pytest.mark.parametrize("start", ["earliest", "latest"])
@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_topic_created_again_while_the_link_was_down_is_stopped(
    pair: Forwarding, tmp_path: Path, delivery: str, start: str
) -> None:
    path, settings = tmp_path / "topics.json", {"delivery": delivery, "start": start}
    drained(pair, path, **settings)
    pair.append(OLD)
    drained(pair, path, **settings)
    assert pair.values() == OLD
    create_again(pair)
    for _ in range(2):
        assert "it was deleted and made again" in trouble(drained(pair, path, **settings))
        assert pair.values() == OLD


@pytest.mark.parametrize("is_seen", [False, True])
def test_a_topic_created_again_while_the_link_runs_sends_nothing_of_the_new_one(
    pair: Forwarding, tmp_path: Path, *, is_seen: bool
) -> None:
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
        until(lambda: "made again" in trouble(running.link), "that it stops")
    assert pair.values() == OLD


def test_the_id_is_noted_before_the_first_record_is_sent(
    pair: Forwarding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
