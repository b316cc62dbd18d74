"""`producer-id-block`: up to where producer ids may have been given out, in every log directory (our own; Kafka keeps this in
its metadata log and ignores plain files in a log directory).

A text checkpoint (see `checkpoints`) of one line with one number: the first id that was never handed to anybody. Ids are
taken in blocks, and a block is on the device before the first of its ids is given out, so no id is given out twice, whatever
happens. The highest number of all directories counts.
"""

from __future__ import annotations

import secrets
from typing import Final

from ..disk.checkpoints import MAX_CHECKPOINT_BYTES, decode_checkpoint, encode_checkpoint
from ..disk.filesystem import FileSystem, read_file, replace_file
from ..errors import CheckpointError

PRODUCER_ID_BLOCK_FILE: Final = "producer-id-block"
FIRST_PRODUCER_ID: Final = 1 << 40
"""Of a directory without a file."""
MOST_IDS_APART: Final = 1 << 46
"""How far the ids of a copy begin from those of the original at most. Copies of copies stay below 2^53, as JavaScript reads."""


def read_producer_id_block(fs: FileSystem, directory: str) -> int:
    """The first id that is free as far as this directory knows, 0 when it knows nothing. Raises CheckpointError, OSError.

    A file that cannot be read is an error, not 0: ids that are given out twice would mix up two producers' batches.
    """
    path = f"{directory}/{PRODUCER_ID_BLOCK_FILE}"
    try:
        data = read_file(fs, path, max_bytes=MAX_CHECKPOINT_BYTES)
    except FileNotFoundError:
        return 0
    return decode_producer_id_block(path, data)


def decode_producer_id_block(path: str, data: bytes) -> int:
    """The first free id. Raises CheckpointError."""
    entries = decode_checkpoint(path, data, fields=1)
    if len(entries) != 1 or entries[0][0] < 0:
        raise CheckpointError(
            f"{path} has to hold one line with the first free producer id, not {entries}; write `0`, `1` and a number above "
            "every producer id that `triolog dump` shows in the directory into it, one per line"
        )
    return entries[0][0]


def id_apart(first_free_id: int) -> int:
    """Where the ids of a copy of a directory begin. It is drawn: neither the original nor another copy comes there, so that a
    producer that has lived with one of them never shares its id with a producer of another one."""
    return max(first_free_id, FIRST_PRODUCER_ID) + 1 + secrets.randbelow(MOST_IDS_APART)


def write_producer_id_block(fs: FileSystem, directory: str, first_free_id: int, *, durable: bool) -> None:
    """Put the file in place; on the device when this returns. Raises OSError."""
    data = encode_checkpoint([str(first_free_id)])
    replace_file(fs, f"{directory}/{PRODUCER_ID_BLOCK_FILE}", data, durable=durable)
