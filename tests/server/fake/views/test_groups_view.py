"""`broker.groups`: lags of any group; of share groups and Streams groups state, members, and how one is taken out.
`wait_assigned` waits until members have partitions, all of them. A misspelt name is an error that has the right one, or part
of the error of a wait. It is never an empty answer. Lag counts records that a group has yet to read: markers, aborted records
and empty offsets are not among them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import triolog
from triolog.protocol.coordinator.classic_group_records import (
    CONSUMER_PROTOCOL_TYPE,
    ConsumerPartitions,
    ConsumerProtocolAssignment,
    encode_consumer_protocol,
)
from triolog.protocol.errors import ErrorCode, RequestError, UnknownTopicOrPartitionError
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker, Join, ShareHeartbeat, Sync
from triolog.server.config.broker_config import Address
from triolog.server.embedded import MEMORY, EmbeddedBroker
from triolog.server.fake.faults.rules import RuleError

from tests.server.listeners.kafka.test_mixed_groups import CONSUMER, GROUP, JOIN, Classic
from tests.support.kafka_server import TOPIC
from tests.support.kafka_stream import connected
from tests.support.kafka_wire import ask
from tests.support.share_groups import KeptShareStates
from tests.support.streams_groups import joining


async def join_share_group(groups: Any) -> None:
    groups.share.states = KeptShareStates()
    for epoch, names in ((0, ("t",)), (2, None)):
        await groups.share.heartbeat(
            ShareHeartbeat(group_id="g", member_id="m", member_epoch=epoch, topic_names=names, client_id="app")
        )


async def join_streams_group(groups: Any) -> None:
    await groups.streams.heartbeat(joining("g", "m", "t", client_id="app"))


@pytest.mark.parametrize("join", [join_share_group, join_streams_group])
async def test_a_group_of_another_kind_is_seen_as_others_are(join: Callable[[Any], Awaitable[None]]) -> None:
    async with triolog.open(topics={"t": 2}) as broker:
        await join(broker.core.groups)
        (member,) = broker.groups.members("g")
        assert (broker.groups.state("g"), member.member_id, member.client_id) == ("Stable", "m", "app")
        assert [str(each) for each in member.partitions] == ["t-0", "t-1"]
        assert await broker.groups.wait_assigned("g") == [member]
        await broker.groups.kick("g", "m")
        assert (broker.groups.state("g"), broker.groups.members("g")) == ("Empty", [])


async def test_records_that_were_deleted_are_not_waited_for() -> None:
    async with triolog.open(topics={"t": 1}) as broker:
        await broker.append("t", [b"a", b"b", b"c"])
        await broker.delete_records("t", 2)
        with pytest.raises(
            TimeoutError,
            match=re.escape("there is no group 'g'; group g lags in t by {0: 1} (partition: records) after 0.02 s"),
        ):
            await broker.groups.wait_no_lag("g", "t", timeout_s=0.02)
        await broker.delete_records("t")
        await broker.groups.wait_no_lag("g", "t")


T, G = "orders", "baristas"
SHORT_S = 0.02


async def join(core: Broker, assignment: bytes, protocol_type: str = CONSUMER_PROTOCOL_TYPE, member_id: str = "") -> str:
    """The one member of a group, stable with an assignment."""
    request = Join(
        group_id=G,
        protocol_type=protocol_type,
        protocols=(("range", b""),),
        session_timeout_ms=30_000,
        member_id=member_id,
        requires_known_member_id=False,
    )
    joined = await core.groups.join(request)
    member = joined.member_id
    await core.groups.sync(
        Sync(group_id=G, generation=joined.generation, member_id=member, assignments=((member, assignment),))
    )
    return member


def assigned(*partitions: int) -> bytes:
    places = [ConsumerPartitions(topic=T, partitions=list(partitions))] if partitions else []
    return encode_consumer_protocol(ConsumerProtocolAssignment(assigned_partitions=places), 0)


async def test_a_stable_group_whose_members_have_no_partitions_is_waited_for() -> None:
    async with triolog.open(MEMORY, topics={T: 2}) as broker:
        member = await join(broker.core, assigned())
        with pytest.raises(TimeoutError, match="Stable with 1 of 1 members; no member has a partition: the topics"):
            await broker.groups.wait_assigned(G, timeout_s=SHORT_S)
        await join(broker.core, assigned(1), member_id=member)  # a rebalance in steps: partition 0 is still on its way
        with pytest.raises(TimeoutError, match="Stable with 1 of 1 members; no member has orders-0"):
            await broker.groups.wait_assigned(G, timeout_s=SHORT_S)
        await join(broker.core, assigned(0, 1), member_id=member)
        (found,) = await broker.groups.wait_assigned(G)
        assert [each.partition for each in found.partitions] == [0, 1]


async def test_a_group_of_another_protocol_needs_no_partitions() -> None:
    async with triolog.open(MEMORY) as broker:
        member = await join(broker.core, b"connectors", "connect")
        assert [each.member_id for each in await broker.groups.wait_assigned(G)] == [member]


async def asked(call: Callable[[], Any]) -> Any:
    """What a call answers, at once or awaited."""
    found = call()
    return await found if inspect.isawaitable(found) else found


async def test_a_misspelt_group_has_no_lag_but_an_error() -> None:
    async with triolog.open(MEMORY, topics=[T]) as broker:
        await broker.append(T, [b"a"])
        await broker.groups.commit(G, {TopicPartition(T, 0): 1})
        for call in (broker.groups.lag("barista"), broker.groups.lag("barista", T), broker.groups.lag("Baristas")):
            with pytest.raises(RequestError, match=r"there is no group .* \(did you mean 'baristas'") as caught:
                await call
            assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND
        with pytest.raises(RequestError, match="there is no share group 'baristas'"):
            broker.share_groups.lag(G)
        for wait in (
            broker.groups.wait_no_lag("barista", T, timeout_s=SHORT_S),
            broker.groups.wait_committed("barista", T, 1, timeout_s=SHORT_S),
            broker.groups.wait_assigned("barista", timeout_s=SHORT_S),
        ):
            with pytest.raises(TimeoutError, match=r"there is no group 'barista' \(did you mean 'baristas'"):
                await wait
        assert broker.groups.is_known(G)
        assert not broker.groups.is_known("barista")


async def test_a_misspelt_topic_is_named_with_the_right_one() -> None:
    async with triolog.open(MEMORY, topics=[T]) as broker:
        await broker.groups.commit(G, {TopicPartition(T, 0): 0})
        groups, shares, log = broker.groups, broker.share_groups, broker.log("order")
        for call in (
            lambda: groups.lag(G, "order"),
            lambda: groups.committed(G, "order"),
            lambda: groups.wait_no_lag(G, "order"),
            lambda: shares.partitions(G, "order"),
            lambda: shares.wait_done(G, "order"),
            lambda: shares.delivery_counts(G, "order"),
            log.fetch,
            log.end_offsets,
            lambda: log.wait_for(1),
        ):
            with pytest.raises(UnknownTopicOrPartitionError, match=r"no topic 'order' \(did you mean 'orders'"):
                await asked(call)
        with pytest.raises(TimeoutError, match=r"no topic 'order' \(did you mean 'orders'"):
            await groups.wait_committed(G, "order", 1, timeout_s=SHORT_S)


async def test_misspelt_apis_errors_and_states_are_refused() -> None:
    async with triolog.open(MEMORY, topics=[T]) as broker:
        requests = broker.requests
        for call in (requests.count, requests.find):
            with pytest.raises(ValueError, match=r"no API 'Prodduce' \(did you mean 'Produce'"):
                call("Prodduce")
            with pytest.raises(ValueError, match=r"no error 'NOT_LEADER_OR_FOLOWER' \(did you mean 'NOT_LEADER_OR_FOLLOWER'"):
                call("Produce", error="NOT_LEADER_OR_FOLOWER")
        with pytest.raises(ValueError, match="did you mean 'Produce'"):
            await requests.wait_for("Prodduce")
        assert requests.count("PRODUCE") == requests.count("list-offsets") == 0
        with pytest.raises(RuleError, match="did you mean 'produce'"):
            broker.faults.add("Prodduce", hold=True)
        with pytest.raises(RuleError, match="did you mean 'NOT_LEADER_OR_FOLLOWER'"):
            broker.faults.add("Produce", error="NOT_LEADER_OR_FOLOWER")
        with pytest.raises(ValueError, match=r"state 'availabel' \(did you mean 'available'"):
            broker.share_groups.in_state(G, T, "availabel")


@pytest.mark.parametrize("given", [{"topics": "orders"}, {"records": {"orders": "abc"}}, {"records": {"orders": b"abc"}}])
def test_one_text_in_place_of_a_list_is_refused_before_the_broker_starts(given: Any) -> None:
    with pytest.raises(TypeError, match="expected a list"):
        triolog.blocking.open(MEMORY, **given).start()


READ_TOPIC, READERS = "topic", "group"
FIRST, SECOND = TopicPartition(READ_TOPIC, 0), TopicPartition(READ_TOPIC, 1)


async def transact(broker: EmbeddedBroker, name: str, batches: int, *, commits: bool) -> None:
    transaction = broker.transaction(name)
    await transaction.begin()
    for number in range(batches):
        await transaction.append(READ_TOPIC, [(None, b"%d" % number, b"v", ())] * 3)
    await (transaction.commit() if commits else transaction.abort())


@pytest.mark.parametrize("commits", [True, False])
async def test_a_marker_at_the_end_is_not_waited_for(commits: bool) -> None:
    async with triolog.open(MEMORY, topics=[READ_TOPIC]) as broker:
        await broker.append(READ_TOPIC, [b"a", b"b"])
        await transact(broker, "till", 2, commits=commits)
        records = await broker.log(READ_TOPIC).fetch()
        assert len(records) == (8 if commits else 2)
        await broker.groups.commit(READERS, {FIRST: 1})
        assert await broker.groups.lag(READERS, READ_TOPIC) == len(records) - 1
        with pytest.raises(TimeoutError, match=rf"lags in topic by {{0: {len(records) - 1}}}"):
            await broker.groups.wait_no_lag(READERS, READ_TOPIC, timeout_s=0.02)
        await broker.groups.commit(READERS, {FIRST: records[-1].offset + 1})
        await broker.groups.wait_no_lag(READERS, READ_TOPIC, timeout_s=0.02)
        assert await broker.groups.lag(READERS) == await broker.groups.lag(READERS, READ_TOPIC) == 0


async def test_a_topic_of_aborted_records_alone_has_no_lag() -> None:
    async with triolog.open(MEMORY, topics=[READ_TOPIC]) as broker:
        await transact(broker, "till", 3, commits=False)
        await broker.groups.wait_no_lag(READERS, READ_TOPIC, timeout_s=0.02)
        assert await broker.groups.lag(READERS, READ_TOPIC) == 0


async def test_holes_of_compaction_and_deleted_records_have_no_lag() -> None:
    config = {"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0.01"}
    async with triolog.open(MEMORY) as broker:
        await broker.create_topic(READ_TOPIC, config=config)
        await broker.append(READ_TOPIC, [(None, b"%d" % (number % 2), b"v", ()) for number in range(10)])
        await broker.groups.commit(READERS, {FIRST: 0})
        assert await broker.groups.lag(READERS, READ_TOPIC) == 10
        await broker.log(READ_TOPIC).compact()
        assert await broker.groups.lag(READERS, READ_TOPIC) == len(await broker.log(READ_TOPIC).fetch()) == 2
        await broker.delete_records(READ_TOPIC)
        assert await broker.groups.lag(READERS, READ_TOPIC) == 0


async def test_an_open_transaction_has_no_lag_and_records_after_it_have() -> None:
    async with triolog.open(MEMORY, topics=[READ_TOPIC]) as broker:
        await broker.append(READ_TOPIC, [b"a"])
        await broker.groups.commit(READERS, {FIRST: 1})
        transaction = broker.transaction("till")
        await transaction.begin()
        await transaction.append(READ_TOPIC, [b"pending"])
        assert await broker.groups.lag(READERS, READ_TOPIC) == 0
        await broker.append(READ_TOPIC, [b"plain"])
        assert await broker.groups.lag(READERS, READ_TOPIC) == 1
        await transaction.commit()
        assert await broker.groups.lag(READERS, READ_TOPIC) == 2


async def test_a_partition_without_a_commit_counts_as_in_the_waits() -> None:
    async with triolog.open(MEMORY, topics={READ_TOPIC: 2}) as broker:
        await broker.append(READ_TOPIC, [b"a", b"b", b"c"], partition=1)
        await broker.groups.commit(READERS, {FIRST: 0})
        assert await broker.groups.lag(READERS) == await broker.groups.lag(READERS, READ_TOPIC) == 3
        await broker.groups.commit(READERS, {SECOND: 2})
        assert await broker.groups.lag(READERS) == 1


async def test_heartbeats_of_a_classic_member_get_an_error_until_it_joins_again() -> None:
    async with triolog.open(MEMORY, topics={TOPIC: 2}, kafka=Address("127.0.0.1", 0)) as broker:
        assert broker.kafka is not None
        async with connected(broker.kafka) as client:
            classic = Classic(client)
            await classic.form(0, 1)
            rule = broker.groups.rebalance(GROUP)
            assert [await classic.beat() for _ in range(3)] == [ErrorCode.REBALANCE_IN_PROGRESS] * 3
            await classic.form(0, 1)
            assert [await classic.beat(), rule.fired] == [0, 3]


@pytest.mark.parametrize(
    ("api", "version", "fields"),
    [
        ("ConsumerGroupHeartbeat", 1, {"rebalance_timeout_ms": 30_000, "topic_partitions": []}),
        ("ShareGroupHeartbeat", 1, {}),
    ],
)
async def test_heartbeats_of_a_member_get_an_error_until_it_joins_again_and_those_of_a_new_one_do_not(
    api: str, version: int, fields: dict[str, Any]
) -> None:
    async with triolog.open(MEMORY, topics={TOPIC: 2}, kafka=Address("127.0.0.1", 0)) as broker:
        assert broker.kafka is not None
        async with connected(broker.kafka) as client:

            async def beat(member_id: str, epoch: int) -> tuple[int, int]:
                joining = {"subscribed_topic_names": [TOPIC], **fields} if epoch == 0 else {}
                body = ask(api, group_id=GROUP, member_id=member_id, member_epoch=epoch, **joining)
                answer = await client.call(body, version)
                return answer.error_code, answer.member_epoch

            _, epoch = await beat("old", 0)
            rule = broker.groups.rebalance(GROUP)
            assert [code for code, _ in [await beat("old", epoch) for _ in range(2)]] == [ErrorCode.FENCED_MEMBER_EPOCH] * 2
            _, of_new = await beat("new", 0)
            assert (await beat("new", of_new))[0] == 0
            _, epoch = await beat("old", 0)
            assert [(await beat("old", epoch))[0], rule.fired] == [0, 2]


async def test_members_of_both_protocols_of_a_mixed_group_join_again() -> None:
    async with triolog.open(MEMORY, topics={TOPIC: 2}, kafka=Address("127.0.0.1", 0)) as broker:
        assert broker.kafka is not None
        async with connected(broker.kafka) as client:
            classic = Classic(client)
            await classic.form(0, 1)
            epoch = (await client.call(JOIN, 1)).member_epoch
            rule = broker.groups.rebalance(GROUP)
            beat = ask("ConsumerGroupHeartbeat", group_id=GROUP, member_id=CONSUMER, member_epoch=epoch)
            codes = [code for _ in range(2) for code in (await classic.beat(), (await client.call(beat, 1)).error_code)]
            assert codes == [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.FENCED_MEMBER_EPOCH] * 2
            assert rule.fired == 4
            assert [(await client.call(JOIN, 1)).error_code, await classic.join(0, 1)] == [0, 0]
            assert rule.fired == 4
