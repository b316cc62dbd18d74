"""Stores the lines of files. One transaction has the records and the positions after them, so no kill loses or doubles a line.

The positions are records of a compacted topic, keyed by link and file. A kill of ingest or of the server at any instruction
leaves one of two states, which the server decides:

| the transaction | records and positions | the next session |
|---|---|---|
| not committed | readers with `read_committed` see neither | reads the lines again |
| committed, whether ingest got the response or not | both are visible | continues after the lines |

A session first takes the transactional id over: the server ends the transaction that an earlier session or process has left,
and refuses what that still sends. Only then the positions are read. Each link has a topic of its own for them, so no
transaction of another link hides the newest ones. A producer id alone would not do: the server forgets it after a day, and
ingest may stand still for longer. Headers of the last record would not do either: retention deletes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ...protocol.errors import RequestError, TopicAlreadyExistsError
from ...protocol.types import Isolation
from ..client.admin import Admin
from ..client.blocking.consumer import BlockingConsumer
from ..client.blocking.transaction import BlockingTransaction
from ..client.errors import ClosedError
from ..forward.errors import LinkStoppedError
from .file_position import FileId, FilePosition, position_key
from .file_settings import FileLink
from .followed_file import Line
from .following import last_ends
from .mapping import ERROR_HEADER, Entry, cut_reason
from .record_store import RecordStore

PATH_HEADER: Final = "file.path"
OFFSET_HEADER: Final = "file.offset"
SIZE_HEADER: Final = "file.line.bytes"
CONFIG: Final = {"cleanup.policy": "compact"}


class FileStore(RecordStore):
    """Owner: the thread of one link."""

    _link: FileLink
    positions: list[FilePosition]
    """What the last transaction has stored, after `open`."""

    @property
    def is_transactional(self) -> bool:
        return True

    def forget(self, files: Iterable[FileId]) -> None:
        """Delete the positions of files that are deleted. Raises TryAgainError, LinkStoppedError."""
        assert self._producer is not None
        try:
            with self._producer.transaction():
                for each in files:
                    self._producer.send(self._link.positions, None, key=position_key(self._link.name, each))
        except (RequestError, ClosedError) as exc:
            raise self._failure(exc) from exc

    def _restore(self) -> None:
        assert self._producer is not None
        self._ready_positions()
        with self._producer.transaction():
            pass  # takes the transactional id over, and ends what it has left
        found: dict[bytes, FilePosition] = {}
        with BlockingConsumer(self._client, follow=False, isolation=Isolation.READ_COMMITTED) as consumer:
            consumer.assign(self._link.positions)
            for _, record in consumer.records():
                key = bytes(record.key or b"")
                if record.value is None:
                    found.pop(key, None)
                    continue
                try:
                    found[key] = FilePosition.decode(bytes(record.value))
                except ValueError as exc:
                    raise LinkStoppedError(
                        f"{self._link.positions}, offset {record.offset}: {exc}. Another program has written to the topic. "
                        "Choose another positions_topic, or delete the record by one of its key with no value"
                    ) from exc
        self.positions = list(found.values())

    def _ready_positions(self) -> None:
        """Create the topic, or check that it keeps what is in it."""
        name = self._link.positions
        try:
            self._client.create_topic(name, 1, CONFIG)
        except TopicAlreadyExistsError:
            policy = self._client.loop.run(Admin(self._client._shared).describe_config(name))["cleanup.policy"].value
            if policy != CONFIG["cleanup.policy"]:
                raise LinkStoppedError(
                    f"topic {name} has cleanup.policy={policy}: positions would be deleted, and lines doubled. Set it to "
                    "compact"
                ) from None

    def _also_send(self, transaction: BlockingTransaction, entries: Sequence[Entry], state: Iterable[FilePosition]) -> None:
        """`state`: positions of files that begin again. Those after the lines count more."""
        assert self._producer is not None
        for position in state:
            key = position_key(self._link.name, position.file)
            self._producer.send(self._link.positions, position.encode(), key=key)
        for file, end in last_ends(entry.message for entry in entries).items():
            value = file.position_at(end).encode()
            self._producer.send(self._link.positions, value, key=position_key(self._link.name, file.id))
        self._producer.flush()

    def _dead_letter(self, entry: Entry, reason: str, most_bytes: int | None = None) -> Entry:
        return dead_line(self._link, entry.message, reason, most_bytes)


def entry_of(link: FileLink, line: Line) -> Entry:
    """Return the record of a line, or its dead letter."""
    if line.size > len(line.value):
        return dead_line(link, line, f"the line has {line.size} bytes, above max_line_bytes={link.max_line_bytes}")
    path = line.file.path.encode(errors="surrogateescape")
    headers = [(PATH_HEADER, path), (OFFSET_HEADER, b"%d" % line.offset)]
    return Entry(line, link.topic, line.value, path, line.arrived_ms, headers)


def dead_line(link: FileLink, line: Line, reason: str, most_bytes: int | None = None) -> Entry:
    """Return the record that goes to the dead-letter topic, with at most `most_bytes` of the line."""
    value = line.value[:most_bytes]
    path = line.file.path.encode(errors="surrogateescape")
    headers = [
        (PATH_HEADER, path),
        (OFFSET_HEADER, b"%d" % line.offset),
        (ERROR_HEADER, cut_reason(reason)),
    ]
    if line.size > len(value):
        headers.append((SIZE_HEADER, b"%d" % line.size))
    return Entry(line, link.dead_letter_topic, value, path, line.arrived_ms, headers, is_dead_letter=True)
