"""A transaction that no coordinator knows of. An administrator aborts it where it is (`kafka-transactions.sh abort`,
WriteTxnMarkers), or the server does when it is overdue.

By both protocols the server refuses records of a transaction that has not joined the partition. Transactions hang after a power
cut, and in directories without `__transaction_state`. So the records are appended inside the server here.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
import trio
from triolog.protocol.errors import TriologError
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition

from tests.simulation.clients.inhabitant import KafkaInhabitant
from tests.simulation.history import Acknowledged, Ended, GivenUp, Send, Sent, Wrong
from tests.simulation.script import Step
from tests.support.crash_fs import PowerCut
from tests.support.kafka_wire import ask

from .producers import INIT_VERSION

MARKERS_VERSION: Final = 1
NO_COORDINATOR_EPOCH: Final = 0
PATIENCE_S: Final = 5.0
ABORTED_S: Final = 130.0
"""In which the server aborts what hangs."""


@attrs.define(eq=False)
class Hanger(KafkaInhabitant):
    _hung: int = 0

    async def run(self, steps: list[Step]) -> None:
        """It stays until the server has aborted what it has left open. Others may have been calm for long by then."""
        await super().run(steps)
        await trio.sleep(ABORTED_S)

    async def hang(self, topic: str, partition: int, count: int, pause_ms: int, aborts: bool) -> None:
        """Leave records in a transaction, and end it after a pause or leave that to the server. It is never committed."""
        where = TopicPartition(topic, partition)
        answer = await self.kafka.call(ask("InitProducerId", transactional_id=None, transaction_timeout_ms=0), INIT_VERSION)
        if answer is None or answer.error_code:
            return
        self._hung += 1
        name = f"{self.who} transaction {self._hung}"
        records = tuple(Sent(f"{self.who}:{self._hung}.{number}", self.a_timestamp()) for number in range(count))
        self.world.add(Send(**self.now(), partition=where, producer=name, records=records, transaction=name))
        self.world.add(Ended(**self.now(), transaction=name, is_committed=False))
        if await self._produce(where, records, answer.producer_id, answer.producer_epoch) and aborts:
            await trio.sleep(pause_ms / 1000)
            await self._abort(where, answer.producer_id, answer.producer_epoch)

    async def _produce(self, where: TopicPartition, records: tuple[Sent, ...], producer_id: int, epoch: int) -> bool:
        ids = tuple(each.id for each in records)
        data = build_batch(
            [(each.timestamp, None, each.id.encode(), ()) for each in records],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
            is_transactional=True,
        )
        error, base_offset = "no answer", -1
        broker = self.world.server.broker
        with trio.move_on_after(PATIENCE_S):
            try:
                if broker is not None:
                    base_offset, error = (await broker.writer.append(where, data)).base_offset, ""
            except (TriologError, PowerCut) as exc:
                error = repr(exc)
        if error:
            self.world.add(GivenUp(**self.now(), ids=ids, error=error))
        else:
            self.world.add(Acknowledged(**self.now(), partition=where, ids=ids, base_offset=base_offset))
        return not error

    async def _abort(self, where: TopicPartition, producer_id: int, epoch: int) -> None:
        """An answer without an error means that the transaction is open no more."""
        marker = {
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "transaction_result": False,
            "topics": [{"name": where.topic, "partition_indexes": [where.partition]}],
            "coordinator_epoch": NO_COORDINATOR_EPOCH,
        }
        answer = await self.kafka.call(ask("WriteTxnMarkers", markers=[marker]), MARKERS_VERSION)
        if answer is None or answer.markers[0].topics[0].partitions[0].error_code:
            return
        if producer_id in await self._open(where):
            said = f"{where}: the transaction of producer {producer_id} is open after it was aborted"
            self.world.add(Wrong(**self.now(), kind="hanging", detail=said))

    async def _open(self, where: TopicPartition) -> set[int]:
        """The producers that have a transaction open; none: not known."""
        topics: list[dict[str, Any]] = [{"name": where.topic, "partition_indexes": [where.partition]}]
        answer = await self.kafka.call(ask("DescribeProducers", topics=topics), 0)
        if answer is None:
            return set()
        producers = answer.topics[0].partitions[0].active_producers
        return {each.producer_id for each in producers if each.current_txn_start_offset >= 0}
