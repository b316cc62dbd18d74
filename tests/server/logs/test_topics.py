"""The map of topics: order, what is not there, and what is there but offline."""

from __future__ import annotations

import pytest
from triolog.protocol.errors import UnknownTopicOrPartitionError
from triolog.protocol.types import TopicPartition
from triolog.server.config import LogConfig
from triolog.server.logs.topics import HostedTopic, OfflinePartition, Topics
from triolog.server.storage.directory.topics_file import Topic
from triolog.server.storage.disk.checkpoints import random_uuid
from triolog.server.storage.errors import LogOfflineError


def hosted(name: str, partitions: int = 1) -> HostedTopic:
    """A topic whose partitions are all offline."""
    found = HostedTopic(Topic(name=name, topic_id=random_uuid(), partitions=partitions), LogConfig(), [])
    for number in range(partitions):
        error = LogOfflineError(f"{name}-{number} is broken")
        found.partitions.append(OfflinePartition(TopicPartition(name, number), error, None))
    return found


def test_topics_come_in_the_order_of_their_names_and_each_change_has_a_version() -> None:
    topics = Topics()
    versions = {topics.version}
    for name in ("b", "c", "a", "a"):
        topics.add(hosted(name))
        versions.add(topics.version)
    assert [each.topic.name for each in topics] == ["a", "b", "c"]
    topics.remove("b")
    assert len({*versions, topics.version}) == 6
    assert ("a" in topics, "b" in topics, len(topics)) == (True, False, 2)


def test_a_partition_that_is_missing_or_offline_is_an_error_with_the_next_step() -> None:
    topics = Topics()
    topics.add(hosted("here", 2))
    with pytest.raises(UnknownTopicOrPartitionError, match="triolog topics create gone"):
        topics.actor(TopicPartition("gone", 0))
    for number in (-1, 2):
        with pytest.raises(UnknownTopicOrPartitionError, match=f"has partitions 0 to 1, not {number}"):
            topics.actor(TopicPartition("here", number))
    with pytest.raises(LogOfflineError, match="here-1 is broken"):
        topics.actor(TopicPartition("here", 1))
    assert [each.topic_partition.partition for each in topics.offline()] == [0, 1]
    assert topics.hosted() == []


def test_of_names_that_collide_one_is_told_as_long_as_there_is_one() -> None:
    topics = Topics()
    first, second = hosted("a.b"), hosted("a_b")
    for each in (first, first, second):  # adopted directories may collide
        topics.add(each)
    assert topics.colliding_with("a.b") == topics.colliding_with("a_b") == "a.b"
    assert topics.colliding_with("a-b") is None
    topics.remove("a.b")
    assert topics.colliding_with("a.b") == "a_b"
    topics.remove("a_b")
    assert topics.colliding_with("a.b") is None
