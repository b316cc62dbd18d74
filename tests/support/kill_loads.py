"""What a server is busy with when it is killed. A load outlives servers: with the next one it goes on where it was.

Each load is one thread with one connection per server, and one request in flight: what was not answered is asked for again
as it was. Choices come from its own seeded generator, so they do not depend on what the other loads do.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import attrs
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.native import messages
from triolog.protocol.native.connection import LastError, Response
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import CompressionType, TopicPartition

from tests.simulation.history import CommitsOffset, Ended, OffsetCommitted, OffsetFetched, Trimmed, Trims
from tests.support.kill_history import KillHistory, Numbered, read_stored_log
from tests.support.server_process import DEADLINE_S, Address
from tests.support.wire_client import WireClient

OLD_MS: Final = 1_600_000_000_000
MAX_BATCHES: Final = 5
"""Of one request: a producer's last five are known again (Kafka: NUM_BATCHES_TO_RETAIN)."""

ENOUGH_BYTES: Final = 2000
"""Of one request: with one more batch it is still below the smallest segment.bytes."""


class ServerGoneError(Exception):
    """The connection has ended, or the server stops: what became of the last request is not known."""


@attrs.define(eq=False)
class Progress:
    """Acknowledgements of all loads on one server."""

    acknowledgements: int = 0
    has_ended: bool = False
    _changed: threading.Condition = attrs.field(factory=threading.Condition)

    def count(self) -> None:
        with self._changed:
            self.acknowledgements += 1
            self._changed.notify_all()

    def end(self) -> None:
        """A load has ended, which none does before the server."""
        with self._changed:
            self.has_ended = True
            self._changed.notify_all()

    def wait_until(self, is_time: Callable[[int], bool]) -> None:
        """Until an acknowledgement at which `is_time`, which gets their number, or until a load ends."""
        with self._changed:
            reached = self._changed.wait_for(lambda: self.has_ended or is_time(self.acknowledgements), DEADLINE_S)
        assert reached, f"{self.acknowledgements} acknowledgements within {DEADLINE_S} s, and not the ones waited for"


