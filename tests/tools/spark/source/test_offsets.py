from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.types import TopicPartition
from triolog.tools.spark.sink.write_options import OptionError
from triolog.tools.spark.source import bounds

PARTITIONS = st.builds(TopicPartition, st.sampled_from(["a", "b", "Z", "a-1"]), st.integers(0, 20))
MAPS = st.dictionaries(PARTITIONS, st.integers(0, 2**63 - 1))


def test_topics_and_partitions_are_in_order_and_partitions_by_their_number() -> None:
    given_ = {TopicPartition("b", 10): 1, TopicPartition("b", 9): 2, TopicPartition("a", 0): 3}
    assert json.dumps(bounds.to_json(given_)) == '{"a": {"0": 3}, "b": {"9": 2, "10": 1}}'


@given(MAPS, st.randoms())
def test_the_same_offsets_are_the_same_text(offset_map: dict[TopicPartition, int], random: object) -> None:
    shuffled = sorted(offset_map.items(), key=lambda _: random.random())  # type: ignore[attr-defined]
    assert json.dumps(bounds.to_json(dict(shuffled))) == json.dumps(bounds.to_json(offset_map))
    assert bounds.from_json(json.loads(json.dumps(bounds.to_json(offset_map)))) == offset_map


@pytest.mark.parametrize("value", [{"a": 1}, {"a": {"x": 1}}, {"a": {"0": None}}])
def test_a_checkpoint_of_another_source_is_refused_with_what_it_has(value: dict[str, object]) -> None:
    with pytest.raises(OptionError, match="which are not of this source"):
        bounds.from_json(value)


@given(st.dictionaries(PARTITIONS, st.tuples(st.integers(0, 1000), st.integers(0, 1000))), st.integers(1, 3000))
def test_a_limit_is_shared_out_and_every_backlog_moves(spans: dict[TopicPartition, tuple[int, int]], limit: int) -> None:
    start = {partition: low for partition, (low, _) in spans.items()}
    end = {partition: low + size for partition, (low, size) in spans.items()}
    limited = bounds.prorate(start, end, limit)
    taken = {partition: limited[partition] - start[partition] for partition in start}
    waiting = {partition: size for partition, (_, size) in spans.items()}
    assert all(min(1, waiting[partition]) <= taken[partition] <= waiting[partition] for partition in start)
    assert sum(taken.values()) <= limit + len(start)
    if sum(waiting.values()) <= limit:
        assert limited == end


def test_shares_follow_the_backlog_and_partitions_without_a_start_stay() -> None:
    a, b, c = (TopicPartition("t", number) for number in range(3))
    limited = bounds.prorate({a: 0, b: 10, c: 5}, {a: 900, b: 110, c: 5}, 100)
    assert limited == {a: 90, b: 20, c: 5}
    a, b = TopicPartition("t", 0), TopicPartition("t", 1)
    assert bounds.prorate({a: 0}, {a: 100, b: 7}, 10) == {a: 10, b: 7}
