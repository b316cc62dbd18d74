"""Kafka's small text files, and names of directories and files."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import InvalidTopicError
from triolog.protocol.limits import INT64_MAX
from triolog.protocol.types import TopicPartition
from triolog.server.storage.disk import checkpoints, paths
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.errors import CheckpointError, LogDirectoryError

FOO, BAR = TopicPartition("foo", 0), TopicPartition("bar", 3)
TOPIC_ID = uuid.UUID("c2acf7d7-591e-4689-a804-fb2b3703c088")
TOPICS = st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True)


@given(st.dictionaries(st.builds(TopicPartition, TOPICS, st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1)))
def test_offsets_are_version_count_and_a_line_each_and_are_read_back(offsets: dict[TopicPartition, int]) -> None:
    """Kafka: OffsetCheckpointFileWithFailureHandlerTest.shouldPersistAndOverwriteAndReloadFile."""
    data = checkpoints.encode_offsets(offsets)
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    assert data == "".join(f"{line}\n" for line in ("0", len(offsets), *lines)).encode()
    assert checkpoints.decode_offsets("file", data) == offsets


@pytest.mark.parametrize(
    ("data", "offsets"),
    [
        *((nothing, {}) for nothing in (b"", b"0\n", b"0\n0\n")),
        pytest.param(b"0\n2\nfoo 0 10\nfoo 0 11\n", {FOO: 11}, id="the last of two lines"),
        pytest.param(b"0\n1\nfoo \t 0   10\n", {FOO: 10}, id="any white space"),
    ],
)
def test_what_others_write_is_read(data: bytes, offsets: dict[TopicPartition, int]) -> None:
    assert checkpoints.decode_offsets("file", data) == offsets


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"1\n0\n", "has version '1', 0 is known"),
        (b"x\n", "has version 'x'"),
        (b"0\nx\n", "'x' is not a whole number"),
        (b"0\n2\nfoo 0 10\n", "has 1 entries, but its count is 2"),
        (b"0\n1\nfoo 0 10\nbar 0 1\n", "has 2 entries, but its count is 1"),
        (b"0\n1\nfoo 0\n", "has 2 fields, expected 3"),
        (b"0\n1\nfoo 0 10 5\n", "has 4 fields"),
        (b"0\n1\nfoo x 10\n", "'x' is not a whole number"),
        (b"0\n1\nfoo 0 10\n\n", "has 0 fields"),
        (b"0\n1\nfoo 0 1_0\n", "'1_0' is not a whole number"),
        (b"0\n1\nfoo 0 -1\n", "'-1' is not a whole number from 0"),
        (b"0\n1\nfoo 0 9223372036854775808\n", "'9223372036854775808' is not a whole number from 0"),
        (b"0\n1\nfoo 2147483648 0\n", "'2147483648' is not a whole number from 0 to 2147483647"),
        ("0\n1\nfoo 0 \u0661\n".encode(), "is not a whole number"),
        (b"0\n1\nfoo 0 " + b"1" * 5000 + b"\n", "is not a whole number"),
        (b"0\n1\n\xff 0 10\n", "is not UTF-8"),
    ],
)
def test_what_cannot_be_read_names_the_file_and_the_line(data: bytes, found: str) -> None:
    """Kafka: OffsetCheckpointFileWithFailureHandlerTest.shouldThrowIfVersionIsNotRecognised."""
    with pytest.raises(CheckpointError, match=re.escape(found)) as caught:
        checkpoints.decode_offsets("/data/some-checkpoint", data)
    assert "/data/some-checkpoint" in str(caught.value)


def test_a_file_that_was_cut_off_is_refused_at_every_length() -> None:
    """Each line is written with its end: `12` of `1234` must not pass as an offset, or as the first free producer id."""
    whole = checkpoints.encode_offsets({TopicPartition("topic", 0): 1234})
    for size in range(1, len(whole)):
        if whole[:size] != b"0\n":
            with pytest.raises(CheckpointError):
                checkpoints.decode_offsets("file", whole[:size])
    whole = checkpoints.encode_meta_properties(cluster_id="some-cluster", node_id=12, directory_id=TOPIC_ID)
    for size in range(len(whole) - len("version=1\n")):
        with pytest.raises(CheckpointError, match="truncated"):
            checkpoints.decode_meta_properties("file", whole[:size])


@given(st.binary(max_size=60))
def test_garbage_is_a_checkpoint_error(data: bytes) -> None:
    for decode in (checkpoints.decode_offsets, checkpoints.decode_partition_metadata, checkpoints.decode_meta_properties):
        try:
            decode("file", data)
        except CheckpointError:
            continue


@given(st.lists(st.tuples(st.integers(0, INT64_MAX), st.integers(0, INT64_MAX))))
def test_entries_of_numbers_are_read_back(entries: list[tuple[int, int]]) -> None:
    data = checkpoints.encode_checkpoint(f"{one} {two}" for one, two in entries)
    assert checkpoints.decode_checkpoint("file", data, fields=2) == entries


def test_partition_metadata_is_two_lines_without_a_last_newline() -> None:
    """Kafka: PartitionMetadataFileTest.testMaybeFlushWithTopicIdPresent. A later version is read too."""
    data = checkpoints.encode_partition_metadata(TOPIC_ID)
    assert data == f"version: 0\ntopic_id: {checkpoints.encode_uuid(TOPIC_ID)}".encode()
    assert checkpoints.decode_partition_metadata("file", data) == TOPIC_ID
    assert checkpoints.decode_partition_metadata("file", data.replace(b"version: 0", b"version: 3")) == TOPIC_ID


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"version: 0",
        b"version: -1\ntopic_id: wqz311keRomAT6ys3A8Aig",
        b"version: x\ntopic_id: wqz311keRomAT6ys3A8Aig",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"version: 0\ntopic_id: wqz311keRomAT6ys3A8Ai",
        b"version: 0\ntopic_id: wqz311keRomAT6ys3A8Ai!",
    ],
)
def test_partition_metadata_that_cannot_be_meant_is_refused(data: bytes) -> None:
    with pytest.raises(CheckpointError, match=r"some/partition.metadata"):
        checkpoints.decode_partition_metadata("some/partition.metadata", data)


@given(st.uuids())
def test_an_id_is_22_characters_that_read_back(value: uuid.UUID) -> None:
    text = checkpoints.encode_uuid(value)
    assert re.fullmatch(r"[A-Za-z0-9_-]{22}", text)
    assert checkpoints.decode_uuid(text) == value
    for other in ("", text[1:], text + "A", *(text[:21] + end for end in "+= /")):
        with pytest.raises(ValueError, match="is not an id"):
            checkpoints.decode_uuid(other)


def test_random_ids_are_no_reserved_ones_and_do_not_look_like_an_option() -> None:
    ids = [checkpoints.random_uuid() for _ in range(500)]
    assert len(set(ids)) == 500
    assert all(value.int >= 100 and not checkpoints.encode_uuid(value).startswith("-") for value in ids)


def test_meta_properties_are_read_back() -> None:
    """Without a version they are of version 0."""
    data = checkpoints.encode_meta_properties(cluster_id="some-cluster", node_id=7, directory_id=TOPIC_ID)
    fields = {"cluster.id": "some-cluster", "node.id": "7", "directory.id": checkpoints.encode_uuid(TOPIC_ID), "version": "1"}
    assert checkpoints.decode_meta_properties("file", data) == fields
    assert checkpoints.decode_meta_properties("file", b"#\n! also a comment = 1\nbroker.id=3\n") == {
        "broker.id": "3",
        "version": "0",
    }


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"version=2\ncluster.id=a\nnode.id=1\n", "has version 2, 0 and 1 are known"),
        (b"version=1\nnode.id=1\n", "lacks cluster.id"),
        (b"version=1\n", "lacks cluster.id and node.id"),
    ],
)
def test_meta_properties_that_cannot_be_meant_are_refused(data: bytes, found: str) -> None:
    with pytest.raises(CheckpointError, match=found):
        checkpoints.decode_meta_properties("file", data)


def test_the_clean_shutdown_file_has_the_broker_epoch_and_counts_without_one() -> None:
    """Kafka: CleanShutdownFileHandlerTest.testCleanShutdownFileBasic."""
    assert checkpoints.encode_clean_shutdown(10) == b'{"version":0,"brokerEpoch":10}'
    assert checkpoints.decode_clean_shutdown(checkpoints.encode_clean_shutdown(10)) == 10
    for data in (b"", b"nonsense", b"[]", b"{}", b'{"version":1,"brokerEpoch":10}', b'{"version":0,"brokerEpoch":"x"}'):
        assert checkpoints.decode_clean_shutdown(data) is None
    assert checkpoints.decode_clean_shutdown(b"[" * 100_000) is None


FS = OsFileSystem()


def test_a_block_of_producer_ids_that_makes_no_sense_is_an_error_and_not_zero(tmp_path: Path) -> None:
    block = checkpoints.ProducerIdBlock
    assert checkpoints.read_producer_id_block(FS, str(tmp_path)) == block(0, 0), "no file"
    for durable, found, data in ((True, block(2000), b"0\n1\n2000\n"), (False, block(2000, 900), b"0\n2\n2000\n900\n")):
        checkpoints.write_producer_id_block(FS, str(tmp_path), found, durable=durable)
        assert (tmp_path / checkpoints.PRODUCER_ID_BLOCK_FILE).read_bytes() == data
        assert checkpoints.read_producer_id_block(FS, str(tmp_path)) == found
    bad = (b"", b"0\n", b"0\n0\n", b"0\n2\n1\n2\n", b"0\n1\n-5\n", b"1\n1\n5\n", b"0\n1\nx\n", b"0\n3\n3\n2\n1\n", b"\0" * 9)
    for data in bad:
        (tmp_path / checkpoints.PRODUCER_ID_BLOCK_FILE).write_bytes(data)
        with pytest.raises(CheckpointError, match=checkpoints.PRODUCER_ID_BLOCK_FILE):
            checkpoints.read_producer_id_block(FS, str(tmp_path))


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
