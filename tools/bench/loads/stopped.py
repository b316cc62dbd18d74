"""A data directory as a server leaves it after an orderly stop, with a log in it that is too large to be written."""

from __future__ import annotations

from pathlib import Path

from ....protocol.types import TopicPartition
from ....server.storage.disk.checkpoints import HIGH_WATERMARK_FILE, RECOVERY_POINT_FILE, encode_offsets
from ....server.storage.disk.paths import LOG_SUFFIX, base_offset_of
from ....server.storage.log.leader_epochs import FILE_NAME as LEADER_EPOCH_FILE
from ....server.storage.log.leader_epochs import EpochEntry, LeaderEpochs
from ....server.storage.producers.producer_snapshots import encode_snapshot, snapshot_path
from .sparse_log import generate

VALUE_BYTES = 1628
"""Ten of them make a batch of 16 KiB."""


def put_sparse_log(*, data: str, topic: str, segments: int, segment_bytes: int) -> dict[str, int]:
    """Put a sparse log into partition 0 of a topic that is empty, and let the checkpoints know it."""
    directory = Path(data, f"{topic}-0")
    for path in directory.iterdir():
        if base_offset_of(path.name) is not None:
            path.unlink()
    made = generate(
        str(directory), segments=segments, segment_bytes=segment_bytes, targets_per_segment=0, value_bytes=VALUE_BYTES
    )
    nobody = encode_snapshot([])
    bases = [base_offset_of(path.name) for path in sorted(directory.glob(f"*{LOG_SUFFIX}"))]
    for offset in (*bases[1:], made.end_offset):
        assert offset is not None
        Path(snapshot_path(str(directory), offset)).write_bytes(nobody)
    Path(directory, LEADER_EPOCH_FILE).write_bytes(LeaderEpochs([EpochEntry(0, 0)]).encode())
    offsets = encode_offsets({TopicPartition(topic, 0): made.end_offset})
    for name in (RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE):
        Path(data, name).write_bytes(offsets)
    return {"size_bytes": made.size_bytes, "end_offset": made.end_offset}
