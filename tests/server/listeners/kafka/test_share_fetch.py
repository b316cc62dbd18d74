"""ShareFetch and ShareAcknowledge over the wire: what a member is given, what it may say with it, its session, its waits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from triolog.protocol.errors import ErrorCode
from triolog.protocol.types import Isolation, TopicPartition
from triolog.server.broker import OffsetReset, ShareConfig, ShareKey
from triolog.server.listeners.kafka.share_fetch import MAX_MEMBER_ID_CHARS

from tests.support.brokers import until
from tests.support.kafka_server import TOPIC, KafkaServer, batch, kafka_server, produced
from tests.support.kafka_stream import KafkaStream
from tests.support.share_members import ACCEPT, GAP, GROUP, REJECT, RENEW, ShareMember, ranges
from tests.support.transactions import TransactionalProducer

EARLIEST = ShareConfig(offset_reset=OffsetReset.EARLIEST)
PARTITION = TopicPartition(TOPIC, 0)
LIMIT_REACHED = ErrorCode.SHARE_SESSION_LIMIT_REACHED


@pytest.fixture
async def kafka(fast_path: Path) -> AsyncIterator[KafkaServer]:
    """A topic of one partition with ten records, which the group begins to read at the first one."""
    async with kafka_server(fast_path) as server:
        await server.broker.topics.create(TOPIC, 2)
        server.broker.shares.config_of = lambda _: EARLIEST
        await server.broker.shares.initialize(GROUP, server.topic_id(), 0)
        async with server.connected() as client:
            for value in range(10):
                await produced(client, batch(str(value)))
        yield server


@pytest.fixture
async def other(kafka: KafkaServer) -> AsyncIterator[ShareMember]:
    async with kafka.connected() as client:
        yield ShareMember(client, kafka.topic_id(), "other")


@pytest.mark.parametrize("version", [1, 2])
async def test_a_member_is_given_the_next_records_when_it_has_acknowledged_the_last(member: ShareMember, version: int) -> None:
    member.version = version
    assert await member.acquired(max_records=4) == [(0, 3, 1)]
    assert await member.acquired([(0, 1, [ACCEPT]), (2, 3, [ACCEPT, REJECT])]) == [(4, 9, 1)]
    assert await member.acquired([(4, 9, [GAP, ACCEPT, ACCEPT, ACCEPT, ACCEPT, ACCEPT])]) == []


async def test_what_it_is_given_are_the_records(member: ShareMember) -> None:
    assert await member.values(max_records=3) == {0: b"0", 1: b"1", 2: b"2"}
    assert await member.values(max_records=2) == {3: b"3", 4: b"4"}


@pytest.mark.parametrize("isolation", Isolation)
async def test_aborted_records_are_for_who_does_not_mind(kafka: KafkaServer, member: ShareMember, isolation: Isolation) -> None:
    kafka.broker.shares.config_of = lambda _: attrs.evolve(EARLIEST, isolation=isolation)
    await member.acquired()
    producer = await TransactionalProducer.start(kafka.broker)
    await producer.produce(PARTITION, "aborted")
    if isolation is Isolation.READ_UNCOMMITTED:
        assert await member.values() == {10: b"aborted"}
        return
    assert await member.acquired() == []
    await producer.abort()
    await producer.produce(PARTITION, "committed")
    await producer.commit()
    assert await member.values() == {12: b"committed"}
    assert await member.acknowledge((0, 9, [ACCEPT])) is ErrorCode.NONE
    assert await member.acknowledge((11, 13, [GAP, ACCEPT, GAP])) is ErrorCode.NONE
    assert kafka.broker.shares.in_flight(GROUP, kafka.topic_id(), 0) == (14, 14, 0, 0)


async def waits(kafka: KafkaServer, member: ShareMember, wake: Callable[[], Any], **fields: Any) -> list[tuple[int, int, int]]:
    """What a member is given that waits until `wake` has been called, for a minute if nothing wakes it."""
    taken: list[list[tuple[int, int, int]]] = []

    async def fetch() -> None:
        taken.append(await member.acquired(max_wait_ms=60_000, **fields))

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetch)
            share = kafka.broker.shares.find
            key = next(iter(kafka.broker.shares._log.known()))
            await until(lambda: (found := share(key)) is not None and len(found.waiters) > 0)
            assert not taken
            await wake()
    return taken[0]


async def test_a_fetch_waits_for_records(kafka: KafkaServer, member: ShareMember, client: KafkaStream) -> None:
    await member.acquired()
    async with kafka.connected() as producer:
        assert await waits(kafka, member, lambda: produced(producer, batch("new"))) == [(10, 10, 1)]


async def test_a_fetch_waits_for_a_member_whose_connection_ends(kafka: KafkaServer, member: ShareMember) -> None:
    async with kafka.connected() as client:
        assert await ShareMember(client, kafka.topic_id(), "other").acquired() == [(0, 9, 1)]

        async def end() -> None:
            await client.stream.aclose()

        assert await waits(kafka, member, end) == [(0, 9, 2)]
    assert len(kafka.broker.shares.sessions_at(kafka.broker.node_id)) == 1


async def test_a_fetch_that_waits_in_vain_takes_what_there_is_in_the_end(member: ShareMember) -> None:
    assert await member.acquired(max_wait_ms=1, min_bytes=2**19) == [(0, 9, 1)]
    assert await member.acquired(max_wait_ms=1) == []


async def test_a_session_remembers_its_partitions_until_they_are_forgotten(member: ShareMember) -> None:
    assert await member.acquired(max_records=2) == [(0, 1, 1)]
    assert await member.acquired(topics=[], max_records=2) == [(2, 3, 1)]
    assert await member.acquired(topics=[], forgotten_topics_data=member.forgetting()) == []
    assert await member.acquired() == [(4, 9, 1)]


async def test_the_end_of_a_session_gives_back_what_the_member_has(member: ShareMember, other: ShareMember) -> None:
    await member.acquired()
    found = await member.fetch([(0, 4, [ACCEPT])], share_session_epoch=-1)
    assert found is not None
    assert (found.acknowledge_error_code, found.acquired_records) == (0, [])
    assert await other.acquired() == [(5, 9, 2)]


async def test_only_what_is_stored_is_left_when_the_last_connection_of_a_group_ends(kafka: KafkaServer) -> None:
    """In what pieces records were given is not stored."""
    async with kafka.connected() as client, kafka.connected() as idle:
        one = ShareMember(client, kafka.topic_id(), "one")
        assert await one.acquired(batch_size=4) == [(0, 3, 1), (4, 7, 1), (8, 9, 1)]
        other = ShareMember(idle, kafka.topic_id(), "other")
        assert await other.acquired() == []
        await client.stream.aclose()
        assert await other.acquired(max_wait_ms=60_000) == [(0, 3, 2), (4, 7, 2), (8, 9, 2)]
        await other.leave()
    await until(lambda: kafka.broker.shares.find(ShareKey(GROUP, kafka.topic_id(), 0)) is None)
    async with kafka.connected() as client:
        assert await ShareMember(client, kafka.topic_id(), "two").acquired() == [(0, 9, 3)]


async def test_a_session_that_is_not_there_or_at_another_epoch_is_refused(member: ShareMember) -> None:
    assert (await member.ask(share_session_epoch=1)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert (await member.leave()).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    await member.acquired()
    assert (await member.ask(share_session_epoch=3)).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert (await member.ask()).error_code == 0


async def test_a_first_request_says_nothing_of_records(member: ShareMember) -> None:
    answer = await member.ask([(0, 0, [ACCEPT])])
    assert (answer.error_code, bool(answer.error_message)) == (ErrorCode.INVALID_REQUEST, True)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": None}, ErrorCode.INVALID_REQUEST),
        ({"member_id": None}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "x" * (MAX_MEMBER_ID_CHARS + 1)}, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_who_nobody_can_be_is_refused(member: ShareMember, fields: dict[str, Any], error: ErrorCode) -> None:
    for name, value in fields.items():
        setattr(member, name, value)
    assert (await member.ask()).error_code == error
    assert await member.acknowledge() == error


async def test_an_unknown_mode_is_refused_when_the_session_has_gone_on(member: ShareMember) -> None:
    """As in Kafka, which meets it last."""
    assert (await member.ask(share_acquire_mode=2)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    member.epoch += 1
    assert await member.acquired() == [(0, 9, 1)]


async def test_a_renewal_fetches_nothing_and_may_not_want_to(member: ShareMember) -> None:
    await member.acquired(max_records=5)
    assert (await member.ask([(0, 4, [RENEW])], is_renew_ack=True)).error_code == ErrorCode.INVALID_REQUEST
    nothing = {"max_bytes": 0, "min_bytes": 0, "max_records": 0, "max_wait_ms": 0}
    found = await member.fetch([(0, 4, [RENEW])], is_renew_ack=True, **nothing)
    assert found is not None
    assert (found.acknowledge_error_code, found.acquired_records) == (0, [])


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ([(4, 3, [ACCEPT])], ErrorCode.INVALID_REQUEST),
        ([(4, 5, [ACCEPT]), (3, 3, [ACCEPT])], ErrorCode.INVALID_REQUEST),
        ([(4, 5, [])], ErrorCode.INVALID_REQUEST),
        ([(4, 6, [ACCEPT, ACCEPT])], ErrorCode.INVALID_REQUEST),
        ([(4, 4, [-1])], ErrorCode.INVALID_REQUEST),
        ([(4, 4, [5])], ErrorCode.INVALID_REQUEST),
        ([(4, 4, [RENEW])], ErrorCode.INVALID_REQUEST),
        ([(9, 10, [ACCEPT])], ErrorCode.INVALID_REQUEST),
        ([(10, 10, [ACCEPT])], ErrorCode.INVALID_REQUEST),
        ([(4, 5, [ACCEPT]), (5, 6, [ACCEPT])], ErrorCode.INVALID_RECORD_STATE),
        ([(0, 4, [ACCEPT])], ErrorCode.INVALID_RECORD_STATE),
    ],
)
async def test_what_cannot_be_said_changes_nothing(
    member: ShareMember, other: ShareMember, said: list[tuple[int, int, list[int]]], error: ErrorCode
) -> None:
    await other.acquired(max_records=2)
    assert await member.acquired() == [(2, 9, 1)]
    found = await member.fetch(said)
    assert found is not None
    assert (found.error_code, found.acknowledge_error_code) == (0, error)
    assert await member.acknowledge((2, 9, [ACCEPT])) is ErrorCode.NONE


async def test_an_unknown_topic_and_an_unknown_partition_are_told_apart(member: ShareMember) -> None:
    member.partition = 7
    answer = await member.ask()
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    member.topic_id = bytes(15) + b"\1"
    assert await member.acknowledge((0, 0, [ACCEPT])) is ErrorCode.UNKNOWN_TOPIC_ID


async def test_a_partition_in_which_a_group_has_never_begun_is_an_error_for_who_has_waited_for_it(member: ShareMember) -> None:
    member.partition = 1
    assert (await member.ask()).responses == []
    answer = await member.ask(max_wait_ms=1)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert await member.acknowledge((0, 0, [ACCEPT])) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_partitions_are_fetched_beside_one_where_the_group_never_began(kafka: KafkaServer, member: ShareMember) -> None:
    parts = [{"partition_index": number, "acknowledgement_batches": []} for number in (0, 1)]
    topics = [{"topic_id": kafka.topic_id(), "partitions": parts}]
    answer = await member.ask(max_wait_ms=60_000, topics=topics)
    found = [(each.partition_index, each.error_code, ranges(each)) for each in answer.responses[0].partitions]
    assert found == [(0, 0, [(0, 9, 1)])]


async def test_first_answer_of_a_session_that_waits_names_every_partition(kafka: KafkaServer, member: ShareMember) -> None:
    await kafka.broker.shares.initialize(GROUP, kafka.topic_id(), 1)
    parts = [{"partition_index": number, "acknowledgement_batches": []} for number in (1, 0)]
    topics = [{"topic_id": kafka.topic_id(), "partitions": parts}]

    async def told(**fields: Any) -> dict[int, list[tuple[int, int, int]]]:
        answer = await member.ask(**fields)
        return {each.partition_index: ranges(each) for topic in answer.responses for each in topic.partitions}

    assert await told(topics=topics, max_wait_ms=60_000) == {0: [(0, 9, 1)], 1: []}
    assert await told(topics=[], max_wait_ms=1) == {}, "from then on what there is something to say of"
    member.epoch = 0
    assert await told(topics=topics, max_wait_ms=1) == {0: [], 1: []}
    member.epoch = 0
    assert await told(topics=[{"topic_id": kafka.topic_id(), "partitions": parts[:1]}], max_wait_ms=1) == {1: []}
    member.epoch = 0
    assert await told(topics=[{"topic_id": kafka.topic_id(), "partitions": parts[:1]}]) == {}, "it did not wait"


async def test_who_waits_is_given_records_when_the_group_begins_there(kafka: KafkaServer, member: ShareMember) -> None:
    member.partition = 1
    async with kafka.connected() as producer, trio.open_nursery() as nursery:
        await produced(producer, batch("a"), partition=1)
        nursery.start_soon(_begins, kafka)
        assert await member.acquired(max_wait_ms=60_000) == [(0, 0, 1)]


async def _begins(kafka: KafkaServer) -> None:
    """As soon as somebody waits for it."""
    await until(lambda: bool(kafka.broker.shares.begun))
    await kafka.broker.shares.initialize(GROUP, kafka.topic_id(), 1)


async def test_an_acknowledgement_begins_no_session(member: ShareMember) -> None:
    assert await member.acknowledge((0, 0, [ACCEPT])) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    member.epoch = 1
    assert await member.acknowledge((0, 0, [ACCEPT])) is ErrorCode.SHARE_SESSION_NOT_FOUND


async def test_a_group_begins_where_its_config_says(kafka: KafkaServer, member: ShareMember, client: KafkaStream) -> None:
    kafka.broker.shares.config_of = lambda _: ShareConfig()
    assert await member.acquired() == []
    await produced(client, batch("new"))
    assert await member.acquired() == [(10, 10, 1)]


async def test_a_group_may_begin_a_duration_ago(kafka: KafkaServer, member: ShareMember, client: KafkaStream) -> None:
    now_ms = kafka.broker.now_ms()
    await produced(client, batch("old", timestamp=now_ms - 2_000))
    await produced(client, batch("young", timestamp=now_ms - 500))
    await kafka.broker.logs.delete_records(PARTITION, 10)
    kafka.broker.shares.config_of = lambda _: ShareConfig(offset_reset=OffsetReset.BY_DURATION, offset_reset_duration_ms=1_000)
    assert await member.acquired() == [(11, 11, 1)]


async def test_each_partition_is_acknowledged_or_refused_alone(kafka: KafkaServer, member: ShareMember) -> None:
    await kafka.broker.shares.initialize(GROUP, kafka.topic_id(), 1)
    async with kafka.connected() as producer:
        await produced(producer, batch("a", "b"), partition=1)
    asked = [{"partition_index": number, "acknowledgement_batches": []} for number in range(2)]
    await member.ask(topics=[{"topic_id": member.topic_id, "partitions": asked}])
    said = {"first_offset": 0, "last_offset": 9, "acknowledge_types": [ACCEPT]}
    partitions = [{"partition_index": number, "acknowledgement_batches": [said]} for number in range(2)]
    answer = await member.acknowledge_all([{"topic_id": member.topic_id, "partitions": partitions}])
    codes = {each.partition_index: each.error_code for each in answer.responses[0].partitions}
    assert codes == {0: ErrorCode.NONE, 1: ErrorCode.INVALID_REQUEST}, "the second has two records"
    found = [kafka.broker.shares.in_flight(GROUP, member.topic_id, number) for number in range(2)]
    assert found == [(10, 10, 0, 0), (0, 2, 2, 0)]


async def test_an_acknowledgement_that_ends_the_session_gives_back_the_rest(member: ShareMember) -> None:
    await member.acquired()
    assert await member.acknowledge((0, 8, [ACCEPT]), share_session_epoch=-1) is ErrorCode.NONE
    assert await member.acknowledge((9, 9, [ACCEPT]), share_session_epoch=-1) is ErrorCode.SHARE_SESSION_NOT_FOUND
    member.epoch = 0
    assert await member.acquired() == [(9, 9, 2)]


async def test_a_renewal_has_to_be_announced_and_a_group_may_not_want_it(kafka: KafkaServer, member: ShareMember) -> None:
    await member.acquired()
    assert await member.acknowledge((0, 9, [RENEW])) is ErrorCode.INVALID_REQUEST
    assert await member.acknowledge((0, 9, [RENEW]), is_renew_ack=True) is ErrorCode.NONE
    assert (await member.acknowledge_all([])).acquisition_lock_timeout_ms == 30_000
    kafka.broker.shares.config_of = lambda _: ShareConfig(renew_acknowledge_enabled=False)
    assert await member.acknowledge((0, 9, [RENEW]), is_renew_ack=True) is ErrorCode.INVALID_RECORD_STATE


async def test_a_node_has_as_many_share_sessions_as_its_key_allows(fast_path: Path) -> None:
    async with kafka_server(fast_path, group_share_max_share_sessions=2) as server, server.connected() as client:
        await server.broker.topics.create(TOPIC, 1)
        first, second, third = (ShareMember(client, server.topic_id(), f"member {number}") for number in range(3))
        assert [(await each.ask(max_wait_ms=1)).error_code for each in (first, second, third)] == [0, 0, LIMIT_REACHED]
        await first.ask(share_session_epoch=-1)
        third.epoch = 0
        assert (await third.ask(max_wait_ms=1)).error_code == 0
