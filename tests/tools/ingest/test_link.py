"""A link from a broker that does what no real one should: duplicates, reused packet ids, lost sessions, odd messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest
from triolog.protocol.types import Record
from triolog.server.embedded import BlockingBroker
from triolog.tools.ingest import record_store as store
from triolog.tools.ingest.ingest import Ingest
from triolog.tools.ingest.settings import MAX_UNACKNOWLEDGED

from tests.support.forwarding import PATIENCE_S, Running, until
from tests.support.scripted_mqtt import (
    FILTER,
    LINK,
    MQTT_TOPIC,
    PUBACK,
    PUBCOMP,
    PUBREC,
    SUBSCRIBE,
    TOPIC,
    ScriptedBroker,
    scripted,
)

pytest.importorskip("paho.mqtt.client", reason="ingest needs paho-mqtt")

DEAD: Final = "mqtt-dead-letters"


def records(server: BlockingBroker, topic: str = TOPIC) -> list[Record]:
    """Of committed transactions; none where the topic does not exist."""
    return server.log(topic).fetch() if topic in server.topics() else []


def values(server: BlockingBroker, topic: str = TOPIC) -> list[bytes | None]:
    return [record.value for record in records(server, topic)]


def headers(record: Record) -> Mapping[str, bytes | None]:
    return dict(record.headers)


def counts(link: Ingest, *names: str) -> tuple[Any, ...]:
    found = link.progress.snapshot()
    return tuple(found[name] for name in names)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let links give an append up soon."""
    monkeypatch.setattr(store, "DELIVERY_TIMEOUT_MS", 200)
    monkeypatch.setattr(store, "BLOCK_MS", 200)


def test_a_message_is_stored_as_its_map_says_and_then_acknowledged() -> None:
    with scripted() as (broker, server):
        link = broker.link(server, key="{2}", timestamp="/at")
        with Running(link), broker.greeted() as peer:
            peer.publish(b'{"at": 1700000000.5}', 5, user=[("unit", "C"), ("unit", "K")])
            assert peer.expect(PUBACK).packet_id == 5
            [record] = records(server)
            assert (record.key, record.value, record.timestamp) == (b"7", b'{"at": 1700000000.5}', 1_700_000_000_500)
            assert record.headers == (
                *(("mqtt.topic", MQTT_TOPIC.encode()), ("mqtt.qos", b"1"), ("mqtt.retain", b"false")),
                *(("unit", b"C"), ("unit", b"K")),
            )
            until(lambda: counts(link, "records") == (1,), "the count")
            assert counts(link, "state", "delivery", "bytes") == ("running", "at-least-once", 20)


def test_connect_asks_for_a_persistent_session_and_limits_messages_in_flight() -> None:
    with (
        scripted() as (broker, server),
        Running(broker.link(server, receive_maximum=9, session_expiry_s=77)),
        broker.accept() as peer,
    ):
        connect = peer.greet().body
        assert connect[7] & 2 == 0, "a clean start"
        assert b"\x11" + (77).to_bytes(4, "big") in connect
        assert b"\x21" + (9).to_bytes(2, "big") in connect
        assert connect.endswith(f"triolog-{LINK}".encode())


@pytest.mark.parametrize(("qos", "kind"), [(1, PUBACK), (2, PUBREC)])
@pytest.mark.usefixtures("impatient")
def test_nothing_is_acknowledged_while_the_server_is_away(qos: int, kind: int) -> None:
    with scripted() as (broker, server), Running(broker.link(server, qos=qos)):
        with broker.greeted() as peer:
            peer.publish(b"first", 1, qos=qos)
            peer.expect(kind)
            server.crash()
            peer.publish(b"second", 2, qos=qos)
            assert peer.next() is None, "the link gives the connection up without an acknowledgement"
        server.restart()
        with broker.greeted(session=True) as peer:
            peer.publish(b"second", 2, qos=qos, dup=True)
            assert peer.expect(kind).packet_id == 2
            assert values(server)[-1] == b"second"
            assert set(values(server)) == {b"first", b"second"}


