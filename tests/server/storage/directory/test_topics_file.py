"""topics.json."""

from __future__ import annotations

import json
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.server.storage.directory.topics_file import Topic, decode_deleted_topic_ids, decode_topics, encode_topics
from triolog.server.storage.disk.checkpoints import encode_uuid
from triolog.server.storage.errors import CheckpointError

TOPIC_ID = uuid.UUID("c2acf7d7-591e-4689-a804-fb2b3703c088")
TOPICS = st.builds(
    Topic,
    name=st.text("abcZ019._-", min_size=3, max_size=30),
    topic_id=st.uuids(),
    partitions=st.integers(1, 100),
    configs=st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=3),
)


def document_of(entry: str, times: int = 1) -> bytes:
    """A document with an entry that is made like this one, so many times."""
    entries = ", ".join([entry % encode_uuid(TOPIC_ID)] * times)
    return f'{{"format_version": 1, "generation": 1, "topics": [{entries}]}}'.encode()


@given(st.integers(0, 2**53), st.lists(TOPICS, unique_by=lambda topic: topic.name), st.lists(st.uuids(), max_size=3))
def test_topics_read_back_sorted_by_name(generation: int, topics: list[Topic], deleted: list[uuid.UUID]) -> None:
    """The file is what the json module writes."""
    data = encode_topics(generation, topics, deleted)
    assert decode_topics("file", data) == (generation, sorted(topics, key=lambda topic: topic.name))
    document = json.loads(data)
    assert data == (json.dumps(document, indent=1) + "\n").encode()
    assert list(document)[-1] == "crc32c"
    assert ("deleted_topic_ids" in document) is bool(deleted)


def test_the_file_is_a_document_for_people_too() -> None:
    data = encode_topics(3, [Topic(name="a", topic_id=TOPIC_ID, partitions=2, configs={"segment.bytes": "100"})])
    document = json.loads(data)
    assert document.pop("crc32c") > 0
    assert document == {
        "format_version": 1,
        "generation": 3,
        "topics": [{"name": "a", "topic_id": encode_uuid(TOPIC_ID), "partitions": 2, "configs": {"segment.bytes": "100"}}],
    }
    assert data.endswith(b"}\n")
    assert len(data.splitlines()) > 5


@pytest.mark.parametrize(
    "data",
    [
        b"\xff",
        b'{"format_version": 1, "generation": "x", "topics": []}',
        b'{"format_version": 1, "generation": 1, "topics": [{}]}',
        b'{"format_version": 1, "generation": 1, "topics": [5]}',
        b'{"format_version": 1, "generation": 1, "topics": 5}',
        b'{"format_version": 1, "generation": 1, "topics": [{"name": "a", "topic_id": "x", "partitions": 1, "configs": {}}]}',
        b'{"format_version": 1, "generation": 1, "topics": [{"name": "a", "topic_id": 7, "partitions": 1, "configs": {}}]}',
        b'{"format_version": 1, "generation": Infinity, "topics": []}',
        b'{"format_version": 1, "generation": 1, "topics": ' + b"[" * 100_000,
        document_of('{"name": "../a", "topic_id": "%s", "partitions": 1, "configs": {}}'),
        document_of('{"name": "a", "topic_id": "%s", "partitions": 0, "configs": {}}'),
        document_of('{"name": "a", "topic_id": "%s", "partitions": 2000000000, "configs": {}}'),
        document_of('{"name": "a", "topic_id": "%s", "partitions": 1, "configs": {}}', times=2),
    ],
)
def test_what_cannot_be_read_names_the_file_and_the_way_out(data: bytes) -> None:
    message = r"some/topics.json (cannot be read: .*; copy the one|has format version 2, 1 is known: a newer triolog .*; copy)"
    with pytest.raises(CheckpointError, match=message):
        decode_topics("some/topics.json", data)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["format_version", "generation", "topics", "name", "topic_id", "partitions", "configs"]), inner
            )
        ),
    )
)
def test_any_other_document_is_a_checkpoint_error(document: object) -> None:
    try:
        generation, _ = decode_topics("file", json.dumps(document).encode())
    except CheckpointError:
        return
    assert isinstance(document, dict)
    assert document["format_version"] == 1
    assert isinstance(generation, int)


def test_topics_deleted_while_a_directory_was_away_are_read_back_and_not_there_otherwise() -> None:
    gone = {uuid.uuid4(), uuid.uuid4()}
    data = encode_topics(3, [], gone)
    assert decode_topics("topics.json", data) == (3, [])
    assert decode_deleted_topic_ids("topics.json", data) == gone
    assert b"deleted" not in encode_topics(3, [])
    assert decode_deleted_topic_ids("topics.json", encode_topics(3, [])) == set()
    with pytest.raises(CheckpointError, match=r"topics\.json cannot be read"):
        decode_deleted_topic_ids("topics.json", b'{"deleted_topic_ids": ["x"]}')
