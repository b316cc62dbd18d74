"""`broker.share_groups`, with a share consumer of librdkafka: locks that follow the test's clock. A share group has done a
topic when this is stored, so that it stays done; aborted records are not waited for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import triolog
from confluent_kafka import AcknowledgeType, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from triolog.protocol.errors import RequestError
from triolog.protocol.types import TopicPartition
from triolog.server.config.broker_config import Address
from triolog.server.embedded import MEMORY, BlockingBroker

COMMITTED = {"share.auto.offset.reset": "earliest", "share.isolation.level": "read_committed"}


def abort(broker: BlockingBroker, batches: int, size: int) -> None:
    transaction = broker.transaction("till")
    transaction.begin()
    for _ in range(batches):
        transaction.append(TOPIC, [b"aborted"] * size)
    transaction.abort()


@pytest.mark.parametrize("plain", [5, 0])
def test_aborted_records_are_done_and_stay_done_when_the_member_leaves(plain: int) -> None:
    with triolog.blocking.open(MEMORY, kafka=Address("127.0.0.1", 0), topics=[TOPIC]) as broker:
        for number in range(plain):
            broker.append(TOPIC, [b"%d" % number])
        abort(broker, 7, 7)
        broker.alter_group_config(GROUP, COMMITTED)
        consumer = ShareConsumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": GROUP, "log_level": 0})
        try:
            consumer.subscribe([TOPIC])
            given = 0
            while given < plain or not broker.share_groups.start_offsets(GROUP):
                given += len(consumer.poll(0.2))
            consumer.poll(0.2)  # acknowledges
            assert given == plain
            broker.share_groups.wait_done(GROUP, TOPIC, timeout_s=PATIENCE_S)
            broker.groups.kick(GROUP, broker.groups.members(GROUP)[0].member_id)
            broker.share_groups.wait_done(GROUP, TOPIC, timeout_s=PATIENCE_S)
            broker.restart()
            broker.share_groups.wait_done(GROUP, TOPIC, timeout_s=PATIENCE_S)
        finally:
            consumer.close()


TOPIC, GROUP = "orders", "baristas"
FIRST = TopicPartition(TOPIC, 0)
LOCK_S = 30
SESSION_S = 45
PATIENCE_S = 60.0


@pytest.fixture
def broker() -> Iterator[BlockingBroker]:
    with triolog.blocking.open(MEMORY, kafka=Address("127.0.0.1", 0), topics=[TOPIC]) as broker:
        yield broker


@contextmanager
def consuming(broker: BlockingBroker, count: int) -> Iterator[ShareConsumer]:
    """A member that was given so many records."""
    servers = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
    earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    group = ConfigResource(ResourceType.GROUP, GROUP, incremental_configs=[earliest])
    admin = AdminClient(servers)
    admin.incremental_alter_configs([group])[group].result(PATIENCE_S)
    consumer = ShareConsumer({**servers, "group.id": GROUP, "share.acknowledgement.mode": "explicit"})
    try:
        consumer.subscribe([TOPIC])
        given = 0
        while given < count:
            given += len(consumer.poll(PATIENCE_S))
        yield consumer
    finally:
        consumer.close()


def say(consumer: ShareConsumer, offsets: range, what: AcknowledgeType) -> None:
    for offset in offsets:
        consumer.acknowledge_offset(TOPIC, 0, offset, what)
    assert set(consumer.commit_sync(PATIENCE_S).values()) == {None}


def test_locks_are_seen_with_their_member_and_end_when_the_clock_is_moved(broker: BlockingBroker) -> None:
    broker.append(TOPIC, [b"espresso", b"ristretto"])
    with consuming(broker, 2):
        [lock] = broker.share_groups.locks(GROUP)
        assert lock[:3] == (FIRST, 0, 1)
        assert lock.delivery_count == 1
        assert broker.share_groups.assignments(GROUP) == {lock.member_id: (FIRST,)}
        assert broker.share_groups.groups() == {GROUP: "Stable"}
        assert 0 < lock.ends_ms - broker.clock.now_ms() <= LOCK_S * 1000
        broker.clock.advance(LOCK_S - 10)
        [later] = broker.share_groups.locks(GROUP)
        assert abs(later.ends_ms - lock.ends_ms) < 5_000, "the time that it ends stays"
        broker.clock.advance(11)
        deadline = time.monotonic() + PATIENCE_S
        while any(each.delivery_count == 1 for each in broker.share_groups.locks(GROUP)):
            assert time.monotonic() < deadline
        assert all(each.delivery_count == 2 for each in broker.share_groups.locks(GROUP))
    assert broker.share_groups.locks(GROUP) == []


def test_what_has_become_of_records_is_seen_and_waited_for(broker: BlockingBroker) -> None:
    broker.append(TOPIC, [b"%d" % number for number in range(6)])
    with consuming(broker, 6) as consumer:
        assert broker.share_groups.delivery_counts(GROUP, TOPIC) == dict.fromkeys(range(6), 1)
        say(consumer, range(2, 4), AcknowledgeType.ACCEPT)
        say(consumer, range(5, 6), AcknowledgeType.REJECT)
        assert broker.share_groups.in_state(GROUP, TOPIC, "acknowledged") == [2, 3]
        assert broker.share_groups.in_state(GROUP, TOPIC, "archived") == [5]
        assert broker.share_groups.in_state(GROUP, TOPIC, "acquired") == [0, 1, 4]
        assert (broker.share_groups.start_offsets(GROUP), broker.share_groups.lag(GROUP)) == ({FIRST: 0}, 3)
        with pytest.raises(TimeoutError, match=r"has not done \{0: 3\}"):
            broker.share_groups.wait_done(GROUP, TOPIC, timeout_s=0.05)
        say(consumer, range(2), AcknowledgeType.ACCEPT)
        say(consumer, range(4, 5), AcknowledgeType.ACCEPT)
        broker.share_groups.wait_done(GROUP, TOPIC)
        assert broker.share_groups.start_offsets(GROUP, TOPIC) == {FIRST: 6}


def test_of_a_group_that_nobody_knows_there_is_nothing(broker: BlockingBroker) -> None:
    assert broker.share_groups.partitions("nobody") == []
    with pytest.raises(RequestError, match=r"^GROUP_ID_NOT_FOUND"):
        broker.share_groups.assignments("nobody")
