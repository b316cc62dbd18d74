"""Connections of Kafka's protocol: framing, the order of answers, and peers that do what no client should."""

from __future__ import annotations

import logging
import struct
from pathlib import Path
from typing import Any

import pytest
import trio
from triolog.protocol.kafka.apis import ApiKey
from triolog.protocol.kafka.messages.groups import HeartbeatResponse
from triolog.protocol.limits import MAX_REQUEST_BYTES
from triolog.protocol.types import TopicPartition
from triolog.server.listeners.connections.transport import FREE_BYTES, MAX_UNSENT_BYTES
from triolog.server.listeners.kafka import calls
from triolog.server.listeners.kafka.door import Call
from triolog.server.loop.procedures import PAUSE, Procedure, Reply

from tests.support import kafka_server as support
from tests.support.brokers import LARGE, until
from tests.support.gate_fs import GateFileSystem
from tests.support.kafka_server import KafkaServer, batch, fetch_partition, fetch_request, kafka_server, produce_request
from tests.support.kafka_stream import KafkaStream
from tests.support.kafka_wire import ask, frame

HELLO = ask("ApiVersions", client_software_name="wire", client_software_version="1.0")
PARKED_MS = 120_000
PATIENCE_S = 30.0


async def is_serving(kafka: KafkaServer) -> bool:
    """Whether another connection is answered."""
    async with kafka.connected() as other:
        return (await other.call(HELLO, 3)).error_code == 0


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_versions_of_produce_that_are_advertised_for_librdkafka_are_not_read(client: KafkaStream, version: int) -> None:
    await client.send_raw(frame(produce_request(batch("x"), acks=1), version, 1))
    assert await client.is_closed_by_server()


def header(key: int, version: int) -> bytes:
    """A request that has nothing else."""
    return struct.pack(">ihhih", 10, key, version, 1, -1)


CUT_SHORT = frame(ask("Metadata", topics=None, include_cluster_authorized_operations=False), 1, 1)[4:-2]
NO_REQUESTS = {
    **{f"key {key}": header(key, 0) for key in (999, -1, 4, ApiKey.SASL_HANDSHAKE + 1000)},
    **{f"version {version} of Fetch": header(ApiKey.FETCH, version) for version in (3, 19, -1)},
    **{f"length {size}": struct.pack(">i", size) for size in (-1, 0, MAX_REQUEST_BYTES + 1)},
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "ssh": b"SSH-2.0-OpenSSH_9.6\r\n",
    "body cut short": struct.pack(">i", len(CUT_SHORT)) + CUT_SHORT,
}


@pytest.mark.parametrize("data", NO_REQUESTS.values(), ids=NO_REQUESTS)
async def test_what_is_no_request_ends_its_connection_only(kafka: KafkaServer, client: KafkaStream, data: bytes) -> None:
    """At once, without an answer."""
    async with kafka.connected() as other:
        await client.send_raw(data)
        assert await client.is_closed_by_server()
        assert (await other.call(HELLO, 3)).error_code == 0
    assert await is_serving(kafka)


async def test_a_frame_that_claims_much_costs_what_was_sent(kafka: KafkaServer, client: KafkaStream) -> None:
    """Nothing is allocated for what a length says, and no more counted than what came."""
    await client.send_raw(struct.pack(">i", MAX_REQUEST_BYTES) + b"\0" * 100)
    await until(lambda: kafka.admission.budget.held == 104)
    assert await is_serving(kafka)


async def test_answers_come_in_the_order_of_the_requests(client: KafkaStream) -> None:
    """Produces of one connection are under way together, and with other requests among them."""
    for number in range(100):
        await client.send(produce_request(batch(f"{number}"), partition=number % 3), 9)
        if not number % 7:
            await client.send(HELLO, 3)
    offsets: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for number in range(100):
        [partition] = (await client.receive()).responses[0].partition_responses
        assert partition.error_code == 0
        offsets[partition.index].append(partition.base_offset)
        if not number % 7:
            assert (await client.receive()).error_code == 0
    assert all(found == list(range(len(found))) for found in offsets.values())


