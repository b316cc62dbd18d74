"""`broker.story()`: sentences about real clients, and about requests that are put into the log by hand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import pytest
import triolog
from confluent_kafka import Consumer, Producer
from triolog.protocol.coordinator.classic_group_records import (
    ConsumerPartitions,
    ConsumerProtocolAssignment,
    encode_consumer_protocol,
)
from triolog.protocol.errors import ErrorCode
from triolog.server.embedded import MEMORY, BlockingBroker
from triolog.server.fake.faults.requests import CAPACITY, RequestLog
from triolog.server.fake.faults.rules import Subject
from triolog.server.fake.views.story import Story, story_of

PATIENCE_S: Final = 30.0
NOON_MS: Final = 1_700_049_600_000


@pytest.fixture
def broker() -> Iterator[BlockingBroker]:
    with triolog.blocking.open(MEMORY, for_tests=True, kafka="127.0.0.1:0", topics={"orders": 2}) as broker:
        yield broker


def texts(story: Story) -> list[str]:
    return [line.text for line in story.lines]


def client_of(broker: BlockingBroker, client_id: str, **config: Any) -> dict[str, Any]:
    return {"bootstrap.servers": broker.bootstrap_servers, "client.id": client_id, "log_level": 0, **config}


# ---- real clients ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_consumer_joins_reads_commits_and_leaves(broker: BlockingBroker, protocol: str) -> None:
    broker.log("orders").append(["a", "b", "c"])
    group = {"group.id": "billing", "group.protocol": protocol, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(client_of(broker, "till", **group))
    consumer.subscribe(["orders"])
    while not (records := consumer.consume(3, PATIENCE_S)) or records[-1].offset() < 2:
        """Until the last one."""
    consumer.commit(asynchronous=False)
    consumer.close()
    seen = 0
    while broker.groups.members("billing"):
        seen = broker.requests.wait_for(group="billing", after=seen, timeout_s=PATIENCE_S)[-1].number
    story = broker.story(group="billing")
    told = texts(story)
    read = ["looked up the earliest offset of orders-0: 0", "fetched orders-0 ", "committed orders-0 at 3"]
    beginnings = ["joined as ", "got orders-0, orders-1", *read, "left"]
    found = {each: [number for number, text in enumerate(told) if text.startswith(each)] for each in beginnings}
    assert all(found.values()), str(story)
    found_at = [numbers[0] for numbers in found.values()]
    assert found_at == sorted(found_at), str(story)
    assert {(line.client_id, line.group) for line in story.lines} == {("till", "billing")}
    assert [line.at_ms for line in story.lines] == sorted(line.at_ms for line in story.lines)
    assert re.search(r"till connected as .*rdkafka", str(broker.story()))


def test_a_producer_that_sends_again_is_told_of_with_its_error(broker: BlockingBroker) -> None:
    broker.faults.add("Produce", error="REQUEST_TIMED_OUT", applied=True, once=True)
    producer = Producer(client_of(broker, "shop", **{"enable.idempotence": True, "retry.backoff.ms": 1}))
    for _ in range(3):
        producer.produce("orders", b"v", partition=1)
    assert producer.flush(PATIENCE_S) == 0
    told = texts(broker.story(client_id="sh*"))
    assert told[-2] == "got REQUEST_TIMED_OUT for Produce of orders-1, by fault #1"
    assert re.fullmatch(
        r"sent 3 records to orders-1(, stored at 0 to 2, sent again| in . requests, stored .* sent again)", told[-1]
    )
    assert broker.story(client_id="other").lines == ()


# ---- requests by hand --------------------------------------------------------------------------------------------------------


class Told:
    """A log of requests, each a second after the one before."""

    def __init__(self) -> None:
        self.log = RequestLog()

    def add(
        self,
        api: str,
        *,
        client_id: str = "c",
        facts: tuple[Any, ...] = (),
        answer: tuple[Any, ...] = (),
        errors: tuple[int, ...] | None = (),
        fault: int | None = None,
        topics: dict[str, list[int]] | None = None,
        groups: tuple[str, ...] = (),
        transactional_ids: tuple[str, ...] = (),
    ) -> None:
        subject = Subject(api, client_id, 0, topics or {}, groups, transactional_ids)
        request = self.log.begin(NOON_MS + 1000 * self.log.count, 1, subject, 10, facts)
        request.fault = fault
        if errors is not None:
            self.log.answered(request, errors, answer)

    def fetch(self, offset: int, **more: Any) -> None:
        self.add("Fetch", facts=(("t", 0, offset),), topics={"t": [0]}, **more)

    @property
    def texts(self) -> list[str]:
        return texts(story_of(self.log))


@pytest.fixture
def told() -> Told:
    return Told()


def test_fetches_of_a_partition_are_one_line(told: Told) -> None:
    for offset in range(1200):
        told.fetch(offset * 4)
    told.fetch(4711 + 100)
    [line] = story_of(told.log).lines
    assert (line.text, line.count) == ("fetched t-0 1,201 times, from 0 to 4811", 1201)
    assert (line.at_ms, line.until_ms) == (NOON_MS, NOON_MS + 1_200_000)
    assert str(line) == "12:00:00.000 c fetched t-0 1,201 times, from 0 to 4811"


def test_a_fetch_that_goes_back_begins_a_line(told: Told) -> None:
    for offset in (5, 6, 6, 2, 2):
        told.fetch(offset)
    assert told.texts == ["fetched t-0 3 times, from 5 to 6", "fetched t-0 2 times at 2"]


def test_a_fetch_of_a_session_keeps_its_position(told: Told) -> None:
    told.fetch(5)
    told.add("Fetch", topics={"t": [0]})
    assert told.texts == ["fetched t-0 2 times at 5"]


def test_an_error_ends_lines_and_comes_once(told: Told) -> None:
    not_leader = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    told.fetch(1)
    for offset in range(2, 30):
        told.fetch(offset, errors=(not_leader,))
        told.fetch(offset)
    assert told.texts == [
        "fetched t-0 at 1",
        "got NOT_LEADER_OR_FOLLOWER for Fetch of t-0, 28 times",
        "fetched t-0 28 times, from 2 to 29",
    ]


def test_faults_without_an_error_are_told(told: Told) -> None:
    told.add("Metadata", fault=1, topics={"t": []})
    told.add("Produce", fault=2, errors=None, topics={"t": [0]}, facts=(("t", 0, 1, (-1, -1, -1)),))
    assert told.texts == [
        "met fault #1 with Metadata of t",
        "requested Metadata of t",
        "got no response to Produce of t-0, by fault #2",
    ]


def test_a_part_of_a_produce_may_fail(told: Told) -> None:
    facts = (("t", 0, 5, (7, 0, 0)), ("t", 1, 6, (7, 0, 0)))
    failed = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    told.add("Produce", facts=facts, answer=(("t", 0, 100),), errors=(failed,), topics={"t": [0, 1]})
    told.add("Produce", facts=facts[1:], answer=(("t", 1, 50),), topics={"t": [1]})
    assert told.texts == [
        "got NOT_LEADER_OR_FOLLOWER for Produce of t-0, t-1",
        "sent 5 records to t-0, stored at 100 to 104",
        "sent 6 records to t-1, stored at 50 to 55, sent again",
    ]


def test_records_without_an_acknowledgement_have_no_offsets(told: Told) -> None:
    for _ in range(2):
        told.add("Produce", facts=(("t", 0, 1, (-1, -1, -1)),), topics={"t": [0]})
    assert told.texts == ["sent 2 records to t-0 in 2 requests"]


def test_a_classic_member_is_followed_through_generations(told: Told) -> None:
    assigned = ConsumerProtocolAssignment(assigned_partitions=[ConsumerPartitions(topic="t", partitions=[0, 2])])
    group = {"groups": ("g",)}
    told.add("JoinGroup", errors=(int(ErrorCode.MEMBER_ID_REQUIRED),), **group)
    told.add("JoinGroup", answer=(1, "m", True), **group)
    told.add("SyncGroup", answer=(encode_consumer_protocol(assigned, 1),), **group)
    for _ in range(12):
        told.add("Heartbeat", **group)
    told.add("OffsetCommit", facts=(("t", 0, 5),), topics={"t": [0]}, **group)
    told.add("Heartbeat", errors=(int(ErrorCode.REBALANCE_IN_PROGRESS),), **group)
    told.add("JoinGroup", answer=(2, "m", False), **group)
    told.add("SyncGroup", answer=(b"",), **group)
    told.add("SyncGroup", answer=(b"not of consumers",), **group)
    told.fetch(3)
    told.add("LeaveGroup", **group)
    told.fetch(4)
    story = story_of(told.log)
    assert texts(story) == [
        "joined as m, generation 1, the leader",
        "got t-0, t-2",
        "sent 12 heartbeats",
        "committed t-0 at 5",
        "got REBALANCE_IN_PROGRESS for Heartbeat",
        "joined as m, generation 2",
        "got no partitions",
        "got an assignment",
        "fetched t-0 at 3",
        "left",
        "fetched t-0 at 4",
    ]
    assert [line.group for line in story.lines] == [*["g"] * 10, None]


def test_a_member_of_a_server_assigned_group_is_followed(told: Told) -> None:
    for api in ("ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "StreamsGroupHeartbeat"):
        named = {"groups": (api,), "client_id": api}
        told.add(api, facts=(0,), answer=("m", 1, None), **named)
        told.add(api, facts=(1,), answer=("m", 2, (("t", (0, 1)),)), **named)
        told.add(api, facts=(2,), answer=("m", 2, None), **named)
        told.add(api, facts=(-1,), answer=("m", -1, None), **named)
        assert texts(story_of(told.log, group=api)) == [
            "joined as m",
            "sent 1 heartbeat",
            "got t-0, t-1",
            "sent 1 heartbeat",
            "left",
        ]


def test_transactions_and_logins_are_told(told: Told) -> None:
    told.add("ApiVersions", facts=("librdkafka", "2.16"))
    told.add("SaslAuthenticate", answer=("barista",))
    told.add("InitProducerId", answer=(7, 2), transactional_ids=("tx",))
    for commit in (True, True, False):
        told.add("TxnOffsetCommit", facts=(("t", 0, 1),), groups=("g",), topics={"t": [0]})
        told.add("EndTxn", facts=(commit,), transactional_ids=("tx",))
    assert told.texts == [
        "connected as librdkafka 2.16",
        "logged in as barista",
        "got producer id 7, epoch 2 for tx",
        "committed in a transaction t-0 3 times at 1",
        "committed 2 transactions of tx",
        "aborted 1 transaction of tx",
    ]


def test_what_the_log_has_forgotten_is_counted(told: Told) -> None:
    for number in range(CAPACITY + 5):
        told.add("Metadata", topics={f"t{number % 60}": []})
    story = story_of(told.log)
    assert (story.forgotten, len(story.lines)) == (5, 60)
    assert str(story).startswith("(5 earlier requests are forgotten)\n12:00:05.000 c requested Metadata of t5, 6")
    assert story.tail(2).splitlines()[1] == "(58 earlier lines are left out)"
    assert story.as_json()["lines"][0]["client_id"] == "c"


def test_many_partitions_of_a_request_are_cut(told: Told) -> None:
    told.add("Metadata", topics={"t": list(range(20))})
    [text] = told.texts
    assert text.endswith("t-7 and 12 more")
