"""`broker.streams_groups`, with members that speak Kafka's protocol by hand. With applications of Kafka Streams it is used in
tests/clients/test_streams_groups.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest
import triolog
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.kafka.messages.streams_groups import StreamsGroupEndpoint, StreamsGroupKeyValue
from triolog.protocol.types import TopicPartition
from triolog.server.config.broker_config import Address
from triolog.server.embedded import MEMORY, BlockingBroker

from tests.support.kafka_wire import CLIENT_ID, KafkaWire
from tests.support.streams_members import CHANGELOG, GROUP, MEMBER, REPARTITION, SOURCE, StreamsMember, heartbeat

PARTITIONS: Final = 2
SESSION_S: Final = 45
ALL_TASKS: Final = {("0", 0), ("0", 1), ("1", 0), ("1", 1)}


@pytest.fixture
def broker() -> Iterator[BlockingBroker]:
    kafka = Address("127.0.0.1", 0)
    with triolog.blocking.open(MEMORY, kafka=kafka, topics={SOURCE: PARTITIONS}) as broker:
        yield broker


@pytest.fixture
def wire(broker: BlockingBroker) -> Iterator[KafkaWire]:
    assert broker.kafka is not None
    with KafkaWire.connect(broker.kafka) as client:
        yield client


@pytest.fixture
def member(wire: KafkaWire) -> StreamsMember:
    """One that counts words, and is the only one."""
    member = StreamsMember(wire)
    member.beat()
    member.settle()
    return member


def test_an_application_is_seen_with_its_topology_and_who_runs_what(broker: BlockingBroker, wire: KafkaWire) -> None:
    member = StreamsMember(wire)
    member.beat(user_endpoint=StreamsGroupEndpoint(host="a", port=1), client_tags=[StreamsGroupKeyValue(key="zone", value="z")])
    assert broker.streams_groups.groups() == {GROUP: "NotReady"}
    assert list(broker.streams_groups.statuses(GROUP)) == ["MISSING_INTERNAL_TOPICS"]
    member.settle()
    told = broker.streams_groups.wait_stable(GROUP)
    assert (broker.streams_groups.groups(), broker.streams_groups.statuses(GROUP)) == ({GROUP: "Stable"}, {})
    assert told.assignment_epoch == told.group_epoch == member.epoch
    first, second = told.subtopologies
    assert (first.source_topics, first.repartition_sink_topics) == ((SOURCE,), (REPARTITION,))
    assert [(each.name, each.partitions) for each in second.repartition_source_topics] == [(REPARTITION, PARTITIONS)]
    assert [(each.name, each.partitions) for each in second.state_changelog_topics] == [(CHANGELOG, PARTITIONS)]
    [seen] = told.members
    assert (seen.member_id, seen.process_id, seen.client_id) == (MEMBER, f"process-of-{MEMBER}", CLIENT_ID)
    assert (seen.endpoint, seen.client_tags, seen.member_epoch) == (("a", 1), (("zone", "z"),), member.epoch)
    assert broker.streams_groups.assignments(GROUP)[MEMBER].active == ALL_TASKS


def test_what_a_member_gives_up_and_the_other_is_to_have_is_seen_until_it_is_so(
    broker: BlockingBroker, wire: KafkaWire, member: StreamsMember
) -> None:
    other = StreamsMember(wire, member_id="b")
    other.beat()
    before = member.active
    member.beat()
    told = {each.member_id: each for each in broker.streams_groups.describe(GROUP).members}
    given_up = told[MEMBER].revoking.active
    assert given_up == told["b"].target_assignment.active == ALL_TASKS - told[MEMBER].assignment.active
    assert (len(given_up), told["b"].assignment.active) == (2, set())
    with pytest.raises(TimeoutError, match="group app is Reconciling with 2 members, not Stable with 2 after"):
        broker.streams_groups.wait_stable(GROUP, 2, timeout_s=0.02)
    kept, member.active = member.active, before
    member.beat()
    assert broker.streams_groups.groups() == {GROUP: "Reconciling"}, "it says that it runs them still"
    member.active = kept
    for each in (member, other):
        each.settle()
    stable = broker.streams_groups.wait_stable(GROUP, 2)
    assert not any(each.revoking for each in stable.members)
    assert broker.streams_groups.assignments(GROUP)["b"].active == given_up
    for each in (member, other):
        each.leave()
    assert broker.streams_groups.wait_stable(GROUP, 0).members == ()


def test_standby_tasks_are_told_apart(broker: BlockingBroker, wire: KafkaWire) -> None:
    broker.alter_group_config(GROUP, {"streams.num.standby.replicas": "1"})
    members = [StreamsMember(wire, member_id=name) for name in "ab"]
    for _ in range(2):
        for each in members:
            each.beat()
    for each in (*members, *members):
        each.settle()
    told = broker.streams_groups.wait_stable(GROUP, 2)
    stateful = {task for task in ALL_TASKS if task[0] == "1"}
    for each in told.members:
        assert each.assignment.standby == stateful - each.assignment.active
        assert each.assignment.warmup == set()


def test_what_is_wrong_is_seen_and_waited_for(broker: BlockingBroker, wire: KafkaWire) -> None:
    broker.delete_topic(SOURCE)
    member = StreamsMember(wire)
    member.beat()
    missing = f"Source topics {SOURCE} are missing."
    assert broker.streams_groups.wait_status(GROUP, "MISSING_SOURCE_TOPICS") == missing
    with pytest.raises(TimeoutError, match=rf"app is NotReady with 1 members \[MISSING_SOURCE_TOPICS: {missing}\], not Stable"):
        broker.streams_groups.wait_stable(GROUP, timeout_s=0.02)
    with pytest.raises(TimeoutError, match="and has not done"):
        broker.streams_groups.wait_done(GROUP, timeout_s=0.02)
    broker.create_topic(SOURCE)
    member.settle()
    member.settle()
    assert broker.streams_groups.wait_stable(GROUP).shutdown_member_id is None
    member.beat(shutdown_application=True)
    assert MEMBER in broker.streams_groups.wait_status(GROUP, "SHUTDOWN_APPLICATION")
    assert broker.streams_groups.describe(GROUP).shutdown_member_id == MEMBER
    with pytest.raises(ValueError, match="status is 'STALE', expected one of MISSING_SOURCE_TOPICS, "):
        broker.streams_groups.wait_status(GROUP, "STALE")


def test_an_application_is_done_when_it_has_committed_what_it_reads(broker: BlockingBroker, member: StreamsMember) -> None:
    broker.append(SOURCE, [b"a", b"b"], partition=1)
    broker.append(REPARTITION, [(None, b"a", b"", ())])
    assert broker.streams_groups.lag(GROUP) == {SOURCE: 2, REPARTITION: 1}
    member.leave()
    broker.groups.commit(GROUP, {TopicPartition(REPARTITION, 0): 1})
    with pytest.raises(TimeoutError, match=r"and has not done \{'topic': 2\}"):
        broker.streams_groups.wait_done(GROUP, timeout_s=0.02)
    broker.groups.commit(GROUP, {TopicPartition(SOURCE, 1): 1})
    broker.delete_records(SOURCE, partition=1)
    broker.streams_groups.wait_done(GROUP)
    assert broker.streams_groups.lag(GROUP) == {SOURCE: 0, REPARTITION: 0}


def test_a_silent_member_is_out_when_the_clock_is_moved(broker: BlockingBroker, wire: KafkaWire, member: StreamsMember) -> None:
    other = StreamsMember(wire, member_id="b")
    other.beat()
    broker.clock.advance(SESSION_S - 1)
    other.beat()
    broker.clock.advance(2)
    while MEMBER in broker.streams_groups.assignments(GROUP):
        other.beat()
    other.settle()
    broker.streams_groups.wait_stable(GROUP)
    assert broker.streams_groups.assignments(GROUP)["b"].active == ALL_TASKS
    assert member.ask(member.epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_test_lets_members_join_again_takes_one_out_and_holds_what_they_say(
    broker: BlockingBroker, wire: KafkaWire, member: StreamsMember
) -> None:
    rebalance = broker.groups.rebalance(GROUP)
    assert [member.ask(member.epoch).error_code for _ in range(2)] == [ErrorCode.FENCED_MEMBER_EPOCH] * 2
    member.begin_anew()
    member.beat()
    assert (rebalance.fired, broker.streams_groups.groups()) == (2, {GROUP: "Stable"})
    broker.groups.kick(GROUP, MEMBER)
    assert member.ask(member.epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    frozen = broker.groups.freeze(GROUP)
    wire.send(heartbeat(), 0)
    frozen.wait_fired()
    assert broker.streams_groups.groups() == {GROUP: "Empty"}
    frozen.release()
    assert wire.receive().error_code == 0
    errors = [each.errors for each in broker.requests.find("StreamsGroupHeartbeat", group=GROUP)]
    assert errors[-4:] == [("FENCED_MEMBER_EPOCH",), (), ("UNKNOWN_MEMBER_ID",), ()]


def test_a_fork_begins_with_topology_members_and_tasks_and_diverges(broker: BlockingBroker, member: StreamsMember) -> None:
    with broker.fork() as fork:
        assert fork.streams_groups.describe(GROUP).members == broker.streams_groups.describe(GROUP).members
        assert fork.kafka is not None
        with KafkaWire.connect(fork.kafka) as client:
            copy = StreamsMember(client, epoch=member.epoch, active=member.active)
            copy.beat()
            assert fork.streams_groups.describe(GROUP) == broker.streams_groups.describe(GROUP)
            fork.clock.advance(SESSION_S + 1)
            fork.streams_groups.wait_stable(GROUP, 0)
        member.beat()
        assert broker.streams_groups.groups() == {GROUP: "Stable"}


def test_of_a_group_that_nobody_knows_there_is_nothing(broker: BlockingBroker) -> None:
    assert broker.streams_groups.groups() == {}
    with pytest.raises(RequestError, match=r"^GROUP_ID_NOT_FOUND"):
        broker.streams_groups.describe("nobody")
    with pytest.raises(TimeoutError, match="there is no Streams group nobody, not Stable with 1 after"):
        broker.streams_groups.wait_stable("nobody", timeout_s=0.02)