@pytest.mark.parametrize(("qos", "kind"), [(1, PUBACK), (2, PUBREC)])
def test_a_message_is_acknowledged_after_the_sync_of_its_record(qos: int, kind: int) -> None:
    with scripted(durability="fsync", topics=[TOPIC]) as (broker, server), Running(broker.link(server, qos=qos)):
        with broker.greeted() as peer:
            fault = server.faults.disk("delay", operation="sync", path=f"{TOPIC}-*/*.log", delay_ms=3_600_000)
            peer.publish(b"one", 1, qos=qos)
            fault.wait_fired(timeout_s=PATIENCE_S)
            assert peer.is_silent
            fault.release()
            assert peer.expect(kind).packet_id == 1


@pytest.mark.usefixtures("impatient")
def test_messages_stay_at_the_broker_while_the_disk_is_full() -> None:
    with scripted(topics=[TOPIC]) as (broker, server):
        link = broker.link(server)
        with Running(link):
            with broker.greeted() as peer:
                fault = server.faults.disk("full", path=f"{TOPIC}-*/*.log")
                peer.publish(b"one", 1)
                assert peer.next() is None, "the link gives the connection up without an acknowledgement"
            fault.remove()
            with broker.greeted(session=True) as peer:
                peer.publish(b"one", 1, dup=True)
                peer.expect(PUBACK)
            assert (values(server), counts(link, "dead_letter_records")) == ([b"one"], (0,))


def test_a_message_of_qos_2_is_stored_once_whatever_breaks_in_its_handshake() -> None:
    with scripted() as (broker, server):
        with Running(broker.link(server, qos=2)) as running, broker.greeted() as peer:
            peer.publish(b"once", 7, qos=2)
            peer.expect(PUBREC)  # which is lost on its way, let us say
            running.stop()
        link = broker.link(server, qos=2)  # as another process would
        with Running(link):
            with broker.greeted(session=True) as peer:
                peer.publish(b"once", 7, qos=2, dup=True)
                assert peer.expect(PUBREC).packet_id == 7
                assert counts(link, "delivery", "duplicates", "avoided_records", "unreleased") == ("exactly-once", 1, 1, 1)
                peer.release(7)
                peer.expect(PUBCOMP)
            with broker.greeted(session=True) as peer:
                peer.release(7)  # because PUBCOMP was lost
                assert peer.expect(PUBCOMP).packet_id == 7
                assert values(server) == [b"once"]
                peer.publish(b"once", 7, qos=2, dup=True)  # the id is free, so this is another message
                peer.expect(PUBREC)
                assert values(server) == [b"once", b"once"]


def test_a_reused_packet_id_of_qos_2_loses_no_message() -> None:
    with scripted() as (broker, server):
        link = broker.link(server, qos=2)
        with Running(link), broker.greeted() as peer:
            for payload, dup in ((b"a", False), (b"a", False), (b"b", True), (b"b", True)):
                peer.publish(payload, 1, qos=2, dup=dup)
                peer.expect(PUBREC)
            assert values(server) == [b"a", b"a", b"b"]
            until(
                lambda: counts(link, "reused_packet_ids", "avoided_records", "delivery") == (2, 1, "at-least-once"),
                "the counts",
            )


def test_packet_ids_of_a_lost_session_are_forgotten() -> None:
    with scripted() as (broker, server):
        link = broker.link(server, qos=2)
        with Running(link):
            with broker.greeted() as peer:
                peer.publish(b"a", 1, qos=2)
                peer.expect(PUBREC)
            with broker.greeted(session=False) as peer:
                peer.publish(b"a", 1, qos=2, dup=True)
                peer.expect(PUBREC)
                assert values(server) == [b"a", b"a"]
        assert counts(link, "lost_sessions") == (1,)


