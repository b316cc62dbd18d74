"""What may be lost under a durability other than `fsync` when the power is cut, or a log directory or a sync fails: told to
the history.

The server is asked what it knows: up to where each log is on the device, and how old the oldest byte is that is not. A log that
ends before that afterwards has broken the promise, and so has a server that knew of less than was lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

import attrs
import trio
from triolog.protocol.errors import CorruptRecordError
from triolog.protocol.records.batch import (
    ATTRIBUTES_POSITION,
    MAGIC,
    RECORD_BATCH_OVERHEAD,
    BatchHeader,
    check_batch,
    parse_header,
)
from triolog.protocol.records.crc32c import crc32c
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker
from triolog.server.partitions.partition import PartitionActor
from triolog.server.storage.indexes.file_records import possible_sizes
from triolog.server.storage.log.log import Log

from ..clients.fetching import records_in
from ..clients.inhabitant import Surroundings
from ..history import Lost, Survived, Torn
from ..server import Server

SLACK_MS: Final = 50.0
HOPS: Final = 8
"""Turns that a flush may wait for threads: the sync that runs, its own, and what the directory's files take beside it."""


@attrs.define(eq=False)
class Losses:
    """Owner: the operator."""

    world: Surroundings
    server: Server
    _pending: set[TopicPartition] = attrs.field(factory=set)
    """Of which nobody knows yet what is left."""
    _synced: dict[TopicPartition, int] = attrs.field(factory=dict)
    """What the last loss cannot have taken."""
    _is_torn: bool = False
    """Whether it has taken nothing that anybody was told of, and maybe something before what it has left."""

    def note(self, who: str, at: float, *, is_starting: bool = False, directory: str = "") -> None:
        """What was not synced then may be lost, at the next start: in a log directory, or all. `is_starting`: nobody has synced
        for a while."""
        broker = self.server.latest
        if not self.server.loses or broker is None:
            self._is_torn = True
            return
        actors = {where: each for where, each in self._actors(broker).items() if each.log.directory.startswith(directory)}
        self._synced |= {where: actor.log.recovery_point for where, actor in actors.items()}
        since_ms = (trio.current_time() - at) * 1000
        self.world.add(
            Lost(
                at_ms=int(at * 1000),
                who=who,
                window_ms=None if is_starting else self._window_ms(),
                synced=dict(self._synced),
                oldest_ms={where: max(0.0, actor.statistics().unsynced_ms - since_ms) for where, actor in actors.items()},
                partitions=tuple(actors),
            )
        )
        self._pending.update(actors)

    def note_failed_syncs(self, who: str) -> None:
        """When a life has ended: what the device did not take may be lost to the next one, which reads the files anew."""
        broker, device = self.server.latest, self.server.device
        has_failed = any(operation == "sync" for operation, _ in device.failures)
        if has_failed and broker is not None and (device.fs.owes_pages() or any(self.offline(broker))):
            self.note(who, device.time())

    def look(self, who: str) -> None:
        """After a start: where the logs end that are served."""
        broker = self.server.broker
        if broker is None:
            return
        if self._is_torn:
            self._is_torn = False
            for where, actor in self._actors(broker).items():
                if gaps := _ranges(actor.log):
                    self.world.add(Torn(at_ms=self.world.at_ms(), who=who, partition=where, gaps=gaps))
        for where, actor in self._actors(broker).items():
            if where in self._pending and actor.log.refusal is None:
                self._pending.discard(where)
                found, markers = self._records(actor.log, self._synced.get(where, 0))
                self.world.add(
                    Survived(
                        at_ms=self.world.at_ms(),
                        who=who,
                        partition=where,
                        records=found,
                        markers=markers,
                        gaps=_ranges(actor.log),
                        end_offset=actor.log.log_end_offset,
                    )
                )

    def offline(self, broker: Broker) -> Iterator[tuple[TopicPartition, object]]:
        """Which logs are, and why."""
        for where, actor in self._actors(broker).items():
            if actor.log.offline is not None:
                yield where, actor.log.offline

    def _records(self, log: Log, offset: int) -> tuple[dict[int, str], tuple[int, ...]]:
        """By offset, and where markers are. Read from the files: the coordinators have written already, and no client has."""
        found: dict[int, str] = {}
        markers: list[int] = []
        first = log.segments.floor(offset) or log.segments.first
        for segment in log.segments.values(first.base_offset, log.log_end_offset + 1):
            content = self.server.device.fs.content(segment.log.path)[: segment.size]
            for header, batch in _whole_batches(content):
                if header.is_control and header.base_offset >= offset:
                    markers.append(header.base_offset)
                found |= {record.offset: record.id for record in records_in(batch, offset)}
        return found, tuple(markers)

    def _window_ms(self) -> float | None:
        durability, device = self.server.durability, self.server.device
        if durability == "os" or device.failures:
            return None
        return float(durability.partition(":")[2]) + HOPS * 2000 * device.slowest_s + SLACK_MS

    def _actors(self, broker: Broker) -> dict[TopicPartition, PartitionActor]:
        actors = [hosted.actor for hosted in broker._manager.topics.hosted()]
        return {each.topic_partition: each for each in actors if each.topic_partition.topic in self.world.partitions}


def _whole_batches(content: bytes) -> Iterator[tuple[BatchHeader, bytes]]:
    """But for what rots in a log that nobody has looked through. Where the length or the magic of a batch is damaged, those
    behind it are found by its CRC."""
    position = 0
    while position <= len(content) - RECORD_BATCH_OVERHEAD:
        header = parse_header(content, position)
        sizes = [size for size in possible_sizes(header) if RECORD_BATCH_OVERHEAD <= size <= len(content) - position]
        by_crc = (size for size in sizes if crc32c(content[position:][ATTRIBUTES_POSITION:size]) == header.crc)
        size = next(by_crc, max(header.size_bytes, RECORD_BATCH_OVERHEAD))
        batch = content[position : position + size]
        with contextlib.suppress(CorruptRecordError):
            check_batch(memoryview(batch), header)
            if header.magic == MAGIC:
                yield header, batch
        position += size


def _ranges(log: Log) -> tuple[range, ...]:
    return tuple(range(gap.start_offset, gap.end_offset) for gap in log.gaps)
