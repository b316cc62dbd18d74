"""Finds the topics of all log directories together, and the places of their partitions.

`topics.json` is the truth for topics that have an entry; partition directories without one (Kafka's) are adopted; a deletion
that was cut off is completed, or undone where the topic was served since; a creation (`creations_file`) is undone. Everything
here blocks and is run in a thread.

The topics and partitions of a stopped log directory, without opening a log or changing anything: for tools.

Topics are those of `topics.json`, without the ones whose deletion or creation was under way, and those that only their
partitions' directories tell of (Kafka's), which a server would adopt.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from typing import Final, Self

import attrs

from ....protocol.limits import MAX_STORED_PARTITIONS, MIB
from ....protocol.types import TopicPartition
from ..disk.checkpoints import random_uuid
from ..disk.filesystem import FileSystem
from ..disk.paths import (
    CLUSTER_METADATA_TOPIC,
    DELETE_DIR_SUFFIX,
    IGNORED_DIRECTORIES,
    PRUNED_TOPICS,
    is_internal,
    is_marked,
    marked_directory,
    parse_partition_directory,
)
from ..errors import LogDirectoryError
from .log_directory import Contents, LogDirectory
from .partition_directory import delete_directory, holds_nothing, topic_id_at
from .state_files import read_state
from .topics_file import TOPICS_FILE, Creation, Topic, decode_topics, is_left_over, left_over

LOGGER: Final = logging.getLogger(__name__)


ADOPTED_CONFIGS: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
"""What a topic is adopted with when nobody said how it was configured: all of it is kept."""
ADOPTED_INTERNAL_CONFIGS: Final = {"cleanup.policy": "compact", "segment.bytes": str(100 * MIB)}
"""Kafka's for its internal topics: the newest value of each key is the state."""
ADOPTED_PRUNED_CONFIGS: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "segment.bytes": str(100 * MIB)}
"""Kafka's for those where several records of a key count."""


def adopted_configs(topic: str) -> Mapping[str, str]:
    """Return the configuration of a topic that is adopted without a known one."""
    if topic in PRUNED_TOPICS:
        return ADOPTED_PRUNED_CONFIGS
    return ADOPTED_INTERNAL_CONFIGS if is_internal(topic) else ADOPTED_CONFIGS


@attrs.define(eq=False, repr=False)
class Found:
    """The contents of all log directories."""

    partitions: dict[TopicPartition, tuple[LogDirectory, str]] = attrs.field(factory=dict)
    """Log directory and path of each partition."""
    doomed: dict[str, TopicPartition] = attrs.field(factory=dict)
    """Partitions that are being deleted, by path."""
    stray: list[tuple[LogDirectory, str]] = attrs.field(factory=list)
    """Directories that are left alone: put aside, or of a partition that its topic does not have."""
    unfinished: list[Creation] = attrs.field(factory=list)
    """Of which something is left that could not be removed."""
    newest: list[Topic] = attrs.field(factory=list)
    """Topics of the newest topics.json."""
    is_uniform: bool = False
    """Whether every directory has the newest topics.json."""