async def test_produces_that_wait_for_the_device_are_answered_in_their_order(fast_path: Path) -> None:
    """The second one's partition is not held up; its answer waits all the same."""
    gate = GateFileSystem()
    async with kafka_server(fast_path, fs=gate) as kafka, kafka.connected() as client:
        await kafka.broker.topics.create(support.TOPIC, 2)
        with gate.hold("write", "topic-0/00000000000000000000.log"):
            await client.send(produce_request(batch("slow"), partition=0), 9)
            await client.send(produce_request(batch("fast"), partition=1), 9)
            await until(lambda: kafka.broker.reader.snapshot(TopicPartition(support.TOPIC, 1)).log_end_offset == 1)
        assert [(await client.receive()).responses[0].partition_responses[0].index for _ in range(2)] == [0, 1]


async def test_a_parked_fetch_holds_up_what_comes_behind_it(kafka: KafkaServer, client: KafkaStream) -> None:
    """As in Kafka: one request of a connection at a time."""
    await client.send(fetch_request(fetch_partition(), max_wait_ms=PARKED_MS), 11)
    await client.send(HELLO, 3)
    async with kafka.connected() as other:
        await support.produced(other, batch("wake up"))
    assert (await client.receive()).responses[0].partitions[0].records
    assert (await client.receive()).error_code == 0


async def test_what_was_taken_is_answered_before_a_broken_frame_ends_the_connection(client: KafkaStream) -> None:
    requests = [frame(produce_request(batch(f"{number}")), 9, number) for number in range(3)]
    await client.send_raw(b"".join(requests) + struct.pack(">i", -1))
    assert [struct.unpack_from(">i", await client.receive_frame())[0] for _ in range(3)] == [0, 1, 2]
    assert await client.is_closed_by_server()


async def test_acks_0_has_no_answer_and_holds_up_none(client: KafkaStream) -> None:
    for number in range(3):
        await client.send(produce_request(batch(f"{number}"), acks=0), 9, expects_answer=False)
    assert await support.produced(client, batch("answered")) == 3


@pytest.mark.parametrize(
    "request_fields",
    [{"topic": "no-such-topic"}, {"partition": 99}, {"records": b"\0" * 61}],
    ids=["topic", "partition", "records"],
)
async def test_failed_acks_0_end_a_connection(kafka: KafkaServer, client: KafkaStream, request_fields: dict[str, Any]) -> None:
    fields = {"records": batch("lost"), "acks": 0, **request_fields}
    await client.send(produce_request(**fields), 9, expects_answer=False)
    assert await client.is_closed_by_server()
    assert await is_serving(kafka)


async def test_a_client_that_sends_no_more_still_gets_its_answers(client: KafkaStream) -> None:
    """The half of the connection that it reads from stays open until then."""
    for number in range(5):
        await client.send(produce_request(batch(f"{number}")), 9)
    await client.stream.send_eof()
    for _ in range(5):
        assert (await client.receive()).responses[0].partition_responses[0].error_code == 0
    assert await client.is_closed_by_server()


async def test_a_client_that_never_reads_is_read_from_no_more(kafka: KafkaServer) -> None:
    """What it has not taken is bounded: by one answer above the limit."""
    async with kafka.connected() as producer:
        for _ in range(4):
            await support.produced(producer, batch(b"x" * 1_000_000))
    await until(lambda: kafka.listener.connections == 0)
    async with kafka.connected(receive_buffer_bytes=4096) as client:
        await client.send_raw(frame(fetch_request(fetch_partition()), 11, 1) * 20)
        await until(lambda: kafka.listener.connections == 1)
        [session] = kafka.sessions()
        transport = session.transport
        await until(lambda: transport.unsent_bytes > MAX_UNSENT_BYTES)
        assert await is_serving(kafka)
        assert transport.unsent_bytes < MAX_UNSENT_BYTES + 5_000_000
        await client.reset()


