"""Server assignors, as properties of any assignment and against a search through all of them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from typing import Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.server.groups.assigned.values import Partitions
from triolog.server.groups.consumer.assignors import ASSIGNORS, Subscriber, assign_range, assign_uniform

TOPICS: Final = [bytes([number]) * 16 for number in range(4)]
NAMES: Final = list(ASSIGNORS)

topics = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 7))
partitions = st.frozensets(st.tuples(st.sampled_from(TOPICS), st.integers(0, 7)), max_size=10)
subscribers = st.builds(
    Subscriber, topics=st.frozensets(st.sampled_from(TOPICS)), instance_id=st.none() | st.sampled_from("xyz"), owned=partitions
)
groups = st.dictionaries(st.sampled_from("abcdefgh"), subscribers, max_size=6)


def _again(group: Mapping[str, Subscriber], given_before: Mapping[str, Partitions]) -> dict[str, Subscriber]:
    return {name: attrs.evolve(each, owned=given_before.get(name, frozenset())) for name, each in group.items()}


def _same(topic_ids: list[bytes], names: str) -> dict[str, Subscriber]:
    return {name: Subscriber(topics=frozenset(topic_ids)) for name in names}


@pytest.mark.parametrize("name", NAMES)
@given(group=groups, counts=topics)
def test_every_partition_goes_to_one_subscriber(name: str, group: dict[str, Subscriber], counts: dict[bytes, int]) -> None:
    assigned = ASSIGNORS[name](group, counts)
    assert assigned.keys() == group.keys()
    given_out = [partition for each in assigned.values() for partition in each]
    wanted = {topic for each in group.values() for topic in each.topics}
    assert sorted(given_out) == sorted((topic, n) for topic, count in counts.items() if topic in wanted for n in range(count))
    assert all({topic for topic, _ in assigned[member_id]} <= each.topics for member_id, each in group.items())


@pytest.mark.parametrize("name", NAMES)
@given(group=groups, counts=topics)
def test_a_second_run_moves_nothing(name: str, group: dict[str, Subscriber], counts: dict[bytes, int]) -> None:
    first = ASSIGNORS[name](group, counts)
    assert ASSIGNORS[name](_again(group, first), counts) == first


@given(st.sets(st.sampled_from("abcdefgh"), min_size=1), topics, st.dictionaries(st.sampled_from("abcdefgh"), partitions))
def test_uniform_differs_by_one_at_most(names: set[str], counts: dict[bytes, int], owned: dict[str, Partitions]) -> None:
    group = _again(_same(TOPICS, "".join(names)), owned)
    sizes = [len(each) for each in assign_uniform(group, counts).values()]
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(1, 6), st.integers(0, 30), st.integers(0, 2))
def test_uniform_moves_no_more_than_a_join_or_a_leave_needs(members: int, count: int, gone: int) -> None:
    counts = {TOPICS[0]: count}
    group = _same(TOPICS[:1], "abcdef"[:members])
    before = assign_uniform(group, counts)

    joined = assign_uniform(_again(_same(TOPICS[:1], "abcdef"[:members] + "z"), before), counts)
    assert sum(len(joined[name] - before[name]) for name in group) == 0
    assert len(joined["z"]) == count // (members + 1)

    left = list(group)[: min(gone, members - 1)]
    remaining = _again({name: each for name, each in group.items() if name not in left}, before)
    after = assign_uniform(remaining, counts)
    assert all(before[name] <= after[name] for name in remaining)


@given(
    st.dictionaries(st.sampled_from("abc"), st.frozensets(st.sampled_from(TOPICS[:3])), min_size=1),
    st.dictionaries(st.sampled_from(TOPICS[:3]), st.integers(0, 2)),
)
def test_uniform_is_as_balanced_as_subscriptions_allow(wants: dict[str, frozenset[bytes]], counts: dict[bytes, int]) -> None:
    group = {name: Subscriber(topics=each) for name, each in wants.items()}
    choices = [
        [name for name in group if topic in wants[name]]
        for topic, count in counts.items()
        for _ in range(count)
        if any(topic in each for each in wants.values())
    ]
    best = min(sum(len(list(run)) ** 2 for _, run in itertools.groupby(sorted(way))) for way in itertools.product(*choices))
    assert sum(len(each) ** 2 for each in assign_uniform(group, counts).values()) == best


def test_uniform_passes_on_by_way_of_others() -> None:
    """a and b share one topic, b and c another: what a has too much of frees b to give to c."""
    t, u = TOPICS[:2]
    group = {
        "a": Subscriber(topics=frozenset([t]), owned=frozenset((t, n) for n in range(3))),
        "b": Subscriber(topics=frozenset([t, u]), owned=frozenset((u, n) for n in range(2))),
        "c": Subscriber(topics=frozenset([u]), owned=frozenset([(u, 2)])),
    }
    assert sorted(len(each) for each in assign_uniform(group, {t: 3, u: 3}).values()) == [2, 2, 2]


@given(st.sets(st.sampled_from("abcdefgh"), min_size=1), topics)
def test_range_gives_consecutive_partitions_of_sizes_that_differ_by_one(names: set[str], counts: dict[bytes, int]) -> None:
    assigned = assign_range(_same(TOPICS, "".join(names)), counts)
    for topic, count in counts.items():
        pieces = [sorted(number for each, number in assigned[name] if each == topic) for name in sorted(assigned)]
        assert list(itertools.chain(*pieces)) == list(range(count))
        assert max(map(len, pieces)) - min(map(len, pieces)) <= 1


def test_range_puts_static_members_first() -> None:
    group = {"a": Subscriber(topics=frozenset(TOPICS[:1])), "z": Subscriber(topics=frozenset(TOPICS[:1]), instance_id="static")}
    assert assign_range(group, {TOPICS[0]: 2}) == {"z": frozenset([(TOPICS[0], 0)]), "a": frozenset([(TOPICS[0], 1)])}


def test_a_thousand_members_of_a_thousand_partitions_take_no_second() -> None:
    group = {f"member-{number:04}": Subscriber(topics=frozenset(TOPICS)) for number in range(1_000)}
    counts = dict.fromkeys(TOPICS, 250)
    began = time.thread_time()
    before = assign_uniform(group, counts)
    assign_uniform(_again({**group, "new": Subscriber(topics=frozenset(TOPICS))}, before), counts)
    assert time.thread_time() - began < 1
