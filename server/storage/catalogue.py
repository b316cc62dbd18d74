"""Which topics there are, from all log directories together, and where their partitions lie.

`topics.json` is the truth for topics that have an entry; partition directories without one (Kafka's, or those of a creation
that was cut off) are adopted; a deletion that was cut off is completed. Everything here blocks and is run in a thread.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from ...protocol.limits import MIB
from ...protocol.types import TopicPartition
from .checkpoints import random_uuid
from .errors import LogDirectoryError, StorageError
from .filesystem import FileSystem
from .log_directory import Contents, LogDirectory
from .partition_directory import read_topic_id
from .paths import DELETE_DIR_SUFFIX, is_internal, marked_directory
from .topics_file import Topic

LOGGER: Final = logging.getLogger(__name__)


ADOPTED_CONFIGS: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
"""What a topic is adopted with when nobody said how it was configured: all of it is kept."""
ADOPTED_INTERNAL_CONFIGS: Final = {"cleanup.policy": "compact", "segment.bytes": str(100 * MIB)}
"""Kafka's for its internal topics: the newest value of each key is the state."""


@attrs.define(eq=False)
class Found:
    """What lies in the log directories."""

    partitions: dict[TopicPartition, tuple[LogDirectory, str]] = attrs.field(factory=dict)
    """Log directory and path of each partition."""
    doomed: dict[str, TopicPartition] = attrs.field(factory=dict)
    """Partitions that are being deleted, by path."""
    stray: list[tuple[LogDirectory, str]] = attrs.field(factory=list)
    """Directories that are left alone: put aside, or of a partition that its topic does not have."""
    newest: list[Topic] = attrs.field(factory=list)
    """Topics of the newest topics.json."""
    is_uniform: bool = False
    """Whether every directory has the newest topics.json."""


@attrs.define(eq=False)
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
        found.is_uniform = all(each.generation == self._generation > 0 for _, each in contents)
        for directory, each in contents:
            found.doomed |= each.doomed
            found.stray += [(directory, path) for path in each.stray]
            for topic_partition, path in each.partitions.items():
                if self.deleted and self._topic_id(path) in self.deleted:
                    self._doom(topic_partition, directory, path, found)
                elif topic_partition in found.partitions:
                    other = found.partitions[topic_partition][1]
                    raise LogDirectoryError(f"{topic_partition} is in {other} and in {path}; move one of them away")
                else:
                    found.partitions[topic_partition] = directory, path
        return found

    def settle(self, found: Found, adopted_configs: Mapping[str, Mapping[str, str]]) -> list[Topic]:
        """The topics to serve: the newest copy's, without those whose deletion was under way (which is completed here, in
        `found` too), and the adopted ones, configured as `adopted_configs` says."""
        going = {self._topic_id(path) for path in found.doomed}
        kept = []
        for topic in found.newest:
            if topic.topic_id in going:
                LOGGER.info("the deletion of topic %s is completed", topic.name)
                self._complete_deletion(topic, found)
            else:
                kept.append(topic)
        for topic in kept:
            self._put_surplus_aside(topic, found)
        return kept + self._adopt({topic.name for topic in kept}, found, adopted_configs)

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
            topic_id = self._topic_id(found.partitions[there[0]][1]) or random_uuid()
            default = ADOPTED_INTERNAL_CONFIGS if is_internal(name) else ADOPTED_CONFIGS
            config = dict(configs.get(name, default))
            LOGGER.info(
                "topic %s with %d partitions has no entry in topics.json and is adopted with %s",
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

    def _topic_id(self, path: str) -> uuid.UUID | None:
        """The topic that a directory belonged to, None when that cannot be told."""
        try:
            return read_topic_id(self.fs, path)
        except (OSError, StorageError, ValueError):
            return None

    def _complete_deletion(self, topic: Topic, found: Found) -> None:
        """Take the partitions out that were not renamed yet."""
        for topic_partition in [tp for tp in found.partitions if tp.topic == topic.name]:
            self._doom(topic_partition, *found.partitions.pop(topic_partition), found)

    def _doom(self, topic_partition: TopicPartition, directory: LogDirectory, path: str, found: Found) -> None:
        target = f"{directory.path}/{marked_directory(topic_partition, DELETE_DIR_SUFFIX)}"
        self.rename(directory, path, target)
        found.doomed[target] = topic_partition
