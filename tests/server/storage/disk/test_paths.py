"""Names of directories and files."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import InvalidTopicError
from triolog.protocol.types import TopicPartition
from triolog.server.storage.disk.paths import (
    DELETE_DIR_SUFFIX,
    STRAY_DIR_SUFFIX,
    base_offset_of,
    check_topic_name,
    collision_key,
    is_marked,
    marked_directory,
    parse_partition_directory,
    partition_directory,
    segment_file,
)
from triolog.server.storage.errors import LogDirectoryError


@pytest.mark.parametrize(
    "name",
    [
        "test_topic1999",
        "-1999",
        "test_topic-",
        "test_topic-1999a",
        "non_kafka_dir",
        "non_kafka_dir-delete",
        "topic-1-delete",
        "-delete",
        "",
        "topic-2147483648",
        "topic-\u0663",
    ],
)
def test_names_that_are_no_partitions_are_refused(name: str) -> None:
    """Kafka: LocalLogTest.testParseTopicPartitionNameForMissingSeparator, testParseTopicPartitionNameForMissingTopic,
    testParseTopicPartitionNameForMissingPartition, testParseTopicPartitionNameForInvalidPartition,
    testParseTopicPartitionNameForExistingInvalidDir."""
    with pytest.raises(LogDirectoryError, match=re.escape(repr(name))):
        parse_partition_directory(name)


@pytest.mark.parametrize(
    ("name", "topic", "partition"),
    [
        ("test_topic-1999", "test_topic", 1999),
        ("a-b-3", "a-b", 3),
        ("foo--1", "foo-", 1),
        ("foo.bar-0", "foo.bar", 0),
        ("foo.bar-3.0123456789abcdef0123456789abcdef-delete", "foo.bar", 3),
        ("foo-3.0123456789abcdef0123456789abcdef-stray", "foo", 3),
        ("foo-3.0123456789abcdef0123456789abcdef-future", "foo", 3),
    ],
)
def test_a_directory_is_split_at_its_last_dash(name: str, topic: str, partition: int) -> None:
    """Kafka: LocalLogTest.testParseTopicPartitionName, testParseTopicPartitionNameWithPeriodForDeletedTopic."""
    assert parse_partition_directory(name) == (topic, partition)


@pytest.mark.parametrize("suffix", [DELETE_DIR_SUFFIX, STRAY_DIR_SUFFIX])
def test_a_marked_directory_has_at_most_255_characters(suffix: str) -> None:
    """Kafka: LocalLogTest.testLogDeleteDirName."""
    assert re.fullmatch(r"foo-3\.[0-9a-f]{32}" + suffix, marked_directory(TopicPartition("foo", 3), suffix))
    longest = TopicPartition("n" * 249, 5)
    name = marked_directory(longest, suffix)
    assert len(name) == 255
    assert is_marked(name)
    assert parse_partition_directory(name).partition == 5


def test_the_topic_of_a_deleted_directory_is_cut_to_213_characters() -> None:
    """Kafka: LocalLogTest.testLogDeleteDirName."""
    name = marked_directory(TopicPartition("n" * 249, 5), DELETE_DIR_SUFFIX)
    assert parse_partition_directory(name) == ("n" * 213, 5)


def test_marked_names_are_unique() -> None:
    partition = TopicPartition("foo", 3)
    assert marked_directory(partition, DELETE_DIR_SUFFIX) != marked_directory(partition, DELETE_DIR_SUFFIX)


@given(st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True), st.integers(0, 2**31 - 1))
def test_every_topic_name_reads_back_from_its_directory(topic: str, partition: int) -> None:
    found = TopicPartition(topic, partition)
    assert parse_partition_directory(partition_directory(found)) == found


@given(st.integers(0, 2**63 - 1), st.sampled_from([".log", ".index", ".timeindex", ".snapshot"]))
def test_a_segment_file_is_named_by_20_digits(base_offset: int, suffix: str) -> None:
    name = segment_file(base_offset, suffix)
    assert re.fullmatch(r"\d{20}" + re.escape(suffix), name)
    assert base_offset_of(name) == base_offset


@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", "1.log", "0000000000000000000a.log", "0" * 20, "0" * 21 + ".log"])
def test_other_files_have_no_base_offset(name: str) -> None:
    assert base_offset_of(name) is None


@pytest.mark.parametrize("topic", ["", ".", "..", "n" * 250, "a b", "a/b", "a\n", "\u00fc", "a:b"])
def test_topic_names_that_kafka_refuses_are_refused(topic: str) -> None:
    with pytest.raises(InvalidTopicError):
        check_topic_name(topic)


@pytest.mark.parametrize("topic", ["a", "...", "n" * 249, "a.b_c-D9", "__consumer_offsets"])
def test_topic_names_that_kafka_takes_are_taken(topic: str) -> None:
    check_topic_name(topic)


def test_topics_that_differ_in_dots_and_underscores_only_collide() -> None:
    assert collision_key("a.b_c") == collision_key("a_b.c") != collision_key("a-b_c")
