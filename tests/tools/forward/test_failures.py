from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from triolog.server.config.broker_config import Address
from triolog.tools.forward.errors import NO_SUCH_TOPIC
from triolog.tools.forward.link import Claims, Link
from triolog.tools.forward.progress import LinkState
from triolog.tools.forward.source.server import ServerSource

from tests.support.forwarding import GROUP, TOPIC, Forwarding, Running, forwarding, until
from tests.support.server_process import ServerFolder
from tests.tools.forward.test_delivery import numbered

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
def test_records_before_one_that_librdkafka_refuses_go_once(pair: Forwarding, delivery: str, settings: dict[str, str]) -> None:
    before = [b"%d" % number for number in range(30)]
    pair.append([*before, b"x" * (LIMIT + 1), b"behind"])
    link = pair.link(delivery=delivery, **settings)
    with Running(link):
        until(lambda: TOPIC in troubles(link), "trouble")
        said = troubles(link)[TOPIC]
        assert f"offset 30 of partition 0 cannot be sent: it has {LIMIT + 1} bytes" in said
        assert f"message.max.bytes of {LIMIT}. Raise it in the link's table `kafka`" in said
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
    assert "upstream with another client" in said
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


pytestmark = pytest.mark.merge  # clients wait for what does not answer

OTHER = "other"
NOBODY = "127.0.0.1:1"


def troubles(link: Link) -> dict[str, str]:
    found: dict[str, str] = link.progress.snapshot()["troubles"]
    return found


def trouble_of(pair: Forwarding, **settings: Any) -> str:
    """Why the topic cannot be forwarded; the link itself goes on."""
    with Running(pair.link(**settings)) as running:
        until(lambda: TOPIC in troubles(running.link), "trouble")
        until(lambda: running.link.progress.state is LinkState.RUNNING, "that it goes on")
        return troubles(running.link)[TOPIC]


def first_failure(link: Link) -> str:
    """What the link says when it has failed for the first time, and tries again later."""
    with Running(link):
        until(lambda: link.progress.state is LinkState.BACKING_OFF, "a failure")
        return str(link.progress.snapshot()["error"])


