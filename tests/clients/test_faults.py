from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Final

import pytest
import triolog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from triolog.server.config.broker_config import Address
from triolog.server.embedded import MEMORY, BlockingBroker
from triolog.server.fake.faults.rules import Intercepted

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in a way that Python is about to drop
    from kafka import KafkaConsumer
    from kafka import TopicPartition as KafkaPythonPartition
    from kafka.errors import CorruptRecordError

TOPIC = "orders"
PATIENCE_S = 30.0


@pytest.fixture
def broker() -> Iterator[BlockingBroker]:
    with triolog.blocking.open(MEMORY, kafka=Address("127.0.0.1", 0), topics={TOPIC: 2}) as broker:
        yield broker


@pytest.fixture
def sent(broker: BlockingBroker) -> Iterator[Callable[..., KafkaError | None]]:
    """Sends a record with librdkafka and answers why it was not delivered."""
    producers: dict[str, Producer] = {}

    def send(value: bytes = b"v", *, partition: int = 0, topic: str = TOPIC, **config: Any) -> KafkaError | None:
        key = str(config)
        if key not in producers:
            producers[key] = producer_of(broker, **config)
        errors: list[KafkaError | None] = []
        producers[key].produce(topic, value, partition=partition, on_delivery=lambda error, _: errors.append(error))
        assert producers[key].flush(PATIENCE_S) == 0
        [error] = errors
        return error

    yield send
    producers.clear()


def producer_of(broker: BlockingBroker, **config: Any) -> Producer:
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "linger.ms": 0,
        "retry.backoff.ms": 1,
        "retry.backoff.max.ms": 10,
        "reconnect.backoff.ms": 1,
        "reconnect.backoff.max.ms": 10,
        "log_level": 0,
        **config,
    }
    return Producer(settings)


def consumed(broker: BlockingBroker, count: int, partition: int = 0, **config: Any) -> list[Message]:
    """Records from the beginning of a partition, read by librdkafka without a group."""
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "unused",
        "enable.auto.commit": False,
        "fetch.error.backoff.ms": 1,
        "reconnect.backoff.ms": 1,
        "reconnect.backoff.max.ms": 10,
        "log_level": 0,
        **config,
    }
    found: list[Message] = []
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(TOPIC, partition, 0)])
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < count and time.monotonic() < deadline:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                found.append(message)
    return found


Sent = Callable[..., KafkaError | None]


def test_an_error_that_is_retried_costs_a_second_request_and_nothing_else(broker: BlockingBroker, sent: Sent) -> None:
    fault = broker.faults.add("Produce", topic=TOPIC, error="NOT_LEADER_OR_FOLLOWER", once=True)
    assert sent() is None
    assert fault.fired == 1
    failed, good = broker.requests.wait_for("Produce", count=2)
    assert (failed.errors, good.errors) == (("NOT_LEADER_OR_FOLLOWER",), ())
    assert broker.log(TOPIC).values() == [b"v"]


ONCE: Final = {"once": True}
TWICE: Final = {"error": "REQUEST_TIMED_OUT", "applied": True, **ONCE}
# A machine that is slow lets other requests time out as well: an idempotent producer writes nothing twice then.
IN_TIME: Final = {"enable.idempotence": True, "socket.timeout.ms": 300, "request.timeout.ms": 200, "message.timeout.ms": 20_000}


@pytest.mark.parametrize(
    ("rule", "config", "code", "stored"),
    [
        pytest.param({"error": "MESSAGE_TOO_LARGE"}, {}, KafkaError.MSG_SIZE_TOO_LARGE, 0, id="final error"),
        pytest.param(TWICE, {}, None, 2, id="error with the effect"),
        pytest.param(TWICE, {"enable.idempotence": True}, None, 1, id="error with the effect, idempotent"),
        pytest.param({"disconnect": True, **ONCE}, {}, None, 1, id="disconnect before the effect"),
        pytest.param({"disconnect": True, "applied": True, **ONCE}, {}, None, 2, id="disconnect behind the effect"),
        pytest.param({"truncate_to": 10, **ONCE}, {}, None, 2, id="truncated answer"),
        pytest.param({"black_hole": True, **ONCE}, IN_TIME, None, 1, id="black hole"),
    ],
)
def test_a_record_is_refused_or_written_once_or_twice(
    broker: BlockingBroker, sent: Sent, rule: dict[str, Any], config: dict[str, Any], code: int | None, stored: int
) -> None:
    sent(b"first", **config)
    fault = broker.faults.add("Produce", **rule)
    seen = broker.requests.last
    error = sent(**config)
    assert (error and error.code(), fault.fired) == (code, 1)
    more = len(broker.requests.find("Produce", after=seen)) - 2  # a slow machine may lose the answer to the first retry too
    again = max(0, more) if stored and not config else 0
    assert broker.log(TOPIC).values() == [b"first", *[b"v"] * (stored + again)]


def test_a_rule_of_one_partition_leaves_the_other_alone(broker: BlockingBroker, sent: Sent) -> None:
    broker.faults.add("Produce", topic=TOPIC, partition=1, error="INVALID_RECORD")
    assert sent(partition=0) is None
    assert sent(partition=1) is not None


