"""The map of topics: order, what is not there, and what is there but offline."""

from __future__ import annotations

import pytest
from triolog.protocol.errors import UnknownTopicOrPartitionError
from triolog.protocol.types import TopicPartition
from triolog.server.actors.manager.topics import HostedTopic, OfflinePartition, Topics
from triolog.server.config import LogConfig
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


def test_topics_come_in_the_order_of_their_names() -> None:
    topics = Topics()
    for name in ("b", "c", "a"):
        topics.add(hosted(name))
    assert [each.topic.name for each in topics] == ["a", "b", "c"]
    topics.remove("b")
    assert ("a" in topics, "b" in topics, len(topics)) == (True, False, 2)


def test_what_is_not_there_is_said_with_the_next_step() -> None:
    topics = Topics()
    topics.add(hosted("here", 2))
    with pytest.raises(UnknownTopicOrPartitionError, match="triolog topics create gone"):
        topics.actor(TopicPartition("gone", 0))
    for number in (-1, 2):
        with pytest.raises(UnknownTopicOrPartitionError, match=f"has partitions 0 to 1, not {number}"):
            topics.actor(TopicPartition("here", number))


def test_an_offline_partition_answers_its_error() -> None:
    topics = Topics()
    topics.add(hosted("broken", 2))
    with pytest.raises(LogOfflineError, match="broken-1 is broken"):
        topics.actor(TopicPartition("broken", 1))
    assert [each.topic_partition.partition for each in topics.offline()] == [0, 1]
    assert topics.hosted() == []


def test_every_change_has_another_version() -> None:
    topics = Topics()
    versions = [topics.version]
    found = hosted("topic")
    for change in (lambda: topics.add(found), lambda: topics.add(found), lambda: topics.remove("topic")):
        change()
        versions.append(topics.version)
    assert len(set(versions)) == 4


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
