"""Changes of topics: made, grown, configured, deleted, one at a time. `topics.json` is on the device before any is answered.

A change that was begun is finished, whoever waits for it; one that the disk refuses is taken back.
"""

from __future__ import annotations

import contextlib
import logging
import math
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Final

import attrs
import trio

from ...protocol.errors import (
    ErrorCode,
    InvalidConfigError,
    InvalidRequestError,
    InvalidTopicError,
    RequestError,
    TopicAlreadyExistsError,
)
from ...protocol.limits import MAX_PARTITIONS_PER_TOPIC
from ...protocol.types import TopicPartition
from ..config import KNOWN_KEYS, LogConfig, check_internal_change, check_sizes
from ..loop.procedures import in_turns
from ..partitions.partition import PartitionActor, deleted_error
from ..storage.directory.catalogue import Catalogue, adopted_configs
from ..storage.directory.log_directory import LogDirectory
from ..storage.directory.partition_directory import delete_directory
from ..storage.directory.topics_file import CREATIONS_FILE, TOPICS_FILE, Creation, Topic, entry_bytes, topics_bytes
from ..storage.disk.checkpoints import check_offset_checkpoints, check_size, offset_lines_bytes, random_uuid
from ..storage.disk.paths import (
    CLUSTER_METADATA_TOPIC,
    DELETE_DIR_SUFFIX,
    check_topic_name,
    is_internal,
    marked_directory,
    partition_directory,
)
from ..storage.errors import FileTooLargeError, LogOfflineError, StorageError
from ..storage.log.changes import reconfigure
from ..storage.log.log import Log
from ..storage.log.mirrored import mirror_error
from ..system.clock import NowMs
from .log_directories import LogDirectories
from .log_opening import PartitionMaker, remove_partition
from .topics import HostedPartition, HostedTopic, Topics, half_deleted_error

LOGGER: Final = logging.getLogger(__name__)

ACTORS_PER_TURN: Final = 64

ConfigChange = Callable[[Mapping[str, str]], dict[str, str]]
"""What a topic overrides -> what it is to override. Raises RequestError."""


