"""Several nodes, on the wire: who answers what. What real clients make of them is in tests/clients/test_nodes.py."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.messages.transactions import AddOffsetsToTxnRequest, EndTxnRequest, InitProducerIdRequest
from triolog.server.faults.faults import Faults
from triolog.server.faults.requests import RequestLog
from triolog.server.listeners.connections.sockets import Admission
from triolog.server.listeners.kafka.calls import listener_of
from triolog.server.listeners.kafka.fake.node_listeners import nodes_of
from triolog.server.listeners.kafka.fake.nodes import NodeDoor
from triolog.server.listeners.kafka.fake.watched import Watch
from triolog.server.settings.broker_config import Address

from tests.support.brokers import running_broker
from tests.support.kafka_server import LOCALHOST
from tests.support.kafka_stream import KafkaStream, connected
from tests.support.logs import START_MS

GROUP, ID = "group", "transactional-id"


@pytest.fixture
async def first(fast_path: Path) -> AsyncIterator[KafkaStream]:
    """A connection to node 1, which coordinates ID; node 2 coordinates GROUP."""
    cluster = nodes_of(1, [Address("127.0.0.1", 9091), Address("127.0.0.1", 9092)])
    cluster.move_coordinator(ID, 1)
    cluster.move_coordinator(GROUP, 2)
    async with running_broker(fast_path) as broker, trio.open_nursery() as nursery:
        watch = Watch(Faults(), RequestLog(), lambda: START_MS)
        listener = listener_of(NodeDoor(broker, number=1, cluster=cluster), LOCALHOST, Admission.of(broker.config), watch)
        async with connected(await nursery.start(listener.run)) as client:
            yield client
        nursery.cancel_scope.cancel()


async def test_a_transaction_asks_its_own_coordinator_also_about_a_group_that_another_node_coordinates(
    first: KafkaStream,
) -> None:
    begun = await first.call(InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000), 4)
    whose = {"transactional_id": ID, "producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}
    assert (await first.call(AddOffsetsToTxnRequest(**whose, group_id=GROUP), 3)).error_code == 0
    assert (await first.call(EndTxnRequest(**whose, committed=False), 3)).error_code == 0


async def test_who_asks_the_wrong_coordinator_is_told_so(first: KafkaStream) -> None:
    other = InitProducerIdRequest(transactional_id=GROUP, transaction_timeout_ms=60_000)
    assert (await first.call(other, 4)).error_code == ErrorCode.NOT_COORDINATOR
