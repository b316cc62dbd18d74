"""Stores batches of records in triolog: one append for each topic and partition, or one transaction for a link of QoS 2.

A batch with a record that the server refuses is divided until that record is alone. It then goes to the dead-letter topic.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Final

from ...protocol.errors import ErrorCode, RequestError, TopicAlreadyExistsError, TriologError
from ...protocol.native.messages import MetadataRequest, MetadataResponse
from ...protocol.types import TopicPartition
from ..client.blocking.client import BlockingClient
from ..client.blocking.producer import BlockingProducer
from ..client.config import ClientConfig, ProducerConfig
from ..client.errors import ClosedError
from ..client.exchange import expect
from ..client.login import LoginConfig
from ..client.procedures import groups, topics
from ..client.procedures.groups import CommittedOffset
from ..client.tls import TlsConfig
from ..forward.errors import LinkStoppedError, TryAgainError
from ..forward.pacing import Failure
from .mapping import Entry, dead_letter
from .packet_ids import after, from_text, to_text
from .settings import IngestLink

CONNECT_TIMEOUT_MS: Final = 10_000
DELIVERY_TIMEOUT_MS: Final = 30_000
BLOCK_MS: Final = 10_000
"""For the partitions of a topic, and for calls of a transaction."""
LINGER_MS: Final = 1000
"""A flush ends it."""
ABOUT_THE_RECORD: Final = frozenset(
    {
        *(ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_RECORD),
        *(ErrorCode.INVALID_TIMESTAMP, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    }
)
"""Any other error is about the server, and the link waits."""
FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
LOGIN: Final = frozenset({ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED})


class Store:
    """Owner: the thread of one link."""

    def __init__(self, link: IngestLink, server: tuple[str, int], tls: TlsConfig | None, login: LoginConfig | None) -> None:
        self._link = link
        self._name = f"triolog-ingest.{link.name}"
        """Of the client, the transactional id and the group."""
        config = ClientConfig(client_id=self._name, connect_timeout_ms=CONNECT_TIMEOUT_MS, tls=tls, login=login)
        self._client = BlockingClient(server, config)
        self._producer: BlockingProducer | None = None
        self._topics: set[str] = set()
        self._place = TopicPartition(link.dead_letter_topic, 0)
        """Of the offset whose metadata has the packet ids."""
        self.unreleased: dict[int, bytes] = {}

    @property
    def is_transactional(self) -> bool:
        return self._link.qos == 2

    def open(self) -> None:
        """Connect, and read the packet ids of the last transaction. Raises TryAgainError, LinkStoppedError."""
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
                kept = self._client.run(groups.fetch_offsets(self._name, [self._place], require_stable=True))
                self.unreleased = from_text(kept[self._place].metadata) if kept else {}
        except RequestError as exc:
            raise self._failure(exc) from exc
        except ValueError as exc:
            raise LinkStoppedError(f"the metadata of the offset of group {self._name} is {exc}. Delete that group") from exc

    def forget(self) -> None:
        """The broker has a new session: no packet id is in use."""
        if self.unreleased:
            self.store([], list(self.unreleased))

    def store(self, entries: Sequence[Entry], released: Iterable[int] = ()) -> list[Entry]:
        """Store records, and drop released packet ids in the same transaction. Return the records as they were stored. Raises
        TryAgainError, LinkStoppedError."""
        try:
            refused = self._append(entries, released)
        except (RequestError, ClosedError) as exc:
            raise self._failure(exc) from exc
        if not refused:
            return list(entries)
        if len(entries) > 1:
            stored = [entry for entry in entries if not any(entry is each for each, _ in refused)]
            rest = [entry for entry, _ in refused]
            middle = len(rest) // 2 or 1
            for part in (rest[:middle], rest[middle:]):
                stored += self.store(part, released) if part else []
            return stored
        [(entry, error)] = refused
        if entry.is_dead_letter:
            raise TryAgainError(f"the dead-letter topic {entry.topic} refuses a record: {error.message}", Failure.REFUSED)
        return self.store([dead_letter(self._link, entry.message, str(error))], released)

    def close(self) -> None:
        try:
            if self._producer is not None:
                self._producer.close(flush=False)
        finally:
            self._client.close()

    # ---- inside --------------------------------------------------------------------------------------------------------

    def _append(self, entries: Sequence[Entry], released: Iterable[int]) -> list[tuple[Entry, RequestError]]:
        """Return the refused ones, and why; in a transaction those are all or none."""
        assert self._producer is not None, "the store is not open"
        if not self.is_transactional:
            return self._send(entries)
        unreleased = after(self.unreleased, (entry.message for entry in entries), released)
        metadata = to_text(unreleased)
        transaction = self._producer.transaction()
        transaction.begin()
        refused = self._send(entries)
        if not refused:
            transaction.send_offsets(self._name, {self._place: CommittedOffset(0, metadata)})
            transaction.commit()
            self.unreleased = unreleased
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
