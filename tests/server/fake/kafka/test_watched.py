"""Faults and the log of requests, on the wire: what the bytes say. What real clients make of it is in tests/clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from triolog.protocol.errors import ErrorCode
from triolog.server.fake.faults.faults import Fault
from triolog.server.fake.faults.requests import LoggedRequest, Wanted
from triolog.server.fake.faults.rules import rule_of
from triolog.server.fake.kafka.watched import Watch

from tests.support import kafka_server as support
from tests.support.brokers import PARTITION, until
from tests.support.gate_fs import GateFileSystem
from tests.support.kafka_server import TOPIC, KafkaServer, batch, fetch_partition, fetch_request, produce_request, produced
from tests.support.kafka_stream import KafkaStream
from tests.support.kafka_wire import ask
from tests.support.logs import START_MS

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


def rule(watch: Watch, **told: Any) -> Fault[Any]:
    return watch.faults.add(rule_of(told))


def two_partitions(*values: bytes) -> Any:
    parts = [{"index": number, "records": batch(value)} for number, value in enumerate(values)]
    topics = [{"name": TOPIC, "topic_id": bytes(16), "partition_data": parts}]
    return ask("Produce", acks=-1, timeout_ms=1000, topic_data=topics)


async def stored(client: KafkaStream, partition: int = 0) -> int:
    """The high watermark."""
    asked = {"partition_index": partition, "timestamp": -1}
    topics = [{"name": TOPIC, "partitions": [asked]}]
    answer = await client.call(ask("ListOffsets", replica_id=-1, isolation_level=0, topics=topics, timeout_ms=0), 6)
    return answer.topics[0].partitions[0].offset


async def test_requests_are_noted_with_what_they_are_about_and_how_they_end(watch: Watch, client: KafkaStream) -> None:
    await produced(client, batch("a"), partition=1)
    await client.call(fetch_request(fetch_partition(5)), 12)
    produce, fetch = watch.requests
    assert (produce.api, produce.version, dict(produce.topics), produce.errors) == ("Produce", 9, {TOPIC: [1]}, ())
    assert (fetch.api, fetch.errors, fetch.at_ms) == ("Fetch", ("OFFSET_OUT_OF_RANGE",), START_MS)


async def test_topics_are_noted_by_name_when_requests_have_ids(kafka: KafkaServer, watch: Watch, client: KafkaStream) -> None:
    topics = [
        {"topic": "", "topic_id": topic_id, "partitions": [fetch_partition()]} for topic_id in (kafka.topic_id(), b"x" * 16)
    ]
    await client.call(support.fetch_of(topics), 13)
    [fetch] = watch.requests
    assert set(fetch.topics) == {TOPIC, (b"x" * 16).hex()}


@pytest.mark.parametrize(("applied", "high_watermark"), [(False, 0), (True, 1)])
async def test_an_error_with_and_without_effect(watch: Watch, client: KafkaStream, applied: bool, high_watermark: int) -> None:
    fault = rule(watch, api="Produce", error="NOT_LEADER_OR_FOLLOWER", applied=applied, once=True)
    answer = await client.call(produce_request(batch("a")), 9)
    assert answer.responses[0].partition_responses[0].error_code == NOT_LEADER
    assert await stored(client) == high_watermark
    await produced(client, batch("b"))
    assert (fault.matched, fault.fired) == (2, 1)
    [failed] = watch.requests.find(Wanted(error="NOT_LEADER_OR_FOLLOWER"))
    assert failed.fault == fault.number


@pytest.mark.parametrize(("applied", "high_watermark"), [(False, 0), (True, 1)])
async def test_one_partitions_error_is_its_own(watch: Watch, client: KafkaStream, applied: bool, high_watermark: int) -> None:
    rule(watch, topic=TOPIC, partition=0, api="Produce", error="KAFKA_STORAGE_ERROR", applied=applied)
    answer = await client.call(two_partitions(b"a", b"b"), 9)
    codes = {each.index: each.error_code for each in answer.responses[0].partition_responses}
    assert codes == {0: ErrorCode.KAFKA_STORAGE_ERROR, 1: 0}
    assert (await stored(client, 0), await stored(client, 1)) == (high_watermark, 1)


async def test_an_error_without_acks_ends_the_connection(watch: Watch, client: KafkaStream) -> None:
    rule(watch, api="Produce", error="NOT_LEADER_OR_FOLLOWER")
    await client.send(produce_request(batch("a"), acks=0), 9, expects_answer=False)
    assert await client.is_closed_by_server()


async def test_a_produce_that_expired_is_noted_and_counted_once(
    fast_path: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log answers when the request has its answer already: that changes nothing."""
    monkeypatch.setattr("triolog.server.loop.reactor.CHECK_S", 0.01)
    gate = GateFileSystem()
    async with support.kafka_server(fast_path, watch=watch, fs=gate) as kafka, kafka.connected() as client:
        await kafka.broker.topics.create(TOPIC)
        noted: list[LoggedRequest] = []
        watch.requests.watch(lambda: noted.extend(each for each in watch.requests if each.error_codes is not None))
        with gate.hold("write", "topic-0/00000000000000000000.log"):
            answer = await client.call(produce_request(batch("late"), timeout_ms=1), 9)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        await until(lambda: kafka.broker.reader.snapshot(PARTITION).log_end_offset == 1)
        [produce] = watch.requests
        assert produce.errors == ("REQUEST_TIMED_OUT",)
        assert len(noted) == 1
        counters = kafka.admission.counters("kafka").apis["Produce"]
        assert counters.errors == {ErrorCode.REQUEST_TIMED_OUT: 1}
        assert counters.durations.count == 1