@attrs.define(eq=False, repr=False)
class Catalogue:
    """The copies of topics.json and their generation. Owner: the log manager, one call at a time."""

    fs: FileSystem
    deleted: set[uuid.UUID] = attrs.field(factory=set)
    """Topics that were deleted while a log directory was out of service, which may still hold partitions of them."""
    _generation: int = 0

    def find(self, contents: Sequence[tuple[LogDirectory, Contents]]) -> Found:
        """Everything in every directory. What is left of topics that were deleted without it is on its way out afterwards.

        Raises LogDirectoryError when a partition is there twice.
        """
        found = Found()
        for _, each in contents:
            if each.generation > self._generation:
                self._generation, found.newest, self.deleted = each.generation, each.topics, each.deleted_topic_ids
        topics = {topic.name: topic for topic in found.newest}
        creations = [creation for _, each in contents for creation in each.creations]
        found.is_uniform = all(each.generation == self._generation > 0 for _, each in contents)
        self._undo_deletions(contents, topics)
        for directory, each in contents:
            found.doomed |= each.doomed
            found.stray += [(directory, path) for path in each.stray]
            self._undo_creations(directory, each, topics, found)
            for topic_partition, path in each.partitions.items():
                if self.deleted and topic_id_at(self.fs, path) in self.deleted:
                    self._doom(topic_partition, directory, path, found)
                elif topic_partition in found.partitions:
                    self._choose(topic_partition, directory, path, found, creations)
                else:
                    found.partitions[topic_partition] = directory, path
        return found

    def settle(self, found: Found, adopted_configs: Mapping[str, Mapping[str, str]], *, is_whole: bool) -> list[Topic]:
        """The topics to serve: the newest copy's, without those whose deletion was under way (which is completed here, in
        `found` too), and the adopted ones, configured as `adopted_configs` says. `is_whole`: no log directory is out of
        service; one that is may hold partitions of a topic whose deletion is completed without it."""
        going = {topic_id_at(self.fs, path) for path in found.doomed}
        kept = []
        for topic in found.newest:
            if topic.topic_id in going:
                LOGGER.info("finished the deletion of topic %s", topic.name)
                self._complete_deletion(topic, found)
                self.deleted |= set() if is_whole else {topic.topic_id}
            else:
                kept.append(topic)
        for topic in kept:
            self._put_surplus_aside(topic, found)
        return kept + self._adopt({topic.name for topic in kept}, found, adopted_configs)

    @property
    def generation(self) -> int:
        """Return the generation of the last write of topics.json, or of the last attempt."""
        return self._generation

    def next_generation(self) -> int:
        """The generation to write topics.json with."""
        self._generation += 1
        return self._generation

    def rename(self, directory: LogDirectory, source: str, target: str) -> None:
        """Rename a partition's directory; the new name is on the device when this returns."""
        self.fs.rename(source, target)
        if directory.durable:
            self.fs.sync_directory(directory.path)

    def _adopt(self, names: set[str], found: Found, configs: Mapping[str, Mapping[str, str]]) -> list[Topic]:
        partitions: dict[str, list[TopicPartition]] = {}
        for topic_partition in sorted(found.partitions):
            if topic_partition.topic not in names:
                partitions.setdefault(topic_partition.topic, []).append(topic_partition)
        adopted = []
        for name, there in partitions.items():
            count = there[-1].partition + 1
            if count > MAX_STORED_PARTITIONS:
                raise LogDirectoryError(
                    f"{found.partitions[there[-1]][1]} would be partition {count - 1} of a topic {name!r}, which can have "
                    f"{MAX_STORED_PARTITIONS}. A log directory holds only partitions: move it away"
                )
            topic_id = topic_id_at(self.fs, found.partitions[there[0]][1]) or random_uuid()
            config = dict(configs.get(name, adopted_configs(name)))
            LOGGER.info(
                "topic %s with %d partitions has no entry in topics.json: adopted with %s",
                name,
                count,
                " ".join(f"{key}={value}" for key, value in config.items()) or "the default configuration",
            )
            adopted.append(Topic(name=name, topic_id=topic_id, partitions=count, configs=config))
        return adopted

    def _put_surplus_aside(self, topic: Topic, found: Found) -> None:
        """A partition that the topic does not have: left over by an addition that was cut off."""
        surplus = [tp for tp in found.partitions if tp.topic == topic.name and tp.partition >= topic.partitions]
        found.stray += [found.partitions.pop(topic_partition) for topic_partition in surplus]

    def _choose(
        self,
        topic_partition: TopicPartition,
        directory: LogDirectory,
        path: str,
        found: Found,
        creations: Sequence[Creation],
    ) -> None:
        """A partition that is there twice: one of them may be what a creation began there before it went to the other."""
        here, other = (directory, path), found.partitions[topic_partition]
        ids = {creation.topic_id for creation in creations if creation.covers(topic_partition)}
        known = {each[1]: topic_id_at(self.fs, each[1]) for each in (here, other)}
        for extra in sorted((here, other), key=lambda each: known[each[1]] is not None):
            if ids and known[extra[1]] in {None, *ids} and holds_nothing(self.fs, extra[1]):
                kept = other if extra is here else here
                LOGGER.warning("removing the incomplete %s: it was created again in %s", extra[1], kept[1])
                delete_directory(self.fs, extra[1])
                extra[0].sync_names()
                found.partitions[topic_partition] = kept
                return
        raise LogDirectoryError(f"{topic_partition} is in {other[1]} and in {path}. Move one of them away")

    def _undo_creations(self, directory: LogDirectory, contents: Contents, topics: Mapping[str, Topic], found: Found) -> None:
        """Remove what creations that no topics.json names have left in a directory; it stays removed after a power cut."""
        for creation in contents.creations:
            left = [each for each in contents.partitions.items() if creation.covers(each[0])]
            removed = 0
            try:
                for topic_partition, path in left:
                    if is_left_over(self.fs, [creation], topics, topic_partition, path):
                        del contents.partitions[topic_partition]
                        found.stray.append((directory, path))
                        delete_directory(self.fs, path)
                        found.stray.pop()
                        removed += 1
                directory.sync_names()
            except OSError as exc:
                found.unfinished.append(creation)
                LOGGER.error(
                    "%s: cannot remove leftovers of a failed creation of topic %s: %s", directory.path, creation.name, exc
                )
            if removed:
                LOGGER.warning(
                    "%s: removed unfinished partitions of topic %s: %d to %d unacknowledged when the server ended, %d existed",
                    directory.path,
                    creation.name,
                    creation.first_partition,
                    creation.partitions - 1,
                    removed,
                )

    def _undo_deletions(self, contents: Sequence[tuple[LogDirectory, Contents]], topics: Mapping[str, Topic]) -> None:
        """Take back partitions whose deletion had begun only in directories that were out of service at a later start. The
        topic was served without them since then, and the request that deletes it has had no response."""
        current = [each for _, each in contents if each.generation == self._generation]
        going = {topic_id_at(self.fs, path) for each in current for path in each.doomed}
        kept = {topic.topic_id for topic in topics.values()} - going
        for directory, each in contents:
            for path, topic_partition in list(each.doomed.items()) if each.generation < self._generation else ():
                if topic_id_at(self.fs, path) in kept and topic_partition not in each.partitions:
                    each.partitions[topic_partition] = f"{directory.path}/{topic_partition}"
                    self.rename(directory, path, each.partitions[topic_partition])
                    del each.doomed[path]
                    LOGGER.warning("%s is back: its deletion had begun in %s only", topic_partition, directory.path)

    def _complete_deletion(self, topic: Topic, found: Found) -> None:
        """Take the partitions out that were not renamed yet."""
        for topic_partition in [tp for tp in found.partitions if tp.topic == topic.name]:
            self._doom(topic_partition, *found.partitions.pop(topic_partition), found)

    def _doom(self, topic_partition: TopicPartition, directory: LogDirectory, path: str, found: Found) -> None:
        target = f"{directory.path}/{marked_directory(topic_partition, DELETE_DIR_SUFFIX)}"
        self.rename(directory, path, target)
        found.doomed[target] = topic_partition


