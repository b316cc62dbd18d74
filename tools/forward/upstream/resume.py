"""Where a partition goes on: what the upstream's group says, what the source's says, and whether both speak of this log. Pure.

The offset that the upstream has committed is the truth: it was committed together with the records before it. Its metadata is
the id of the source's topic. The same is noted in the source, where it may be some records older. An upstream that knows
nothing any more (its `offsets.retention.minutes` have passed, its topic was deleted), or was never reached, leaves what the
source has noted.
"""

from __future__ import annotations

import attrs

from ....protocol.types import TopicPartition
from ...client.procedures.groups import CommittedOffset
from ..errors import TopicStoppedError
from ..source.source import OffsetRange


@attrs.frozen(kw_only=True)
class Resumed:
    """Where to go on."""

    offset: int
    is_first: bool = False
    """Nothing was ever forwarded."""
    avoided: int = 0
    """Records that whoever believes the source's note would send once more."""
    note: str | None = None
    """For the log."""


def resume(
    partition: TopicPartition,
    topic_id: str,
    there: OffsetRange,
    upstream: CommittedOffset | None,
    local: CommittedOffset | None,
    start: int,
) -> Resumed:
    """Where a partition goes on. Raises TopicStoppedError for a log that is not the one that was forwarded."""
    known = upstream or local
    if known is None:
        return Resumed(offset=start, is_first=True)
    where = "the upstream" if upstream is not None else "the source's group"
    if known.metadata and known.metadata != topic_id:
        raise TopicStoppedError(
            partition.topic,
            f"it was deleted and made again: {where} has offset {known.offset} of the topic with id {known.metadata}, this one "
            f"is {topic_id}; `triolog forward reset --topic {partition.topic} --start earliest` forwards the new one from its "
            "beginning",
        )
    if known.offset > there.end_offset:
        raise TopicStoppedError(
            partition.topic,
            f"the source is behind: {where} has partition {partition.partition} up to {known.offset} and the source ends at "
            f"{there.end_offset}, as after a restore from an older backup; `triolog forward reset --topic {partition.topic} "
            "--start latest` goes on with what comes from now on, `--start earliest` sends everything again",
        )
    if upstream is None:
        note = f"{partition}: the upstream has no offset; going on at {known.offset}, as noted in the source"
        return Resumed(offset=known.offset, note=note)
    avoided = upstream.offset - local.offset if local is not None and local.metadata == topic_id else 0
    return Resumed(offset=upstream.offset, avoided=max(0, avoided))