async def test_a_request_whose_connection_was_ended_first_has_no_answer_in_the_log(fast_path: Path, watch: Watch) -> None:
    """The append goes on, and is answered to nobody."""
    gate = GateFileSystem()
    async with support.kafka_server(fast_path, watch=watch, fs=gate) as kafka, kafka.connected() as client:
        await kafka.broker.topics.create(TOPIC)
        with gate.hold("write", "topic-0/00000000000000000000.log") as held:
            await client.send(produce_request(batch("held")), 9)
            await held.reached()
            await client.send(produce_request(batch("gone"), partition=7, acks=0), 9, expects_answer=False)
            assert await client.is_closed_by_server()
        await until(lambda: kafka.broker.reader.snapshot(PARTITION).log_end_offset == 1)
        assert [each.error_codes for each in watch.requests] == [None, None]
        assert kafka.admission.counters("kafka").apis.keys() == set()
        assert kafka.admission.budget.used == 0


async def test_a_fetch_fails_in_its_partitions_and_its_session_goes_on(watch: Watch, client: KafkaStream) -> None:
    await produced(client, batch("a"), partition=1)
    first = await client.call(fetch_request(fetch_partition(), fetch_partition(partition=1), session_epoch=0), 12)
    rule(watch, api="Fetch", topic=TOPIC, partition=1, error="NOT_LEADER_OR_FOLLOWER", once=True)
    failed = await client.call(fetch_request(session_id=first.session_id, session_epoch=1, max_wait_ms=60_000), 12)
    [partition] = failed.responses[0].partitions
    assert (failed.error_code, partition.partition_index, partition.error_code) == (0, 1, NOT_LEADER)
    assert partition.records == b""
    after = await client.call(fetch_request(session_id=first.session_id, session_epoch=2), 12)
    assert after.error_code == 0


async def test_a_fetch_can_fail_as_a_whole_with_what_concerns_its_session(watch: Watch, client: KafkaStream) -> None:
    rule(watch, api="Fetch", error="FETCH_SESSION_ID_NOT_FOUND", once=True)
    answer = await client.call(fetch_request(fetch_partition()), 12)
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_no_topic_is_made_where_metadata_fails(kafka: KafkaServer, watch: Watch, client: KafkaStream) -> None:
    rule(watch, api="Metadata", topic="new", error="LEADER_NOT_AVAILABLE", once=True)
    asked = [{"name": name} for name in (TOPIC, "new")]
    request = ask("Metadata", topics=asked, allow_auto_topic_creation=True)
    answer = await client.call(request, 9)
    assert {topic.name: topic.error_code for topic in answer.topics} == {TOPIC: 0, "new": ErrorCode.LEADER_NOT_AVAILABLE}
    assert answer.brokers
    assert "new" not in kafka.broker.topics.names()
    assert [topic.error_code for topic in (await client.call(request, 9)).topics] == [0, 0]


async def test_an_error_of_a_group(watch: Watch, client: KafkaStream) -> None:
    rule(watch, group="g", error="COORDINATOR_NOT_AVAILABLE")
    request = ask("FindCoordinator", key="g", key_type=0, coordinator_keys=["g"])
    answer = await client.call(request, 4)
    assert answer.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    other = ask("FindCoordinator", key="h", key_type=0, coordinator_keys=["h"])
    assert (await client.call(other, 4)).coordinators[0].error_code == 0


