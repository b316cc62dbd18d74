"""Records that cannot go upstream: those before them go, gaps are told, the error has the size and a remedy that helps."""

from __future__ import annotations

import pytest

from tests.support.forwarding import TOPIC, Forwarding, Running, until

from .test_failures import troubles

pytestmark = pytest.mark.merge  # as test_failures

DELIVERIES = ("exactly-once", "at-least-once")
LIMIT = 100_000
"""message.max.bytes of the link: librdkafka refuses what is larger."""


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triolog.tools.forward.upstream.connection.MAX_MESSAGE_BYTES", LIMIT)


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_the_gap_before_a_dead_letter_is_in_its_headers(pair: Forwarding, delivery: str) -> None:
    pair.upstream.create_topic(TOPIC, config={"max.message.bytes": "1000"})
    pair.upstream.create_topic("dead")
    pair.append([b"a"] * 10)
    pair.drain(delivery=delivery, dead_letter_topic="dead")
    pair.append([b"b"] * 10)
    pair.append([b"y" * 1500, b"c", b"d"])
    pair.source.delete_records(TOPIC, 20)
    pair.drain(delivery=delivery, dead_letter_topic="dead")
    [dead] = pair.records("dead")
    headers = dict(dead.headers)
    assert headers["triolog.gap"] == b"10-19"
    assert headers["triolog.origin"] == f"node/{TOPIC}-0@20".encode()
    assert set(pair.values()) == {b"a", b"c", b"d"}


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("settings", [{}, {"dead_letter_topic": "dead"}])
@pytest.mark.usefixtures("limited")
def test_what_is_before_a_record_that_librdkafka_does_not_accept_is_sent_once(
    pair: Forwarding, delivery: str, settings: dict[str, str]
) -> None:
    before = [b"%d" % number for number in range(30)]
    pair.append([*before, b"x" * (LIMIT + 1), b"behind"])
    link = pair.link(delivery=delivery, **settings)
    with Running(link):
        until(lambda: TOPIC in troubles(link), "trouble")
        said = troubles(link)[TOPIC]
        assert f"offset 30 of partition 0 cannot be sent: it has {LIMIT + 1} bytes" in said
        assert f"message.max.bytes of {LIMIT}; raise it in the link's table `kafka`" in said
        assert "--partition 0 -o 31" in said
        assert f"max.message.bytes of {TOPIC}" not in said, "that would not help"
    assert pair.values() == before
    pair.drain(delivery=delivery, kafka={"message.max.bytes": 10 * LIMIT})
    assert pair.values() == [*before, b"x" * (LIMIT + 1), b"behind"]


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_header_name_that_librdkafka_would_cut_stops_its_topic(pair: Forwarding, delivery: str) -> None:
    records = [(1, None, b"before", ()), (2, None, b"cut", (("a\0b", b"c"),)), (3, None, b"after", ())]
    pair.source.append(TOPIC, records)
    link = pair.link(delivery=delivery)
    with Running(link):
        until(lambda: TOPIC in troubles(link), "trouble")
        said = troubles(link)[TOPIC]
    assert "offset 1 of partition 0 cannot be sent: librdkafka would cut its header name 'a\\x00b' at the NUL character" in said
    assert "send it upstream with another client, or skip it" in said
    assert pair.values() == [b"before"]


@pytest.mark.usefixtures("limited")
def test_a_gap_before_a_record_that_librdkafka_does_not_accept_is_told_when_it_goes(pair: Forwarding) -> None:
    pair.append([b"a"] * 10)
    pair.drain()
    pair.append([b"b"] * 5)
    pair.append([b"x" * (LIMIT + 1)])
    pair.source.create_topic("other")
    pair.append([b"o"] * 5, "other")
    pair.source.delete_records(TOPIC, 15)
    link = pair.link(topics=[TOPIC, "other"])
    with Running(link):
        until(lambda: TOPIC in troubles(link), "trouble")
        until(lambda: pair.values("other") == [b"o"] * 5, "the other topic")
    pair.drain(kafka={"message.max.bytes": 10 * LIMIT})
    assert dict(pair.records()[10].headers) == {"triolog.gap": b"10-14"}


def test_records_that_are_refused_while_others_are_handed_over_are_found(pair: Forwarding) -> None:
    """librdkafka reports a refusal in the middle of a stretch, before its records are counted."""
    large = {700, 1500, 2600}
    pair.upstream.create_topic(TOPIC, config={"max.message.bytes": "2000"})
    pair.upstream.create_topic("dead")
    pair.append([b"y" * 5000 if number in large else b"%d" % number for number in range(3000)])
    pair.drain(dead_letter_topic="dead")
    assert len(pair.records("dead")) == len(large)
    assert pair.values() == [b"%d" % number for number in range(3000) if number not in large]