@attrs.define(eq=False)
class Caller:
    """One connection of a load. Every answer counts as progress."""

    client: WireClient
    progress: Progress

    def ask(self, message: messages.RequestMessage) -> Any:
        """Raises the RequestError that the answer is, ServerGoneError when none comes."""
        try:
            self.client.send(message)
            event = self.client.receive()
        except (ConnectionError, EOFError) as exc:
            raise ServerGoneError from exc
        if isinstance(event, LastError) and "stopping" not in event.error.message:
            raise event.error
        if not isinstance(event, Response):
            raise ServerGoneError
        if event.error is not None:
            raise _gone_or(event.error)
        assert event.body is not None
        self.progress.count()
        return messages.decode_response(event.api, event.version, event.body)

    def ask_one(self, message: messages.RequestMessage) -> Any:
        """Ask about one partition and take its entry; raises its error too."""
        (entry,) = self.ask(message).partitions
        if entry.error is not None:
            raise _gone_or(entry.error)
        return entry

    def retried(self, call: Callable[[], Any]) -> Any:
        """Call again while a transaction is being ended on the server's side."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                return call()
            except RequestError as exc:
                if exc.code is not ErrorCode.CONCURRENT_TRANSACTIONS or time.monotonic() > deadline:
                    raise


def _gone_or(error: RequestError) -> Exception:
    return ServerGoneError() if "stopping" in error.message else error


@attrs.define(eq=False)
class Load:
    """Owner: the thread that it runs in, or between two servers the test."""

    name: str
    rng: random.Random
    history: KillHistory

    def work(self, caller: Caller) -> None:
        """Work until ServerGoneError."""
        while True:
            self.step(caller)

    def step(self, caller: Caller) -> None:
        raise NotImplementedError

    def settle(self, caller: Caller) -> None:
        """Let nothing be undecided."""

    def look(self, client: WireClient) -> None:
        """Note what is there of this load beside its records; nothing is undecided."""


class LoadThread(threading.Thread):
    """Runs a load on a server until that is gone."""

    def __init__(self, load: Load, address: Address, progress: Progress) -> None:
        super().__init__(name=load.name)
        self.load = load
        self.address = address
        self.progress = progress
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with WireClient.connect(self.address, say_hello=False) as client:
                caller = Caller(client, self.progress)
                caller.ask(messages.HelloRequest(self.load.name))
                self.load.work(caller)
        except (ServerGoneError, ConnectionError, EOFError):
            pass
        except BaseException as exc:
            exc.add_note(f"in load {self.load.name}")
            self.error = exc
        finally:
            self.progress.end()


@attrs.define(eq=False)
class ProducerLoad(Load):
    """An idempotent producer of one partition. `make` makes the next record of a number."""

    where: TopicPartition
    make: Callable[[random.Random, int], Numbered]
    max_records: int
    codec: CompressionType = CompressionType.NONE
    _identity: messages.InitProducerResponse | None = None
    _sequence: int = 0
    _told_offset: int = -1
    _unanswered: tuple[bytes, list[Numbered]] | None = None

    @property
    def noted(self) -> TopicPartition:
        """As what the history knows the partition."""
        return self.where

    def step(self, caller: Caller) -> None:
        if self._identity is None:
            self._identity = caller.ask(messages.InitProducerRequest())
        if self._unanswered is None:
            self._unanswered = self._build(self._identity)
        self.settle(caller)

    def settle(self, caller: Caller) -> None:
        """Produce what was not answered, once more; it is there once."""
        if self._unanswered is not None:
            batches, records = self._unanswered
            request = messages.ProduceRequest((messages.ProducePartition(*self.where, batches),))
            base_offset = caller.ask_one(request).base_offset
            self.history.acknowledge(self.noted, base_offset, records)
            self._told_offset = base_offset + len(records) - 1
            self._unanswered = None

    def _build(self, identity: messages.InitProducerResponse) -> tuple[bytes, list[Numbered]]:
        records: list[Numbered] = []
        batches = bytearray()
        for _ in range(self.rng.choice((1, 1, 1, 2, MAX_BATCHES))):
            count = self.rng.randint(1, self.max_records)
            batch = [self.make(self.rng, self._sequence + number) for number in range(count)]
            batches += build_batch(
                [record.to_build() for record in batch],
                compression_type=self.codec,
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
                base_sequence=self._sequence,
            )
            self._sequence += count
            records += batch
            if len(batches) > ENOUGH_BYTES:
                break
        self.history.send(self.noted, records)
        return bytes(batches), records


@attrs.define(eq=False)
class TrimmingLoad(ProducerLoad):
    """A producer that now and then has records deleted, up to anywhere below the last offset that it was told."""

    share: float = 0.05
    """Of the steps that end with a deletion."""
    _deleted_before: int = 0

    def step(self, caller: Caller) -> None:
        super().step(caller)
        if self.rng.random() < self.share:
            before_offset = self.rng.randint(self._deleted_before, self._told_offset)
            self.history.add(Trims, self.name, partition=self.noted, before_offset=before_offset)
            request = messages.DeleteRecordsRequest((messages.DeleteRecordsPartition(*self.where, before_offset),))
            self._deleted_before = caller.ask_one(request).log_start_offset
            assert self._deleted_before <= self._told_offset + 1, f"records were deleted up to {self._deleted_before}"
            self.history.add(Trimmed, self.name, partition=self.noted, before_offset=self._deleted_before)


@attrs.define(eq=False)
class CommitterLoad(Load):
    """A group that commits 1, 2, 3, ... for a partition."""

    where: TopicPartition
    _sent: int = 0
    _is_open: bool = False
    """Whether the last one was not answered."""

    def step(self, caller: Caller) -> None:
        self._sent, self._is_open = self._sent + 1, True
        said = {"group": self.name, "partition": self.where, "offset": self._sent}
        self.history.add(CommitsOffset, self.name, **said)
        partition = messages.CommittedPartition(*self.where, self._sent, f"note {self._sent}")
        caller.ask_one(messages.CommitOffsetsRequest(self.name, (partition,)))
        self.history.add(OffsetCommitted, self.name, **said, is_kept=True)
        self._is_open = False

    def look(self, client: WireClient) -> None:
        """A commit without an answer is there now, or never comes."""
        offset, note = committed(client, self.name, self.where)
        said = {"group": self.name, "partition": self.where}
        self.history.add(OffsetFetched, self.name, **said, offset=offset)
        assert offset == -1 or note == f"note {offset}"
        if self._is_open:
            is_kept = True if offset == self._sent else None
            self.history.add(OffsetCommitted, self.name, **said, offset=self._sent, is_kept=is_kept)
            self._is_open = False


def committed(client: WireClient, group: str, where: TopicPartition) -> tuple[int, str | None]:
    """A group's offset, with its note; an offset that a transaction may still change is an error."""
    request = messages.FetchOffsetsRequest(group, (messages.Partition(*where),), require_stable=True)
    (entry,) = client.call(request).partitions
    if entry.error is not None:
        raise entry.error
    return entry.offset, entry.metadata


