"""The directory of a stopped server, or one rescued from a dead one, as a source: its records, read from its files.

Nothing in it is changed, so nothing is noted in it. What the dead server's forwarder had noted in `__consumer_offsets` is read.
A batch that is damaged is a gap. What belongs to a transaction that nobody has ended is not sent.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import attrs

from ....protocol.coordinator.offsets import (
    NO_TOPIC_ID,
    OFFSETS_TOPIC,
    OffsetCommitKey,
    decode_offset_commit_value,
    decode_offsets_key,
)
from ....protocol.errors import RequestError
from ....protocol.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, Record, TopicPartition
from ....server.offline.findings import Observer
from ....server.offline.stored_records import DecidedTransactions, RecordRange, find_transactions, stored_batches
from ....server.offline.verify import read_directory_files
from ....server.storage.directory.inventory import PartitionFiles, StoppedDirectory
from ....server.storage.disk.checkpoints import (
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
    decode_meta_properties,
    decode_partition_metadata,
    encode_uuid,
    read_small,
)
from ....server.storage.disk.filesystem import FileSystem
from ....server.storage.disk.paths import LOG_SUFFIX
from ....server.storage.errors import CheckpointError
from ....server.storage.recovery.salvage import Damage, GoodBatch, scan_batches
from ...client.procedures.groups import CommittedOffset
from ...client.procedures.topics import AtTime
from ..errors import SettingsError, SourceFailedError, TopicStoppedError
from .source import Gap, OffsetRange, Piece, SourceTopic

LOGGER: Final = logging.getLogger(__name__)


@attrs.define(eq=False, repr=False)
class DirectorySource:
    """A `Source`. The directory is locked by whoever makes this. Owner: the thread of one link."""

    fs: FileSystem
    directory: StoppedDirectory
    _known: dict[str, SourceTopic] | None = None
    _transactions: dict[TopicPartition, DecidedTransactions] = attrs.field(factory=dict)
    _pieces: Iterator[Piece] = attrs.field(factory=lambda: iter(()))
    _finished_s: float | None = None

    def node(self) -> str:
        """The cluster id of the server that it was."""
        path = f"{self.directory.path}/{META_PROPERTIES_FILE}"
        try:
            return decode_meta_properties(path, read_small(self.fs, path))["cluster.id"]
        except (OSError, CheckpointError, ValueError, KeyError) as exc:
            raise SettingsError(f"{path} has no name of its server ({exc}). Give it with --node NAME") from exc

    def topics(self, names: Iterable[str] | None = None) -> dict[str, SourceTopic]:
        if self._known is None:
            self._known = self._read_topics()
        return self._known if names is None else {name: self._known[name] for name in names if name in self._known}

    def locate(self, partitions: Iterable[TopicPartition], start: AtTime) -> dict[TopicPartition, int]:
        found = {}
        for partition in partitions:
            there = self.topics()[partition.topic].partitions[partition.partition]
            if start.timestamp == EARLIEST_TIMESTAMP:
                found[partition] = there.start_offset
            elif start.timestamp == LATEST_TIMESTAMP:
                found[partition] = there.end_offset
            else:
                wanted = RecordRange(from_offset=there.start_offset, from_ms=start.timestamp)
                first = next(self._batches(self._files(partition), wanted, lambda path, damage: None), None)
                found[partition] = there.end_offset if first is None else first[0].offset
        return found

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        wanted, found = set(partitions), dict[TopicPartition, CommittedOffset]()
        for files in self.directory.partitions:
            if files.topic_partition.topic != OFFSETS_TOPIC:
                continue
            for records in self._batches(files, RecordRange(committed=True), lambda path, damage: None):
                for record in records:
                    self._replay(record, group, wanted, found)
        return found

    def commit(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Nothing in the directory is changed."""

    def timestamps(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for partition, offset in offsets.items():
            wanted = RecordRange(from_offset=offset, to_offset=offset + 1)
            for records in self._batches(self._files(partition), wanted, lambda path, damage: None):
                found.update((partition, record.timestamp) for record in records if record.offset == offset)
        return found

    def read(self, offsets: Mapping[TopicPartition, int], ranks: Mapping[str, int]) -> None:
        order = sorted(offsets, key=lambda partition: (ranks.get(partition.topic, 0), partition))
        self._pieces = (piece for partition in order for piece in self._read(partition, offsets[partition]))
        self._finished_s = None

    def next(self, timeout_s: float) -> Piece | None:
        try:
            piece = next(self._pieces, None)
        except OSError as exc:
            raise SourceFailedError(f"cannot read {exc.filename or self.directory.path}: {exc.strerror or exc}") from exc
        if piece is None:
            self._finished_s = time.monotonic()
        return piece

    @property
    def is_behind(self) -> bool:
        return self._finished_s is None

    @property
    def finished_s(self) -> float | None:
        return self._finished_s

    def close(self) -> None:
        """The directory belongs to whoever has locked it."""

    # ---- inside --------------------------------------------------------------------------------------------------------

    def _read(self, partition: TopicPartition, offset: int) -> Iterator[Piece]:
        files = self._files(partition)
        damages: list[Damage] = []

        def damaged(path: str, damage: Damage) -> None:
            LOGGER.warning("skipping damaged %s at position %d: %s", path, damage.position, damage.reason)
            damages.append(damage)

        there = self.topics()[partition.topic].partitions[partition.partition]
        gap = Gap(offset, there.start_offset - 1) if there.start_offset > offset else None
        expected = max(offset, there.start_offset)
        try:
            for records in self._batches(files, RecordRange(from_offset=expected, committed=True), damaged):
                if damages and records[0].offset > expected:
                    gap = Gap(expected if gap is None else gap.first_offset, records[0].offset - 1)
                damages.clear()
                expected = records[-1].offset + 1
                yield Piece(partition, iter(records), expected, gap)
                gap = None
        except RequestError as exc:
            raise TopicStoppedError(
                partition.topic, f"partition {partition.partition} at offset {expected}: {exc.message}"
            ) from exc

    def _batches(self, files: PartitionFiles, wanted: RecordRange, damaged: object) -> Iterator[list[Record]]:
        decided = DecidedTransactions()
        if wanted.committed:
            if files.topic_partition not in self._transactions:
                self._transactions[files.topic_partition] = find_transactions(self.fs, files, lambda done: None)
            decided = self._transactions[files.topic_partition]
        return stored_batches(self.fs, files, wanted, decided, damaged=damaged, advance=lambda done: None)  # type: ignore[arg-type]

    def _files(self, partition: TopicPartition) -> PartitionFiles:
        return next(files for files in self.directory.partitions if files.topic_partition == partition)

    def _read_topics(self) -> dict[str, SourceTopic]:
        says = read_directory_files(self.fs, self.directory, Observer())
        found: dict[str, dict[int, OffsetRange]] = {}
        ids: dict[str, str] = {}
        for files in self.directory.partitions:
            topic, number = files.topic_partition
            first = files.segments[0].base_offset if files.segments else 0
            start = max(first, says.log_start_offsets.get(files.topic_partition, 0))
            found.setdefault(topic, {})[number] = OffsetRange(start, max(start, self._end(files)), files.log_bytes)
            if topic not in ids:
                ids[topic] = encode_uuid(says.topics[topic].topic_id) if topic in says.topics else self._own_id(files)
        return {
            name: SourceTopic(
                name=name,
                topic_id=ids[name],
                config=says.topics[name].configs if name in says.topics else {},
                partitions=partitions,
            )
            for name, partitions in found.items()
        }

    def _own_id(self, files: PartitionFiles) -> str:
        path = f"{files.path}/{PARTITION_METADATA_FILE}"
        try:
            return encode_uuid(decode_partition_metadata(path, read_small(self.fs, path)))
        except (OSError, CheckpointError, ValueError):
            return ""

    def _end(self, files: PartitionFiles) -> int:
        """Behind the last batch."""
        for segment in reversed(files.segments):
            end = 0
            for item in scan_batches(self.fs, segment.path(LOG_SUFFIX), base_offset=segment.base_offset, torn_from=0):
                if isinstance(item, GoodBatch):
                    end = item.header.next_offset
            if end:
                return end
        return 0

    def _replay(
        self, record: Record, group: str, wanted: set[TopicPartition], found: dict[TopicPartition, CommittedOffset]
    ) -> None:
        """Of an offset commit of the group: the last one counts, unless it belongs to a deleted topic of that name."""
        try:
            key = decode_offsets_key(record.key or b"")
            if not isinstance(key, OffsetCommitKey) or key.group != group or key.topic_partition not in wanted:
                return
            value = None if record.value is None else decode_offset_commit_value(record.value)
            if value is None or self._is_stale(key.topic_partition.topic, value.topic_id):
                found.pop(key.topic_partition, None)
            else:
                found[key.topic_partition] = CommittedOffset(value.offset, value.metadata)
        except RequestError:
            return

    def _is_stale(self, name: str, topic_id: bytes) -> bool:
        """Return whether another topic has the name now; False when one of the ids is unknown."""
        topic = self.topics().get(name)
        if topic is None or not topic.topic_id or topic_id == NO_TOPIC_ID:
            return False
        return topic.topic_id != encode_uuid(uuid.UUID(bytes=topic_id))
