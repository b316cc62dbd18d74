"""Records of `__stage_commits`: round trips, damage."""

from __future__ import annotations

import uuid

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.coordinator import stage_commits
from triolog.protocol.errors import InvalidRecordError
from triolog.protocol.types import TopicPartition

int64s = st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=20)
files = st.builds(
    stage_commits.CommittedFile,
    task=texts,
    size_bytes=int64s,
    crc=st.integers(0, 2**32 - 1),
    records_count=st.integers(0, 2**31 - 1),
)
partitions = st.builds(
    stage_commits.StageCommitPartition,
    topic_partition=st.builds(TopicPartition, texts, st.integers(0, 2**31 - 1)),
    topic_id=st.uuids(),
    start_offset=int64s,
    files=st.lists(files, max_size=3).map(tuple),
    base_offset=int64s,
    end_offset=int64s,
)
values = st.builds(
    stage_commits.StageCommitValue,
    version=int64s,
    state=st.sampled_from(stage_commits.StageCommitState),
    producer_id=int64s,
    producer_epoch=st.integers(-1, 2**15 - 1),
    update_ms=int64s,
    partitions=st.lists(partitions, max_size=3).map(tuple),
)
SMALL = stage_commits.StageCommitValue(
    version=7,
    state=stage_commits.StageCommitState.DECIDED,
    producer_id=1000,
    producer_epoch=2,
    update_ms=1,
    partitions=(
        stage_commits.StageCommitPartition(
            topic_partition=TopicPartition("a", 3),
            topic_id=uuid.UUID(int=5),
            start_offset=11,
            files=(stage_commits.CommittedFile(task="0.1", size_bytes=70, crc=9, records_count=2),),
        ),
    ),
)


@given(value=values)
def test_values_round_trip(value: stage_commits.StageCommitValue) -> None:
    assert stage_commits.decode_stage_commit_value(value.encode()) == value


@given(application=texts)
def test_keys_round_trip(application: str) -> None:
    assert stage_commits.decode_stage_commit_key(stage_commits.encode_stage_commit_key(application)) == application


def test_a_value_lies_as_the_table_says() -> None:
    expected = (
        "0000" "0000000000000007" "01" "00000000000003e8" "0002" "0000000000000001" "00000001"
        "0001" "61" "00000000000000000000000000000005" "00000003" "000000000000000b" "ffffffffffffffff" "ffffffffffffffff"
        "00000001" "0003" "302e31" "0000000000000046" "00000009" "0000000000000002"
    )  # fmt: skip
    assert SMALL.encode().hex() == expected
    assert SMALL.partitions[0].records_count == 2
    assert (SMALL.is_done, attrs.evolve(SMALL, state=stage_commits.StageCommitState.DONE).is_done) == (False, True)


def test_keys_of_a_later_kind_are_passed_over_and_values_of_a_later_version_are_refused() -> None:
    assert stage_commits.decode_stage_commit_key(b"\0\1whatever") is None
    with pytest.raises(InvalidRecordError, match="a stage commit has version 1, 0 to 0 are known"):
        stage_commits.decode_stage_commit_value(b"\0\1")
    with pytest.raises(InvalidRecordError, match="a stage commit has state 9, 1 to 2 are known"):
        stage_commits.decode_stage_commit_value(SMALL.encode()[:10] + b"\x09" + SMALL.encode()[11:])


def test_a_value_that_is_cut_or_announces_more_than_it_has_is_refused() -> None:
    data = SMALL.encode()
    for size in range(len(data)):
        with pytest.raises(InvalidRecordError):
            stage_commits.decode_stage_commit_value(data[:size])
    with pytest.raises(InvalidRecordError, match="claims 2147483647 elements"):
        stage_commits.decode_stage_commit_value(data[:29] + b"\x7f\xff\xff\xff" + data[33:])
