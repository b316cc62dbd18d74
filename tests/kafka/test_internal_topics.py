"""What Kafka's clients make triolog write into its internal topics, read by Kafka: by its formatters and decoders of files."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
import triolog
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position
from triolog.server.config.broker_config import Address
from triolog.server.embedded import BlockingBroker
from triolog.server.storage.disk.checkpoints import decode_uuid

from tests.kafka.tools import Opened, Tools, decoded, json_values
from tests.kafka.written_logs import files_of
from tests.support.kafka_admin import GROUP_TYPE, SET, alter_incrementally
from tests.support.kafka_jars import KafkaCalls
from tests.support.kafka_wire import KafkaWire, ask
from tests.support.share_members import ACCEPT, REJECT, RELEASE, WireMember

TOPIC: Final = "orders"
PATIENCE_S: Final = 60.0
OFFSETS: Final = "__consumer_offsets"
TRANSACTIONS: Final = "__transaction_state"
STATES: Final = "__share_group_state"
DECODERS: Final = {
    OFFSETS: "--offsets-decoder",
    TRANSACTIONS: "--transaction-log-decoder",
    STATES: "--share-group-state-decoder",
}
NOTE: Final = "noted"
"""confluent-kafka sends it with the zero that ends it in C."""
ALL: Final = {"topic": TOPIC, "partitions": [0, 1]}
EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)

Entry = tuple[dict[str, Any], Any]
"""Key and value: {"type" or "version": ..., "data": ...}"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BlockingBroker]:
    """Lenient: members join without delay."""
    listening = Address("127.0.0.1", 0)
    with triolog.blocking.open(tmp_path / "data", for_tests=True, kafka=listening, topics={TOPIC: 2}) as broker:
        broker.append(TOPIC, [b"a", b"b", b"c"])
        yield broker


@pytest.fixture
def producer(broker: BlockingBroker) -> Iterator[Opened]:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "mover", "transaction.timeout.ms": 45_000}
    opened = Opened(Producer({**settings, "log_level": 0}))
    yield opened
    del opened.client


def consumer(broker: BlockingBroker, **more: object) -> Consumer:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "billing", "client.id": "biller"}
    return Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest", "log_level": 0, **more})


def commit_as_a_member(broker: BlockingBroker, **more: object) -> str:
    """Join, commit, leave; answers the member's id."""
    with closing(consumer(broker, **more)) as member:
        member.subscribe([TOPIC])
        deadline = time.monotonic() + PATIENCE_S
        while len(member.assignment()) < 2:
            assert time.monotonic() < deadline
            member.poll(0.05)
        member.commit(offsets=[Position(TOPIC, 0, 2, metadata=NOTE), Position(TOPIC, 1, 0)], asynchronous=False)
        member.commit(offsets=[Position(TOPIC, 0, 3, leader_epoch=0)], asynchronous=False)
        name: str = member.memberid()
    return name


def dumped(kafka: KafkaCalls, broker: BlockingBroker, topic: str) -> list[Entry]:
    outcome = kafka.dump(files_of(Path(broker.path) / f"{topic}-0", ".log"), DECODERS[topic])
    assert outcome.stderr == ""
    return decoded(outcome.ok())


