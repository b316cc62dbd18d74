"""Where a link begins, noted in the source before the upstream was ever reached.

What is lost from then on is a gap that the upstream is told of, and no later beginning. Not for `latest`, whose note would let
retention take records that an upstream, asked later, turns out not to have.
"""

from __future__ import annotations

from ...protocol.types import LATEST_TIMESTAMP, TopicPartition
from ..client.procedures.groups import CommittedOffset
from .memory import LinkMemory
from .settings.names import wanted_topics


def note_beginning(memory: LinkMemory) -> None:
    """Of partitions of which nothing is noted, unless their topic was created again. Raises SourceFailedError."""
    settings, source = memory.settings, memory.source
    if settings.start.timestamp == LATEST_TIMESTAMP:
        return
    topics = source.topics()
    ids = {
        TopicPartition(name, number): topics[name].topic_id
        for name in wanted_topics(settings.topics, settings.topic_pattern, topics)
        if memory.topic_ids.known(name) in (None, topics[name].topic_id)
        for number in topics[name].partitions
    }
    unknown = ids.keys() - memory.begun.keys()
    noted = source.committed(memory.group, unknown)
    begins = source.locate(unknown - noted.keys(), settings.start)
    if begins:
        source.commit(memory.group, {part: CommittedOffset(offset, ids[part]) for part, offset in begins.items()})
    memory.begun |= {part: begins.get(part) for part in unknown}
