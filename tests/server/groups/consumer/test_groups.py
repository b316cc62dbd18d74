"""Groups whose assignments the server makes: members, epochs, who may have what and when. The rules are Kafka's (KIP-848).
Server assignors, as properties of any assignment and against a search through all of them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from typing import Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.types import TopicPartition
from triolog.server.groups.assigned.values import NO_PARTITIONS, AssignedGroupSettings, Partitions
from triolog.server.groups.consumer.assignors import ASSIGNORS, Subscriber, assign_range, assign_uniform
from triolog.server.groups.consumer.member import ConsumerHeartbeat, MemberState
from triolog.server.groups.values import CommittingMember, GroupState

from tests.support.consumer_groups import GROUP, REBALANCE_TIMEOUT_MS, Consumer, Driven, Topics, settle

JOIN = ConsumerHeartbeat(
    group_id=GROUP, member_id="a", rebalance_timeout_ms=REBALANCE_TIMEOUT_MS, topic_names=("t",), owned=NO_PARTITIONS
)


@pytest.fixture
def topics() -> Topics:
    topics = Topics()
    topics.create("t", 4)
    return topics


@pytest.fixture
def driven(topics: Topics) -> Driven:
    return Driven(topics)


def _consumer(driven: Driven, member_id: str, *names: str, instance_id: str | None = None) -> Consumer:
    return Consumer(driven=driven, member_id=member_id, topic_names=names or ("t",), instance_id=instance_id)


def _refused(driven: Driven, request: ConsumerHeartbeat) -> ErrorCode:
    """Of a heartbeat that is, and that changes nothing."""
    before = (len(driven.log), driven.groups.find(request.group_id))
    with pytest.raises(RequestError) as caught:
        driven.heartbeat(request)
    assert (len(driven.log), driven.groups.find(request.group_id)) == before
    assert isinstance(caught.value.code, ErrorCode)
    return caught.value.code


def test_the_first_member_gets_everything_at_once_and_again_when_it_says_all(driven: Driven, topics: Topics) -> None:
    consumer = _consumer(driven, "a")
    answer = consumer.join()
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("a", 2, 5_000)
    assert answer.assignment == topics.all_of("t")
    assert driven.group.state is GroupState.STABLE
    again = driven.heartbeat(JOIN)
    assert (again.member_epoch, again.assignment) == (2, topics.all_of("t")), "its answer was lost"
    consumer.beat()
    written = len(driven.log)
    assert consumer.beat().assignment is None
    assert len(driven.log) == written
    full = consumer.beat(rebalance_timeout_ms=REBALANCE_TIMEOUT_MS, topic_names=("t",), owned=topics.all_of("t"))
    assert full.assignment == topics.all_of("t")


def test_a_partition_moves_only_when_its_owner_reports_without_it(driven: Driven) -> None:
    first, second = _consumer(driven, "a"), _consumer(driven, "b")
    first.join()
    assert second.join().assignment == NO_PARTITIONS
    assert driven.group.members["b"].state is MemberState.UNRELEASED_PARTITIONS

    asked = driven.heartbeat(attrs.evolve(JOIN, member_epoch=2, owned=None, rebalance_timeout_ms=-1, topic_names=None))
    assert asked.assignment is not None
    assert len(asked.assignment) == 2
    assert asked.member_epoch == 2
    assert second.beat().assignment is None

    for _ in range(3):
        nothing_said = driven.heartbeat(attrs.evolve(JOIN, member_epoch=2, owned=None, topic_names=None))
        assert nothing_said.assignment is None
        assert second.beat().assignment is None

    given_up = driven.heartbeat(attrs.evolve(JOIN, member_epoch=2, owned=asked.assignment, topic_names=None))
    assert given_up.member_epoch == 3
    assert len(second.beat().assignment or ()) == 2
    assert driven.group.state is GroupState.STABLE


def test_version_0_gets_a_member_id_and_most_wishes_choose_the_assignor(driven: Driven) -> None:
    version_0 = driven.heartbeat(attrs.evolve(JOIN, member_id="", makes_member_id=False))
    assert list(driven.group.members) == [version_0.member_id]
    assert len(version_0.member_id) == 36
    for member_id, assignor in [("a", "range"), ("b", "range"), ("c", "uniform"), ("d", None)]:
        _consumer(driven, member_id).join(server_assignor=assignor)
    assert driven.group.describe().assignor == "range"
    assert Driven(Topics()).groups.find(GROUP) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"member_id": ""},
        {"group_id": ""},
        {"group_id": "  "},
        {"instance_id": ""},
        {"rack_id": ""},
        {"rebalance_timeout_ms": -1},
        {"owned": None},
        {"owned": frozenset([(bytes(16), 0)])},
        {"topic_names": None},
        {"member_epoch": -2},
        {"member_epoch": -3},
        {"server_assignor": "mine"},
    ],
)
def test_an_incomplete_heartbeat_is_an_invalid_request(driven: Driven, changes: dict[str, object]) -> None:
    expected = ErrorCode.UNSUPPORTED_ASSIGNOR if "server_assignor" in changes else ErrorCode.INVALID_REQUEST
    assert _refused(driven, attrs.evolve(JOIN, **changes)) is expected  # type: ignore[arg-type]


def test_unknown_groups_members_and_epochs_are_told_apart(driven: Driven) -> None:
    strangers = [attrs.evolve(JOIN, member_id="b", member_epoch=epoch) for epoch in (-1, 1)]
    for stranger in strangers:
        assert _refused(driven, stranger) is ErrorCode.GROUP_ID_NOT_FOUND
    consumer = _consumer(driven, "a")
    consumer.join()
    for stranger in strangers:
        assert _refused(driven, stranger) is ErrorCode.UNKNOWN_MEMBER_ID
    consumer.beat(topic_names=("u",))
    settle([consumer])
    for epoch in (consumer.epoch - 1, consumer.epoch + 1):
        assert _refused(driven, attrs.evolve(JOIN, member_epoch=epoch, owned=None)) is ErrorCode.FENCED_MEMBER_EPOCH


def test_fenced_member_joins_again_under_its_id_and_gets_its_partitions_at_once(driven: Driven) -> None:
    members = [_consumer(driven, name) for name in "abc"]
    for each in members:
        each.join()
    settle(members)
    first = members[0]
    assert first.epoch > 1
    epoch, assigned = driven.group.epoch, driven.group.members["a"].assigned
    for _ in range(2):
        answer = driven.heartbeat(JOIN)
        assert (answer.member_epoch, answer.assignment) == (first.epoch, assigned)
    assert driven.group.epoch == epoch, "nobody else has to give anything up"


def test_member_that_is_to_give_something_up_has_done_so_when_it_joins_again(driven: Driven) -> None:
    first, second = _consumer(driven, "a"), _consumer(driven, "b")
    first.join()
    second.join()
    first.beat()
    assert driven.group.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    answer = driven.heartbeat(JOIN)
    assert answer.assignment is not None
    assert (answer.member_epoch, len(answer.assignment)) == (driven.group.epoch, 2)
    assert second.beat().assignment == driven.group.targets["b"]


def test_a_full_group_refuses_new_members_only_and_a_full_server_new_groups(topics: Topics) -> None:
    driven = Driven(topics, AssignedGroupSettings(max_size=1, max_groups=1))
    consumer = _consumer(driven, "a")
    consumer.join()
    assert _refused(driven, attrs.evolve(JOIN, member_id="b")) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert _refused(driven, attrs.evolve(JOIN, group_id="other")) is ErrorCode.POLICY_VIOLATION
    consumer.beat()


def test_a_member_that_gives_nothing_up_is_removed_after_the_rebalance_timeout(driven: Driven, topics: Topics) -> None:
    stubborn, second = _consumer(driven, "a"), _consumer(driven, "b")
    stubborn.join()
    second.join()
    keep = attrs.evolve(JOIN, member_epoch=2, owned=topics.all_of("t"), rebalance_timeout_ms=-1, topic_names=None)
    for now_ms in range(0, REBALANCE_TIMEOUT_MS, 10_000):
        driven.pass_time(now_ms)
        driven.heartbeat(keep)
        second.beat()
    driven.pass_time(REBALANCE_TIMEOUT_MS - 1)
    assert "a" in driven.group.members
    driven.pass_time(REBALANCE_TIMEOUT_MS)
    assert "a" not in driven.group.members
    assert _refused(driven, keep) is ErrorCode.UNKNOWN_MEMBER_ID
    settle([second])
    assert second.owned == topics.all_of("t")


def test_a_heartbeat_that_came_while_its_session_ended_saves_it(driven: Driven) -> None:
    consumer = _consumer(driven, "a")
    consumer.join()
    driven.now_ms = 45_000
    (key,) = driven.groups.due(driven.now_ms)
    consumer.beat()
    assert driven.groups.expire(key, driven.now_ms) is None


def test_a_static_member_that_is_away_keeps_its_partitions(driven: Driven) -> None:
    first, other = _consumer(driven, "a", instance_id="i"), _consumer(driven, "b")
    first.join()
    other.join()
    settle([first, other])
    had, epoch = first.owned, driven.group.epoch
    first.leave(-2)
    settle([other])
    back = _consumer(driven, "a2", instance_id="i")
    back.join()
    assert (back.owned, driven.group.epoch) == (had, epoch)
    assert set(driven.group.members) == {"a2", "b"}
    assert _refused(driven, attrs.evolve(JOIN, instance_id="i", member_epoch=epoch)) is ErrorCode.FENCED_INSTANCE_ID


def test_an_instance_id_is_free_again_when_its_member_has_left_for_good(driven: Driven, topics: Topics) -> None:
    consumer = _consumer(driven, "a", instance_id="i")
    consumer.join()
    assert _refused(driven, attrs.evolve(JOIN, member_id="b", instance_id="i")) is ErrorCode.UNRELEASED_INSTANCE_ID
    assert _refused(driven, attrs.evolve(JOIN, instance_id="j", member_epoch=1)) is ErrorCode.UNKNOWN_MEMBER_ID
    consumer.leave(-2)
    assert consumer.join().assignment == topics.all_of("t"), "under the same member id"
    consumer.leave()
    assert (driven.group.state, driven.group.owners) == (GroupState.EMPTY, {})
    assert driven.group.static_members == {}
    epoch = driven.group.epoch
    assert _consumer(driven, "b", instance_id="i").join().member_epoch == epoch + 1, "the epochs of the group continue"


def test_a_member_has_what_its_subscription_matches_as_topics_come_and_go(driven: Driven, topics: Topics) -> None:
    consumer = _consumer(driven, "a", "t", "u")
    consumer.join()
    topics.create("other", 4)
    settle([consumer])
    assert driven.group.epoch == 2, "nobody reads it"
    for change, wanted in (
        (lambda: topics.grow("t", 6), "t"),
        (lambda: topics.create("u", 2), "tu"),
        (lambda: topics.delete("t"), "u"),
        (lambda: topics.create("t", 4), "tu"),
    ):
        change()
        settle([consumer])
        assert consumer.owned == NO_PARTITIONS.union(*map(topics.all_of, wanted))
    consumer.beat(topic_names=("other",))
    assert consumer.owned == NO_PARTITIONS
    settle([consumer])
    assert consumer.owned == topics.all_of("other")
    consumer.beat(topic_names=())
    settle([consumer])
    assert consumer.owned == NO_PARTITIONS


def test_a_regular_expression_follows_the_topics_beside_names(driven: Driven, topics: Topics) -> None:
    pytest.importorskip("re2")
    assert _refused(driven, attrs.evolve(JOIN, topic_regex="(")) is ErrorCode.INVALID_REGULAR_EXPRESSION
    topics.create("orders-eu", 1)
    consumer = Consumer(driven=driven, member_id="a", topic_names=("t",), topic_regex="orders-.*")
    consumer.join()
    assert consumer.owned == topics.all_of("t") | topics.all_of("orders-eu")
    topics.create("orders-us", 2)
    topics.delete("orders-eu")
    settle([consumer])
    assert consumer.owned == topics.all_of("t") | topics.all_of("orders-us")
    consumer.beat(topic_regex="")
    settle([consumer])
    assert consumer.owned == topics.all_of("t")
    assert driven.group.regexes == {}


def _commit(
    driven: Driven,
    member_id: str,
    epoch: int,
    version: int | None = 9,
    *,
    partition: int = 0,
    topic: str = "t",
    is_transactional: bool = False,
) -> object:
    """The error of a commit, None for none."""
    member = CommittingMember(member_id=member_id, generation=epoch, version=version)
    partitions = [TopicPartition(topic, partition)]
    try:
        driven.group.check_commit(member, partitions, driven.groups.topics, is_transactional=is_transactional)
    except RequestError as exc:
        return exc.code
    return None


def test_offsets_are_committed_by_members_at_their_epoch(driven: Driven) -> None:
    consumer = _consumer(driven, "a")
    consumer.join()
    assert _commit(driven, "a", 2) is None
    assert _commit(driven, "a", 2, topic="another") is None
    assert _commit(driven, "a", 3) is ErrorCode.STALE_MEMBER_EPOCH
    assert _commit(driven, "a", 2, 8) is ErrorCode.UNSUPPORTED_VERSION
    assert _commit(driven, "b", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert _commit(driven, "", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert _commit(driven, "a", 2, None, is_transactional=True) is None
    assert _commit(driven, "", -1, None, is_transactional=True) is None
    assert _commit(driven, "b", -1, None, is_transactional=True) is ErrorCode.UNKNOWN_MEMBER_ID
    consumer.leave()
    assert _commit(driven, "", -1) is None


def test_offsets_are_committed_at_an_older_epoch_since_which_the_member_has_them(driven: Driven) -> None:
    """KIP-1251: the answer with the present one may be on its way."""
    first, second = _consumer(driven, "a"), _consumer(driven, "b")
    first.join()
    second.join()
    settle([first, second])
    kept = {number for _, number in first.owned}
    assert len(kept) == 2
    assert driven.group.members["a"].epoch == 3
    for number in range(4):
        wanted = None if number in kept else ErrorCode.STALE_MEMBER_EPOCH
        assert _commit(driven, "a", 2, partition=number) is wanted
        assert _commit(driven, "b", 2, partition=number) is ErrorCode.STALE_MEMBER_EPOCH
    assert _commit(driven, "a", 1, partition=min(kept)) is ErrorCode.STALE_MEMBER_EPOCH
    assert _commit(driven, "a", 2, topic="unknown") is ErrorCode.STALE_MEMBER_EPOCH
    second.leave()
    settle([first])
    assert driven.group.members["a"].epoch == 4
    assert {number for number in range(4) if _commit(driven, "a", 2, partition=number) is None} == kept
    since = driven.group.members["a"].since
    driven.restart()
    assert driven.group.members["a"].since == since


def test_what_is_to_be_given_up_is_committed_at_an_older_epoch_too(driven: Driven) -> None:
    consumers = [_consumer(driven, member_id) for member_id in "abc"]
    for consumer in consumers[:2]:
        consumer.join()
    settle(consumers[:2])
    kept = {number for _, number in consumers[0].owned}
    consumers[2].join()
    consumers[0].beat()
    member = driven.group.members["a"]
    assert (member.state, member.epoch, len(member.revoking)) == (MemberState.UNREVOKED_PARTITIONS, 3, 1)
    assert {number for number in range(4) if _commit(driven, "a", 2, partition=number) is None} == kept


def test_offsets_are_read_by_members_at_their_epoch_and_by_who_is_none(driven: Driven) -> None:
    _consumer(driven, "a").join()
    driven.group.check_fetch(None, -1)
    driven.group.check_fetch("a", 2)
    for member_id, epoch, code in [
        ("a", 0, ErrorCode.STALE_MEMBER_EPOCH),
        ("b", 2, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 2, ErrorCode.UNKNOWN_MEMBER_ID),
    ]:
        with pytest.raises(RequestError) as caught:
            driven.group.check_fetch(member_id, epoch)
        assert caught.value.code is code


TOPICS: Final = [bytes([number]) * 16 for number in range(4)]
NAMES: Final = list(ASSIGNORS)

partition_counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 7))
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
@given(group=groups, counts=partition_counts)
def test_every_partition_goes_to_one_subscriber(name: str, group: dict[str, Subscriber], counts: dict[bytes, int]) -> None:
    assigned = ASSIGNORS[name](group, counts)
    assert assigned.keys() == group.keys()
    given_out = [partition for each in assigned.values() for partition in each]
    wanted = {topic for each in group.values() for topic in each.topics}
    assert sorted(given_out) == sorted((topic, n) for topic, count in counts.items() if topic in wanted for n in range(count))
    assert all({topic for topic, _ in assigned[member_id]} <= each.topics for member_id, each in group.items())


@pytest.mark.parametrize("name", NAMES)
@given(group=groups, counts=partition_counts)
def test_a_second_run_moves_nothing(name: str, group: dict[str, Subscriber], counts: dict[bytes, int]) -> None:
    first = ASSIGNORS[name](group, counts)
    assert ASSIGNORS[name](_again(group, first), counts) == first


@given(
    st.sets(st.sampled_from("abcdefgh"), min_size=1), partition_counts, st.dictionaries(st.sampled_from("abcdefgh"), partitions)
)
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


@given(st.sets(st.sampled_from("abcdefgh"), min_size=1), partition_counts)
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