@attrs.define(eq=False, repr=False)
class TopicChanges:
    """Owner of the catalogue. Owned by the log manager, whose nursery runs the actors."""

    directories: LogDirectories
    topics: Topics
    catalogue: Catalogue
    now_ms: NowMs
    nursery: trio.Nursery
    reserved: Callable[[str], str] = attrs.field(default=lambda name: "")
    """Source that mirrors topics of a name, by its address; empty where clients may create one."""
    doomed: list[tuple[float, str]] = attrs.field(factory=list)
    """Partition directories to delete, with the trio time from which on."""
    _unfinished: list[Creation] = attrs.field(factory=list)
    """Additions that failed and of which something is left; the next start removes it."""
    _lock: trio.Lock = attrs.field(factory=trio.Lock)
    """Nobody who has it waits for a partition: that one's device may hang."""
    _going: dict[str, Topic] = attrs.field(factory=dict)
    """By name, topics that are not served any more and whose directories still have their names."""

    async def resume(self, unfinished: Sequence[Creation]) -> None:
        """Begin where a start has undone what was cut off, but for `unfinished`. What says so stays as long as a directory has
        an older topics.json, because a full disk refused the newest."""
        self._unfinished += unfinished
        if all(directory.topics_generation == self.catalogue.generation for directory in self.directories.live):
            await self._forget()

    def check_new(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, str],
        *,
        internal: bool = False,
        lenient: bool = False,
        mirror_of: str = "",
    ) -> LogConfig:
        """The configuration that the topic would have; `lenient` as `LogConfig.overlay` has it. Raises the RequestError that
        says why it cannot be."""
        check_topic_name(name)
        check_sizes(configs)
        if name in self.topics:
            raise TopicAlreadyExistsError(f"topic {name!r} already exists")
        if name in self._going:
            raise TopicAlreadyExistsError(f"topic {name!r} is being deleted. Create it again when it is gone")
        if name == CLUSTER_METADATA_TOPIC:
            raise InvalidRequestError(f"Kafka keeps its own metadata in topic {name!r}. Choose another name")
        if is_internal(name) and not internal:
            raise InvalidTopicError(f"topic {name!r} is the server's own and is created when needed")
        if not mirror_of and (source := self.reserved(name)):
            raise mirror_error(f"topic {name!r}", source)
        if (other := self.topics.colliding_with(name)) is not None:
            raise InvalidTopicError(f"topic {name!r} collides with {other!r}: '.' and '_' count as the same character")
        self._check_case(name)
        _check_count(name, partitions)
        if not internal:
            self._check_total(name, partitions)
            self.topics.check_memory(name, configs)
        return self.directories.config.topic_defaults.overlay(configs, lenient=lenient)

    def _check_case(self, name: str) -> None:
        """Raises InvalidTopicError when a file system would take the topic's directories for those of another one."""
        path = next((directory.path for directory in self.directories.live if directory.ignores_case), None)
        if path is None:
            return
        for other in chain(self.topics.entries, self._going, self.topics.half_deleted):
            if other != name and other.lower() == name.lower():
                raise InvalidTopicError(
                    f"topic {name!r} differs from {other!r} only in upper and lower case, and the file system of {path} takes "
                    "both for one name; choose another"
                )

    async def create(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, str],
        *,
        internal: bool = False,
        lenient: bool = False,
        mirror_of: str = "",
        source_epoch: int = 0,
        topic_id: uuid.UUID | None = None,
    ) -> Topic:
        """Make a topic. It is on the device when this returns. Cancelled half way: it is made all the same. A mirror has the
        `topic_id` of its source."""
        async with self._lock:
            config = self.check_new(name, partitions, configs, internal=internal, lenient=lenient, mirror_of=mirror_of)
            _say_what_is_unknown(name, configs)
            topic_id = topic_id or random_uuid()
            if topic_id.bytes in self.topics.ids:
                raise TopicAlreadyExistsError(f"topic {name!r}: topic {self.topics.name_of(topic_id.bytes)!r} has its id")
            topic = Topic(
                name=name,
                topic_id=topic_id,
                partitions=partitions,
                configs=dict(configs),
                mirror_of=mirror_of,
                source_epoch=source_epoch,
            )
            self._check_files(topic)
            hosted = HostedTopic(topic, config, [])
            with trio.CancelScope(shield=True):
                await self._add_partitions(hosted, topic)
            return topic

    async def create_partitions(self, name: str, total: int, *, validate_only: bool = False, mirrored: bool = False) -> None:
        """Let a topic have `total` partitions, more than it has. They are on the device when this returns. `mirrored`: because
        its source has them."""
        async with self._lock:
            hosted = self.topics.get(name)
            check_own_change(hosted.topic, mirrored=mirrored)
            _check_count(name, total)
            if total <= hosted.topic.partitions:
                raise RequestError(
                    f"topic {name!r} has {hosted.topic.partitions} partitions. Their number can only grow, not become {total}",
                    ErrorCode.INVALID_PARTITIONS,
                )
            if is_internal(name):
                raise InvalidTopicError(f"topic {name!r} is the server's own: keys would move to other partitions")
            self._check_total(name, total - hosted.topic.partitions)
            grown = attrs.evolve(hosted.topic, partitions=total)
            self._check_files(grown)
            if not validate_only:
                with trio.CancelScope(shield=True):
                    await self._add_partitions(hosted, grown)

    def _check_total(self, name: str, added: int) -> None:
        total, limit = self.topics.partition_count, self.directories.config.max_partitions
        if total + added > limit:
            raise RequestError(
                f"topic {name!r}: {added} more partitions would be {total + added} in all, above "
                f"max_partitions={limit}. Delete topics, or raise the limit and restart",
                ErrorCode.POLICY_VIOLATION,
            )

    async def _add_partitions(self, hosted: HostedTopic, topic: Topic) -> None:
        """Say what will be made, make the partitions that `hosted` lacks, then the entry of `topic`, then let them be seen."""
        first, generation = len(hosted.partitions), self.catalogue.generation
        creation = Creation(name=topic.name, topic_id=topic.topic_id, first_partition=first, partitions=topic.partitions)
        maker = PartitionMaker(self.directories, self.now_ms, topic, hosted.config, _epoch_of_new_partitions(hosted))
        try:
            await self.directories.write_creations([*self._unfinished, creation])
            await self.directories.forget_offsets(topic.name, range(first, topic.partitions))
            await maker.make(first)
            await self._write(topic)  # this also syncs the names of the partitions' directories
        except (OSError, StorageError) as exc:
            await self._take_back(creation, maker, generation)
            raise LogOfflineError(
                f"cannot create topic {topic.name!r}: {exc}. Free space or check the device, then try again"
            ) from exc
        if maker.leaves_something:
            self._unfinished.append(creation)
        await self._forget()
        begun = []
        async for each in in_turns(sorted(maker.made, key=lambda made: made.number), ACTORS_PER_TURN):
            each.log.mirror_of = topic.mirror_of
            actor = PartitionActor(each.log, self.directories.disk, self.nursery)
            self.nursery.start_soon(actor.run)
            begun.append(HostedPartition(actor, each.directory))
        hosted.topic = topic
        self.topics.add(hosted)
        hosted.partitions += begun

    def _check_files(self, changed: Topic) -> None:
        """Raises RequestError when a file of a log directory could not be read again with this topic in it."""
        topics, name, partitions = self.topics, changed.name, changed.partitions
        entries, lines, count = topics.entries_bytes, topics.offset_lines_bytes, topics.partition_count
        if (before := topics.entries.get(name)) is not None:
            entries -= entry_bytes(before)
            lines -= offset_lines_bytes(name, before.partitions)
            count -= before.partitions
        try:
            check_size(TOPICS_FILE, topics_bytes(entries + entry_bytes(changed), len(self.catalogue.deleted)))
            check_offset_checkpoints(lines + offset_lines_bytes(name, partitions), count + partitions)
        except FileTooLargeError as exc:
            raise RequestError(f"topic {changed.name!r}: {exc}. Delete topics first", ErrorCode.POLICY_VIOLATION) from exc

    async def _write(self, *changed: Topic) -> None:
        """Put a new generation into every directory in service. One that fails for good is taken out of service."""
        topics = self._going | self.topics.entries | {topic.name: topic for topic in changed}
        await self.directories.write_topics(self.catalogue, list(topics.values()))

    async def _take_back(self, creation: Creation, maker: PartitionMaker, generation: int) -> None:
        """Undo an addition that failed, as far as the disk lets us; partitions that a topics.json names stay."""
        is_gone = await self._take_entries_back(generation)
        if is_gone:
            for made in maker.made:
                path = made.log.directory
                is_gone = await self.directories.disk.call(remove_partition, self.directories, made.directory, path) and is_gone
        if not is_gone or maker.leaves_something:
            self._unfinished.append(creation)
        await self._forget()

    async def _take_entries_back(self, generation: int) -> bool:
        """Write topics.json as it was, where there is one now that is newer than `generation`; whether there is none then. In a
        directory that is out of service since then there may be one."""
        if any(directory.topics_generation > generation for directory in self.directories.live):
            try:
                await self._write()
            except (OSError, StorageError) as exc:
                LOGGER.error("could not undo a failed change of topics: %s", exc)
                return False
        return all(directory.newest_topics_generation <= generation for directory in self.directories.out_of_service())

    async def _forget(self) -> None:
        """Nothing is being made any more. What says so is only in the way: it is not worth an error."""
        try:
            await self.directories.write_creations(self._unfinished)
        except (OSError, StorageError) as exc:
            LOGGER.warning("cannot update %s: %s", CREATIONS_FILE, exc)

    async def alter_configs(
        self, name: str, changes: Mapping[str, str], deletes: Sequence[str], *, validate_only: bool = False
    ) -> None:
        """Override topic keys with `changes`, and let those in `deletes` follow the server's defaults again."""
        await self.change_configs(name, partial(_altered, changes=changes, deletes=deletes), validate_only=validate_only)

    async def change_configs(
        self, name: str, change: ConfigChange, *, lenient: bool = False, validate_only: bool = False, mirrored: bool = False
    ) -> None:
        """Let a topic override what `change` makes of what it overrides; nobody else changes it meanwhile.

        The entry is on the device first, then every partition takes the configuration over in its turn. What it had overridden
        before is not checked again: a lenient server may have taken it.
        """
        async with self._lock:
            hosted = self.topics.get(name)
            check_own_change(hosted.topic, mirrored=mirrored)
            configs = change(hosted.topic.configs)
            defaults = self.directories.config.topic_defaults
            changed = {key: value for key, value in configs.items() if hosted.topic.configs.get(key) != value}
            check_sizes(changed)
            defaults.overlay(changed, lenient=lenient)
            config = defaults.overlay(configs, lenient=True)
            if is_internal(name) and not mirrored:
                check_internal_change(name, hosted.topic.configs, configs, adopted_configs(name))
            topic = attrs.evolve(hosted.topic, configs=configs)
            if changed:
                self._check_files(topic)
            if not validate_only:
                _say_what_is_unknown(name, changed)
                with trio.CancelScope(shield=True):
                    await self._alter(hosted, topic, config)

    async def _alter(self, hosted: HostedTopic, topic: Topic, config: LogConfig) -> None:
        self.topics.check_memory(topic.name, topic.configs)
        generation = self.catalogue.generation
        try:
            await self._write(topic)
        except (OSError, StorageError) as exc:
            await self._take_entries_back(generation)
            raise LogOfflineError(
                f"the configuration of topic {topic.name!r} is unchanged: {exc}. Free space or check the device, then try again"
            ) from exc
        hosted.topic = topic
        self.topics.charge(hosted)
        await self._take_over(hosted, config)
        LOGGER.info("topic %s configured with %s", topic.name, topic.configs)

    async def confirm_sources(self, epochs: Mapping[str, int]) -> None:
        """Note that sources have these mirrors with their ids, and the latest leader epoch of each there, with one write. It is
        on the device when this returns. Raises RequestError."""
        async with self._lock:
            found = [self.topics.get(name) for name in epochs]
            for each in found:
                check_own_change(each.topic, mirrored=True)
            latest = {each.topic.name: max(epochs[each.topic.name], each.topic.source_epoch) for each in found}
            await self._write_all(
                "the leader epochs of the source are not noted",
                [(each, attrs.evolve(each.topic, source_epoch=latest[each.topic.name], was_own=False)) for each in found],
            )

    async def follow_defaults(self, defaults: LogConfig) -> None:
        """Let topics follow other defaults of the server where they say nothing themselves."""
        async with self._lock:
            self.directories.config = attrs.evolve(self.directories.config, topic_defaults=defaults)
            for hosted in list(self.topics):
                try:
                    config = defaults.overlay(hosted.topic.configs, lenient=True)
                except InvalidConfigError as exc:
                    LOGGER.warning("topic %s keeps its configuration: %s", hosted.topic.name, exc)
                    continue
                if config != hosted.config:
                    await self._take_over(hosted, config)

    async def _take_over(self, hosted: HostedTopic, config: LogConfig) -> None:
        hosted.config, hosted.warned_of_old_records = config, False
        for partition in hosted.partitions:
            if isinstance(partition, HostedPartition):
                try:
                    await partition.actor.perform(partial(reconfigure, config=config))
                except RequestError as exc:
                    LOGGER.warning(
                        "%s uses its new configuration after the next start: %s", partition.actor.topic_partition, exc
                    )

    async def end_mirrors(self, names: Iterable[str]) -> None:
        """Write that topics are mirrors no more, all with one write. Their logs stay read-only until `become_mirror` says so in
        their turn. Raises LogOfflineError: all are mirrors still."""
        async with self._lock:
            found = [self.topics.get(name) for name in names]
            ended = [(each, attrs.evolve(each.topic, mirror_of="", source_epoch=0, was_own=False)) for each in found]
            await self._write_all("nothing is promoted", ended)

    async def _write_all(self, refusal: str, changes: Iterable[tuple[HostedTopic, Topic]]) -> None:
        """Change entries of topics with one write, if any differs. Raises LogOfflineError: none has changed."""
        changed = [(hosted, topic) for hosted, topic in changes if topic != hosted.topic]
        if not changed:
            return
        generation = self.catalogue.generation
        with trio.CancelScope(shield=True):
            try:
                await self._write(*(topic for _, topic in changed))
            except (OSError, StorageError) as exc:
                await self._take_entries_back(generation)
                raise LogOfflineError(f"{refusal}: {exc}. Free space or check the device, then try again") from exc
        for hosted, topic in changed:
            hosted.topic = topic
            self.topics.charge(hosted)

    async def delete(self, name: str, topic_id: bytes | None = None, *, mirrored: bool = False) -> None:
        """Take a topic out, if a `topic_id` is given only the one with that id. Its directories are renamed at once and deleted
        after file.delete.delay.ms. `mirrored`: because its source has another one, which also counts for internal topics.

        Raises LogOfflineError when a device failed; `Topics.half_deleted` has the topic then.
        """
        async with self._lock:
            topic = self.topics.get(name if topic_id is None else self.topics.name_of(topic_id))
            if is_internal(name) and not mirrored:
                raise InvalidTopicError(f"topic {name!r} is the server's own and cannot be deleted")
            self.topics.remove(topic.topic.name)
            self.topics.note_deleted(topic.topic.name)
            self._going[topic.topic.name] = topic.topic
        try:
            with trio.CancelScope(shield=True):
                await self._delete(topic)
        finally:
            self._going.pop(topic.topic.name, None)

    async def _delete(self, topic: HostedTopic) -> None:
        """Outside of the lock, but for the last step: a partition stops when its device has taken what is enqueued."""
        async for each in in_turns(topic.partitions, ACTORS_PER_TURN):
            if isinstance(each, HostedPartition):
                each.actor.close(deleted_error(each.actor.topic_partition))
        renames: list[tuple[LogDirectory, str, str]] = []
        for each in topic.partitions:
            if isinstance(each, HostedPartition):
                await each.actor.stopped()
                async with each.unlinking:
                    log = each.actor.log  # nothing of it is unlinked from now on
                each.actor.disk.files.release(log.files(), [index for segment in log.segments for index in segment.indexes])
                renames.append(_rename(each.directory, log.topic_partition))
                _rename_handles(log, renames[-1][2])
            elif each.directory is not None:
                renames.append(_rename(each.directory, each.topic_partition))
        renames = [rename for rename in renames if rename[0] in self.directories.live]
        if self.directories.failed:
            self.catalogue.deleted.add(topic.topic.topic_id)
        try:
            for path in dict.fromkeys(directory.path for directory, _, _ in renames):
                of_directory = [rename for rename in renames if rename[0].path == path]
                await self.directories.disk.call(self._rename_all, of_directory, at=path)
            async with self._lock:
                del self._going[topic.topic.name]
                await self._write()
        except (OSError, StorageError) as exc:
            self.catalogue.deleted.add(topic.topic.topic_id)  # should another one get its name before the next start
            self.topics.half_deleted[topic.topic.name] = topic.topic
            raise half_deleted_error(topic.topic, exc) from exc
        with contextlib.suppress(OSError, StorageError):  # a topic that gets the name has them forgotten first
            await self.directories.forget_offsets(topic.topic.name, range(len(topic.partitions)))
        delete_at = trio.current_time() + topic.config.file_delete_delay_ms / 1000
        self.doomed += [(delete_at, target) for _, _, target in renames]

    def _rename_all(self, renames: Sequence[tuple[LogDirectory, str, str]]) -> None:
        for directory, source, target in renames:
            self.catalogue.rename(directory, source, target)

    async def delete_doomed(self, *, at_once: bool = False) -> None:
        """Delete the directories whose delay is over, or all. Raises an OSError once all of them had their turn."""
        now_s = math.inf if at_once else trio.current_time()
        refused: OSError | None = None
        for entry in [entry for entry in self.doomed if entry[0] <= now_s]:
            if entry not in self.doomed:
                continue  # another call has taken it meanwhile
            self.doomed.remove(entry)
            with self.directories.disk.errors.isolate("directory-deletion", entry[1]):
                try:
                    await self.directories.disk.call(delete_directory, self.directories.disk.fs, entry[1], at=entry[1])
                except BaseException as exc:
                    self.doomed.append(entry)
                    if not isinstance(exc, OSError):
                        raise
                    refused = exc
        if refused is not None:
            raise refused