@pytest.fixture(autouse=True)
def quick_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses are tested where they are made."""
    for name, pause_ms in (("FIRST_PAUSE_MS", 20), ("LONGEST_PAUSE_MS", 50), ("LONGEST_REFUSED_MS", 50)):
        monkeypatch.setattr(f"triolog.tools.forward.pacing.{name}", pause_ms)
    monkeypatch.setattr("triolog.tools.forward.upstream.connection.CONNECT_S", 1.0)
    monkeypatch.setattr("triolog.tools.forward.upstream.producer.STALLED_S", 0.1)


def test_a_second_forwarder_takes_over_and_the_first_ends_with_a_clear_message(pair: Forwarding) -> None:
    pair.append(numbered(0, 10))
    with Running(pair.link()) as first:
        until(lambda: TOPIC in pair.upstream.topics() and pair.values() == numbered(0, 10), "the first records")
        with Running(pair.link(claims=Claims())) as second:
            pair.append(numbered(10, 20))
            until(lambda: pair.values() == numbered(0, 20), "all records")
            until(lambda: second.link.progress.state is LinkState.RUNNING, "that the second runs")
            pair.append(numbered(20, 30))
            until(lambda: first.link.progress.state is LinkState.FAILED, "the end of the first")
            until(lambda: pair.values() == numbered(0, 30), "all records")
    assert "another forwarder took this link over" in str(first.link.error)
    assert GROUP in str(first.link.error)
    assert pair.values() == numbered(0, 30)


def test_a_forwarder_that_was_fenced_while_idle_ends(pair: Forwarding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triolog.tools.forward.session.PROVE_S", 0.1)
    with Running(pair.link()) as first:
        until(lambda: first.link.progress.state is LinkState.RUNNING, "that the first runs")
        with Running(pair.link(claims=Claims())) as second:
            until(lambda: first.link.progress.state is LinkState.FAILED, "the end of the first")
            assert second.link.progress.state is LinkState.RUNNING
    assert "another forwarder took this link over" in str(first.link.error)


def test_two_topics_never_go_into_one(pair: Forwarding) -> None:
    pair.source.create_topic(OTHER)
    for topic in (TOPIC, OTHER):
        pair.append([topic.encode()], topic=topic)
    link = pair.link(drain=False, topics=[TOPIC, OTHER], target="all")
    with Running(link):
        until(lambda: "all" in pair.upstream.topics() and pair.values("all"), "one of them")
        until(lambda: troubles(link), "trouble")
    [(topic, trouble)] = troubles(link).items()
    assert topic == TOPIC
    for fact in (f"topic {OTHER}", "link link", f"all at {pair.upstream.bootstrap_servers}", "`target`"):
        assert fact in trouble
    assert pair.values("all") == [OTHER.encode()]


def test_too_few_partitions_stop_the_topic_with_the_command_that_adds_them_and_not_the_others(pair: Forwarding) -> None:
    pair.source.create_topic(OTHER, 3)
    pair.append([b"a"], topic=OTHER, partition=2)
    pair.append([b"b"])
    pair.upstream.create_topic(OTHER, 2)
    link = pair.link(topics=[TOPIC, OTHER])
    with Running(link):
        until(lambda: TOPIC in pair.upstream.topics() and pair.values() == [b"b"], "the other topic")
        until(lambda: OTHER in troubles(link), "trouble")
        assert troubles(link)[OTHER].startswith("it has 3 partitions, but other upstream has 2")
        assert troubles(link)[OTHER].endswith("kafka-topics.sh --alter --topic other --partitions 3")
        pair.upstream.create_partitions(OTHER, 3)
        link.wishes.resume()
        until(lambda: pair.values(OTHER, 2) == [b"a"], "its records")
        assert troubles(link) == {}


def test_a_missing_topic_is_made_with_the_partitions_and_settings_of_the_source() -> None:
    with forwarding() as pair:
        config = {"cleanup.policy": "compact", "max.message.bytes": "54321", "segment.bytes": "2097152"}
        pair.source.create_topic(TOPIC, 3, config)
        pair.source.append(TOPIC, [(None, b"k", b"a", ())], partition=2)
        pair.drain(create_config={"retention.ms": 123_456_789})
        made = pair.upstream.describe_topic(TOPIC)
        assert len(made.partitions) == 3
        assert dict(made.config) == {"cleanup.policy": "compact", "max.message.bytes": "54321", "retention.ms": "123456789"}


def test_a_missing_topic_that_is_not_to_be_made_or_may_not_be_stops_the_topic(pair: Forwarding) -> None:
    assert trouble_of(pair, create_topics=False) == (
        f"the upstream has no topic {TOPIC}. Create it: kafka-topics.sh --create --topic {TOPIC} --partitions 1"
    )
    pair.upstream.faults.add("CreateTopics", error="TOPIC_AUTHORIZATION_FAILED")
    assert "does not allow creating it" in trouble_of(pair)
    assert TOPIC not in pair.upstream.topics()


def test_an_upstream_that_does_not_create_a_topic_is_retried(pair: Forwarding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triolog.tools.forward.upstream.topics.CONNECT_S", 0.2)
    silent = pair.upstream.faults.add("CreateTopics", delay_ms=2000, once=True)
    pair.append([b"a"])
    link = pair.link()
    assert f"{TOPIC} at " in first_failure(link)
    assert silent.fired == 1
    pair.drain()
    assert pair.values() == [b"a"]


def test_a_topic_deleted_upstream_is_created_again_and_resumes(pair: Forwarding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triolog.tools.forward.memory.FIRST_PAUSE_S", 0.1)
    pair.append(numbered(0, 10))
    with Running(pair.link(kafka={"topic.metadata.propagation.max.ms": 100})):
        until(lambda: TOPIC in pair.upstream.topics() and pair.values() == numbered(0, 10), "the first records")
        pair.upstream.delete_topic(TOPIC)
        pair.append(numbered(10, 20))
        until(lambda: TOPIC in pair.upstream.topics() and pair.values() == numbered(10, 20), "the others")


def test_a_record_that_is_too_large_stops_its_topic_until_the_upstream_takes_it(pair: Forwarding) -> None:
    pair.upstream.create_topic(TOPIC, config={"max.message.bytes": "2000"})
    pair.append([*numbered(0, 10), b"x" * 5000, b"behind"])
    link = pair.link()
    with Running(link):
        until(lambda: TOPIC in troubles(link), "trouble")
        reason = troubles(link)[TOPIC]
        assert "the record at offset 10 of partition 0 of 5000 bytes is refused by the upstream" in reason
        assert f"max.message.bytes of {TOPIC}" in reason
        assert "--partition 0 -o 11" in reason
        assert pair.values() == numbered(0, 10)
        pair.upstream.alter_config(TOPIC, {"max.message.bytes": "10000"})
        link.wishes.resume()
        until(lambda: pair.values() == [*numbered(0, 10), b"x" * 5000, b"behind"], "all of them")
        assert troubles(link) == {}


def test_a_record_that_is_refused_goes_to_the_dead_letter_topic_and_says_why(pair: Forwarding) -> None:
    pair.upstream.create_topic(TOPIC, config={"max.message.bytes": "2000"})
    pair.upstream.create_topic("dead")
    pair.append([*numbered(0, 30), b"x" * 5000, b"behind", b"y" * 5000, b"end"])
    link = pair.drain(dead_letter_topic="dead")
    assert pair.values() == [*numbered(0, 30), b"behind", b"end"]
    dead = {record.value: dict(record.headers) for record in pair.records("dead")}
    assert set(dead) == {b"x" * 5000, b"y" * 5000}
    assert dead[b"x" * 5000]["triolog.origin"] == f"node/{TOPIC}-0@30".encode()
    assert b"too large" in (dead[b"x" * 5000]["triolog.error"] or b"").lower()
    assert link.progress.snapshot()["dead_letter_records"] == 2


def test_batches_are_no_larger_than_the_upstream_topic_takes(pair: Forwarding) -> None:
    pair.upstream.create_topic(TOPIC, config={"max.message.bytes": "3000"})
    pair.append([b"x" * 500] * 200)
    link = pair.drain()
    assert len(pair.values()) == 200
    assert link.progress.snapshot()["failures"] == 0
    for broker in (pair.upstream, pair.source):
        broker.alter_config(TOPIC, {"max.message.bytes": "9000000"})
    pair.append([b"x" * 3_000_000, b"behind"])
    pair.drain()
    assert [len(value or b"") for value in pair.values()[200:]] == [3_000_000, 6], "larger than usual batches"


def test_a_topic_that_is_made_anew_while_it_is_forwarded_is_seen_before_anything_is_committed(pair: Forwarding) -> None:
    pair.append(numbered(0, 10))
    link = pair.link()
    with Running(link):
        until(lambda: TOPIC in pair.upstream.topics() and pair.values() == numbered(0, 10), "the first records")
        pair.source.delete_topic(TOPIC)
        pair.source.create_topic(TOPIC)
        pair.append([b"anew"] * 30)
        until(lambda: TOPIC in troubles(link), "trouble")
    assert pair.values() == numbered(0, 10)


def test_a_source_that_was_restored_and_has_grown_past_what_was_forwarded_is_not_forwarded(pair: Forwarding) -> None:
    pair.source.append(TOPIC, [(1_700_000_000_000 + number, None, b"%d" % number, ()) for number in range(20)])
    with pair.source.fork() as older:
        older.delete_records(TOPIC, 5)
        pair.source.append(TOPIC, [(1_700_000_000_020, None, b"forwarded", ())])
        pair.drain()
        older.append(TOPIC, [(1_700_000_000_030, None, b"another", ()), (1_700_000_000_031, None, b"behind", ())])
        reason = trouble_of(Forwarding(older, pair.upstream))
    assert "the record at offset 20 of partition 0 has time 1700000000030" in reason
    assert "the last forwarded one had 1700000000020" in reason
    assert len(pair.values()) == 21


def test_records_that_are_gone_are_counted_and_the_next_one_says_which(pair: Forwarding) -> None:
    pair.append(numbered(0, 10))
    pair.drain()
    pair.append(numbered(10, 30))
    pair.source.delete_records(TOPIC, 25)
    link = pair.drain()
    assert pair.values() == [*numbered(0, 10), *numbered(25, 30)]
    assert [dict(record.headers).get("triolog.gap") for record in pair.records()[9:12]] == [None, b"10-24", None]
    assert link.progress.snapshot()["lost_records"] == 15
    pair.append(numbered(30, 40))
    pair.source.delete_records(TOPIC, 40)
    with Running(pair.link()):
        pass
    pair.drain()
    pair.append([b"next"])
    pair.drain()
    found = [(record.value, dict(record.headers)) for record in pair.records()[15:]]
    assert found == [(b"next", {"triolog.gap": b"30-39"})], "with the first that comes"


def test_a_topic_that_the_source_lacks_is_said_and_found_when_it_comes(
    pair: Forwarding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the next look at the source's topics, not when a stopped topic is due again."""
    monkeypatch.setattr("triolog.tools.forward.memory.FIRST_PAUSE_S", 3600.0)
    monkeypatch.setattr("triolog.tools.forward.session.REFRESH_S", 0.05)
    link = pair.link(topics=[TOPIC, OTHER])
    pair.append([b"meanwhile"])
    with Running(link):
        until(lambda: troubles(link) == {OTHER: NO_SUCH_TOPIC}, "trouble")
        until(lambda: TOPIC in pair.upstream.topics() and pair.values() == [b"meanwhile"], "the records of the other topic")
        pair.source.create_topic(OTHER)
        pair.append([b"late"], topic=OTHER)
        until(lambda: OTHER in pair.upstream.topics() and pair.values(OTHER) == [b"late"], "its records")


