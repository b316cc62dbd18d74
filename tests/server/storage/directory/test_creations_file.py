"""What is being made, and what of it is left over: directories without a record, of ours, that no topics.json names."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.types import TopicPartition
from triolog.server.offline.repair_directory import repair_directory
from triolog.server.storage.directory import topics_file
from triolog.server.storage.directory.inventory import read_directory
from triolog.server.storage.directory.topics_file import TOPICS_FILE, Topic, encode_topics
from triolog.server.storage.disk.checkpoints import PARTITION_METADATA_FILE, encode_partition_metadata
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.errors import CheckpointError
from triolog.server.storage.log.leader_epochs import FILE_NAME as LEADER_EPOCH_FILE

from tests.server.offline.test_verify import verified
from tests.support.logs import batch
from tests.support.stopped_logs import Seen, write_stopped_logs

FS: Final = OsFileSystem()
OURS, THEIRS = uuid.UUID(int=1000), uuid.UUID(int=2000)
LOG: Final = "00000000000000000000.log"
MADE: Final = topics_file.Creation(name="topic", topic_id=OURS, first_partition=2, partitions=5)
CREATIONS = st.builds(
    topics_file.Creation,
    name=st.text("abcZ019._-", min_size=3, max_size=20),
    topic_id=st.uuids(),
    first_partition=st.integers(0, 9),
    partitions=st.integers(10, 99),
)


def make(path: Path, topic_id: uuid.UUID | None = OURS, **files: bytes) -> str:
    """A partition's directory as a creation leaves it, with more files."""
    path.mkdir(parents=True)
    if topic_id is not None:
        (path / PARTITION_METADATA_FILE).write_bytes(encode_partition_metadata(topic_id))
    (path / LEADER_EPOCH_FILE).write_bytes(b"0\n0\n")
    (path / LOG).write_bytes(b"")
    for name, data in files.items():
        (path / name).write_bytes(data)
    return str(path)


def is_left(path: str, number: int = 3, topics: dict[str, Topic] | None = None) -> bool:
    return topics_file.is_left_over(FS, [MADE], topics or {}, TopicPartition("topic", number), path)


def named(topic_id: uuid.UUID, partitions: int) -> dict[str, Topic]:
    return {"topic": Topic(name="topic", topic_id=topic_id, partitions=partitions)}


@given(st.integers(0, 2**53), st.lists(CREATIONS, max_size=3))
def test_what_is_being_made_reads_back(generation: int, creations: list[topics_file.Creation]) -> None:
    data = topics_file.encode_creations(generation, creations)
    assert topics_file.decode_creations("file", data) == (generation, creations)
    assert list(json.loads(data))[-1] == "crc32c"


@pytest.mark.parametrize("change", [{"first_partition": -1}, {"first_partition": 5}, {"partitions": 10**9}, {"name": "../x"}])
def test_a_creation_that_cannot_be_is_an_error_that_names_the_file(change: dict[str, Any]) -> None:
    content = topics_file.encode_creations(3, [attrs.evolve(MADE, **change)])
    with pytest.raises(CheckpointError, match=r"^some/file cannot be read: .*; delete it"):
        topics_file.decode_creations("some/file", content)


def test_beside_an_older_list_of_topics_it_says_nothing(tmp_path: Path) -> None:
    (tmp_path / topics_file.CREATIONS_FILE).write_bytes(topics_file.encode_creations(7, [MADE]))
    assert topics_file.read_creations(FS, str(tmp_path), 7) == topics_file.read_creations(FS, str(tmp_path), 8) == [MADE]
    assert topics_file.read_creations(FS, str(tmp_path), 6) == []