async def test_a_held_request_waits_until_it_is_released(kafka: KafkaServer, watch: Watch, client: KafkaStream) -> None:
    fault = rule(watch, api="Produce", hold=True)
    await client.send(produce_request(batch("a")), 9)
    await until(lambda: fault.fired == 1)
    async with kafka.connected() as other:
        assert await stored(other) == 0
        [held] = watch.requests.find(Wanted(api="Produce"))
        assert held.error_codes is None
        fault.release()
        await client.receive_frame()
        assert await stored(other) == 1


async def test_a_held_answer_comes_after_its_effect(kafka: KafkaServer, watch: Watch, client: KafkaStream) -> None:
    fault = rule(watch, api="Produce", hold=True, applied=True)
    await client.send(produce_request(batch("a")), 9)
    async with kafka.connected() as other:
        while await stored(other) == 0:
            """Not yet."""
    fault.release()
    await client.receive_frame()


@pytest.mark.parametrize(("applied", "high_watermark"), [(False, 0), (True, 1)])
async def test_a_disconnect_before_and_after_the_effect(
    kafka: KafkaServer, watch: Watch, client: KafkaStream, applied: bool, high_watermark: int
) -> None:
    rule(watch, api="Produce", disconnect=True, applied=applied)
    await client.send(produce_request(batch("a")), 9)
    assert await client.is_closed_by_server()
    async with kafka.connected() as other:
        assert await stored(other) == high_watermark


async def test_a_black_hole_is_silent_until_the_client_goes(kafka: KafkaServer, watch: Watch, client: KafkaStream) -> None:
    fault = rule(watch, api="Produce", black_hole=True, once=True)
    await client.send(produce_request(batch("a")), 9)
    await client.send(produce_request(batch("b")), 9)
    await until(lambda: fault.fired == 1)
    async with kafka.connected() as other:
        await produced(other, batch("c"))
        assert await stored(other) == 1
        await client.reset()
        await until(lambda: kafka.listener.connections == 1)


async def test_corrupt_records_differ_from_those_stored_and_the_answer_can_be_read(watch: Watch, client: KafkaStream) -> None:
    await produced(client, batch("a"))
    rule(watch, api="Fetch", corrupt=True, once=True)
    bad, good = [await client.call(fetch_request(fetch_partition()), 12) for _ in range(2)]
    found = [bytes(answer.responses[0].partitions[0].records) for answer in (bad, good)]
    assert found[0][:-1] == found[1][:-1]
    assert found[0][-1] != found[1][-1]


async def test_another_corrupt_answer_cannot_be_read(watch: Watch, client: KafkaStream) -> None:
    rule(watch, api="Produce", corrupt=True)
    await client.send(produce_request(batch("a")), 9)
    frame = await client.receive_frame()
    assert frame[:4] == b"\0\0\0\1"
    assert len(set(frame[4:]) & {0xFF}) == 1


async def test_a_rule_of_a_client_and_of_a_topic_id(kafka: KafkaServer, watch: Watch, client: KafkaStream) -> None:
    rule(watch, client_id="somebody-else", disconnect=True)
    fault = rule(watch, topic=TOPIC, api="Produce", error="NOT_LEADER_OR_FOLLOWER")
    answer = await client.call(produce_request(batch("a"), topic="", topic_id=kafka.topic_id()), 13)
    assert answer.responses[0].partition_responses[0].error_code == NOT_LEADER
    assert fault.fired == 1


async def test_an_answer_is_delayed_told_to_throttle_or_cut_off(watch: Watch, client: KafkaStream) -> None:
    rule(watch, api="Produce", delay_ms=50, once=True)
    begin = trio.current_time()
    await produced(client, batch("a"))
    assert trio.current_time() - begin >= 0.05
    rule(watch, api="Produce", throttle_ms=1234, once=True)
    answer = await client.call(produce_request(batch("a")), 9)
    assert (answer.throttle_time_ms, answer.responses[0].partition_responses[0].error_code) == (1234, 0)
    rule(watch, api="Produce", truncate_to=9)
    await client.send(produce_request(batch("a")), 9)
    with pytest.raises(EOFError, match="before they were there"):
        await client.receive_frame()
