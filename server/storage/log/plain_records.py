"""Plain records that the server packs into one batch, with the topic's codec."""

from __future__ import annotations

from collections.abc import Sequence

from ....protocol.errors import RecordTooLargeError
from ....protocol.records.builder import BatchBuilder, encode_header_steps
from ....protocol.records.steps import STEPS_PER_PAUSE, BatchLimits
from ....protocol.types import CompressionType, TopicPartition
from ...config import LogConfig
from ..disk.diskops import Compute, Procedure
from .prepare import PACKED_AT_ONCE_BYTES, PreparedAppend, prepare_steps
from .prepare_one import prepare_one

PlainRecord = tuple[int | None, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]
"""(timestamp in ms or None for now, key, value, headers)."""

STEPS_PER_RECORD = 4
FEW_HEADERS = 16


def prepare_records(
    records: Sequence[PlainRecord],
    topic_partition: TopicPartition,
    config: LogConfig,
    *,
    now_ms: int,
    limits: BatchLimits,
) -> Procedure[PreparedAppend]:
    """Pack and check them as what a client has packed. Raises what `prepare_steps` raises, ValueError for a record that
    cannot be packed."""
    codec = config.compression_type or CompressionType.NONE
    most_bytes = config.max_message_bytes if codec is CompressionType.NONE else limits.unpacked_bytes
    builder = BatchBuilder(compression_type=codec, compression_level=config.compression_level(codec))
    unsaid = 0
    for index, (timestamp, key, value, headers) in enumerate(records):
        limits.check_headers(len(headers), index)
        stamp = now_ms if timestamp is None else timestamp
        if len(headers) <= FEW_HEADERS:
            builder.append(stamp, key, value, headers)
        else:
            for encoded in encode_header_steps(headers):
                if encoded is None:
                    yield None
                else:
                    builder.append_encoded(stamp, key, value, encoded)
        if builder.estimated_size_bytes > most_bytes:
            raise RecordTooLargeError(
                f"{topic_partition}: {index + 1} of {len(records)} records take {builder.estimated_size_bytes} bytes, at most "
                f"{most_bytes} are allowed; send fewer at a time"
            )
        unsaid += STEPS_PER_RECORD + len(headers)
        if unsaid > STEPS_PER_PAUSE:
            unsaid = 0
            yield None
    is_small = builder.estimated_size_bytes <= PACKED_AT_ONCE_BYTES or codec is CompressionType.NONE
    batch = builder.build() if is_small else (yield Compute(builder.build, ()))
    prepared = prepare_one(batch, config, now_ms, limits)
    if prepared is not None:
        return prepared
    return (yield from prepare_steps(batch, topic_partition, config, now_ms=now_ms, limits=limits))