def test_what_is_not_there_is_said_at_once(pair: Forwarding, tmp_path: Path) -> None:
    refused = first_failure(pair.link(to=NOBODY))
    assert f"at {NOBODY}: " in refused
    assert "Connection refused" in refused
    assert "Failed to resolve" in first_failure(pair.link(to="no-such-host.invalid:9092"))
    secret = pair.link(kafka={"sasl.password": {"file": str(tmp_path / "none")}})
    assert "cannot read sasl.password: [Errno 2] No such file or directory" in first_failure(secret)
    link = pair.link()
    link._open_source = lambda: ServerSource(Address("127.0.0.1", 1))
    assert "the source 127.0.0.1:1" in first_failure(link)


def test_a_wrong_password_is_said_at_once(pair: Forwarding, tmp_path: Path) -> None:
    secret, users, keys = (tmp_path / name for name in ("password", "users.toml", "server.toml"))
    secret.write_text("wrong\n")
    users.write_text('[edge]\npassword = "right"\n')
    keys.write_text(f'kafka = "127.0.0.1:0"\nkafka_security = "sasl_plaintext"\nsasl_users_file = "{users}"\n')
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "edge"}
    with ServerFolder(tmp_path) as folder:
        server = folder.start("--config", str(keys))
        address = json.loads(server.ready_file.read_text())["kafka"]
        kafka = {**login, "sasl.password": {"file": str(secret)}}
        message = first_failure(pair.link(to=address, kafka=kafka))
        assert "uthentication failed" in message
        assert "wrong" not in message
        secret.write_text("right\n")
        pair.append([b"a"])
        assert pair.drain(to=address, kafka=kafka).progress.snapshot()["records"] == 1


