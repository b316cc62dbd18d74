"""A transactional producer as a load, and what it is owed: a transaction is there as a whole or not at all, its offsets too."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import attrs
from triolog.protocol.native import messages
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition

from tests.simulation.history import CommitsOffset, Ended, OffsetFetched
from tests.support.kill_history import Numbered
from tests.support.kill_loads import OLD_MS, Caller, Load, committed
from tests.support.wire_client import WireClient


@attrs.define(eq=False)
class Transaction:
    """`outcome`: whether it was committed; None as long as nobody knows."""

    number: int
    name: str
    ids: set[str] = attrs.field(factory=set)
    outcome: bool | None = None
    is_commit_asked: bool = False


@attrs.define(eq=False)
class TransactionLoad(Load):
    """A transactional producer over the partitions of a topic, which commits offsets of its group in its transactions."""

    partitions: Sequence[TopicPartition]
    source: TopicPartition
    """Whose offsets are committed."""
    transactions: list[Transaction] = attrs.field(factory=list)
    _identity: messages.InitProducerResponse | None = None
    _sequences: dict[TopicPartition, int] = attrs.field(factory=dict)
    _steps: deque[Callable[[Caller], None]] = attrs.field(factory=deque)
    """Of the open transaction; the first may have been taken by the server already."""
    _number: int = 0
    _sent: set[str] = attrs.field(factory=set)
    """First record of each batch that was noted."""

    def step(self, caller: Caller) -> None:
        if self._identity is None:
            self._initialize(caller)
        if not self._steps:
            self._plan()
        self._steps[0](caller)
        self._steps.popleft()

    def settle(self, caller: Caller) -> None:
        """Come back as another instance; or hear of what was not answered, then finish as planned or abort."""
        way = self.rng.choice(("finish", "abort", "fence"))
        if way == "fence" and self._identity is not None:
            self._initialize(caller)
        elif self._steps:
            self.step(caller)
            if way == "abort" and self._steps and not self.transactions[-1].is_commit_asked:
                self._steps.clear()
                self._steps.append(partial(self._end, commit=False))
            while self._steps:
                self.step(caller)

    def _initialize(self, caller: Caller) -> None:
        """What is open is aborted, and what was being committed may have been."""
        self._identity = caller.retried(lambda: caller.ask(messages.InitProducerRequest(self.name)))
        self._sequences.clear()
        self._steps.clear()
        if self.transactions and self.transactions[-1].outcome is None and not self.transactions[-1].is_commit_asked:
            self._decide(self.transactions[-1], is_committed=False)

    def _plan(self) -> None:
        transaction = Transaction(len(self.transactions), f"{self.name} transaction {len(self.transactions)}")
        self.transactions.append(transaction)
        for _ in range(self.rng.randint(1, 4)):
            where = self.rng.choice(self.partitions)
            records = [self._record() for _ in range(self.rng.randint(1, 5))]
            transaction.ids.update(record.id for record in records)
            self._steps.append(partial(self._produce, where=where, records=records))
        if self.rng.random() < 0.6:
            self._steps.insert(self.rng.randint(0, len(self._steps)), self._send_offsets)
        self._steps.append(partial(self._end, commit=self.rng.random() < 0.7))

    def _record(self) -> Numbered:
        number = self._number
        self._number += 1
        return Numbered(self.name, number, OLD_MS + number, b"%s:%d" % (self.name.encode(), number), self.rng.randbytes(20))

    def _produce(self, caller: Caller, where: TopicPartition, records: list[Numbered]) -> None:
        assert self._identity is not None
        sequence = self._sequences.get(where, 0)
        batch = build_batch(
            [record.to_build() for record in records],
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        if records[0].id not in self._sent:
            self._sent.add(records[0].id)
            self.history.send(where, records, transaction=self.transactions[-1].name)
        request = messages.ProduceRequest((messages.ProducePartition(*where, batch),), transactional_id=self.name)
        self.history.acknowledge(where, caller.retried(lambda: caller.ask_one(request)).base_offset, records)
        self._sequences[where] = sequence + len(records)

    def _send_offsets(self, caller: Caller) -> None:
        offset, name = self.transactions[-1].number + 1, self.transactions[-1].name
        said = {"group": self.name, "partition": self.source, "offset": offset, "transaction": name}
        self.history.add(CommitsOffset, self.name, **said)
        partitions = (messages.CommittedPartition(*self.source, offset, None),)
        request = messages.CommitOffsetsRequest(self.name, partitions, self._producer)
        caller.retried(lambda: caller.ask_one(request))

    def _end(self, caller: Caller, *, commit: bool) -> None:
        transaction = self.transactions[-1]
        transaction.is_commit_asked = commit
        caller.retried(lambda: caller.ask(messages.EndTransactionRequest(self._producer, commit)))
        self._decide(transaction, is_committed=commit)

    @property
    def _producer(self) -> messages.TransactionProducer:
        assert self._identity is not None
        return messages.TransactionProducer(self.name, self._identity.producer_id, self._identity.producer_epoch)

    def _decide(self, transaction: Transaction, *, is_committed: bool) -> None:
        transaction.outcome = is_committed
        self.history.add(Ended, self.name, transaction=transaction.name, is_committed=is_committed)

    def see(self, visible: set[str]) -> None:
        """Committed readers tell whether a commit without an answer has happened: the offsets share its fate."""
        for transaction in self.transactions:
            if transaction.outcome is None:
                self._decide(transaction, is_committed=bool(transaction.ids & visible))

    def look(self, client: WireClient) -> None:
        offset, _ = committed(client, self.name, self.source)
        self.history.add(OffsetFetched, self.name, group=self.name, partition=self.source, offset=offset)
