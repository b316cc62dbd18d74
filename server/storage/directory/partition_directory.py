"""Making and deleting the directory of a partition. Blocks; run in a thread.

What a new one holds: `partition.metadata`, `leader-epoch-checkpoint` and an empty first segment. All of it is on the device
when it was made; that its own name is too, before the creation is answered, is for whoever makes several of them.
"""

from __future__ import annotations

import uuid
from typing import Final

from ....protocol.limits import MIB
from ..disk.checkpoints import (
    PARTITION_METADATA_FILE,
    InconsistentTopicIdError,
    decode_partition_metadata,
    encode_partition_metadata,
    encode_uuid,
    maybe_read,
)
from ..disk.diskops import drive
from ..disk.filesystem import FileSystem, read_at, replace_file, sync_file
from ..disk.paths import LOG_SUFFIX, base_offset_of, segment_file
from ..errors import LogDirectoryError, StorageError
from ..log.changes import raise_leader_epoch
from ..log.log import Log
from ..recovery.recovery import OpenLog, open_log

_FIRST_LOG: Final = segment_file(0, LOG_SUFFIX)
_LOOK_BYTES: Final = MIB
"""Of a log that must be empty; where its first batch is not zeros there is something."""


def create_partition(fs: FileSystem, request: OpenLog, topic_id: uuid.UUID, leader_epoch: int = 0) -> Log:
    """Make the directory and open the empty log in it, in a leader epoch.

    Raises LogDirectoryError when records lie there already, or may. After an OSError the directory can be deleted: nothing in
    it is anybody's.
    """
    fs.make_directory(request.directory)
    _check_vacant(fs, request.directory)
    metadata = encode_partition_metadata(topic_id)
    path = f"{request.directory}/{PARTITION_METADATA_FILE}"
    replace_file(fs, path, metadata, durable=False)
    log = open_log(fs, request)
    if leader_epoch:
        drive(fs, raise_leader_epoch(log, above=leader_epoch - 1))
    if request.sync_metadata:
        sync_file(fs, path)
        fs.sync_directory(request.directory)
        log.names_synced = log.names_created
    return log


def _check_vacant(fs: FileSystem, directory: str) -> None:
    """Raise LogDirectoryError if the directory holds records. Leftovers of an interrupted creation are fine."""
    try:
        logs = [name for name in fs.list_directory(directory) if name.endswith(LOG_SUFFIX)]
        taken = [name for name in logs if fs.file_size(f"{directory}/{name}")]
    except OSError as exc:
        raise LogDirectoryError(
            f"cannot check {directory}: {exc}. It may hold records of a partition that is not served. Move it away first"
        ) from exc
    if taken:
        raise LogDirectoryError(f"{directory}/{taken[0]} holds records of a partition that is not served. Move it away first")


def check_topic_id(fs: FileSystem, directory: str, topic_id: uuid.UUID) -> None:
    """Raises InconsistentTopicIdError when the directory belongs to another topic of that name."""
    found = read_topic_id(fs, directory)
    if found not in (None, topic_id):
        raise InconsistentTopicIdError(
            f"{directory}/{PARTITION_METADATA_FILE} has topic id {encode_uuid(found)}, the topic has "
            f"{encode_uuid(topic_id)}: the directory belongs to another topic of that name. Move it away"
        )


def read_topic_id(fs: FileSystem, directory: str) -> uuid.UUID | None:
    """The id in `partition.metadata`, None when there is no such file. Raises CheckpointError."""
    return maybe_read(fs, f"{directory}/{PARTITION_METADATA_FILE}", decode_partition_metadata)


def topic_id_at(fs: FileSystem, directory: str) -> uuid.UUID | None:
    """The topic that a directory belongs to, None when that cannot be told."""
    try:
        return read_topic_id(fs, directory)
    except (OSError, StorageError, ValueError):
        return None


def holds_nothing(fs: FileSystem, directory: str) -> bool:
    """Return whether a partition's directory holds only small files and a first segment without a record. The segment may have
    zeros where space was reserved. Raises OSError."""
    for name in fs.list_directory(directory):
        path = f"{directory}/{name}"
        if fs.is_directory(path) or base_offset_of(name) not in (None, 0):
            return False
        if LOG_SUFFIX in name and (name != _FIRST_LOG or any(read_at(fs, path, 0, _LOOK_BYTES))):
            return False
    return True


def delete_directory(fs: FileSystem, path: str) -> None:
    """Delete a partition's directory with all in it; one that is gone is fine."""
    if not fs.is_directory(path):
        return
    for name in fs.list_directory(path):
        child = f"{path}/{name}"
        if fs.is_directory(child):
            delete_directory(fs, child)
        else:
            fs.unlink(child)
    fs.remove_directory(path)