def until(read: Callable[[], list[Entry]], is_there: Callable[[list[Entry]], bool]) -> list[Entry]:
    """What a member's leaving makes is written behind the answer to it."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_there(entries := read()):
        assert time.monotonic() < deadline, entries
    return entries


def formatted(tools: Tools, topic: str, formatter: str, count: int) -> list[Entry]:
    told = tools(
        *("console-consumer", "--topic", topic, "--from-beginning", "--formatter"),
        *(f"org.apache.kafka.tools.consumer.{formatter}", "--max-messages", count, "--timeout-ms", 20_000),
    )
    shown = [(each["key"], each["value"]) for each in json_values(told)]
    return [(_as_dumped(key, "type"), value and _as_dumped(value, "version")) for key, value in shown]


def _as_dumped(told: dict[str, Any], number: str) -> dict[str, Any]:
    return {**told, number: str(told[number])}


def of_type(entries: list[Entry], number: int) -> list[Entry]:
    """Data of key and value."""
    return [(key["data"], value and value["data"]) for key, value in entries if int(key["type"]) == number]


def check_committed(entries: list[Entry], before_ms: int) -> None:
    said = [(key["topic"], key["partition"], value["offset"], value["metadata"]) for key, value in of_type(entries, 1)]
    assert sorted(said[:2]) == [(TOPIC, 0, 2, f"{NOTE}\0"), (TOPIC, 1, 0, "")]
    assert said[2:] == [(TOPIC, 0, 3, "")]
    assert {key["group"] for key, _ in of_type(entries, 1)} == {"billing"}
    assert of_type(entries, 1)[2][1]["leaderEpoch"] == 0
    assert all(before_ms <= value["commitTimestamp"] <= time.time() * 1000 for _, value in of_type(entries, 1))


def test_a_classic_group_and_its_offsets(kafka: KafkaCalls, tools: Tools, broker: BlockingBroker) -> None:
    before_ms = int(time.time() * 1000)
    member_id = commit_as_a_member(broker, **{"session.timeout.ms": 44_000, "max.poll.interval.ms": 55_000})
    entries = until(lambda: dumped(kafka, broker, OFFSETS), lambda dump: len(of_type(dump, 2)) == 2)
    check_committed(entries, before_ms)
    stable, empty = (value for _, value in of_type(entries, 2))
    assert (stable["protocolType"], stable["generation"], stable["protocol"]) == ("consumer", 1, "range")
    assert stable["leader"] == member_id
    [member] = stable["members"]
    assert (member["memberId"], member["clientId"], member["clientHost"]) == (member_id, "biller", "/127.0.0.1")
    assert (member["subscription"]["topics"], member["assignment"]["assignedPartitions"]) == ([TOPIC], [ALL])
    assert (member["sessionTimeout"], member["rebalanceTimeout"]) == (44_000, 55_000)
    assert (empty["generation"], empty["members"], empty["leader"]) == (2, [], None)

    shown = formatted(tools, OFFSETS, "OffsetsMessageFormatter", len(entries))
    assert of_type(shown, 1) == of_type(entries, 1)
    shown = formatted(tools, OFFSETS, "GroupMetadataMessageFormatter", len(entries))
    for (_, plain), (_, value) in zip(of_type(shown, 2), of_type(entries, 2), strict=True):
        for one, other in zip(plain["members"], value["members"], strict=True):
            assert b"orders" in base64.b64decode(one.pop("subscription"))
            assert b"orders" in base64.b64decode(one.pop("assignment"))
            del other["subscription"], other["assignment"]
        assert plain == value


def test_a_group_that_the_server_assigns_and_its_offsets(kafka: KafkaCalls, tools: Tools, broker: BlockingBroker) -> None:
    before_ms = int(time.time() * 1000)
    member_id = commit_as_a_member(broker, **{"group.protocol": "consumer", "max.poll.interval.ms": 55_000})
    entries = until(lambda: dumped(kafka, broker, OFFSETS), lambda dump: any(value is None for _, value in of_type(dump, 5)))
    check_committed(entries, before_ms)
    key, member = of_type(entries, 5)[0]
    assert key == {"groupId": "billing", "memberId": member_id}
    assert (member["clientId"], member["clientHost"], member["rebalanceTimeoutMs"]) == ("biller", "/127.0.0.1", 55_000)
    assert member["subscribedTopicNames"] == [TOPIC]
    topic_id = broker.describe_topic(TOPIC).topic_id
    targets = [value["topicPartitions"] for _, value in of_type(entries, 7) if value and value["topicPartitions"]]
    assert [(each["topicId"], sorted(each["partitions"])) for each in targets[-1]] == [(topic_id, [0, 1])]
    assert [of_type(entries, number)[-1][1] for number in (5, 7, 8)] == [None, None, None]
    assert of_type(formatted(tools, OFFSETS, "OffsetsMessageFormatter", len(entries)), 1) == of_type(entries, 1)


def test_transactions_and_their_offsets(kafka: KafkaCalls, tools: Tools, broker: BlockingBroker, producer: Opened) -> None:
    producer.client.init_transactions(PATIENCE_S)
    with closing(consumer(broker)) as reader:
        producer.client.begin_transaction()
        producer.client.produce(TOPIC, b"x", partition=1)
        producer.client.send_offsets_to_transaction([Position(TOPIC, 0, 3)], reader.consumer_group_metadata(), PATIENCE_S)
        producer.client.commit_transaction(PATIENCE_S)
    producer.client.begin_transaction()
    producer.client.produce(TOPIC, b"y", partition=0)
    producer.client.flush()
    producer.client.abort_transaction(PATIENCE_S)

    entries = dumped(kafka, broker, TRANSACTIONS)
    assert {key["data"]["transactionalId"] for key, _ in entries} == {"mover"}
    values = [value["data"] for _, value in entries]
    assert {each["transactionTimeoutMs"] for each in values} == {45_000}
    history = [(each["transactionStatus"], parts(each)) for each in values]
    joined = {(TOPIC, 1), (OFFSETS, 0)}
    assert history[0] == (EMPTY, set())
    assert (ONGOING, joined) in history
    assert history[-3:] == [(ONGOING, {(TOPIC, 0)}), (PREPARE_ABORT, {(TOPIC, 0)}), (COMPLETE_ABORT, set())]
    assert history[-5:-3] == [(PREPARE_COMMIT, joined), (COMPLETE_COMMIT, set())]
    assert len({each["producerId"] for each in values}) == 1
    assert formatted(tools, TRANSACTIONS, "TransactionLogMessageFormatter", len(entries)) == entries

    [(key, value)] = of_type(dumped(kafka, broker, OFFSETS), 1)
    assert (key["group"], key["topic"], key["partition"], value["offset"]) == ("billing", TOPIC, 0, 3)


def test_kafka_skips_the_field_of_ours_in_the_state_of_a_producer_that_started_again(
    kafka: KafkaCalls, tools: Tools, broker: BlockingBroker
) -> None:
    with closing(KafkaWire.connect(broker.kafka)) as wire:
        started = {"producer_id": -1, "producer_epoch": -1}
        for _ in range(2):
            answer = wire.call(ask("InitProducerId", transactional_id="mover", transaction_timeout_ms=45_000, **started), 5)
            assert answer.error_code == 0
            started = {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}
    entries = dumped(kafka, broker, TRANSACTIONS)
    assert [(value["version"], value["data"]["producerEpoch"]) for _, value in entries] == [("0", 0), ("1", 1)]
    assert formatted(tools, TRANSACTIONS, "TransactionLogMessageFormatter", len(entries)) == entries


def test_share_groups_and_what_became_of_records(kafka: KafkaCalls, tools: Tools, broker: BlockingBroker) -> None:
    broker.append(TOPIC, [b"a", b"b", b"c"], partition=1)
    topic_id = broker.describe_topic(TOPIC).topic_id
    with closing(KafkaWire.connect(broker.kafka)) as wire:
        wire.call(alter_incrementally((GROUP_TYPE, "sharers", [("share.auto.offset.reset", SET, "earliest")])), 1)
        member = WireMember(wire, "sharers", TOPIC, decode_uuid(topic_id).bytes, "member", partition=1)
        member.join()
        assert member.acquire(3) == [(0, 2, 1)]
        member.acknowledge(0, 2, [ACCEPT, RELEASE, REJECT])
        member.leave()

    entries = dumped(kafka, broker, STATES)
    assert formatted(tools, STATES, "group.share.ShareGroupStateMessageFormatter", len(entries)) == entries
    of_partition = [(key, value["data"]) for key, value in entries if key["data"]["partition"] == 1]
    assert {key["data"]["groupId"] for key, _ in of_partition} == {"sharers"}
    assert {key["data"]["topicId"] for key, _ in of_partition} == {topic_id}
    last = of_partition[-1][1]
    states = [
        (each["firstOffset"], each["lastOffset"], each["deliveryState"], each["deliveryCount"]) for each in last["stateBatches"]
    ]
    assert (last["startOffset"], states) == (0, [(0, 0, 2, 1), (1, 1, 0, 1), (2, 2, 4, 1)])

    entries = dumped(kafka, broker, OFFSETS)
    of_group = [each for each in entries if 10 <= int(each[0]["type"]) <= 15]
    assert {key["type"] for key, _ in of_group} == {"10", "11", "12", "13", "14", "15"}
    assert formatted(tools, OFFSETS, "ShareGroupMessageFormatter", len(entries)) == of_group


def parts(value: dict[str, Any]) -> set[tuple[str, int]]:
    topics = value["transactionPartitions"] or ()
    return {(each["topic"], number) for each in topics for number in each["partitionIds"]}
