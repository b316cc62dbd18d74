"""Makes a stopped server's topics mirrors of another server, which has been promoted meanwhile.

Only `topics.json` changes. Each topic there gets the leader epoch in which the other server may write, the one after the latest
epoch here: if this server is promoted, it begins a later one, even if it has copied nothing until then. Once the server runs,
it finds the records that the other one lacks, and sets them aside (see `tools.mirror.link`). The newest cut of an earlier
source, which a power cut may have brought back after a promotion, is deleted before: a promotion would go back to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import attrs

from ...protocol.types import TopicPartition
from ..storage.directory.log_directory import LogDirectory
from ..storage.directory.topics_file import Topic
from ..storage.disk.checkpoints import CUT_FILE, maybe_read
from ..storage.disk.filesystem import FileSystem
from ..storage.disk.paths import partition_directory
from ..storage.errors import CheckpointError, LogDirectoryError
from ..storage.log.leader_epochs import FILE_NAME, decode_leader_epochs


def demote(fs: FileSystem, directories: Sequence[str], source: str) -> list[str]:
    """Let all topics of a server be mirrors of `source`; returns their names. `directories`: every log directory of the server.
    Raises LogDirectoryError, CheckpointError, OSError."""
    with ExitStack() as opened:
        found = []
        for path in directories:
            if not fs.is_directory(path):
                raise LogDirectoryError(f"{path} is not a directory")
            directory = LogDirectory.open(fs, path, durable=True)
            opened.callback(directory.close)
            found.append((directory, directory.contents()))
        newest = max((contents for _, contents in found), key=lambda contents: contents.generation)
        if not newest.topics:
            raise LogDirectoryError(f"{directories[0]} has no topics.json with topics. Name every log directory of the server")
        paths = [directory.path for directory, _ in found]
        topics = [
            attrs.evolve(topic, mirror_of=source, source_epoch=max(topic.source_epoch, epoch + 1), was_own=True)
            for topic, epoch in [(topic, _latest_epoch(fs, paths, topic)) for topic in newest.topics]
        ]
        for directory, _ in found:
            _forget_cut(fs, directory.path)
        for directory, _ in found:
            directory.write_topics(newest.generation + 1, topics, newest.deleted_topic_ids)
        return [topic.name for topic in topics]


def _latest_epoch(fs: FileSystem, directories: Sequence[str], topic: Topic) -> int:
    latest = 0
    for number in range(topic.partitions):
        name = partition_directory(TopicPartition(topic.name, number))
        for directory in directories:
            try:
                epochs = maybe_read(fs, f"{directory}/{name}/{FILE_NAME}", decode_leader_epochs)
            except CheckpointError as exc:
                raise CheckpointError(f"{exc}. Start the server and stop it, or run `triolog repair`, then try again") from exc
            latest = max(latest, 0 if epochs is None else epochs.latest_epoch or 0)
    return latest


def _forget_cut(fs: FileSystem, directory: str) -> None:
    path = f"{directory}/{CUT_FILE}"
    if fs.file_size(path) is not None:
        fs.unlink(path)
        fs.sync_directory(directory)
