"""The topics and partitions of a stopped log directory, without opening a log or changing anything: for tools.

Topics are those of `topics.json`, without the ones whose deletion or creation was under way, and those that only their
partitions' directories tell of (Kafka's), which a server would adopt.
"""

from __future__ import annotations

import uuid
from typing import Self

import attrs

from ....protocol.types import TopicPartition
from ..disk.checkpoints import random_uuid
from ..disk.filesystem import FileSystem
from ..disk.paths import (
    CLUSTER_METADATA_TOPIC,
    DELETE_DIR_SUFFIX,
    IGNORED_DIRECTORIES,
    is_marked,
    parse_partition_directory,
)
from .catalogue import adopted_configs
from .creations_file import left_over
from .partition_directory import topic_id_at
from .state_files import read_state
from .topics_file import TOPICS_FILE, Topic, decode_topics


@attrs.frozen(kw_only=True)
class StoredTopics:
    """What a server would serve from one directory."""

    topics: tuple[Topic, ...]
    """By name. `partitions` counts those in other directories too, where topics.json tells of them."""
    partitions: dict[TopicPartition, str]
    """Directory of each partition that is here, sorted."""

    @classmethod
    def read(cls, fs: FileSystem, directory: str) -> Self:
        """Raises LogDirectoryError for a directory that is no partition's, CheckpointError for a bad topics.json."""
        partitions, doomed = _directories(fs, directory)
        topics = {topic.name: topic for topic in _listed(fs, directory) if topic.topic_id not in doomed}
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


def _listed(fs: FileSystem, directory: str) -> list[Topic]:
    path = f"{directory}/{TOPICS_FILE}"
    try:
        return read_state(fs, path, decode_topics)[1]
    except FileNotFoundError:
        return []