@pytest.mark.parametrize(
    ("api", "error"),
    [
        ("Produce", "TOPIC_AUTHORIZATION_FAILED"),
        ("FindCoordinator", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
        ("InitProducerId", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
        ("OffsetFetch", "GROUP_AUTHORIZATION_FAILED"),
    ],
)
def test_a_right_that_lacks_is_said_and_tried_again(pair: Forwarding, api: str, error: str) -> None:
    pair.upstream.create_topic(TOPIC)
    pair.append([b"a"])
    refused = pair.upstream.faults.add(api, error=error)
    link = pair.link()
    with Running(link):
        until(lambda: link.progress.snapshot()["failures"] or troubles(link), "a failure")
        said = troubles(link)[TOPIC] if api == "Produce" else link.progress.snapshot()["error"]
        assert "TOPIC_AUTHORIZATION_FAILED" in said if api == "Produce" else "uthoriz" in said
        refused.remove()
        link.wishes.resume()
        until(lambda: pair.values() == [b"a"], "the record")


@pytest.mark.parametrize("who", ["upstream", "source"])
def test_a_server_that_starts_again_costs_nothing_and_doubles_nothing(pair: Forwarding, who: str) -> None:
    pair.append(numbered(0, 10))
    with Running(pair.link()):
        until(lambda: TOPIC in pair.upstream.topics() and pair.values() == numbered(0, 10), "the first records")
        getattr(pair, who).restart()
        pair.append(numbered(10, 500))
        until(lambda: pair.values() == numbered(0, 500), "all records")


def test_a_drain_does_not_wait_for_a_pause(pair: Forwarding, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_PAUSE_MS", "LONGEST_PAUSE_MS", "LONGEST_REFUSED_MS"):
        monkeypatch.setattr(f"triolog.tools.forward.pacing.{name}", 3_600_000)
    pair.upstream.create_topic(TOPIC)
    pair.append([b"a"])
    pair.upstream.faults.add("InitProducerId", error="TRANSACTIONAL_ID_AUTHORIZATION_FAILED", once=True)
    link = pair.link()
    with Running(link):
        until(lambda: link.progress.state is LinkState.BACKING_OFF, "a failure")
        link.wishes.drain()
        until(lambda: pair.values() == [b"a"] and link.wishes.drains_since_s is None, "the record")
