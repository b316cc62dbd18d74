"""Names of directories and files."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import InvalidTopicError
from triolog.protocol.types import TopicPartition
from triolog.server.storage.disk import paths
from triolog.server.storage.errors import LogDirectoryError


def test_names_that_are_no_partitions_are_refused() -> None:
    """Kafka: LocalLogTest.testParseTopicPartitionNameForMissingSeparator, testParseTopicPartitionNameForMissingTopic,
    testParseTopicPartitionNameForMissingPartition, testParseTopicPartitionNameForInvalidPartition,
    testParseTopicPartitionNameForExistingInvalidDir."""
    for name in (
        *("test_topic1999", "-1999", "test_topic-", "test_topic-1999a", "non_kafka_dir", "non_kafka_dir-delete"),
        *("topic-1-delete", "-delete", "", "topic-2147483648", "topic-\u0663"),
    ):
        with pytest.raises(LogDirectoryError, match=re.escape(repr(name))):
            paths.parse_partition_directory(name)


def test_a_directory_is_split_at_its_last_dash() -> None:
    """Kafka: LocalLogTest.testParseTopicPartitionName, testParseTopicPartitionNameWithPeriodForDeletedTopic."""
    mark = "0123456789abcdef0123456789abcdef"
    for name, partition in {
        "test_topic-1999": ("test_topic", 1999),
        "a-b-3": ("a-b", 3),
        "foo--1": ("foo-", 1),
        "foo.bar-0": ("foo.bar", 0),
        f"foo.bar-3.{mark}-delete": ("foo.bar", 3),
        f"foo-3.{mark}-stray": ("foo", 3),
        f"foo-3.{mark}-future": ("foo", 3),
    }.items():
        assert paths.parse_partition_directory(name) == partition


@pytest.mark.parametrize("suffix", [paths.DELETE_DIR_SUFFIX, paths.STRAY_DIR_SUFFIX])
def test_a_marked_directory_has_at_most_255_characters(suffix: str) -> None:
    """Kafka: LocalLogTest.testLogDeleteDirName."""
    names = [paths.marked_directory(TopicPartition("foo", 3), suffix) for _ in range(2)]
    assert all(re.fullmatch(r"foo-3\.[0-9a-f]{32}" + suffix, name) for name in names)
    assert names[0] != names[1]
    name = paths.marked_directory(TopicPartition("n" * 249, 5), suffix)
    assert len(name) == 255
    assert paths.is_marked(name)
    assert paths.parse_partition_directory(name) == ("n" * (220 - len(suffix)), 5)


@given(st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True), st.integers(0, 2**31 - 1))
def test_every_topic_name_reads_back_from_its_directory(topic: str, partition: int) -> None:
    found = TopicPartition(topic, partition)
    assert paths.parse_partition_directory(paths.partition_directory(found)) == found


@given(st.integers(0, 2**63 - 1), st.sampled_from([".log", ".index", ".timeindex", ".snapshot"]))
def test_a_segment_file_is_named_by_20_digits(base_offset: int, suffix: str) -> None:
    name = paths.segment_file(base_offset, suffix)
    assert re.fullmatch(r"\d{20}" + re.escape(suffix), name)
    assert paths.base_offset_of(name) == base_offset
    for other in ("leader-epoch-checkpoint", "1.log", "0000000000000000000a.log", name[:20], "0" + name):
        assert paths.base_offset_of(other) is None


def test_topic_names_are_those_of_kafka() -> None:
    for topic in ("a", "...", "n" * 249, "a.b_c-D9", "__consumer_offsets"):
        paths.check_topic_name(topic)
    for topic in ("", ".", "..", "n" * 250, "a b", "a/b", "a\n", "\u00fc", "a:b"):
        with pytest.raises(InvalidTopicError):
            paths.check_topic_name(topic)
    assert paths.collision_key("a.b_c") == paths.collision_key("a_b.c") != paths.collision_key("a-b_c")