def test_a_message_of_qos_1_that_comes_twice_is_stored_twice_and_counted() -> None:
    with scripted() as (broker, server):
        link = broker.link(server, qos=2)
        with Running(link):
            for session in (False, True):
                with broker.greeted(session=session) as peer:
                    peer.publish(b"twice", 3, qos=1, dup=session)
                    peer.expect(PUBACK)
            assert values(server) == [b"twice", b"twice"]
            assert "mqtt.dup" in headers(records(server)[1])
            assert counts(link, "duplicates", "delivery") == (1, "at-least-once"), "because a message had QoS 1"


def test_retained_messages_are_counted_and_left_out_on_request() -> None:
    for keeps in (True, False):
        with scripted() as (broker, server):
            link = broker.link(server, retained=keeps)
            with Running(link), broker.greeted() as peer:
                peer.publish(b"old", 1, retain=True)
                peer.publish(b"new", 2)
                assert [peer.expect(PUBACK).packet_id, peer.expect(PUBACK).packet_id] == [1, 2]
                assert values(server) == [b"old", b"new"][not keeps :]
                until(lambda link=link: counts(link, "retained") == (1,), "the count")


@pytest.mark.parametrize("qos", [1, 2])
def test_messages_that_cannot_be_stored_are_dead_letters_with_the_reason_and_the_rest_continues(qos: int) -> None:
    odd: list[tuple[dict[str, Any], str]] = [
        ({"payload": b"{"}, "the payload is not JSON"),
        ({"payload": b"{}"}, "the payload has nothing at /id"),
        ({"payload": b'{"id": null}'}, "no text or number at /id"),
        ({"payload": b'{"id": "' + b"x" * 2000 + b'"}'}, "the payload has 2010 bytes, above max_payload_bytes=1000"),
        ({"payload": b'{"id": 1}', "topic": "elsewhere"}, "no map matches the topic 'elsewhere'"),
        ({"payload": b'{"id": 1}', "topic": "sensors/a b/temperature"}, "a b"),
        ({"payload": b'{"id": 1}', "topic": b"sensors/\xff/temperature"}, "\\xff"),
        ({"payload": b'{"id": 1}', "topic": "sensors/small/temperature"}, "MESSAGE_TOO_LARGE"),
        ({"payload": b'{"id": 1}', "topic": "sensors/compacted/temperature", "user": [("x", "y" * 90)]}, "MESSAGE_TOO_LARGE"),
    ]
    kind = {1: PUBACK, 2: PUBREC}[qos]
    with scripted() as (broker, server):
        for name in ("small", "compacted"):
            server.create_topic(name, config={"max.message.bytes": "100"})
        link = broker.link(server, qos=qos, topic="{2}", key="/id", max_payload_bytes=1000)
        with Running(link), broker.greeted() as peer:
            for number, (message, _) in enumerate(odd, 1):
                peer.publish(**message, packet_id=number, qos=qos)
            peer.publish(b'{"id": "good"}', 99, topic="sensors/good/temperature", qos=qos)
            assert {peer.expect(kind).packet_id for _ in range(len(odd) + 1)} == {*range(1, len(odd) + 1), 99}
            assert values(server, "good") == [b'{"id": "good"}']
            reasons = [(headers(record)["triolog.error"] or b"").decode() for record in records(server, DEAD)]
            assert len(reasons) == len(odd)
            for _, reason in odd:
                assert any(reason in each for each in reasons), (reason, reasons)
            [cut] = [record for record in records(server, DEAD) if "mqtt.payload.bytes" in headers(record)]
            assert (len(cut.value or b""), headers(cut)["mqtt.payload.bytes"]) == (1000, b"2010")
            assert counts(link, "dead_letter_records", "state") == (len(odd), "running")


