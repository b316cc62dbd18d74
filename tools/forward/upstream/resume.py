"""Finds a partition's next offset from the groups of the upstream and the source; both must belong to this log. Pure.

The offset that the upstream has committed is the truth: it was committed together with the records before it. Its metadata is
a `Mark`: the id of the source's topic, and the last record that went. The same is noted in the source, where it may be some
records older, and where also a partition has an offset that has sent nothing yet. An upstream that knows nothing any more (its
`offsets.retention.minutes` have passed, its topic was deleted), or was never reached, leaves what the source has noted.

A topic that was made anew has another id. A source that was restored from an older backup ends before the offset, or, when it
has grown since, has another record where the last one was; that is seen by its timestamp, where it has one.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Self

import attrs

from ....protocol.types import TopicPartition
from ...client.procedures.groups import CommittedOffset
from ..errors import TopicStoppedError
from ..source.source import OffsetRange


@attrs.frozen
class Mark:
    """The metadata of an offset: `<topic id> <offset>:<timestamp>` of the last forwarded record before it, or only an id."""

    topic_id: str
    last_offset: int = -1
    """-1: nothing went yet."""
    timestamp: int = -1

    @classmethod
    def parse(cls, metadata: str | None) -> Self | None:
        """None for what is no mark: an offset that somebody has committed by hand."""
        topic_id, _, last = (metadata or "").partition(" ")
        offset, _, timestamp = last.partition(":")
        if not topic_id:
            return None
        try:
            return cls(topic_id, int(offset), int(timestamp))
        except ValueError:
            return cls(topic_id)

    def __str__(self) -> str:
        return self.topic_id if self.last_offset < 0 else f"{self.topic_id} {self.last_offset}:{self.timestamp}"


@attrs.frozen(kw_only=True)
class Resumed:
    """The offset at which a partition resumes."""

    offset: int
    is_first: bool = False
    """Nothing was ever forwarded."""
    avoided: int = 0
    """Records that whoever believes the source's note would send once more."""
    note: str | None = None
    """For the log."""
    mark: Mark | None = None
    """Of what went last."""


def resume(
    partition: TopicPartition,
    topic_id: str,
    there: OffsetRange,
    upstream: CommittedOffset | None,
    local: CommittedOffset | None,
    start: int,
) -> Resumed:
    """Return the offset at which a partition resumes. Raises TopicStoppedError when the log is not the forwarded one."""
    known = upstream or local
    if known is None:
        return Resumed(offset=start, is_first=True)
    where = "the upstream" if upstream is not None else "the source's group"
    mark = Mark.parse(known.metadata)
    if mark is not None and mark.topic_id != topic_id:
        raise TopicStoppedError(
            partition.topic,
            f"it was deleted and created again: {where} has offset {known.offset} of the topic with id "
            f"{mark.topic_id}, this one is {topic_id}. `triolog forward reset --topic {partition.topic} -o start` "
            "forwards the new one from its start",
        )
    if known.offset > there.end_offset:
        raise TopicStoppedError(
            partition.topic,
            f"the source has lost records, as after a restore from an older backup: {where} has partition "
            f"{partition.partition} up to {known.offset} and the source ends at {there.end_offset}. `triolog "
            f"forward reset --topic {partition.topic} -o end` continues with new records, `-o start` sends "
            "everything again",
        )
    if upstream is None:
        note = f"{partition}: the upstream has lost its offset; continuing at {known.offset}, as noted in the source"
        has_sent = mark is not None and mark.last_offset >= 0
        return Resumed(offset=known.offset, note=note if has_sent else None, mark=mark)
    noted = None if local is None else Mark.parse(local.metadata)
    avoided = upstream.offset - local.offset if local is not None and noted is not None and noted.topic_id == topic_id else 0
    return Resumed(offset=upstream.offset, avoided=max(0, avoided), mark=mark)


def check_topic(topic: str, topic_id: str, forwarded_id: str | None, noted_ids: Collection[str]) -> None:
    """The topic is the one that was forwarded last, or one that `triolog forward reset` has noted an offset of: what the source
    had noted of another one went with it. Raises TopicStoppedError."""
    if forwarded_id not in (None, topic_id) and topic_id not in noted_ids:
        raise TopicStoppedError(
            topic,
            f"it was deleted and created again: the topic with id {forwarded_id} was forwarded, this one is "
            f"{topic_id}. `triolog forward reset --topic {topic} -o start` forwards the new one from its start",
        )


def check_last(partition: TopicPartition, mark: Mark, timestamp: int) -> None:
    """The source's record at the mark is the one that went. Raises TopicStoppedError."""
    if timestamp >= 0 and mark.timestamp >= 0 and timestamp != mark.timestamp:
        raise TopicStoppedError(
            partition.topic,
            f"the source is another one: the record at offset {mark.last_offset} of partition "
            f"{partition.partition} has time {timestamp}, but the last forwarded one had {mark.timestamp}, as "
            "after a restore from an older backup that has grown since. `triolog forward reset --topic "
            f"{partition.topic} -o OFFSET` sets the position",
        )
