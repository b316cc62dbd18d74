"""The log directories: which are in service, whose they are, where a new partition goes, and their checkpoints (Kafka:
LogManager, LogDirFailureChannel).

A directory that fails at the start (it cannot be made, locked, listed, or written) or later (its checkpoints cannot be written,
and not for want of space) is taken out of service until the next start: a CRITICAL line says so, its partitions answer
KAFKA_STORAGE_ERROR, the others go on. A log that goes offline takes only itself along; its directory is probed, and follows if
a small file cannot be written there. Without any directory left there is no server: `LogDirectoryError`.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Final, TypeVar

import attrs
import trio

from ...protocol.types import TopicPartition
from ..config.broker_config import BrokerConfig
from ..loop.procedures import in_turns
from ..partitions.disk import Disk
from ..storage.directory.catalogue import Catalogue
from ..storage.directory.log_directory import Contents, LogDirectory, Offsets, is_passing
from ..storage.directory.topics_file import Creation, Topic
from ..storage.disk.checkpoints import META_PROPERTIES_FILE, encode_uuid, random_uuid
from ..storage.disk.filesystem_layers import LaterSyncs
from ..storage.errors import LogDirectoryError
from .topics import HostedPartition, Topics

LOGGER: Final = logging.getLogger(__name__)

LOGS_PER_TURN: Final = 256
"""Of so many offsets are collected before others have their turn."""
SYNCING: Final = 4
"""Threads that sync side by side where not everything can be synced at once: the journal takes what comes together."""

T = TypeVar("T")

_directory: Final = attrgetter("directory")


@attrs.define(eq=False, repr=False, kw_only=True)
class Unsynced:
    """A log that may not be on the device as it is. Owner: who opens, makes or closes it."""

    directory: LogDirectory
    syncs: LaterSyncs
    failure: Exception | None = None


@attrs.define(eq=False, repr=False)
class LogDirectories:
    """Owner of the directories' state. Owned by the log manager."""

    disk: Disk
    config: BrokerConfig
    topics: Topics
    cluster_id: str = ""
    node_id: int = 1
    live: list[LogDirectory] = attrs.field(factory=list)
    failed: dict[str, str] = attrs.field(factory=dict)
    """Why, by path of each directory that is out of service."""
    stray: dict[str, list[str]] = attrs.field(factory=dict)
    """Directories that were found and left alone, by path of their log directory."""
    _locked: list[LogDirectory] = attrs.field(factory=list)
    _writing_checkpoints: dict[str, trio.Lock] = attrs.field(factory=lambda: defaultdict(trio.Lock))
    """By path of a log directory. Held while its offsets are collected and written, so that no older collection overwrites a
    newer one."""

    def open(self) -> None:
        """Lock every directory and settle whose it is. Blocks."""
        for path in self.config.data_dirs:
            try:
                directory = LogDirectory.open(self.disk.fs, path, durable=self.config.durable)
            except OSError as exc:
                self._drop(path, exc)
            else:
                self.live.append(directory)
                self._locked.append(directory)
        self.check_any()
        known = [each.cluster_id for each in self.live if each.cluster_id is not None]
        nodes = [each.node_id for each in self.live if each.node_id is not None]
        self.cluster_id = self.config.cluster_id or (known[0] if known else encode_uuid(random_uuid()))
        self.node_id = self.config.node_id if self.config.node_id is not None else (nodes[0] if nodes else 1)
        source = {
            "cluster.id": _source_of(self.config.cluster_id, [each for each in self.live if each.cluster_id is not None]),
            "node.id": _source_of(self.config.node_id, [each for each in self.live if each.node_id is not None]),
        }
        self._of_each(lambda directory: directory.settle_identity(self.cluster_id, self.node_id, source))

    def read(self) -> list[tuple[LogDirectory, Contents]]:
        """Read the contents of every directory. The clean markers are gone afterwards; a start that is refused removes none.
        Blocks."""

        contents = self._of_each(LogDirectory.contents)
        self._of_each(LogDirectory.take_clean_marker)
        return [(directory, each) for directory, each in contents if directory in self.live]

    def note_stray(self, stray: Sequence[tuple[LogDirectory, str]]) -> None:
        """Say what is left alone."""
        for directory, path in stray:
            self.stray.setdefault(directory.path, []).append(path)
            LOGGER.warning("%s ignored: it is stray, a future replica, or a partition that its topic does not have", path)

    def _of_each(self, function: Callable[[LogDirectory], T]) -> list[tuple[LogDirectory, T]]:
        """Return the result of a blocking function for each directory that stays in service."""
        answers = []
        for directory in list(self.live):
            try:
                answers.append((directory, function(directory)))
            except OSError as exc:
                self.live.remove(directory)
                self._drop(directory.path, exc)
        self.check_any()
        return answers

    def _drop(self, path: str, error: OSError) -> None:
        self.failed[path] = str(error)
        LOGGER.critical(
            "log directory %s is out of service: %s. Its partitions return KAFKA_STORAGE_ERROR. Check the device "
            "and restart the server.",
            path,
            error,
        )

    def check_any(self) -> None:
        """Raises LogDirectoryError where none is in service: what is to be stored in all of them would be stored nowhere."""
        if not self.live:
            reasons = "; ".join(f"{path}: {reason}" for path, reason in self.failed.items())
            raise LogDirectoryError(f"no log directory can be used: {reasons}")

    def loads(self) -> Counter[int]:
        """Return the number of partitions in each directory, by its `id`."""
        return Counter(map(id, map(_directory, self.topics.hosted())))

    def by_load(self, loads: Mapping[int, int]) -> list[LogDirectory]:
        """Those in service, the one with the fewest partitions first."""
        return sorted(self.live, key=lambda directory: loads.get(id(directory), 0))

    def fail(self, directory: LogDirectory, error: OSError) -> None:
        """Take a directory out of service with everything in it. Raises LogDirectoryError when it was the last one."""
        if directory not in self.live:
            return
        self.live.remove(directory)
        self._drop(directory.path, error)
        for hosted in self.topics.hosted():
            if hosted.directory is directory:
                hosted.actor.take_offline(f"its log directory {directory.path} is out of service ({error})")
        self.check_any()

    def out_of_service(self) -> list[LogDirectory]:
        """Those that have been in service in this life."""
        return [directory for directory in self._locked if directory not in self.live]

    async def probe(self) -> None:
        """Look at the directories of logs that went offline since the last time."""
        suspects: dict[LogDirectory, list[HostedPartition]] = {}
        for hosted in self.topics.hosted():
            if hosted.actor.log.offline is not None and not hosted.is_probed:
                suspects.setdefault(hosted.directory, []).append(hosted)
        for directory, partitions in suspects.items():
            with self.disk.errors.isolate("probe", directory.path):
                if directory in self.live:
                    await self._guarded(directory, directory.probe)
                for hosted in partitions:
                    hosted.is_probed = True

    async def feed_watchdog(self, now_ms: int) -> None:
        """Write something small to each directory in service, at the same time and in threads of their own: a busy server keeps
        none of them waiting, a device that hangs all. A directory where that fails is out of service, unless it may pass."""
        async with trio.open_nursery() as nursery:
            for directory in list(self.live):
                nursery.start_soon(
                    self._guarded, directory, partial(directory.feed_watchdog, now_ms), self.disk.call_for_watchdog
                )

    async def _guarded(
        self,
        directory: LogDirectory,
        function: Callable[[], None],
        call: Callable[[Callable[[], None]], Awaitable[None]] | None = None,
    ) -> OSError | None:
        """Run a blocking function of a directory; its failure is the directory's, unless it may pass: then it is answered."""
        try:
            await (call(function) if call is not None else self.disk.call_briefly(function, at=directory.path))
        except OSError as exc:
            if is_passing(exc):
                return exc
            self.fail(directory, exc)
        return None

    async def write_each(self, write: Callable[[LogDirectory], None]) -> None:
        """Call a blocking function for every directory in service: any of them may be the only one at the next start. Raises an
        OSError that may pass, and LogDirectoryError when none is in service."""
        self.check_any()
        for directory in list(self.live):
            passing = await self._guarded(directory, partial(write, directory))
            if passing is not None:
                raise passing

    async def write_topics(self, catalogue: Catalogue, topics: list[Topic]) -> None:
        """Put a new generation of topics.json into every directory in service. Raises an OSError that may pass, and
        LogDirectoryError when none is in service any more."""
        generation = catalogue.next_generation()
        await self.write_each(lambda directory: directory.write_topics(generation, topics, catalogue.deleted))

    async def write_creations(self, creations: Sequence[Creation]) -> None:
        """Let every directory in service say what is being made. Raises an OSError that may pass."""
        await self.write_each(lambda directory: directory.write_creations(creations))

    async def write_checkpoints(self, directories: Sequence[LogDirectory] | None = None) -> None:
        """Write what changed of recovery points, high watermarks and log start offsets; they are on the device afterwards.

        Directories do not wait for each other. Raises an OSError that may pass, once all of them had their turn.
        """
        errors: list[OSError | LogDirectoryError] = []

        async def write(directory: LogDirectory) -> None:
            async with self.writing_checkpoints(directory):
                if directory in self.live:
                    offsets = await self._offsets_in(directory)
                    try:
                        error = await self._guarded(directory, partial(directory.write_checkpoints, offsets))
                    except LogDirectoryError as exc:  # it was the last one
                        errors.insert(0, exc)
                    else:
                        errors.extend([] if error is None else [error])

        async with trio.open_nursery() as writing:
            for directory in list(self.live) if directories is None else directories:
                writing.start_soon(write, directory)
        if errors:
            raise errors[0]

    def writing_checkpoints(self, directory: LogDirectory) -> trio.Lock:
        """The lock for the checkpoints of a directory."""
        return self._writing_checkpoints[directory.path]

    async def forget_offsets(self, topic: str, numbers: range) -> None:
        """Call LogDirectory.forget_offsets in every directory in service. Raises an OSError that may pass."""
        for directory in list(self.live):
            async with self.writing_checkpoints(directory):
                passing = await self._guarded(directory, partial(directory.forget_offsets, topic, numbers))
            if passing is not None:
                raise passing

    async def _offsets_in(self, directory: LogDirectory) -> dict[TopicPartition, Offsets]:
        """Pauses after a few logs. Whoever holds the lock for the directory's checkpoints calls it: what is deleted meanwhile
        is taken out of them afterwards."""
        offsets: dict[TopicPartition, Offsets] = {}
        unknown = [offline.topic_partition for offline in self.topics.offline() if offline.directory is directory]
        async for hosted in in_turns(self.topics.hosted(), LOGS_PER_TURN):
            if hosted.directory is directory:
                unknown.append(hosted.actor.topic_partition)
                with self.disk.errors.isolate("checkpoints", hosted.actor.topic_partition):
                    offsets[hosted.actor.topic_partition] = _offsets_of(hosted)
                    unknown.pop()
        for topic_partition in unknown:
            if topic_partition in directory.recovery_points:
                offsets[topic_partition] = directory.known_offsets(topic_partition)
        return offsets

    async def force(self, logs: Sequence[Unsynced], is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Bring to the device what is due of logs, for all of a directory at once where that is cheaper; `failure` says which
        could not be. Nothing may be read, or called clean, that the next power cut could take back. `is_stopped`: nobody
        wants the rest."""
        for directory in {id(each.directory): each.directory for each in logs}.values():
            here = [each for each in logs if each.directory is directory]
            if not await self.disk.call_briefly(directory.sync_all_instead, sum(len(each.syncs) for each in here)):
                parts = [here[number::SYNCING] for number in range(min(SYNCING, len(here)))]
                await side_by_side(SYNCING, parts, partial(self.disk.call, _sync_each, is_stopped))

    async def mark_clean(self, unclean: set[int]) -> None:
        """Put the clean marker into every directory in service whose `id` is not in `unclean`."""
        for directory in list(self.live):
            if id(directory) not in unclean:
                await self.disk.call_briefly(directory.mark_clean, at=directory.path)

    def close(self) -> None:
        for directory in self._locked:
            directory.close()


def _sync_each(is_stopped: Callable[[], bool], logs: Sequence[Unsynced]) -> None:
    for each in logs:
        if is_stopped():
            break
        try:
            each.syncs.settle()
        except OSError as exc:
            each.failure = exc.with_traceback(None)


async def side_by_side(tasks: int, parts: Iterable[T], work: Callable[[T], Awaitable[None]]) -> None:
    """Call `work` with each part, so many at a time."""
    remaining = iter(parts)

    async def take() -> None:
        for part in remaining:
            await work(part)

    async with trio.open_nursery() as nursery:
        for _ in range(tasks):
            nursery.start_soon(take)


def _offsets_of(hosted: HostedPartition) -> Offsets:
    """Files that were taken out of the log count as long as they are not unlinked: a power cut can bring their names back. A
    file whose name is not on the device yet is no evidence of where the log begins: a power cut can take it."""
    log = hosted.actor.log
    first = 0 if log.doomed or log.names_unsynced else log.segments.first.base_offset
    return Offsets(log.recovery_point, log.high_watermark, log.log_start_offset, first)


def _source_of(configured: str | int | None, known: Sequence[LogDirectory]) -> str:
    """Return the source of a value of the server's identity."""
    return "its configuration" if configured is not None or not known else f"{known[0].path}/{META_PROPERTIES_FILE}"