@pytest.mark.parametrize("qos", [1, 2])
def test_a_dead_letter_above_the_limit_of_its_topic_is_cut_until_it_fits(qos: int) -> None:
    """Otherwise one device could stop the link for good."""
    kind = {1: PUBACK, 2: PUBREC}[qos]
    with scripted() as (broker, server):
        server.create_topic(DEAD, config={"max.message.bytes": "3000"})
        server.create_topic(TOPIC, config={"max.message.bytes": "3000"})
        link = broker.link(server, qos=qos, key="/id")
        with Running(link), broker.greeted() as peer:
            peer.publish(b"x" * 9000, 1, qos=qos, user=[("a", "b" * 900), ("mqtt.topic", "c")])
            peer.publish(b'{"id": 1}', 2, qos=qos, user=[("a", "b" * 9000)])
            peer.publish(b'{"id": 2}', 3, qos=qos)
            assert {peer.expect(kind).packet_id for _ in range(3)} == {1, 2, 3}
            assert values(server) == [b'{"id": 2}']
            large, small = sorted(records(server, DEAD), key=lambda record: -len(record.value or b""))
            assert (large.value, headers(large)["mqtt.payload.bytes"]) == (b"x" * 2250, b"9000")
            assert b"the payload is not JSON" in (headers(large)["triolog.error"] or b"")
            assert b"MESSAGE_TOO_LARGE" in (headers(small)["triolog.error"] or b"")
            assert headers(large)["mqtt.topic"] == headers(small)["mqtt.topic"] == MQTT_TOPIC.encode()
            assert counts(link, "dead_letter_records", "state") == (2, "running")


def test_a_suback_for_another_number_of_filters_is_a_failure_with_a_reason() -> None:
    with scripted() as (broker, server):
        link = broker.link(server)
        with Running(link), broker.accept() as peer:
            peer.accept_session(session=False)
            asked = peer.expect(SUBSCRIBE)
            peer._send(0x90, asked.body[:2] + b"\0\1\1")
            until(lambda: "1 filters with 2 codes" in (link.progress.snapshot()["error"] or ""), "the error")
            assert "unhandled" not in link.progress.snapshot()["error"]


def test_any_text_of_a_user_property_is_stored() -> None:
    """paho refuses some of them, and the broker would send such a message again and again."""
    texts = ["\ufeffC", "\0", "\u00e4", ""]
    with scripted() as (broker, server), Running(broker.link(server)), broker.greeted() as peer:
        peer.publish(b"1", 1, user=[("unit", each) for each in texts])
        assert peer.expect(PUBACK).packet_id == 1
        [record] = records(server)
        assert [value for name, value in record.headers if name == "unit"] == [each.encode() for each in texts]


def test_a_map_names_no_more_topics_than_allowed() -> None:
    with scripted() as (broker, server), Running(broker.link(server, topic="t{2}", max_topics=2)), broker.greeted() as peer:
        for number in (1, 2, 3, 1):
            peer.publish(b"x", number, topic=f"sensors/{number}/temperature")
            peer.expect(PUBACK)
        assert [len(values(server, name)) for name in ("t1", "t2", "t3", DEAD)] == [2, 1, 0, 1]


def test_topics_are_not_created_where_that_is_off() -> None:
    with scripted() as (broker, server):
        server.create_topic(DEAD)
        with Running(broker.link(server, create_topics=False)), broker.greeted() as peer:
            peer.publish(b"x", 1)
            peer.expect(PUBACK)
            assert TOPIC not in server.topics()
            assert b"it does not exist" in (headers(records(server, DEAD)[0])["triolog.error"] or b"")


