"""Clients that leave as much with the server as they can: each owner refuses in bytes, and a restart keeps no more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.limits import KIB, MAX_RULE_NAME_CHARS, MIB
from triolog.protocol.types import TopicPartition
from triolog.server.access.quotas import CLIENT_ID, PRODUCER_BYTE_RATE

from tests.support.kafka_server import TOPIC, KafkaServer, batch, kafka_server
from tests.support.kafka_stream import KafkaStream
from tests.support.kafka_wire import ask
from tests.support.share_members import ShareMember
from tests.support.streams_members import heartbeat, part, topology

LARGE: Final = 16 * KIB
NAMES: Final = [f"{number:0200}" for number in range(100)]
SETTINGS: Final[dict[str, Any]] = {"max_client_memory_bytes": MIB, "group_initial_rebalance_delay_ms": 0}
OFFSET: Final = {"committed_offset": 1, "committed_metadata": "x" * 4_000}
MOST: Final = 150
"""Requests after which a flood has to be refused."""


@pytest.fixture
def settings() -> dict[str, Any]:
    return SETTINGS


Flood = Callable[[KafkaServer, KafkaStream, int], Awaitable[int]]
"""The request of that number, which leaves something of its own with the server; answers its error code."""


async def offsets(_: KafkaServer, client: KafkaStream, number: int) -> int:
    topics = [{"name": TOPIC, "partitions": [OFFSET | {"partition_index": each} for each in range(3)]}]
    answer = await client.call(ask("OffsetCommit", group_id=f"g{number}", topics=topics), 8)
    return int(answer.topics[0].partitions[0].error_code)


async def names_of_groups(_: KafkaServer, client: KafkaStream, number: int) -> int:
    partition = {"partition_index": 0, "committed_offset": 1}
    topics = [{"name": TOPIC, "partitions": [partition]}]
    answer = await client.call(ask("OffsetCommit", group_id=f"{number:0{LARGE}}", topics=topics), 8)
    return int(answer.topics[0].partitions[0].error_code)


async def pending_offsets(server: KafkaServer, client: KafkaStream, number: int) -> int:
    """All of one transaction; the other client has its own."""
    name = f"t{number // MOST}"
    if number % MOST == 0:
        await client.call(ask("InitProducerId", transactional_id=name, transaction_timeout_ms=60_000), 4)
    value = server.broker.transactions.ids.owners[name].value
    assert value is not None
    producer = {"transactional_id": name, "producer_id": value.producer_id, "producer_epoch": value.producer_epoch}
    await client.call(ask("AddOffsetsToTxn", group_id=f"g{number}", **producer), 3)
    topics = [{"name": TOPIC, "partitions": [OFFSET | {"partition_index": each} for each in range(3)]}]
    answer = await client.call(ask("TxnOffsetCommit", group_id=f"g{number}", topics=topics, **producer), 3)
    return int(answer.topics[0].partitions[0].error_code)


async def transactional_ids(_: KafkaServer, client: KafkaStream, number: int) -> int:
    name = f"{number:0{LARGE}}"
    answer = await client.call(ask("InitProducerId", transactional_id=name, transaction_timeout_ms=60_000), 4)
    return int(answer.error_code)


async def classic_members(_: KafkaServer, client: KafkaStream, number: int) -> int:
    protocols = [{"name": "range", "metadata": b"x" * LARGE}]
    times = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000}
    fields = {"group_id": f"g{number}", "protocol_type": "consumer", "protocols": protocols, **times}
    return int((await client.call(ask("JoinGroup", member_id="", **fields), 3)).error_code)


async def consumer_members(_: KafkaServer, client: KafkaStream, number: int) -> int:
    fields = {"group_id": f"g{number}", "member_id": f"m{number}", "member_epoch": 0, "rebalance_timeout_ms": 30_000}
    said = {"subscribed_topic_names": NAMES, "topic_partitions": []}
    return int((await client.call(ask("ConsumerGroupHeartbeat", **fields, **said), 1)).error_code)


async def consumer_racks(_: KafkaServer, client: KafkaStream, number: int) -> int:
    fields = {"group_id": f"g{number}", "member_id": f"m{number}", "member_epoch": 0, "rebalance_timeout_ms": 30_000}
    said = {"subscribed_topic_names": [TOPIC], "topic_partitions": [], "rack_id": "r" * LARGE}
    return int((await client.call(ask("ConsumerGroupHeartbeat", **fields, **said), 1)).error_code)


async def share_members(_: KafkaServer, client: KafkaStream, number: int) -> int:
    fields = {"group_id": f"g{number}", "member_id": f"m{number}", "member_epoch": 0, "subscribed_topic_names": NAMES}
    return int((await client.call(ask("ShareGroupHeartbeat", **fields), 1)).error_code)


async def streams_members(_: KafkaServer, client: KafkaStream, number: int) -> int:
    said = topology(part("0", source_topics=[TOPIC, *NAMES]))
    return int((await client.call(heartbeat(group_id=f"g{number}", topology=said), 0)).error_code)


async def share_sessions(server: KafkaServer, client: KafkaStream, number: int) -> int:
    member = ShareMember(client, server.topic_id(), f"m{number}", f"{number:0{LARGE}}")
    return int((await member.ask()).error_code)


POLICY: Final = ErrorCode.POLICY_VIOLATION
FLOODS: Final[dict[Flood, tuple[str, ErrorCode]]] = {
    offsets: ("committed offsets", POLICY),
    names_of_groups: ("committed offsets", POLICY),
    pending_offsets: ("committed offsets", POLICY),
    transactional_ids: ("transactional ids", POLICY),
    classic_members: ("classic groups", POLICY),
    consumer_members: ("consumer groups", POLICY),
    consumer_racks: ("consumer groups", POLICY),
    share_members: ("share groups", POLICY),
    streams_members: ("streams groups", POLICY),
    share_sessions: ("share sessions", ErrorCode.SHARE_SESSION_LIMIT_REACHED),
}


@pytest.mark.merge
@pytest.mark.parametrize("flood", FLOODS, ids=lambda each: each.__name__)
async def test_a_flood_is_refused_in_bytes_others_are_served_and_a_restart_keeps_no_more(flood: Flood, fast_path: Path) -> None:
    account, expected = FLOODS[flood]
    async with kafka_server(fast_path, **SETTINGS) as server:
        await server.broker.topics.create(TOPIC, 3)
        memory = server.broker.client_memory
        async with server.connected() as attacker, server.connected() as other:
            code = ErrorCode.NONE
            for number in range(MOST):
                code = ErrorCode(await flood(server, attacker, number))
                if code is not ErrorCode.NONE:
                    break
            assert (code, memory.accounts[account].refused) == (expected, 1)
            assert MIB // 4 < memory.used_bytes <= MIB // 2 + 4 * LARGE, "a connection has half"
            assert await flood(server, other, MOST) == ErrorCode.NONE
            before = memory.used_bytes
    async with kafka_server(fast_path, **SETTINGS) as server:
        assert server.broker.client_memory.used_bytes <= before * 1.01, "but for the spare places of lists"


async def test_share_sessions_that_have_ended_leave_nothing(kafka: KafkaServer, client: KafkaStream) -> None:
    for number in range(300):
        member = ShareMember(client, kafka.topic_id(), f"m{number}", f"{number:0{LARGE}}")
        assert (await member.ask()).error_code == 0
        member.epoch = -1
        assert (await member.ask(topics=[])).error_code == 0
    sessions = kafka.broker.shares.sessions_at(kafka.broker.node_id)
    account = kafka.broker.client_memory.accounts["share sessions"]
    assert (len(sessions), sessions._groups, account.used_bytes) == (0, {}, 0)


async def test_one_client_does_not_have_all_groups(fast_path: Path) -> None:
    async with kafka_server(fast_path, max_groups=200, group_initial_rebalance_delay_ms=0) as server:
        async with server.connected() as attacker, server.connected() as honest:
            codes = [await join_and_leave(attacker, f"g{number}") for number in range(110)]
            assert codes == [ErrorCode.NONE] * 100 + [POLICY] * 10
            assert await join_and_leave(honest, "honest") == ErrorCode.NONE


async def join_and_leave(client: KafkaStream, group: str) -> int:
    fields = {"group_id": group, "session_timeout_ms": 6_000, "rebalance_timeout_ms": 6_000, "protocol_type": "consumer"}
    protocols = [{"name": "range", "metadata": b"x"}]
    answer = await client.call(ask("JoinGroup", member_id="", protocols=protocols, **fields), 3)
    if not answer.error_code:
        await client.call(ask("LeaveGroup", group_id=group, member_id=answer.member_id), 2)
    return int(answer.error_code)


async def test_members_that_leave_give_their_memory_back(kafka: KafkaServer, client: KafkaStream) -> None:
    memory = kafka.broker.client_memory
    for number in range(3):
        assert await consumer_members(kafka, client, number) == ErrorCode.NONE
    before = memory.used_bytes
    for number in range(3):
        fields = {"group_id": f"g{number}", "member_id": f"m{number}", "member_epoch": -1}
        assert (await client.call(ask("ConsumerGroupHeartbeat", **fields), 1)).error_code == 0
    assert memory.used_bytes < before / 10, attrs.asdict(memory.accounts["consumer groups"], recurse=False)


async def refusal(leave: Callable[[int], Awaitable[Any]]) -> str:
    """Call `leave` with growing numbers until it raises; answers the message."""
    for number in range(1_100):
        try:
            await leave(number)
        except RequestError as exc:
            return exc.message
    raise AssertionError("it was never refused")


async def test_quotas_topics_staged_tasks_and_leases_are_bounded_too(kafka: KafkaServer) -> None:
    """Called as a program with a broker of its own does, which has no share, only the limit."""
    broker, memory = kafka.broker, kafka.broker.client_memory
    partition = TopicPartition(TOPIC, 0)
    for_names = {((CLIENT_ID, "c" * MAX_RULE_NAME_CHARS),): {PRODUCER_BYTE_RATE: 1.0}}
    before = memory.used_bytes
    await broker.security.alter_client_quotas(for_names)
    assert memory.used_bytes > before + MAX_RULE_NAME_CHARS
    await broker.security.alter_client_quotas({entity: {PRODUCER_BYTE_RATE: None} for entity in for_names})
    assert memory.used_bytes == before
    many = {((CLIENT_ID, f"{each:0{MAX_RULE_NAME_CHARS}}"),): {PRODUCER_BYTE_RATE: 1.0} for each in range(1_000)}
    assert "users, ACLs and quotas" in await refusal(lambda _: broker.security.alter_client_quotas(many))
    long = {"retention.hold.groups": ",".join(NAMES)}
    assert "topic configurations" in await refusal(lambda number: broker.topics.create(f"topic{number}", 1, long))

    async def stage(number: int) -> None:
        await broker.stages.write(await broker.stages.announce("a", 1, f"task{number}", partition, batch("v")))

    assert "staged tasks" in await refusal(stage)
    assert memory.used_bytes <= MIB
    await broker.stages.drop("a", 1)
    assert memory.accounts["staged tasks"].used_bytes == 0
    lease = await broker.leases.take([partition], 1_000)
    assert memory.accounts["segment leases"].used_bytes > 500
    await broker.leases.renew(lease.lease_id, 0)
    assert memory.accounts["segment leases"].used_bytes == 0