async def test_a_client_that_reads_is_read_from_again_while_memory_is_scarce(kafka: KafkaServer, client: KafkaStream) -> None:
    """Its answers leave at the end of the turn that has made them, without a task that would tell of it."""
    await support.produced(client, batch(bytes(2 * FREE_BYTES)))
    answers = kafka.admission.answers
    answers.change(taken := answers.limit - 1)
    assert answers.is_pressed
    for _ in range(4):
        answer = await client.call(fetch_request(fetch_partition(), max_bytes=8 * FREE_BYTES), 12)
        assert len(answer.responses[0].partitions[0].records) > FREE_BYTES
    answers.change(-taken)
    await until(lambda: answers.used == 0)


async def test_an_idle_connection_is_closed(fast_path: Path) -> None:
    async with kafka_server(fast_path, door={"idle_timeout_s": 0.02}) as kafka, kafka.connected() as client:
        assert (await client.call(HELLO, 3)).error_code == 0
        assert await client.is_closed_by_server()


@pytest.mark.merge
async def test_bytes_that_never_become_a_request_do_not_keep_a_connection(fast_path: Path) -> None:
    async with kafka_server(fast_path, door={"idle_timeout_s": 0.02}) as kafka, kafka.connected() as client:

        async def trickle() -> None:
            while True:
                await client.stream.send_all(b"\0")

        with trio.fail_after(PATIENCE_S), pytest.raises(trio.BrokenResourceError):
            await trickle()


async def test_a_parked_fetch_is_not_idle(fast_path: Path) -> None:
    idle_s = 0.02
    async with kafka_server(fast_path, door={"idle_timeout_s": idle_s}) as kafka:
        await kafka.broker.topics.create(support.TOPIC)
        async with kafka.connected() as client:
            begin = trio.current_time()
            answer = await client.call(fetch_request(fetch_partition(), max_wait_ms=100), 11)
            assert trio.current_time() - begin > 4 * idle_s
            assert answer.responses[0].partitions[0].error_code == 0


async def test_a_stop_answers_a_parked_fetch_and_takes_no_more(kafka: KafkaServer, client: KafkaStream) -> None:
    await client.send(fetch_request(fetch_partition(), max_wait_ms=PARKED_MS, max_bytes=LARGE), 11)
    await until(lambda: kafka.admission.budget.held > 0)
    kafka.listener.stop(grace_s=30)
    [partition] = (await client.receive()).responses[0].partitions
    assert (partition.error_code, partition.records) == (0, b"")
    assert await client.is_closed_by_server()
    await until(lambda: kafka.listener.connections == 0)


async def test_a_request_that_comes_as_the_connection_is_told_to_stop_gives_its_bytes_back(fast_path: Path) -> None:
    """It waits for its turn behind a produce when the stop comes, and is not taken up."""
    gate = GateFileSystem()
    async with kafka_server(fast_path, fs=gate) as kafka, kafka.connected() as client:
        await kafka.broker.topics.create(support.TOPIC)
        budget = kafka.admission.budget
        with gate.hold("write", "topic-0/00000000000000000000.log"):
            await client.send(produce_request(batch("taken")), 9)
            await until(lambda: budget.held > 0)
            held = budget.held
            await client.send(HELLO, 3)
            await until(lambda: budget.held > held)
            kafka.listener.stop(grace_s=30)
        assert (await client.receive()).responses[0].partition_responses[0].error_code == 0
        assert await client.is_closed_by_server()
        await until(lambda: budget.held == 0)


async def test_a_fetch_after_a_failure_works(kafka: KafkaServer, client: KafkaStream, caplog: pytest.LogCaptureFixture) -> None:
    """A produce before it, without acks, is refused by its log while the fetch goes through its many partitions."""
    await kafka.broker.topics.create("wide", 100)
    out_of_order = batch("x", producer_id=7, producer_epoch=0, base_sequence=5)
    await support.produced(client, batch("x", producer_id=7, producer_epoch=0, base_sequence=0))
    fetch = fetch_request(*(fetch_partition(partition=number) for number in range(100)), topic="wide", max_wait_ms=600_000)
    await client.send_raw(frame(produce_request(out_of_order, acks=0), 9, 2) + frame(fetch, 12, 3))
    with caplog.at_level(logging.WARNING):
        assert await client.is_closed_by_server()
    [line] = caplog.messages
    assert "OUT_OF_ORDER_SEQUENCE_NUMBER" in line


