"""The server's topics, as groups look at them."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from ....groups.consumer_values import TopicMetadata
from ....logs.topics import Topics


@attrs.frozen
class ServerTopics:
    """See the module; a `TopicImage` of `server.groups`."""

    topics: Topics

    @property
    def version(self) -> int:
        return self.topics.version

    def find(self, name: str) -> TopicMetadata | None:
        if name not in self.topics:
            return None
        topic = self.topics.get(name).topic
        return TopicMetadata(topic.topic_id.bytes, topic.partitions)

    def names(self) -> Iterable[str]:
        return [hosted.topic.name for hosted in self.topics]
