"""The plain records of a batch and its checksum, without keeping anybody waiting: what is small is done on the spot, what is
large is an operation (`diskops.Compute`).
"""

from __future__ import annotations

from typing import Final, cast

from ....protocol.limits import KIB, MIB
from ....protocol.records.batch import COMPRESSION_MASK, RECORD_BATCH_OVERHEAD, BatchHeader, check_batch
from ....protocol.records.unpacking import copied, drop, is_large, measured, records_data, unpack, unpack_at_once
from ....protocol.types import CompressionType
from ..disk.diskops import Compute, Procedure

LIGHT_BYTES: Final = 512 * KIB
"""Unpacked on the spot: gzip, the slowest, takes 1 ms for them."""
LIGHT_PACKED_BYTES: Final = 128 * KIB
BYTES_PER_PAUSE: Final = 128 * KIB
SMALL_BYTES: Final = 4 * KIB
"""So few cannot be many blocks, so that nobody has to pause among them."""
CHECKED_AT_ONCE_BYTES: Final = 8 * MIB
"""Checked on the spot, at 10 GB/s."""


def checked(batch: memoryview, header: BatchHeader) -> Procedure[None]:
    """`check_batch`, as an operation where the batch is large."""
    if len(batch) <= CHECKED_AT_ONCE_BYTES:
        check_batch(batch, header)
    else:
        yield Compute(check_batch, (batch, header))


def unpacked_at_once(batch: memoryview, header: BatchHeader, max_bytes: int) -> bytes | None:
    """What `unpacked` answers where that is but a copy, else None."""
    if header.attributes & COMPRESSION_MASK or len(batch) > MIB:
        return None
    return records_data(batch, header, max_bytes)


def unpacked(batch: memoryview, header: BatchHeader, max_bytes: int) -> Procedure[bytes]:
    """`records_data`, as operations where it takes long. Give its answer to `dropped` once it is used up."""
    records = batch[RECORD_BATCH_OVERHEAD:]
    compression_type = header.compression_type
    if header.records_count <= 0 or (compression_type == CompressionType.NONE and len(records) <= MIB):
        return records_data(batch, header, max_bytes)
    if compression_type == CompressionType.NONE:
        for data in copied(records):
            if data is not None:
                return data
            yield None
    for packed in measured(compression_type, records):
        if packed is None:
            yield None
            continue
        if packed.likely_bytes <= LIGHT_BYTES and len(records) <= LIGHT_PACKED_BYTES:
            for _ in range(packed.likely_bytes // BYTES_PER_PAUSE):
                yield None
            data = unpack_at_once(packed, min(LIGHT_BYTES, max_bytes))
            if data is not None:
                return data
        steps = unpack(packed, max_bytes)
        data = None
        while data is None:
            data = cast("bytes | None", (yield Compute(next, (steps,))))
        return data
    raise AssertionError(header)


def dropped(data: bytes) -> Procedure[None]:
    """Give back what `unpacked` answered."""
    if is_large(data):
        yield Compute(drop, (data,))