async def test_many_failures_end_it_once(kafka: KafkaServer, client: KafkaStream, caplog: pytest.LogCaptureFixture) -> None:
    """A request names thousands of partitions; one line of the log is enough for it."""
    parts = [{"index": number, "records": batch("x")} for number in range(100, 300)]
    topics = [{"name": support.TOPIC, "topic_id": bytes(16), "partition_data": parts}]
    with caplog.at_level(logging.WARNING):
        await client.send(ask("Produce", acks=0, timeout_ms=1000, topic_data=topics), 9, expects_answer=False)
        assert await client.is_closed_by_server()
    assert len(caplog.records) == 1
    assert kafka.admission.counters("kafka").refused == 1


async def test_a_bug_ends_the_connection_that_meets_it_and_no_other(
    kafka: KafkaServer, client: KafkaStream, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(call: Call, body: object) -> object:
        raise ZeroDivisionError("planted")

    monkeypatch.setitem(calls.IN_TURN, ApiKey.METADATA, handler)
    with caplog.at_level(logging.ERROR):
        await client.send(ask("Metadata", topics=None, include_cluster_authorized_operations=False), 5)
        assert await client.is_closed_by_server()
    assert "ZeroDivisionError: planted" in caplog.text
    assert await is_serving(kafka)
    assert kafka.admission.budget.held == 0


def heartbeat() -> object:
    return ask("Heartbeat", group_id="group", generation_id=1, member_id="member", group_instance_id=None)


async def test_a_procedure_waits_in_the_task_of_its_connection_and_holds_up_what_follows(
    client: KafkaStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def code() -> int:
        await trio.sleep(0)
        return 27

    def handler(call: Call, body: object) -> Procedure[HeartbeatResponse]:
        return HeartbeatResponse(error_code=(yield code))

    monkeypatch.setitem(calls.IN_TURN, ApiKey.HEARTBEAT, handler)
    await client.send(heartbeat(), 4)
    await client.send(HELLO, 3)
    assert [(await client.receive()).error_code for _ in range(2)] == [27, 0]


async def test_a_procedure_continues_where_its_reply_is_put(client: KafkaStream, monkeypatch: pytest.MonkeyPatch) -> None:
    replies: list[Reply] = []

    def handler(call: Call, body: object) -> Procedure[HeartbeatResponse]:
        replies.append(Reply())
        return HeartbeatResponse(error_code=(yield replies[-1]))

    monkeypatch.setitem(calls.IN_TURN, ApiKey.HEARTBEAT, handler)
    for code in (27, 25):
        await client.send(heartbeat(), 4)
        await until(lambda: len(replies) == 1)
        replies.pop().put(code)
        assert (await client.receive()).error_code == code


async def test_what_waits_after_its_reply_is_a_bug_that_ends_its_connection(
    kafka: KafkaServer, client: KafkaStream, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(call: Call, body: object) -> Procedure[None]:
        reply = Reply()
        reply.put(0)
        yield reply
        yield PAUSE

    monkeypatch.setitem(calls.IN_TURN, ApiKey.HEARTBEAT, handler)
    with caplog.at_level(logging.ERROR):
        await client.send(heartbeat(), 4, expects_answer=False)
        assert await client.is_closed_by_server()
    assert "waits after its reply" in caplog.text
    assert await is_serving(kafka)


async def test_a_request_that_comes_a_byte_at_a_time_is_answered(client: KafkaStream) -> None:
    for byte in frame(HELLO, 3, 1):
        await client.send_raw(bytes([byte]))
    assert struct.unpack_from(">i", await client.receive_frame()) == (1,)
