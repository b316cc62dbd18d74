"""What the drivers of Python's clients share: members of groups that poll in threads of their own, and transactions.

aiokafka has grown out of kafka-python: they share the names of settings and records below.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from queue import SimpleQueue
from typing import Any, Protocol

import attrs

from tests.clients.driver import DEADLINE_S, EARLIEST, OAUTHBEARER, Access, Message, Producer, Producing, Received


class RebalancingError(Exception):
    """The client commits nothing now: a rebalance is under way, which goes on when it is polled."""


class Consuming(Protocol):
    """A consumer that has subscribed; one thread uses it."""

    def poll(self) -> list[Received]:
        """What there is, after a short wait at most."""

    def commit(self) -> None:
        """Raises RebalancingError."""

    def close(self) -> None: ...


@attrs.define(eq=False)
class PolledMember:
    """A consumer and the thread that polls it. Owner: its driver."""

    _open: Callable[[PolledMember], Consuming]
    _changed: threading.Condition = attrs.field(factory=threading.Condition)
    _held: set[int] = attrs.field(factory=set)
    _revoked: int = 0
    _records: list[Received] = attrs.field(factory=list)
    _failure: Exception | None = None
    _commits: SimpleQueue[Future[None]] = attrs.field(factory=SimpleQueue)
    _leaving: threading.Event = attrs.field(factory=threading.Event)
    _thread: threading.Thread = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def given(self, partitions: Iterable[int]) -> None:
        """The client calls it from the thread that polls."""
        with self._changed:
            self._held.update(partitions)
            self._changed.notify_all()

    def taken(self, partitions: Iterable[int]) -> None:
        with self._changed:
            gone = self._held.intersection(partitions)
            self._held -= gone
            self._revoked += len(gone)
            self._changed.notify_all()

    def assigned(self, count: int) -> tuple[set[int], int]:
        with self._changed:
            self._until(lambda: len(self._held) == count)
            return set(self._held), self._revoked

    def received(self, count: int) -> list[Received]:
        with self._changed:
            self._until(lambda: len(self._records) >= count)
            return list(self._records)

    def commit(self) -> None:
        wanted: Future[None] = Future()
        self._commits.put(wanted)
        wanted.result(DEADLINE_S)

    def leave(self) -> None:
        self._leaving.set()
        self._thread.join()

    def _until(self, reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not reached():
            if self._failure is not None:
                raise self._failure
            left = deadline - time.monotonic()
            assert left > 0, f"not in time; {sorted(self._held)} held, {len(self._records)} records received"
            self._changed.wait(left)

    def _run(self) -> None:
        try:
            consumer = self._open(self)
            try:
                while not self._leaving.is_set():
                    self._step(consumer)
            finally:
                consumer.close()
        except Exception as exc:
            with self._changed:
                self._failure = exc
                self._changed.notify_all()

    def _step(self, consumer: Consuming) -> None:
        found = consumer.poll()
        with self._changed:
            self._records += found
            self._changed.notify_all()
        while not self._commits.empty():
            wanted = self._commits.get()
            try:
                consumer.commit()
                wanted.set_result(None)
            except RebalancingError:
                self._commits.put(wanted)
                return
            except Exception as exc:
                wanted.set_exception(exc)


class TransactionalProducer(Producer, Protocol):
    def send_offsets(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        """Into the transaction that is open."""


@attrs.define(eq=False)
class PythonDriver(ABC):
    bootstrap: str
    access: Access = attrs.field(factory=Access)
    _members: list[PolledMember] = attrs.field(factory=list)

    @abstractmethod
    def producer(self, **wanted: Any) -> AbstractContextManager[TransactionalProducer]: ...

    @abstractmethod
    def read(self, topic: str, count: int, *, starts: dict[int, int], committed: bool = False) -> list[Received]: ...

    @abstractmethod
    def _consuming(self, member: PolledMember, group: str, topic: str, instance: str, assignor: str) -> Consuming: ...

    def member(self, group: str, topic: str, *, instance: str = "", assignor: str = "range") -> PolledMember:
        member = PolledMember(lambda member: self._consuming(member, group, topic, instance, assignor))
        self._members.append(member)
        return member

    def transform(self, group: str, source: str, target: str, count: int, *, transactional_id: str, commit: bool) -> None:
        read = self.read(source, count, starts={0: EARLIEST}, committed=True)
        with self.producer(transactional_id=transactional_id) as producer:
            producer.begin()
            producer.send(target, _copies(read))
            producer.send_offsets(group, source, {0: read[-1].offset + 1})
            producer.end(commit=commit)

    def close(self) -> None:
        for member in self._members:
            member.leave()


def _copies(records: Sequence[Received]) -> list[Message]:
    return [Message(key=each.key, value=each.value) for each in records]


FETCH_MAX_WAIT_MS = 50


def login(access: Access, provider: Callable[[str], Any]) -> dict[str, Any]:
    """The settings of a client that gets in so, but for those of TLS. `provider`: makes the object that a client asks for a
    token."""
    settings: dict[str, Any] = {"security_protocol": access.protocol}
    if access.mechanism == OAUTHBEARER:
        settings |= {"sasl_mechanism": OAUTHBEARER, "sasl_oauth_token_provider": provider(access.token)}
    elif access.mechanism:
        names = {"sasl_plain_username": access.user, "sasl_plain_password": access.password}
        settings |= {"sasl_mechanism": access.mechanism, **names}
    return settings


def producing(asked: Producing) -> dict[str, Any]:
    return {
        "acks": asked.acks if asked.acks == "all" else int(asked.acks),
        "compression_type": None if asked.codec == "none" else asked.codec,
        "transactional_id": asked.transactional_id or None,
    }


def reading(*, committed: bool) -> dict[str, Any]:
    return {
        "enable_auto_commit": False,
        "auto_offset_reset": "none",
        "fetch_max_wait_ms": FETCH_MAX_WAIT_MS,
        "isolation_level": "read_committed" if committed else "read_uncommitted",
    }


def joining(group: str, instance: str, assignor: type) -> dict[str, Any]:
    return {
        **reading(committed=True),
        "auto_offset_reset": "earliest",
        "group_id": group,
        "group_instance_id": instance or None,
        "partition_assignment_strategy": [assignor],
        "heartbeat_interval_ms": 50,
        "session_timeout_ms": 10_000,
    }


def sending(message: Message) -> dict[str, Any]:
    """What `send` of a producer is told beside the topic."""
    return {**attrs.asdict(message), "headers": list(message.headers)}


def received(batches: dict[Any, list[Any]]) -> list[Received]:
    return [
        Received(
            partition=each.partition,
            offset=each.offset,
            timestamp_ms=each.timestamp,
            key=each.key,
            value=each.value,
            headers=tuple(each.headers),
        )
        for records in batches.values()
        for each in records
    ]


@attrs.define(eq=False)
class Assignments:
    """Tells a member what it gets and gives. The clients want it to be a listener of theirs, too."""

    member: PolledMember

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.member.given(each.partition for each in assigned)

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.member.taken(each.partition for each in revoked)