def test_a_rule_of_one_client_leaves_others_alone(broker: BlockingBroker, sent: Sent) -> None:
    broker.faults.add("Produce", client_id="bad-*", error="INVALID_RECORD")
    assert sent(**{"client.id": "good-1"}) is None
    assert sent(**{"client.id": "bad-1"}) is not None


def test_the_nth_request(broker: BlockingBroker, sent: Sent) -> None:
    broker.faults.add("Produce", nth=2, times=1, error="INVALID_RECORD")
    assert [sent() is None for _ in range(3)] == [True, False, True]


def test_a_probability_with_a_seed(broker: BlockingBroker, sent: Sent) -> None:
    fault = broker.faults.add("Produce", probability=0.5, seed=1, error="INVALID_RECORD")
    outcomes = [sent() is None for _ in range(20)]
    assert outcomes.count(False) == fault.fired
    fault.remove()
    broker.faults.add("Produce", probability=0.5, seed=1, error="INVALID_RECORD")
    assert [sent() is None for _ in range(20)] == outcomes


def test_a_delay(broker: BlockingBroker, sent: Sent) -> None:
    sent()
    broker.faults.add("Produce", delay_ms=100)
    begin = time.monotonic()
    assert sent() is None
    assert time.monotonic() - begin >= 0.1


def test_a_request_that_is_held_until_the_test_says_go(broker: BlockingBroker) -> None:
    fault = broker.faults.add("Produce", hold=True)
    producer = producer_of(broker)
    producer.produce(TOPIC, b"v", partition=0)
    producer.flush(0)
    fault.wait_fired()
    assert broker.log(TOPIC).values() == []
    fault.release()
    assert producer.flush(PATIENCE_S) == 0
    assert broker.log(TOPIC).values() == [b"v"]


def test_corrupt_records_are_refused_by_a_consumer_that_checks(broker: BlockingBroker) -> None:
    broker.log(TOPIC).append(["v"])
    broker.faults.add("Fetch", corrupt=True)
    with closing(KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, check_crcs=True)) as consumer:
        consumer.assign([KafkaPythonPartition(TOPIC, 0)])
        consumer.seek_to_beginning()
        with pytest.raises(CorruptRecordError):
            _poll_for_ever(consumer)


def _poll_for_ever(consumer: Any) -> None:
    while True:
        consumer.poll(100)


def test_corrupt_records_come_right_when_they_are_read_again(broker: BlockingBroker) -> None:
    broker.log(TOPIC).append(["v"])
    fault = broker.faults.add("Fetch", corrupt=True, once=True)
    assert [message.value() for message in consumed(broker, 1, **{"check.crcs": True})] == [b"v"]
    assert fault.fired == 1