STEPS: Final = 8
"""Of a life, about: a kill comes soon after the topic was created again."""


@attrs.define(eq=False)
class RecreatingLoad(TrimmingLoad):
    """A producer that now and then has its topic deleted and created again. The history knows each life by a name of its own. A
    change that was not answered is asked for again."""

    config: dict[str, str] = attrs.field(factory=dict)
    _life: int = 0
    _wants: bool | None = None
    """Whether the topic is to be there, where that was asked for and not answered; None: it is there."""
    _may_have_committed: bool = False
    """In this life, without an answer."""
    _named: Any = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._named, self._wants = self.make, True

    @property
    def noted(self) -> TopicPartition:
        return TopicPartition(f"{self.where.topic} {self._life}", self.where.partition)

    def step(self, caller: Caller) -> None:
        self.settle(caller)
        if self.rng.random() < 1 / STEPS:
            self._wants = False
            self.settle(caller)
        else:
            super().step(caller)

    def settle(self, caller: Caller) -> None:
        """Let the topic be gone, then there, if that was not answered; else produce what was not."""
        if self._wants is False:
            self._change(caller, messages.DeleteTopicsRequest((self.where.topic,)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            self.history.forget(self.noted)
            self._life, self._wants = self._life + 1, True
        if self._wants:
            topic = messages.NewTopic(self.where.topic, 1, self.config)
            self._change(caller, messages.CreateTopicsRequest((topic,)), ErrorCode.TOPIC_ALREADY_EXISTS)
            self._begin_life(caller)
        ProducerLoad.settle(self, caller)

    def _change(self, caller: Caller, request: messages.RequestMessage, done_before: ErrorCode) -> None:
        (entry,) = caller.ask(request).topics
        if entry.error is not None and entry.error.code is not done_before:
            raise entry.error

    def _begin_life(self, caller: Caller) -> None:
        self.make = partial(self._named, f"{self.name}-{self._life}")
        self._identity, self._sequence, self._told_offset, self._unanswered, self._deleted_before = None, 0, -1, None, 0
        found = caller.ask_one(messages.FetchOffsetsRequest(self.name, (messages.Partition(*self.where),)))
        assert found.offset == -1 or self._may_have_committed, f"{self.noted} has inherited offset {found.offset}"
        self._may_have_committed = True
        partition = messages.CommittedPartition(*self.where, 1, "")
        caller.ask_one(messages.CommitOffsetsRequest(self.name, (partition,)))
        self._wants, self._may_have_committed = None, False

    def read(self, client: WireClient) -> None:
        """Note what is in the topic, if it is there for sure."""
        if self._wants is None:
            try:
                log = read_stored_log(client, *self.where)
            except RequestError as exc:
                raise AssertionError(f"{self.noted} is gone") from exc
            self.history.read(self.noted, log)
            log.check_dense()


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