def check_own_change(topic: Topic, *, mirrored: bool) -> None:
    """Raises RequestError where a client would change a mirror, or a source a topic that is none."""
    if topic.mirror_of and not mirrored:
        raise mirror_error(f"topic {topic.name!r}", topic.mirror_of)
    if mirrored and not topic.mirror_of:
        raise InvalidRequestError(f"topic {topic.name!r} is not a mirror any more")


def _epoch_of_new_partitions(hosted: HostedTopic) -> int:
    """Return the latest leader epoch of a topic. After a promotion the old server may create the same partitions in the epoch
    before. The logs of a mirror begin as those of its source."""
    if hosted.topic.mirror_of:
        return 0
    return max((each.actor.log.leader_epoch for each in hosted.partitions if isinstance(each, HostedPartition)), default=0)


def _rename_handles(log: Log, target: str) -> None:
    """A read that is under way opens the files where they will be, not those of the next topic with the name."""
    for file in log.files():
        file.path = f"{target}/{file.path.rpartition('/')[2]}"


def _rename(directory: LogDirectory, topic_partition: TopicPartition) -> tuple[LogDirectory, str, str]:
    source = f"{directory.path}/{partition_directory(topic_partition)}"
    return directory, source, f"{directory.path}/{marked_directory(topic_partition, DELETE_DIR_SUFFIX)}"


def _altered(overrides: Mapping[str, str], *, changes: Mapping[str, str], deletes: Sequence[str]) -> dict[str, str]:
    for key in deletes:
        if key not in KNOWN_KEYS and key not in overrides:
            raise InvalidConfigError(f"unknown topic configuration key {key!r}. Known keys: {', '.join(sorted(KNOWN_KEYS))}")
        if key in changes:
            raise InvalidConfigError(f"topic configuration {key} is both set and deleted. Choose one")
    return {key: value for key, value in overrides.items() if key not in deletes} | dict(changes)


def _say_what_is_unknown(name: str, configs: Mapping[str, str]) -> None:
    if unknown := sorted(set(configs) - set(KNOWN_KEYS)):
        LOGGER.warning("topic %s configured with %s: unknown keys, stored without effect", name, ", ".join(unknown))


def _check_count(name: str, partitions: int) -> None:
    if not 1 <= partitions <= MAX_PARTITIONS_PER_TOPIC:
        raise RequestError(
            f"topic {name!r}: {partitions} partitions requested, 1 to {MAX_PARTITIONS_PER_TOPIC} are possible",
            ErrorCode.INVALID_PARTITIONS,
        )