def test_throttling_is_seen_by_the_client(broker: BlockingBroker) -> None:
    seen: list[float] = []
    broker.faults.add("Produce", throttle_ms=123, once=True)
    producer = producer_of(broker, throttle_cb=lambda event: seen.append(event.throttle_time))
    producer.produce(TOPIC, b"v", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    deadline = time.monotonic() + PATIENCE_S
    while not seen and time.monotonic() < deadline:
        producer.poll(0.05)
    assert seen == [pytest.approx(0.123)]


def test_a_function_of_the_test_sees_requests_and_answers_them(broker: BlockingBroker, sent: Sent) -> None:
    asked: list[tuple[str, int]] = []

    def observe(request: Intercepted) -> None:
        asked.append((request.api, request.body.acks))

    async def moved_by_ten(request: Intercepted) -> Any:
        answer = await request.serve()
        for topic in answer.responses:
            for partition in topic.partition_responses:
                partition.base_offset += 10
        return answer

    fault = broker.faults.add("Produce", intercept=observe, once=True)
    assert sent(b"seen") is None
    assert (asked, fault.fired) == ([("Produce", -1)], 1)
    broker.faults.add("Produce", intercept=moved_by_ten)
    delivered: list[int] = []
    producer = producer_of(broker)
    producer.produce(TOPIC, b"moved", partition=0, on_delivery=lambda _, message: delivered.append(message.offset()))
    assert producer.flush(PATIENCE_S) == 0
    assert delivered == [11]
    assert broker.log(TOPIC).values(0) == [b"seen", b"moved"]


def test_metadata_that_fails_is_asked_for_again(broker: BlockingBroker, sent: Sent) -> None:
    fault = broker.faults.add("Metadata", topic="fresh", error="LEADER_NOT_AVAILABLE", times=2)
    assert sent(topic="fresh", **{"allow.auto.create.topics": True}) is None
    assert fault.fired == 2


def test_a_fetch_that_fails_is_tried_again(broker: BlockingBroker) -> None:
    broker.log(TOPIC).append(["v"])
    fault = broker.faults.add("Fetch", topic=TOPIC, error="NOT_LEADER_OR_FOLLOWER", times=2)
    assert [message.value() for message in consumed(broker, 1)] == [b"v"]
    assert fault.fired == 2


def test_a_full_disk_refuses_appends_and_says_so(broker: BlockingBroker, sent: Sent) -> None:
    sent(b"before")
    fault = broker.faults.disk("full", path=f"{TOPIC}-0/*.log")
    error = sent(b"lost", retries=0)
    assert error is not None
    assert fault.fired >= 1
    broker.faults.clear()
    assert broker.log(TOPIC).values() == [b"before"]


def test_a_device_that_fails_takes_the_partition_offline_and_the_other_serves(broker: BlockingBroker, sent: Sent) -> None:
    broker.faults.disk("error", operation="write", path=f"{TOPIC}-0/*.log")
    assert sent(partition=0, retries=0) is not None
    assert sent(partition=1) is None


def test_a_slow_fsync_delays_the_acknowledgement() -> None:
    settings = {"kafka": Address("127.0.0.1", 0), "durability": "fsync", "topics": [TOPIC]}
    with triolog.blocking.open(MEMORY, **settings) as broker:
        fault = broker.faults.disk("delay", operation="sync", path="*.log", delay_ms=100, once=True)
        producer = producer_of(broker)
        begin = time.monotonic()
        producer.produce(TOPIC, b"v", partition=0)
        assert producer.flush(PATIENCE_S) == 0
        assert time.monotonic() - begin >= 0.1
        assert fault.fired == 1


def test_what_was_acknowledged_is_there_after_a_crash_on_the_same_port(broker: BlockingBroker, sent: Sent) -> None:
    assert [sent(b"%d" % number) for number in range(20)] == [None] * 20
    address = broker.bootstrap_servers
    broker.crash()
    broker.restart()
    assert broker.bootstrap_servers == address
    assert sent(b"after") is None
    assert broker.log(TOPIC).values() == [*(b"%d" % number for number in range(20)), b"after"]


def test_a_client_waits_while_the_broker_is_down(broker: BlockingBroker) -> None:
    producer = producer_of(broker)
    producer.produce(TOPIC, b"before", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    broker.crash()
    producer.produce(TOPIC, b"during", partition=0)
    assert producer.flush(0.05) == 1
    broker.restart()
    assert producer.flush(PATIENCE_S) == 0
    assert broker.log(TOPIC).values() == [b"before", b"during"]


def test_a_torn_write_loses_what_was_acknowledged_without_a_sync(broker: BlockingBroker, sent: Sent) -> None:
    for number in range(10):
        sent(b"%d" % number)
    fault = broker.faults.disk("torn", path=f"{TOPIC}-0/*.log", seed=3)
    broker.crash()
    broker.restart()
    assert fault.fired == 1
    values = broker.log(TOPIC).values()
    assert len(values) < 10
    assert values == [b"%d" % number for number in range(len(values))]


def test_a_reset_forgets_everything_but_the_seed(broker: BlockingBroker, sent: Sent) -> None:
    sent()
    broker.faults.add("Produce", error="INVALID_RECORD")
    broker.reset()
    assert (broker.topics(), broker.log(TOPIC).values(), len(broker.faults)) == ([TOPIC], [], 0)
    assert sent(**{"client.id": "new"}) is None


def test_a_fork_goes_its_own_way(broker: BlockingBroker, sent: Sent) -> None:
    sent(b"shared")
    with broker.fork() as fork:
        fork.log(TOPIC).append(["fork"])
        sent(b"original")
        assert [message.value() for message in consumed(fork, 2)] == [b"shared", b"fork"]
    assert broker.log(TOPIC).values() == [b"shared", b"original"]


def test_a_consumer_reads_what_compaction_on_demand_has_left(broker: BlockingBroker) -> None:
    broker.alter_config(TOPIC, {"cleanup.policy": "compact"})
    producer = producer_of(broker)
    for number in range(6):
        producer.produce(TOPIC, b"%d" % number, b"ab"[number % 2 :][:1], partition=0)
        assert producer.flush(PATIENCE_S) == 0
    assert broker.log(TOPIC).compact() == 1
    assert [(message.offset(), message.value()) for message in consumed(broker, 2)] == [(4, b"4"), (5, b"5")]


def test_a_consumer_goes_on_behind_what_retention_on_demand_took(broker: BlockingBroker, sent: Sent) -> None:
    broker.alter_config(TOPIC, {"retention.ms": "60000", "segment.ms": "60000"})
    sent(b"old")
    broker.clock.advance(3600)
    broker.apply_retention()
    sent(b"new")
    [message] = consumed(broker, 1, **{"auto.offset.reset": "earliest"})
    assert (message.offset(), message.value()) == (1, b"new")


def test_a_transaction_times_out_when_the_clock_is_moved(broker: BlockingBroker) -> None:
    producer = producer_of(broker, **{"transactional.id": "t", "transaction.timeout.ms": 60_000})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(TOPIC, b"v", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    assert broker.log(TOPIC).end_offsets()[0] == 0
    broker.clock.advance(3600)
    deadline = time.monotonic() + PATIENCE_S
    while broker.log(TOPIC).end_offsets()[0] < 2 and time.monotonic() < deadline:
        """The marker that aborts it is on its way."""
    with pytest.raises(KafkaException):
        producer.commit_transaction(PATIENCE_S)
    assert broker.log(TOPIC).values() == []