@pytest.mark.parametrize(
    ("number", "topic_id", "topics", "left"),
    [
        *[(3, topic_id, topics, True) for topic_id in (OURS, None) for topics in ({}, named(OURS, 2), named(OURS, 3))],
        pytest.param(3, OURS, named(THEIRS, 9), True, id="the topic was made again"),
        *[(number, OURS, {}, False) for number in (0, 1, 5, 100)],
        *[(3, topic_id, named(OURS, 4), False) for topic_id in (OURS, None)],
        pytest.param(3, THEIRS, {}, False, id="somebody put it there"),
    ],
)
def test_what_was_being_made_and_no_list_of_topics_names_is_left_over(
    tmp_path: Path, number: int, topic_id: uuid.UUID | None, topics: dict[str, Topic], left: bool
) -> None:
    assert is_left(make(tmp_path / "topic", topic_id), number, topics) is left


def test_a_directory_whose_files_were_torn_by_a_power_cut_is_left_over(tmp_path: Path) -> None:
    (tmp_path / "topic-3").mkdir()
    assert is_left(str(tmp_path / "topic-3"))
    torn = {f"{PARTITION_METADATA_FILE}.tmp": b"ver", PARTITION_METADATA_FILE: bytes(40), LOG: bytes(10_000)}
    assert is_left(make(tmp_path / "torn", **torn))


@pytest.mark.parametrize("topic_id", [OURS, None])
@pytest.mark.parametrize(
    "files",
    [
        {LOG: batch()},
        {LOG: bytes(5000) + batch()},
        {"00000000000000000007.log": b""},
        {"00000000000000000007.snapshot": b""},
        {f"{LOG}.deleted": b""},
        {f"{LOG}.corrupt-0": b""},
    ],
    ids=["a record", "behind zeros", "a later start", "producers", "deleted", "set aside"],
)
def test_a_directory_that_holds_or_held_a_record_is_not_left_over(
    tmp_path: Path, topic_id: uuid.UUID | None, files: dict[str, bytes]
) -> None:
    assert not is_left(make(tmp_path / "topic-3", topic_id, **files))
    path = make(tmp_path / "foreign")
    (tmp_path / "foreign" / "mine").mkdir()
    assert not is_left(path), "nor one with something foreign in it"


def test_files_that_cannot_be_read_condemn_nothing(tmp_path: Path) -> None:
    partitions = {TopicPartition("topic", 3): make(tmp_path / "topic-3")}
    topics, creations = tmp_path / TOPICS_FILE, tmp_path / topics_file.CREATIONS_FILE
    creations.write_bytes(topics_file.encode_creations(1, [MADE]))
    assert topics_file.left_over(FS, str(tmp_path), partitions) == set()
    topics.write_bytes(encode_topics(1, []))
    assert topics_file.left_over(FS, str(tmp_path), partitions) == set(partitions)
    creations.write_bytes(creations.read_bytes()[:-9])
    assert topics_file.left_over(FS, str(tmp_path), partitions) == set()


def test_tools_pass_over_what_is_left_over_and_verify_names_it(tmp_path: Path) -> None:
    logs = write_stopped_logs(tmp_path)
    make(tmp_path / "topic-3", None, **{PARTITION_METADATA_FILE: bytes(30)})
    assert verified(logs.path).damages
    generation = json.loads((tmp_path / TOPICS_FILE).read_bytes())["generation"]
    (tmp_path / topics_file.CREATIONS_FILE).write_bytes(topics_file.encode_creations(generation, [MADE]))
    seen = verified(logs.path)
    assert not seen.damages
    [remark] = [remark for remark in seen.remarks if remark.check == "creation"]
    assert remark.file == str(tmp_path / "topic-3")
    assert read_directory(FS, str(tmp_path)).left_over == ("topic-3",)
    summary = repair_directory(FS, read_directory(FS, str(tmp_path)), Seen(), dry_run=False, acted=lambda action: None)
    assert (summary.damages, summary.actions) == (0, ())
    (tmp_path / topics_file.CREATIONS_FILE).write_bytes(b"{")
    assert str(tmp_path / topics_file.CREATIONS_FILE) in {damage.file for damage in verified(logs.path).damages}
