"""How many partitions internal topics get. Messages are those of Apache Kafka 4.3.1."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from triolog.protocol.coordinator.streams_group_records import StreamsGroupCopartitionGroup, StreamsGroupSubtopology
from triolog.protocol.errors import RequestError
from triolog.server.groups.streams.topology import MAX_SUBTOPOLOGIES, MAX_TASKS, MAX_TOPICS, Topology, check_topology, configure
from triolog.server.groups.streams.values import StreamsStatusCode

from tests.support.consumer_groups import Topics
from tests.support.streams_groups import WORD_COUNT, internal, subtopology, topology


def topics_of(counts: Mapping[str, int]) -> Topics:
    topics = Topics()
    for name, count in counts.items():
        topics.create(name, count)
    return topics


def missing(counts: Mapping[str, int], *parts: StreamsGroupSubtopology) -> dict[str, int]:
    configured = configure(Topology.of(topology(*parts)), topics_of(counts))
    assert configured.problem is None or configured.problem.code is StreamsStatusCode.MISSING_INTERNAL_TOPICS
    return {topic.name: topic.partitions for topic in configured.missing}


def problem(counts: Mapping[str, int], *parts: StreamsGroupSubtopology) -> tuple[StreamsStatusCode, str]:
    configured = configure(Topology.of(topology(*parts)), topics_of(counts))
    assert configured.problem is not None
    assert configured.subtopologies is None
    return configured.problem.code, configured.problem.detail


def together(*sources: int, repartition: tuple[int, ...] = ()) -> StreamsGroupCopartitionGroup:
    return StreamsGroupCopartitionGroup(
        source_topics=list(sources), source_topic_regex=[], repartition_source_topics=list(repartition)
    )


A, B = subtopology("0", "a", sinks=["r"]), subtopology("1", "b", sinks=["s"])
CHAIN = [subtopology(f"{number}", repartition=[internal(f"r{number + 1}")], sinks=[f"r{number}"]) for number in range(5)]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (
            [
                A,
                subtopology("1", "b", sinks=["r"]),
                subtopology("2", repartition=[internal("r")], sinks=["s"], changelogs=["c"]),
                subtopology("3", repartition=[internal("s")], changelogs=["d"]),
            ],
            {"r": 3, "s": 3, "c": 3, "d": 3},
        ),
        ([*CHAIN, subtopology("5", "a", sinks=["r5"])], dict.fromkeys((f"r{number}" for number in range(1, 6)), 3)),
        ([A, subtopology("1", repartition=[internal("r", 8)], changelogs=["c"])], {"r": 8, "c": 8}),
        ([A, subtopology("1", "b", repartition=[internal("r")], copartitioned=[together(0, repartition=(0,))])], {"r": 5}),
        (
            [A, B, subtopology("2", repartition=[internal("r"), internal("s")], copartitioned=[together(repartition=(0, 1))])],
            {"r": 5, "s": 5},
        ),
    ],
    ids=["as many as writers read", "a chain", "a number", "copartitioned with a source", "copartitioned with each other"],
)
def test_a_missing_topic_has_the_partitions_of(parts: list[StreamsGroupSubtopology], expected: dict[str, int]) -> None:
    assert missing({"a": 3, "b": 5}, *parts) == expected


def test_what_does_not_fit_is_told() -> None:
    wrong = StreamsStatusCode.INCORRECTLY_PARTITIONED_TOPICS
    assert problem({"a": 3, "b": 5}, subtopology("0", "a", "b", copartitioned=[together(0, 1)])) == (
        wrong,
        "Following topics do not have the same number of partitions: [{a=3, b=5}]",
    )
    fixed = subtopology("1", "b", repartition=[internal("r", 4)], copartitioned=[together(0, repartition=(0,))])
    assert problem({"a": 3, "b": 5}, subtopology("0", "a", sinks=["r"]), fixed) == (
        wrong,
        "Number of partitions [4] of repartition topic [r] doesn't match number of partitions [5] of the source topic.",
    )
    assert problem({"a": 3, "c": 2}, subtopology("0", "a", changelogs=["c"])) == (
        wrong,
        "Existing topic c has different number of partitions: expected 3, found 2",
    )


def test_of_many_missing_topics_three_are_named() -> None:
    assert problem({}, subtopology("0", "d", "b", "a", "c", "e")) == (
        StreamsStatusCode.MISSING_SOURCE_TOPICS,
        "Source topics a, b, c and 2 additional topics are missing.",
    )


@pytest.mark.parametrize(
    "parts",
    [
        [subtopology(f"{number}", "a") for number in range(MAX_SUBTOPOLOGIES + 1)],
        [subtopology("0", *(["a"] * (MAX_TOPICS + 1)))],
        [subtopology("0", "a"), subtopology("0", "b")],
        [subtopology("0", "a", copartitioned=[together(1)])],
        [subtopology("0", "a", copartitioned=[together(-1)])],
        [subtopology("0", "a", repartition=[internal("r", -1)])],
    ],
    ids=["parts", "topics", "one id", "an index", "a negative index", "a negative number"],
)
def test_a_topology_has_limits(parts: list[StreamsGroupSubtopology]) -> None:
    with pytest.raises(RequestError, match=r"^STREAMS_INVALID_TOPOLOGY"):
        check_topology(topology(*parts))


def test_an_application_has_a_limit_of_tasks() -> None:
    parts = [subtopology(f"{number}", "a") for number in range(3)]
    assert missing({"a": MAX_TASKS // 3}, *parts) == {}
    with pytest.raises(RequestError, match="tasks"):
        missing({"a": MAX_TASKS // 3 + 1}, *parts)


def test_the_order_of_its_parts_is_nothing_to_a_topology() -> None:
    assert Topology.of(WORD_COUNT) == Topology.of(topology(*reversed(WORD_COUNT.subtopologies)))
    assert Topology.of(WORD_COUNT) != Topology.of(topology(*WORD_COUNT.subtopologies, epoch=1))
    assert Topology.of(WORD_COUNT).readers == {"words": "0", "app-repartition": "1"}
