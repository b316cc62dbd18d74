"""Dead-letter queues of share groups (KIP-1191): records that a group has given up, written into the topic that the group names
(Kafka 4.4: ShareGroupDLQStateManager, ShareGroupDLQRecordFetcher).

A dead letter says in its headers which record it stands for, and why. It has the key and the value of that record where the
group copies them and they can still be read. It is in the partition of the queue whose number is that of the record's, modulo
the number of partitions. The server writes it, whatever the rights of the members: so a topic is only written if it allows that
(`errors.deadletterqueue.group.enable`) and has the server's prefix.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import attrs
import trio

from ...protocol.errors import ErrorCode, RequestError, TopicAlreadyExistsError
from ...protocol.limits import MIB
from ...protocol.records.batch import RECORD_BATCH_OVERHEAD
from ...protocol.types import Record, TopicPartition
from ..config.resource_keys import DEAD_LETTER_TOPIC
from ..logs.log_manager import LogManager
from ..logs.reader import FetchPartition, LogReader, ReaderView
from ..logs.writer import LogWriter
from ..storage.log.prepare import PlainRecord
from .state.values import DeadLetters, ShareConfig

LOGGER: Final = logging.getLogger(__name__)

GROUP_ENABLE: Final = "errors.deadletterqueue.group.enable"
TOPIC_CONFIG: Final = {GROUP_ENABLE: "true", "message.timestamp.type": "CreateTime"}
"""Of a queue that the server creates, as Kafka does."""
REJECTED: Final = b"Offset rejected by client."
EXCEEDED: Final = b"Offset delivery count exceeded the threshold."
READ_BYTES: Final = MIB
"""Read of a log at a time to be copied."""
RECORD_OVERHEAD: Final = 64
"""Bytes of a record beside its key, value and headers, and of the lengths of its headers: at most so many."""
ATTEMPTS: Final = 5
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0
"""Between attempts, doubled each time."""

Letter = tuple[int, DeadLetters]
"""The offset of a record that was given up, and the offsets that were given up with it."""


@attrs.frozen(eq=False, repr=False)
class DeadLetterQueues:
    """See the module. It owns nothing."""

    _manager: LogManager
    _reader: LogReader
    _writer: LogWriter
    _config_of: Callable[[str], ShareConfig]
    """From a group's name to its configuration; called for each attempt."""

    async def write(self, group: str, source: TopicPartition, letters: Sequence[DeadLetters]) -> int:
        """Append a dead letter for each record. Returns how many. Raises RequestError when the queue cannot be written: at once
        if that needs another configuration, otherwise after several attempts. Cancelled: some may be written."""
        left = sorted((offset, each) for each in letters for offset in range(each.first_offset, each.last_offset + 1))
        count, attempt = len(left), 0
        while left:
            try:
                config = self._config_of(group)
                queue = await self._queue(group, source, config)
                left = left[await self._append(group, source, queue, config, left) :]
                attempt = 0
            except RequestError as exc:
                attempt += 1
                if not exc.retriable or attempt == ATTEMPTS:
                    raise
                message = "dead letters not written, trying again: group=%s topic_partition=%s attempt=%d reason=%s"
                LOGGER.warning(message, group, source, attempt, exc.message)
                await trio.sleep(min(FIRST_PAUSE_S * 2 ** (attempt - 1), LONGEST_PAUSE_S))
        return count

    # ---- the queue -------------------------------------------------------------------------------------------------------

    async def _queue(self, group: str, source: TopicPartition, config: ShareConfig) -> TopicPartition:
        """Return the partition for dead letters, in a topic that is created if need be. Raises RequestError."""
        name, server, topics = config.dead_letter_topic, self._manager.config, self._manager.topics
        prefix = server.errors_deadletterqueue_topic_name_prefix
        if not name:
            raise _refused(group, name, f"the group has no {DEAD_LETTER_TOPIC} any more. Set it again")
        if name not in topics:
            if not server.errors_deadletterqueue_auto_create_topics_enable:
                raise _refused(group, name, f"it does not exist. Create it with {GROUP_ENABLE}=true")
            if name.startswith(prefix):
                with suppress(TopicAlreadyExistsError):
                    await self._manager.changes.create(name, server.num_partitions, TOPIC_CONFIG)
                    LOGGER.info("dead-letter queue created: group=%s topic=%s", group, name)
        if not name.startswith(prefix):
            raise _refused(group, name, f"its name has to start with {prefix!r} (errors_deadletterqueue_topic_name_prefix)")
        topic = topics.get(name)
        if not topic.config.errors_deadletterqueue_group_enable:
            raise _refused(group, name, f"set its {GROUP_ENABLE}=true")
        return TopicPartition(name, source.partition % len(topic.partitions))

    # ---- records ---------------------------------------------------------------------------------------------------------

    async def _append(
        self, group: str, source: TopicPartition, queue: TopicPartition, config: ShareConfig, letters: Sequence[Letter]
    ) -> int:
        """Append as many letters as fit one batch, at least one. Returns how many. Raises RequestError."""
        most = self._writer.largest_batch(queue) - RECORD_BATCH_OVERHEAD
        copied: Mapping[int, Record] = {}
        end = letters[-1][0] + 1
        if config.copies_dead_letters:
            copied, end = await self._copies(source, letters, most)
        size, records = 0, list[PlainRecord]()
        for letter in letters:
            record = _record(group, source, letter, copied.get(letter[0]))
            if _size_of(record) > most:
                LOGGER.warning(
                    "cannot copy offset %d of %s, it is too large for %s: writing headers only", letter[0], source, queue
                )
                record = _record(group, source, letter, None)
            size += _size_of(record)
            if records and (size > most or letter[0] >= end):
                break
            records.append(record)
        await self._writer.append(queue, records)
        return len(records)

    async def _copies(
        self, source: TopicPartition, letters: Sequence[Letter], max_bytes: int
    ) -> tuple[Mapping[int, Record], int]:
        """Return records of the source that are still there, by offset, and the offset up to which it is known what is there.
        They have about `max_bytes`."""
        last = letters[-1][0]
        offset = max(letters[0][0], self._reader.snapshot(source).log_start_offset)
        if offset > last:
            return {}, last + 1
        asked = [FetchPartition(source, offset, READ_BYTES)]
        answers = await self._reader.fetch(asked, max_bytes=READ_BYTES, view=ReaderView(skip_gaps=True))
        [plain] = await self._reader.unpack(answers, [asked[0]._replace(max_bytes=max_bytes)], max_bytes=max_bytes)
        if plain is None or isinstance(plain, RequestError):
            reason = plain if plain is not None else answers[0].error
            LOGGER.warning("cannot copy records %d to %d of %s, writing headers only: %s", offset, last, source, reason)
            return {}, last + 1
        return {record.offset: record for record in plain.records}, plain.next_offset


def _record(group: str, source: TopicPartition, letter: Letter, copied: Record | None) -> PlainRecord:
    offset, letters = letter
    headers = [
        ("__dlq.errors.topic", source.topic.encode()),
        ("__dlq.errors.partition", b"%d" % source.partition),
        ("__dlq.errors.offset", b"%d" % offset),
        ("__dlq.errors.group", group.encode()),
        ("__dlq.errors.delivery.count", b"%d" % letters.delivery_count),
        ("__dlq.errors.message", REJECTED if letters.was_rejected else EXCEEDED),
    ]
    return None, None if copied is None else copied.key, None if copied is None else copied.value, headers


def _size_of(record: PlainRecord) -> int:
    """Return the largest size that the record can have in a batch."""
    _, key, value, headers = record
    return RECORD_OVERHEAD + len(key or b"") + len(value or b"") + sum(len(name) + len(each or b"") for name, each in headers)


def _refused(group: str, topic: str, what: str) -> RequestError:
    return RequestError(f"dead-letter queue {topic!r} of group {group!r}: {what}", ErrorCode.INVALID_CONFIG)
