"""Whether the topics that a group is subscribed to are still those that they were."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from ..consumer_values import TopicImage


def metadata_hash(names: Iterable[str], topics: TopicImage) -> int:
    """Another one when one of these topics was made, deleted, made anew or given more partitions. 64 bits with a sign."""
    digest = hashlib.blake2b(digest_size=8)
    for name in sorted(names):
        found = topics.find(name)
        if found is not None:
            digest.update(found.topic_id + found.partitions.to_bytes(4) + len(name.encode()).to_bytes(4) + name.encode())
    return int.from_bytes(digest.digest(), signed=True)