def test_a_broker_that_exceeds_the_receive_maximum_sends_the_rest_again() -> None:
    """As Mosquitto does after a restart with `max_inflight_messages 0`."""
    every = range(1, MAX_UNACKNOWLEDGED + 3)
    with scripted() as (broker, server):
        link = broker.link(server, qos=2)
        with Running(link):
            with broker.greeted() as peer:
                for number in every:
                    peer.publish(b"%d" % number, number, qos=2)
                stored = [peer.expect(PUBREC).packet_id for _ in range(MAX_UNACKNOWLEDGED)]
                for number in stored:
                    peer.release(number)
                assert [peer.expect(PUBCOMP).packet_id for _ in stored] == stored
                assert peer.next() is None
            until(lambda: counts(link, "failures") == (1,), "the failure")
            assert "exceeds receive_maximum" in counts(link, "error")[0]
            with broker.greeted(session=True) as peer:
                for number in sorted(set(every) - set(stored)):
                    peer.publish(b"%d" % number, number, qos=2, dup=True)
                    peer.expect(PUBREC)
            assert values(server) == [b"%d" % number for number in every]


def test_more_messages_than_the_receive_maximum_ahead_of_suback_are_stored_and_the_refused_filter_is_reported() -> None:
    """Mosquitto sends all messages of the session before SUBACK, and with `max_inflight_messages 0` without a limit."""
    early = [b"%d" % number for number in range(50)]
    with scripted() as (broker, server):
        link = broker.link(server, receive_maximum=2)
        with Running(link), broker.greeted(session=True, early=early, granted=0x87):
            assert values(server) == early
            until(lambda: counts(link, "troubles") == ({f"filter {FILTER}": "Not authorized"},), "the refusal")
            assert counts(link, "state", "failures") == ("running", 0)


def test_a_connection_that_is_lost_between_a_message_and_suback_is_noticed_at_once() -> None:
    with scripted() as (broker, server):
        link = broker.link(server)
        with Running(link):
            with broker.accept() as peer:
                peer.accept_session()
                peer.expect(SUBSCRIBE)
                peer.publish(b"one", 1)
            with broker.greeted(session=True) as peer:
                assert "the connection is lost" in counts(link, "error")[0]
                peer.publish(b"one", 1, dup=True)
                peer.expect(PUBACK)
            assert values(server) == [b"one"]


def test_refusals_of_the_broker_are_said_and_tried_again() -> None:
    with scripted() as (broker, server):
        link = broker.link(server)
        with Running(link):
            with broker.accept() as peer:
                peer.greet(reason=0x87)
            until(lambda: counts(link, "error")[0], "the error")
            assert "refuses the connection: Not authorized" in counts(link, "error")[0]
            with broker.greeted(granted=0x87):
                until(lambda: counts(link, "state") == ("running",), "the session")
                assert counts(link, "troubles") == ({f"filter {FILTER}": "Not authorized"},)


def test_a_second_process_with_a_name_ends_the_first_one() -> None:
    """Its transactions are fenced, so no message is stored by both."""
    with scripted() as (broker, server):
        first = broker.link(server, qos=2)
        with Running(first) as running, broker.greeted() as peer:
            with Running(broker.link(server, qos=2)), broker.greeted(session=True) as other:
                other.publish(b"a", 1, qos=2)
                other.expect(PUBREC)
                peer.publish(b"b", 2, qos=2)
                running.wait()
                assert "another process has taken link" in counts(first, "error")[0]
                assert values(server) == [b"a"]


def test_one_append_stores_many_messages() -> None:
    with scripted() as (broker, server):
        link = broker.link(server)
        with Running(link), broker.greeted() as peer:
            for number in range(1, 401):
                peer.publish(b"x" * 100, number)
            for number in range(1, 401):
                assert peer.expect(PUBACK).packet_id == number
            assert len(values(server)) == 400
            assert counts(link, "batches")[0] < 200


def test_a_broker_that_is_not_there_is_waited_for() -> None:
    with scripted() as (_, server):
        gone = ScriptedBroker()
        link = gone.link(server)
        gone.close()
        with Running(link):
            until(lambda: counts(link, "state") == ("backing off",), "the failure")
            assert "Connection refused" in counts(link, "error")[0]
