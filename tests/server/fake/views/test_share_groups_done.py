"""A share group has done a topic when this is stored, so that it stays done; aborted records are not waited for."""

from __future__ import annotations

import pytest
from confluent_kafka import ShareConsumer
from triolog.server.config.broker_config import Address
from triolog.server.embedded import MEMORY, BlockingBroker

TOPIC, GROUP = "orders", "baristas"
PATIENCE_S = 60.0
COMMITTED = {"share.auto.offset.reset": "earliest", "share.isolation.level": "read_committed"}


def abort(broker: BlockingBroker, batches: int, size: int) -> None:
    transaction = broker.transaction("till")
    transaction.begin()
    for _ in range(batches):
        transaction.append(TOPIC, [b"aborted"] * size)
    transaction.abort()


@pytest.mark.parametrize("plain", [5, 0])
def test_aborted_records_are_done_and_stay_done_when_the_member_leaves(plain: int) -> None:
    with BlockingBroker(MEMORY, native=None, kafka=Address("127.0.0.1", 0), topics=[TOPIC]) as broker:
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
