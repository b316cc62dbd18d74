"""Stores batches of records in triolog: one append for each topic and partition, or one transaction.

A batch with a record that the server refuses is divided until that record is alone. It then goes to the dead-letter topic.
Subclasses say what else a transaction stores: packet ids of a broker, or positions in files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

from ...protocol.errors import ErrorCode, RequestError, TopicAlreadyExistsError, TriologError
from ...protocol.native.messages import MetadataRequest, MetadataResponse
from ..client.blocking.client import BlockingClient
from ..client.blocking.producer import BlockingProducer
from ..client.blocking.transaction import BlockingTransaction
from ..client.config import ClientConfig, ProducerConfig
from ..client.errors import ClosedError
from ..client.exchange import expect
from ..client.login import LoginConfig
from ..client.procedures import topics
from ..client.tls import TlsConfig
from ..forward.errors import LinkStoppedError, TryAgainError
from ..forward.pacing import Failure
from .mapping import ERROR_HEADER, Entry

CONNECT_TIMEOUT_MS: Final = 10_000
DELIVERY_TIMEOUT_MS: Final = 30_000
BLOCK_MS: Final = 10_000
"""For the partitions of a topic, and for calls of a transaction."""
LINGER_MS: Final = 1000
"""A flush ends it."""
TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_RECORD})
"""The last one also where the headers are too many."""
ABOUT_THE_RECORD: Final = frozenset(
    {
        *TOO_LARGE,
        *(ErrorCode.INVALID_TIMESTAMP, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    }
)
"""Any other error is about the server, and the link waits."""
FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
LOGIN: Final = frozenset({ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED})


class RecordStore:
    """Owner: the thread of one link. `link` has `name`, `dead_letter_topic`, `create_topics` and `max_topics`."""

    def __init__(self, link: Any, server: tuple[str, int], tls: TlsConfig | None, login: LoginConfig | None) -> None:
        self._link = link
        self._name = f"triolog-ingest.{link.name}"
        """Of the client, the transactional id and the group."""
        config = ClientConfig(client_id=self._name, connect_timeout_ms=CONNECT_TIMEOUT_MS, tls=tls, login=login)
        self._client = BlockingClient(server, config)
        self._producer: BlockingProducer | None = None
        self._topics: set[str] = set()

    @property
    def is_transactional(self) -> bool:
        """Return whether a batch is a transaction."""
        raise NotImplementedError

    def _restore(self) -> None:
        """Read the state that the last transaction has stored. Raises RequestError, ValueError."""
        raise NotImplementedError

    def _also_send(self, transaction: BlockingTransaction, entries: Sequence[Entry], state: Iterable[Any]) -> None:
        """Store more in the transaction of these records. Raises RequestError."""
        raise NotImplementedError

    def _committed(self) -> None:
        """The transaction is stored."""

    def _dead_letter(self, entry: Entry, reason: str, most_bytes: int | None = None) -> Entry:
        """Return the record that goes to the dead-letter topic in place of another one, with at most `most_bytes` of its value
        and the headers that ingest itself adds."""
        raise NotImplementedError

    def open(self) -> None:
        """Connect, and read the state that the last transaction has stored. Raises TryAgainError, LinkStoppedError."""
        try:
            self._ready(self._link.dead_letter_topic)
            self._producer = BlockingProducer(
                self._client,
                ProducerConfig(
                    transactional_id=self._name if self.is_transactional else None,
                    linger_ms=LINGER_MS,
                    delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
                    max_block_ms=BLOCK_MS,
                ),
            )
            if self.is_transactional:
                self._restore()
        except (RequestError, ClosedError) as exc:
            raise self._failure(exc) from exc

    def store(self, entries: Sequence[Entry], state: Iterable[Any] = ()) -> list[Entry]:
        """Store records, and changes of the state in the same transaction, or in the first one if the records are divided.
        Return the records as they were stored. Raises TryAgainError, LinkStoppedError."""
        try:
            refused = self._append(entries, state)
        except (RequestError, ClosedError) as exc:
            raise self._failure(exc) from exc
        if not refused:
            return list(entries)
        if len(entries) > 1:
            stored = [entry for entry in entries if not any(entry is each for each, _ in refused)]
            rest = [entry for entry, _ in refused]
            middle = len(rest) // 2 or 1
            stored += self.store(rest[:middle], state)  # later positions of the same files come with the rest
            stored += self.store(rest[middle:]) if rest[middle:] else []
            return stored
        [(entry, error)] = refused
        if not entry.is_dead_letter:
            return self.store([self._dead_letter(entry, str(error))], state)
        reason = next(value for name, value in reversed(entry.headers) if name == ERROR_HEADER).decode()
        shorter = self._dead_letter(entry, reason, len(entry.value) // 2)
        if error.code not in TOO_LARGE or (shorter.value, shorter.headers) == (entry.value, entry.headers):
            raise TryAgainError(f"the dead-letter topic {entry.topic} refuses a record: {error.message}", Failure.REFUSED)
        return self.store([shorter], state)

    def close(self) -> None:
        try:
            if self._producer is not None:
                self._producer.close(flush=False)
        finally:
            self._client.close()

    # ---- inside --------------------------------------------------------------------------------------------------------

    def _append(self, entries: Sequence[Entry], state: Iterable[Any]) -> list[tuple[Entry, RequestError]]:
        """Return the refused ones, and why; in a transaction those are all or none."""
        assert self._producer is not None, "the store is not open"
        if not self.is_transactional:
            return self._send(entries)
        transaction = self._producer.transaction()
        transaction.begin()
        self._also_send(transaction, entries, state)  # first: a transaction in which all is refused cannot be aborted
        refused = self._send(entries)
        if not refused:
            transaction.commit()
            self._committed()
            return []
        transaction.abort()
        reasons = {id(entry): error for entry, error in refused}
        first = refused[0][1]
        return [(entry, reasons.get(id(entry), first)) for entry in entries]

    def _send(self, entries: Sequence[Entry]) -> list[tuple[Entry, RequestError]]:
        assert self._producer is not None
        sent, refused = [], []
        for entry in entries:
            try:
                self._ready(entry.topic)
                future = self._producer.send(
                    entry.topic, entry.value, key=entry.key, timestamp_ms=entry.timestamp_ms, headers=entry.headers
                )
            except RequestError as exc:
                refused.append((entry, self._about_the_record(exc)))
            else:
                sent.append((entry, future))
        self._producer.flush()
        for entry, future in sent:
            try:
                future.value()
            except RequestError as exc:
                refused.append((entry, self._about_the_record(exc)))
        return refused

    def _about_the_record(self, error: RequestError) -> RequestError:
        """Raises the error if it is not about the record."""
        if error.code in ABOUT_THE_RECORD:
            return error
        raise error

    def _ready(self, topic: str) -> None:
        """Check a topic before its first record, and create it if it is missing. A refusal is about the record."""
        if topic in self._topics:
            return
        if len(self._topics) > self._link.max_topics:
            raise RequestError(f"more than max_topics={self._link.max_topics} topics", ErrorCode.INVALID_TOPIC_EXCEPTION)
        try:
            self._create_missing(topic)
        except RequestError as exc:
            if exc.retriable:
                raise
            raise RequestError(f"topic {topic}: {exc}", ErrorCode.INVALID_TOPIC_EXCEPTION) from exc
        self._topics.add(topic)

    def _create_missing(self, topic: str) -> None:
        [found] = expect(MetadataResponse, self._client.run(topics.answer_to(MetadataRequest((topic,))))).topics
        if found.error is None:
            return
        if found.error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise found.error
        if not self._link.create_topics:
            raise RequestError("it does not exist", ErrorCode.INVALID_TOPIC_EXCEPTION)
        with contextlib.suppress(TopicAlreadyExistsError):
            self._client.create_topic(topic)

    def _failure(self, error: TriologError) -> TryAgainError | LinkStoppedError:
        code = getattr(error, "code", None)
        if code in FENCED:
            return LinkStoppedError(f"another process has taken link {self._link.name} over: {error}")
        return TryAgainError(f"the server: {error}", Failure.REFUSED if code in LOGIN else Failure.PASSING)
