"""The partition of rows without a key."""

from __future__ import annotations

from ...client.sending import partitioner


def sticky_partition(topic: str, application: str, version: int, spark_partition: int, partitions: int) -> int:
    """The one partition for all rows without a key that a task writes to a topic; the same when the task is tried again."""
    named = f"{topic}/{application}/{version}/{spark_partition}".encode()
    return partitioner.partition_for_key(named, partitions)
