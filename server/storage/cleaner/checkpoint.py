"""`cleaner-offset-checkpoint` of a log directory: up to where each compacted partition is clean (Kafka: LogCleanerManager).

Without an entry, or with one that is not in the log, the whole log counts as dirty: work is repeated, nothing is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from ....protocol.types import TopicPartition
from ..disk.checkpoints import MAX_CHECKPOINT_BYTES, decode_offsets, encode_offsets
from ..disk.filesystem import FileSystem, read_file, replace_file
from ..errors import CheckpointError

LOGGER: Final = logging.getLogger(__name__)

CLEANER_OFFSET_FILE: Final = "cleaner-offset-checkpoint"


def read_cleaner_offsets(fs: FileSystem, directory: str) -> dict[TopicPartition, int]:
    """First dirty offset by partition; a file that cannot be read or understood is taken as empty, and says so."""
    path = f"{directory}/{CLEANER_OFFSET_FILE}"
    try:
        return decode_offsets(path, read_file(fs, path, max_bytes=MAX_CHECKPOINT_BYTES))
    except FileNotFoundError:
        return {}
    except (CheckpointError, OSError, ValueError) as exc:
        LOGGER.warning("%s; compacted logs are cleaned from their start", exc)
        return {}


def write_cleaner_offsets(fs: FileSystem, directory: str, offsets: Mapping[TopicPartition, int], *, durable: bool) -> None:
    replace_file(fs, f"{directory}/{CLEANER_OFFSET_FILE}", encode_offsets(offsets), durable=durable)
