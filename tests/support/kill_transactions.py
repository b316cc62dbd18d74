"""A transactional producer as a load, and what it is owed: a transaction is there as a whole or not at all, its offsets too."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import attrs
from triolog.protocol.native import messages
from triolog.protocol.records.builder import build_batch

from tests.support.kill_loads import OLD_MS, Caller, Load, committed
from tests.support.kill_models import Numbered, TransactedModel
from tests.support.wire_client import WireClient


@attrs.define(eq=False)
class Transaction:
    """`outcome`: whether it was committed; None as long as nobody knows."""

    number: int
    records: list[tuple[int, Numbered]] = attrs.field(factory=list)
    """With their partition."""
    has_offsets: bool = False
    outcome: bool | None = None
    is_commit_asked: bool = False


@attrs.define(eq=False)
class TransactionLoad(Load):
    """A transactional producer over the partitions of a topic, which commits offsets of its group in its transactions."""

    topic: str
    models: Sequence[TransactedModel]
    input_topic: str
    transactions: list[Transaction] = attrs.field(factory=list)
    _identity: messages.InitProducerResponse | None = None
    _sequences: dict[int, int] = attrs.field(factory=dict)
    _steps: deque[Callable[[Caller], None]] = attrs.field(factory=deque)
    """Of the open transaction; the first may have been taken by the server already."""
    _number: int = 0

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
        transaction = Transaction(len(self.transactions))
        self.transactions.append(transaction)
        for _ in range(self.rng.randint(1, 4)):
            partition = self.rng.randrange(len(self.models))
            records = [self._record() for _ in range(self.rng.randint(1, 5))]
            transaction.records += [(partition, record) for record in records]
            self._steps.append(partial(self._produce, partition=partition, records=records))
        if self.rng.random() < 0.6:
            transaction.has_offsets = True
            self._steps.insert(self.rng.randint(0, len(self._steps)), self._send_offsets)
        self._steps.append(partial(self._end, commit=self.rng.random() < 0.7))

    def _record(self) -> Numbered:
        number = self._number
        self._number += 1
        return Numbered(self.name, number, OLD_MS + number, b"%s:%d" % (self.name.encode(), number), self.rng.randbytes(20))

    def _produce(self, caller: Caller, partition: int, records: list[Numbered]) -> None:
        assert self._identity is not None
        model, sequence = self.models[partition], self._sequences.get(partition, 0)
        batch = build_batch(
            [record.to_build() for record in records],
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        model.send(records)
        request = messages.ProduceRequest(
            (messages.ProducePartition(self.topic, partition, batch),), transactional_id=self.name
        )
        model.acknowledge(caller.retried(lambda: caller.ask_one(request)).base_offset, records)
        self._sequences[partition] = sequence + len(records)

    def _send_offsets(self, caller: Caller) -> None:
        offset = self.transactions[-1].number + 1
        partitions = (messages.CommittedPartition(self.input_topic, 0, offset, None),)
        request = messages.CommitOffsetsRequest(self.name, partitions, self._producer)
        caller.retried(lambda: caller.ask_one(request))

    def _end(self, caller: Caller, *, commit: bool) -> None:
        transaction = self.transactions[-1]
        transaction.is_commit_asked = commit
        if not commit:
            self._give_up(transaction)
        caller.retried(lambda: caller.ask(messages.EndTransactionRequest(self._producer, commit)))
        self._decide(transaction, is_committed=commit)

    @property
    def _producer(self) -> messages.TransactionProducer:
        assert self._identity is not None
        return messages.TransactionProducer(self.name, self._identity.producer_id, self._identity.producer_epoch)

    def _decide(self, transaction: Transaction, *, is_committed: bool) -> None:
        transaction.outcome = is_committed
        if not is_committed:
            self._give_up(transaction)

    def _give_up(self, transaction: Transaction) -> None:
        for partition, record in transaction.records:
            self.models[partition].aborted.add(record.id)

    def check_visible(self, visible: set[bytes]) -> None:
        """Of each transaction a committed reader sees all records or none; all when its commit was answered."""
        for transaction in self.transactions:
            ids = {record.id for _, record in transaction.records}
            seen = ids & visible
            assert seen in (ids, set()), f"{self.name}: of transaction {transaction.number} {seen} of {ids} are visible"
            if transaction.outcome is None:
                self._decide(transaction, is_committed=bool(seen))
            expected = ids if transaction.outcome else set()
            assert seen == expected, f"{self.name}: {transaction} has {len(seen)} visible records of {len(ids)}"

    def check(self, client: WireClient) -> None:
        """The group's offset is that of the last committed transaction which had offsets: they share one fate."""
        expected = [
            transaction.number + 1 for transaction in self.transactions if transaction.outcome and transaction.has_offsets
        ]
        offset, _ = committed(client, self.name, self.input_topic)
        assert offset == max(expected, default=-1), f"{self.name}: {offset} is committed, not {expected[-1:]}"
