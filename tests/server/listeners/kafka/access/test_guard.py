"""ACLs where Kafka's answer hangs on more than one right, on what else is wrong, or on what there is. Every right of every API
over the wire: refused without it, where Kafka refuses it, and served with it. `tests/data/kafka-4.3.1/rights.json` has what
Apache Kafka answers; `tests/kafka/test_rights_answers.py` asks it again."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import triolog
from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.apis import APIS, ApiKey
from triolog.protocol.kafka.authorization import AclOperation, ResourceType
from triolog.server.config.broker_config import Address
from triolog.server.embedded import MEMORY
from triolog.server.listeners.access.rules import finish
from triolog.server.listeners.kafka.door import NO_TOPIC_ID
from triolog.server.listeners.kafka.guard import PATHS, RULES

from tests.support import kafka_admin
from tests.support.kafka_admin import BROKER_TYPE, TOPIC_TYPE, alter, delete_states, error_names, new_topic
from tests.support.kafka_login import allow, forbid
from tests.support.kafka_rights.askers import CASES, LOGIN, Asker, askers
from tests.support.kafka_rights.case import THERE
from tests.support.kafka_rights.hidden import HIDDEN
from tests.support.kafka_rights.world import ADMIN, DEVIATIONS, Told, World, answered, comparable, question, recorded, users
from tests.support.kafka_server import TOPIC, KafkaServer, kafka_server
from tests.support.kafka_stream import KafkaStream
from tests.support.kafka_wire import ask

UNSEEN, GROUP = "hidden", "group"
OF_TOPIC = "TOPIC_AUTHORIZATION_FAILED"
TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
DELETE, DESCRIBE, READ = AclOperation.DELETE, AclOperation.DESCRIBE, AclOperation.READ


@pytest.fixture
async def kafka(fast_path: Path) -> AsyncIterator[KafkaServer]:
    """A listener with a topic of two partitions that everybody may see, and another one."""
    async with kafka_server(fast_path, acl_enable=True, lenient=True) as server:
        await server.broker.topics.create(TOPIC, 2)
        await server.broker.topics.create(UNSEEN, 2)
        await allow(server, DESCRIBE, ResourceType.TOPIC, TOPIC)
        yield server


async def test_topics_that_may_not_be_seen_use_up_no_room_and_are_no_cursor(client: KafkaStream) -> None:
    for names in ([], [UNSEEN, TOPIC]):
        request = ask(
            "DescribeTopicPartitions",
            topics=[{"name": name} for name in names],
            response_partition_limit=1,
            cursor={"topic_name": UNSEEN},
        )
        answer = await client.call(request, 0)
        assert (answer.next_cursor.topic_name, answer.next_cursor.partition_index) == (TOPIC, 1)
        [seen, *refused] = answer.topics
        assert (seen.name, len(seen.partitions), seen.topic_authorized_operations) == (TOPIC, 1, 1 << DESCRIBE)
        assert [(each.name, each.error_code, each.topic_id) for each in refused] == [
            (name, TOPIC_DENIED, NO_TOPIC_ID) for name in names if name == UNSEEN
        ]


async def test_a_topic_to_delete_is_told_apart_as_far_as_it_may_be_seen(kafka: KafkaServer, client: KafkaStream) -> None:
    await allow(kafka, DESCRIBE, ResourceType.TOPIC, "gone")
    by_name = (await client.call(kafka_admin.delete_topics(TOPIC, UNSEEN, "gone", "nowhere", "twice", "twice"), 5)).responses
    assert {(each.name, ErrorCode(each.error_code).name) for each in by_name} == {
        (TOPIC, OF_TOPIC),
        (UNSEEN, OF_TOPIC),
        ("gone", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("nowhere", OF_TOPIC),
        ("twice", "INVALID_REQUEST"),
    }
    ids = [kafka.topic_id(TOPIC), kafka.topic_id(UNSEEN), b"nobody's id 1234"]
    by_id = (await client.call(delete_states(*((None, each) for each in ids)), 6)).responses
    assert {(each.name, each.topic_id, ErrorCode(each.error_code).name) for each in by_id} == {
        (TOPIC, ids[0], OF_TOPIC),
        (None, ids[1], OF_TOPIC),
        (None, ids[2], "UNKNOWN_TOPIC_ID"),
    }


async def test_what_is_wrong_with_a_request_is_said_to_everybody(kafka: KafkaServer, client: KafkaStream) -> None:
    twice = [(TOPIC_TYPE, TOPIC, [("retention.ms", "5")])] * 2
    told = [
        (await client.call(kafka_admin.create_topics(new_topic("new"), new_topic("new")), 7)).topics,
        (await client.call(kafka_admin.more_partitions((TOPIC, 5), (TOPIC, 6)), 3)).results,
        (await client.call(delete_states((TOPIC, kafka.topic_id())), 6)).responses,
        (await client.call(alter(*twice), 2)).responses,
        (await client.call(alter((TOPIC_TYPE, TOPIC, [("retention.ms", None)])), 2)).responses,
        (await client.call(alter((BROKER_TYPE, "99", [])), 2)).responses,
        (await client.call(kafka_admin.describe((7, TOPIC)), 4)).results,
    ]
    assert {name for results in told for name in error_names(results)} == {"INVALID_REQUEST"}
    deleting = kafka_admin.alter_incrementally((TOPIC_TYPE, TOPIC, [("retention.ms", 1, None)]))
    assert error_names((await client.call(deleting, 1)).responses) == [OF_TOPIC]


async def commit(kafka: KafkaServer, client: KafkaStream) -> None:
    """One offset for each of the topics, by somebody who may; afterwards only `TOPIC` may be seen."""
    topics = [{"name": name, "partitions": [{"committed_offset": 5, "committed_leader_epoch": 7}]} for name in (TOPIC, UNSEEN)]
    await allow(kafka, AclOperation.ALL, ResourceType.GROUP, GROUP)
    await allow(kafka, READ, ResourceType.TOPIC, TOPIC)
    await allow(kafka, READ, ResourceType.TOPIC, UNSEEN)
    answer = await client.call(ask("OffsetCommit", group_id=GROUP, topics=topics), 8)
    assert [partition.error_code for topic in answer.topics for partition in topic.partitions] == [0, 0]
    await forbid(kafka, ResourceType.TOPIC, UNSEEN)


@pytest.mark.parametrize("version", [9, 10])
async def test_offsets_of_a_hidden_topic_are_not_told(kafka: KafkaServer, client: KafkaStream, version: int) -> None:
    await commit(kafka, client)
    named = [{"name": name, "topic_id": kafka.topic_id(name), "partition_indexes": [0]} for name in (TOPIC, UNSEEN)]
    for topics, expected in ((named, [(0, 5, 7), (TOPIC_DENIED, -1, -1)]), (None, [(0, 5, 7)])):
        group = {"group_id": GROUP, "member_id": None, "topics": topics}
        [found] = (await client.call(ask("OffsetFetch", groups=[group]), version)).groups
        told = [topic.partitions[0] for topic in found.topics]
        assert [(each.error_code, each.committed_offset, each.committed_leader_epoch) for each in told] == expected


async def test_topic_id_of_no_topic_is_unknown_rather_than_denied(kafka: KafkaServer, client: KafkaStream) -> None:
    await commit(kafka, client)
    for topic_id in (bytes(16), b"nobody's id 1234"):
        part = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
        request = ask("OffsetCommit", group_id=GROUP, topics=[{"topic_id": topic_id, "partitions": [part]}])
        [topic] = (await client.call(request, 10)).topics
        assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        group = {"group_id": GROUP, "member_id": None, "topics": [{"topic_id": topic_id, "partition_indexes": [0]}]}
        [found] = (await client.call(ask("OffsetFetch", groups=[group]), 10)).groups
        assert found.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_an_error_of_a_whole_group_stands_alone(kafka: KafkaServer, client: KafkaStream) -> None:
    await allow(kafka, DELETE, ResourceType.GROUP, GROUP)
    await allow(kafka, READ, ResourceType.TOPIC, TOPIC)
    part = [{"partition_index": 0}]
    topics = [{"name": name, "partitions": part} for name in (TOPIC, UNSEEN)]
    answer = await client.call(ask("OffsetDelete", group_id=GROUP, topics=topics), 0)
    assert (answer.error_code, answer.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    only_hidden = await client.call(ask("OffsetDelete", group_id=GROUP, topics=topics[1:]), 0)
    assert (only_hidden.error_code, only_hidden.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])


async def test_a_group_with_a_topic_that_may_not_be_seen_is_not_described(kafka: KafkaServer, client: KafkaStream) -> None:
    await allow(kafka, READ, ResourceType.GROUP, GROUP)
    join = ask("ConsumerGroupHeartbeat", group_id=GROUP, member_id="member", rebalance_timeout_ms=60_000, topic_partitions=[])
    join.subscribed_topic_names = [TOPIC, UNSEEN]
    assert (await client.call(join, 1)).error_code == TOPIC_DENIED
    join.subscribed_topic_names, join.subscribed_topic_regex = None, ".*"
    assert (await client.call(join, 1)).error_code == 0
    asking = ask("ConsumerGroupDescribe", group_ids=[GROUP], include_authorized_operations=True)
    [refused] = (await client.call(asking, 1)).groups
    assert (refused.group_id, refused.error_code, refused.members, refused.group_state) == (GROUP, TOPIC_DENIED, [], "")
    await allow(kafka, DESCRIBE, ResourceType.TOPIC, UNSEEN)
    [seen] = (await client.call(asking, 1)).groups
    assert (seen.error_code, [member.member_id for member in seen.members]) == (0, ["member"])
    assert seen.authorized_operations == 1 << READ | 1 << DESCRIBE


def test_every_rule_finds_what_it_is_about() -> None:
    assert {key for key in ApiKey if PATHS[key]} == {key for key, rules in RULES.items() if rules.each}


def test_a_rule_about_what_no_field_stands_for_lets_nobody_pass() -> None:
    call: Any = None  # nothing is asked of it
    body = ask("InitProducerId", transactional_id="id", transaction_timeout_ms=1)
    with pytest.raises(AssertionError, match="InitProducerId has no field for a groupId"):
        finish(RULES[ApiKey.HEARTBEAT].whole[0].check(call, body))


KINDS: Final = "|".join(kind.name for kind in ResourceType if kind > ResourceType.ANY)
RIGHT: Final = re.compile(rf"([A-Z_]+) (?:on any )?((?:{KINDS})(?:(?:, | or )(?:{KINDS})\b)*)")
OF_GROUPS: Final = (ApiKey.OFFSET_DELETE, ApiKey.ALTER_SHARE_GROUP_OFFSETS, ApiKey.DELETE_SHARE_GROUP_OFFSETS)
"""They tell who has the right on the group whether it is there."""
DENIED: Final = [asker for asker in askers() if asker.missing is not None]


@pytest.fixture(scope="module")
def answers() -> Iterator[dict[str, Told]]:
    """Everything asked once. Nothing of what is there has changed when all that is refused was asked."""
    security = {"acl_enable": "true", "super_users": f"User:{ADMIN}"}
    with triolog.blocking.open(
        MEMORY, kafka=Address("127.0.0.1", 0), lenient=False, telemetry=True, users=users(), security=security
    ) as broker:
        world = World.made(broker.kafka)
        before = broker.describe_topic(THERE), set(broker.topics())
        refused = answered(world, DENIED)
        assert (broker.describe_topic(THERE), set(broker.topics())) == before
        yield refused | answered(world, (asker for asker in askers() if asker not in DENIED))


def test_who_has_all_rights_is_refused_nothing(answers: dict[str, Told]) -> None:
    for asker in askers():
        if asker.missing is None and not asker.hidden:
            assert not answers[question(asker, asker.own)].refusals, asker.label


def test_who_lacks_one_is_told_so_and_nothing_else(answers: dict[str, Told]) -> None:
    for asker in DENIED:
        check_denied(asker, *(answers[question(asker, asker.asks_about[number])] for number in (0, -1)))


def check_denied(asker: Asker, first: Told, last: Told) -> None:
    is_of_topic = asker.missing is not None and asker.missing[1] is ResourceType.TOPIC
    if is_of_topic and asker.case.key in OF_GROUPS:
        assert {*first.errors.values(), *last.errors.values()} <= {asker.refusal, "GROUP_ID_NOT_FOUND"}, asker.label
        return
    assert first.refusals == {asker.refusal}, asker.label
    if is_of_topic and asker.case.is_by_id:
        assert {*last.errors.values()} == {"UNKNOWN_TOPIC_ID"}, asker.label
    else:
        assert first.text == last.text, asker.label


def test_what_is_hidden_shows_by_its_right(answers: dict[str, Told]) -> None:
    for asker in askers():
        if asker.hidden is not None:
            is_shown = asker.hidden.shows in answers[question(asker, asker.own)].text
            assert is_shown is bool(asker.more), asker.label


def test_refusals_stand_where_they_stand_in_kafka(answers: dict[str, Told]) -> None:
    found, expected = comparable(answers), recorded()
    assert found.keys() == expected.keys()
    differing = {name: answer for name, answer in found.items() if answer != expected[name]}
    assert differing == {name: each.ours for name, each in DEVIATIONS.items()}


def test_every_row_of_the_table_has_its_cases() -> None:
    tested: dict[str, set[tuple[str, str]]] = defaultdict(set)
    seen: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for case in CASES:
        tested[APIS[case.key].name] |= {(operation.name, kind.name) for operation, kind in case.rights}
    for hidden in HIDDEN:
        seen[APIS[hidden.case.key].name].add((hidden.sees[0].name, hidden.sees[1].name))
    page = (Path(__file__).parents[5] / "docs/reference/rights.md").read_text(encoding="utf-8")
    table = page.partition("<!-- kafka rights")[2].partition("<!-- end of kafka rights")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[3:]]
    assert len(rows) == len(APIS)
    for name, needs, leaves_out in rows:
        rights = {(operation, kind) for operation, kinds in RIGHT.findall(needs) for kind in re.split(", | or ", kinds)}
        hides = {(operation, kind) for operation, kinds in RIGHT.findall(leaves_out) for kind in re.split(", | or ", kinds)}
        assert rights or needs == "nothing", f"{name}: no right is read in {needs!r}"
        assert rights <= tested[name], f"{name}: no case for {rights - tested[name]}"
        assert hides <= tested[name] | seen[name], f"{name}: no case for {hides} that is hidden"
        is_asked = name in tested or name in {APIS[key].name for key in LOGIN}
        assert is_asked, f"{name}: no case"
