"""The assignor `simple`, as properties of any assignment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from triolog.server.groups.assigned.values import Partitions
from triolog.server.groups.consumer.assignors import Subscriber
from triolog.server.groups.share.groups import assign_simple

A, B, C = TOPICS = [bytes([number]) * 16 for number in range(3)]
NAMES: Final = "abcdefgh"

assignables = st.dictionaries(st.sampled_from(TOPICS), st.sets(st.integers(0, 6), min_size=1).map(sorted), max_size=len(TOPICS))
owned = st.frozensets(st.tuples(st.sampled_from(TOPICS), st.integers(0, 6)), max_size=12)
subscribers = st.builds(Subscriber, topics=st.frozensets(st.sampled_from(TOPICS)), owned=owned)
groups = st.dictionaries(st.sampled_from(NAMES), subscribers, max_size=8)

Group = Mapping[str, Subscriber]
Assignable = dict[bytes, list[int]]


def all_partitions(assignable: Mapping[bytes, Sequence[int]], topics: frozenset[bytes]) -> set[tuple[bytes, int]]:
    return {(topic, number) for topic in topics for number in assignable.get(topic, ())}


def same(names: str, *topics: bytes, owned_by: Mapping[str, Partitions] | None = None) -> Group:
    before = owned_by or {}
    return {name: Subscriber(topics=frozenset(topics), owned=before.get(name, frozenset())) for name in names}


def again(group: Group, before: Mapping[str, Partitions]) -> Group:
    return {name: attrs.evolve(each, owned=before.get(name, frozenset())) for name, each in group.items()}


@given(groups, assignables)
def test_everybody_has_only_what_he_is_subscribed_to_and_every_partition_somebody(group: Group, assignable: Assignable) -> None:
    assigned = assign_simple(group, assignable)
    assert assigned.keys() == group.keys()
    for name, partitions in assigned.items():
        assert partitions <= all_partitions(assignable, group[name].topics)
    wanted = all_partitions(assignable, frozenset().union(*(each.topics for each in group.values())))
    assert frozenset().union(*assigned.values()) == wanted


@given(groups, assignables)
def test_who_is_subscribed_to_something_has_something(group: Group, assignable: Assignable) -> None:
    assigned = assign_simple(group, assignable)
    for name, each in group.items():
        assert bool(assigned[name]) == bool(all_partitions(assignable, each.topics))


@given(groups, assignables)
def test_a_second_run_moves_nothing(group: Group, assignable: Assignable) -> None:
    first = assign_simple(group, assignable)
    assert assign_simple(again(group, first), assignable) == first


@given(st.sets(st.sampled_from(NAMES), min_size=1), assignables)
@example({"a"}, {A: [0]})
def test_members_differ_by_one_at_most_when_they_begin_with_nothing(names: set[str], assignable: Assignable) -> None:
    sizes = [len(each) for each in assign_simple(same("".join(names), *TOPICS), assignable).values()]
    assert max(sizes) - min(sizes) <= 1


@given(st.sets(st.sampled_from(NAMES), min_size=1), assignables, st.dictionaries(st.sampled_from(NAMES), owned))
def test_nobody_has_more_than_his_part(names: set[str], assignable: Assignable, before: dict[str, Partitions]) -> None:
    partitions = all_partitions(assignable, frozenset(TOPICS))
    assigned = assign_simple(same("".join(names), *TOPICS, owned_by=before), assignable)
    if not partitions:
        return
    sharing = -(-len(names) // len(partitions))
    readers = Counter(partition for each in assigned.values() for partition in each)
    assert max(readers.values()) <= sharing
    assert max(len(each) for each in assigned.values()) <= -(-sharing * len(partitions) // len(names))


@given(st.sets(st.sampled_from(NAMES), min_size=1), assignables, st.dictionaries(st.sampled_from(NAMES), owned))
def test_nobody_gives_up_what_fits(names: set[str], assignable: Assignable, before: dict[str, Partitions]) -> None:
    """Where what all had was balanced it stays."""
    group = same("".join(names), *TOPICS)
    first = assign_simple(group, assignable)
    smaller = {name: frozenset(sorted(each)[1:]) for name, each in first.items()}
    second = assign_simple(again(group, smaller), assignable)
    assert all(smaller[name] <= second[name] for name in names)


@pytest.mark.parametrize(
    ("names", "counts", "shared"),
    [
        ("ab", {A: 4}, {"a": "A0 A2", "b": "A1 A3"}),
        ("abc", {A: 1}, {"a": "A0", "b": "A0", "c": "A0"}),
        ("abc", {A: 2}, {"a": "A0 A1", "b": "A0", "c": "A1"}),
        ("ab", {A: 1, B: 2}, {"a": "A0 B1", "b": "B0"}),
    ],
)
def test_small_groups(names: str, counts: dict[bytes, int], shared: dict[str, str]) -> None:
    assigned = assign_simple(same(names, *counts), {topic: range(count) for topic, count in counts.items()})
    letters = {A: "A", B: "B", C: "C"}
    shown = {name: " ".join(f"{letters[topic]}{number}" for topic, number in sorted(each)) for name, each in assigned.items()}
    assert shown == shared


def test_who_is_subscribed_to_one_topic_shares_it_with_who_is_subscribed_to_two() -> None:
    group = {"a": Subscriber(topics=frozenset({A})), "b": Subscriber(topics=frozenset({A, B}))}
    assert assign_simple(group, {A: range(2), B: range(1)}) == {"a": {(A, 0)}, "b": {(A, 1), (B, 0)}}
