"""Making and deleting the directory of a partition. Blocks; run in a thread.

What a new one holds: `partition.metadata`, `leader-epoch-checkpoint` and an empty first segment, all on the device before
the creation is answered.
"""

from __future__ import annotations

import uuid

from .checkpoints import (
    MAX_CHECKPOINT_BYTES,
    PARTITION_METADATA_FILE,
    InconsistentTopicIdError,
    decode_partition_metadata,
    encode_partition_metadata,
    encode_uuid,
)
from .errors import LogDirectoryError
from .filesystem import FileSystem, read_file, replace_file
from .log import Log
from .paths import LOG_SUFFIX
from .recovery import OpenLog, open_log


def create_partition(fs: FileSystem, request: OpenLog, topic_id: uuid.UUID) -> Log:
    """Make the directory and open the empty log in it.

    Raises LogDirectoryError when records lie there already, or may. After an OSError the directory can be deleted: nothing in
    it is anybody's.
    """
    fs.make_directory(request.directory)
    _check_vacant(fs, request.directory)
    metadata = encode_partition_metadata(topic_id)
    replace_file(fs, f"{request.directory}/{PARTITION_METADATA_FILE}", metadata, durable=request.sync_metadata)
    log = open_log(fs, request)
    if request.sync_metadata:
        fs.sync_directory(request.directory)
        fs.sync_directory(request.directory.rpartition("/")[0])
        log.names_synced = log.names_created
    return log


def _check_vacant(fs: FileSystem, directory: str) -> None:
    """What a creation that was cut off left behind is fine; records never are."""
    try:
        logs = [name for name in fs.list_directory(directory) if name.endswith(LOG_SUFFIX)]
        taken = [name for name in logs if fs.file_size(f"{directory}/{name}")]
    except OSError as exc:
        raise LogDirectoryError(
            f"{directory} cannot be looked at: {exc}; it may hold records of a partition that is not served: move it away first"
        ) from exc
    if taken:
        raise LogDirectoryError(f"{directory}/{taken[0]} holds records of a partition that is not served; move it away first")


def check_topic_id(fs: FileSystem, directory: str, topic_id: uuid.UUID) -> None:
    """Raises InconsistentTopicIdError when the directory belongs to another topic of that name."""
    path = f"{directory}/{PARTITION_METADATA_FILE}"
    found = read_topic_id(fs, directory)
    if found is not None and found != topic_id:
        raise InconsistentTopicIdError(
            f"{path} has topic id {encode_uuid(found)}, the topic has {encode_uuid(topic_id)}: "
            "the directory was left by another topic of that name; move it away"
        )


def read_topic_id(fs: FileSystem, directory: str) -> uuid.UUID | None:
    """The id in `partition.metadata`, None when there is no such file. Raises CheckpointError."""
    path = f"{directory}/{PARTITION_METADATA_FILE}"
    try:
        return decode_partition_metadata(path, read_file(fs, path, max_bytes=MAX_CHECKPOINT_BYTES))
    except FileNotFoundError:
        return None


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