@attrs.frozen(kw_only=True)
class StoredTopics:
    """The topics and partitions that a server would serve from one directory."""

    topics: tuple[Topic, ...]
    """By name. `partitions` counts those in other directories too, where topics.json tells of them."""
    partitions: dict[TopicPartition, str]
    """Directory of each partition that is here, sorted."""

    @classmethod
    def read(cls, fs: FileSystem, directory: str) -> Self:
        """Raises LogDirectoryError for a directory that is no partition's, CheckpointError for a bad topics.json."""
        partitions, doomed = _directories(fs, directory)
        listed = read_state(fs, f"{directory}/{TOPICS_FILE}", decode_topics) or (0, [])
        topics = {topic.name: topic for topic in listed[1] if topic.topic_id not in doomed}
        for topic_partition in partitions:
            name, count = topic_partition.topic, topic_partition.partition + 1
            if name not in topics:
                topic_id = topic_id_at(fs, partitions[topic_partition]) or random_uuid()
                topics[name] = Topic(name=name, topic_id=topic_id, partitions=count, configs=dict(adopted_configs(name)))
            elif topics[name].partitions < count:
                topics[name] = attrs.evolve(topics[name], partitions=count)
        return cls(topics=tuple(sorted(topics.values(), key=lambda topic: topic.name)), partitions=partitions)


def _directories(fs: FileSystem, directory: str) -> tuple[dict[TopicPartition, str], set[uuid.UUID]]:
    """(path by partition, ids of topics that are being deleted)."""
    partitions: dict[TopicPartition, str] = {}
    doomed: set[uuid.UUID] = set()
    for name in fs.list_directory(directory):
        path = f"{directory}/{name}"
        if name in IGNORED_DIRECTORIES or not fs.is_directory(path):
            continue
        topic_partition = parse_partition_directory(name)
        if name.endswith(DELETE_DIR_SUFFIX):
            if (topic_id := topic_id_at(fs, path)) is not None:
                doomed.add(topic_id)
        elif not is_marked(name) and topic_partition.topic != CLUSTER_METADATA_TOPIC:
            partitions[topic_partition] = path
    left = left_over(fs, directory, partitions)
    there = {tp: path for tp, path in sorted(partitions.items()) if tp not in left}
    return {tp: path for tp, path in there.items() if topic_id_at(fs, path) not in doomed}, doomed
