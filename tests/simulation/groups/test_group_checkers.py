"""Every anomaly of groups and stages is found in a history that has it, and none in the one without."""

from __future__ import annotations

from typing import Any, Final

import pytest
from triolog.protocol.types import TopicPartition

from ..history import Damaged, Event, Found, Polled, Send, Sent, Stored
from .checker import check_groups
from .events import (
    CLASSIC,
    CONSUMERS,
    MIXED,
    SHARERS,
    Accepted,
    Acknowledges,
    Acquired,
    Assigns,
    Commits,
    CommitsStage,
    Committed,
    Described,
    Dismissed,
    Heard,
    LastCommit,
    LetsGo,
    MixedCommit,
    MixedEnd,
    Resumes,
    SessionEnded,
    Settled,
    ShareGroupIs,
    StageCommitted,
    Staged,
    StandsAt,
    Told,
    Unanswered,
)

P: Final = TopicPartition("in", 0)
Q: Final = TopicPartition("in", 1)
ACCEPT, RELEASE, RENEW = 1, 2, 4


def kinds(*events: Event) -> set[str]:
    return {anomaly.kind for anomaly in check_groups(events)}


def of(member: str, at_ms: int, epoch: int = 1, group: str = CONSUMERS) -> dict[str, Any]:
    return {"at_ms": at_ms, "who": f"{group} 0", "group": group, "member": member, "epoch": epoch}


def told(member: str, at_ms: int, *partitions: TopicPartition, until_ms: int = 100, **who: Any) -> Told:
    return Told(**of(member, at_ms, **who), partitions=partitions, until_ms=until_ms)


def lets_go(member: str, at_ms: int, *partitions: TopicPartition) -> LetsGo:
    return LetsGo(**of(member, at_ms), partitions=partitions)


def heard(member: str, at_ms: int, until_ms: int, begun_ms: int = 0, **who: Any) -> Heard:
    return Heard(**of(member, at_ms, **who), begun_ms=begun_ms, until_ms=until_ms)


def commit(
    member: str, at_ms: int, offset: int, *, number: int = 1, is_kept: bool | None = True, where: TopicPartition = P, **who: Any
) -> list[Event]:
    said = {"number": number, "partition": where, "offset": offset}
    return [Commits(**of(member, at_ms, **who), **said), Committed(**of(member, at_ms, **who), **said, is_kept=is_kept)]


def resumes(offset: int, at_ms: int = 90, begun_ms: int = 80, group: str = CONSUMERS) -> Resumes:
    return Resumes(at_ms=at_ms, who="x", group=group, partition=P, offset=offset, begun_ms=begun_ms)


# ---- members -----------------------------------------------------------------------------------------------------------------


def test_owned_twice() -> None:
    assert kinds(told("a", 1, P), told("b", 2, Q)) == set()
    assert kinds(told("a", 1, P), told("b", 2, P)) == {"owned twice"}
    assert kinds(told("a", 1, P), lets_go("a", 2, P), told("b", 3, P)) == set()


@pytest.mark.parametrize("until_ms", [{"a": 5, "b": 100}, {"a": 100, "b": 5}], ids=str)
def test_who_may_be_no_member_any_more_has_nothing_for_certain(until_ms: dict[str, int]) -> None:
    assert kinds(told("a", 1, P, until_ms=until_ms["a"]), told("b", 9, P, until_ms=until_ms["b"])) == set()


def test_owned_twice_in_a_generation() -> None:
    lots = Assigns(**of("a", 0, 1, CLASSIC), assignment=(("a", (P,)), ("b", (P,))))
    both = [told("a", 1, P, until_ms=2, group=CLASSIC), told("b", 5, P, until_ms=9, group=CLASSIC)]
    assert kinds(lots, *both) == {"owned twice"}


def test_another_assignment() -> None:
    lots = Assigns(**of("a", 0, 1, CLASSIC), assignment=(("a", (P,)), ("b", (Q,))))
    assert kinds(lots, told("a", 1, P, group=CLASSIC), told("b", 1, Q, group=CLASSIC)) == set()
    assert kinds(lots, told("a", 1, Q, group=CLASSIC)) == {"another assignment"}


def test_forgotten_member() -> None:
    def dismissed(at_ms: int, *, is_explained: bool = False) -> Dismissed:
        return Dismissed(**of("a", at_ms), error="UNKNOWN_MEMBER_ID", is_explained=is_explained)

    assert kinds(heard("a", 1, until_ms=5), dismissed(4)) == {"forgotten member"}
    assert kinds(heard("a", 1, until_ms=5), dismissed(6)) == set()
    assert kinds(heard("a", 1, until_ms=5), dismissed(4, is_explained=True)) == set()


def test_fenced_commit() -> None:
    assert kinds(told("a", 1, P), *commit("a", 2, 7)) == set()
    lost = [told("a", 1, P, until_ms=2), told("b", 3, P)]
    assert kinds(*lost, *commit("a", 4, 7)) == {"fenced commit"}
    assert kinds(*lost, *commit("a", 4, 7, is_kept=False)) == set()
    begun, answered = commit("a", 2, 7)
    assert kinds(lost[0], begun, lost[1], answered) == set(), "it may have been kept before"


def generations(*epochs: int) -> list[Event]:
    """One member after the other has everything."""
    return [
        event
        for epoch in epochs
        for event in (
            Assigns(**of(f"m{epoch}", 10 * epoch, epoch, CLASSIC), assignment=((f"m{epoch}", (P,)),)),
            told(f"m{epoch}", 10 * epoch + 1, P, until_ms=10 * epoch + 2, epoch=epoch, group=CLASSIC),
            *commit(f"m{epoch}", 10 * epoch + 3, epoch, epoch=epoch, group=CLASSIC),
        )
    ]


def test_fenced_commit_of_an_earlier_generation() -> None:
    late = commit("m1", 90, 5, number=2, epoch=1, group=CLASSIC)
    assert kinds(*generations(1, 2)) == set()
    assert kinds(*generations(1, 2), *late) == {"fenced commit"}
    assert kinds(*generations(1), *late) == set()


def test_zombie_heartbeat() -> None:
    late = heard("m1", 99, until_ms=100, begun_ms=98, epoch=1, group=CLASSIC)
    assert kinds(*generations(1, 2), late) == {"zombie heartbeat"}
    assert kinds(*generations(1), late) == set()


def test_epoch_went_back() -> None:
    def described(epoch: int, at_ms: int) -> Described:
        return Described(at_ms=at_ms, who="x", group=CONSUMERS, epoch=epoch, begun_ms=at_ms - 1)

    assert kinds(*commit("a", 1, 1), described(3, 5), described(2, 9)) == {"epoch went back"}
    assert kinds(*commit("a", 1, 1), told("a", 2, P, epoch=3), described(2, 9)) == {"epoch went back"}
    assert kinds(described(3, 5), described(2, 9)) == set(), "without offsets a group without members is forgotten"


def test_unsettled_group() -> None:
    assert kinds(Settled(at_ms=1, who="x", group=CLASSIC)) == set()
    assert kinds(Settled(at_ms=1, who="x", group=CLASSIC, lacks="a member")) == {"unsettled group"}


def test_unprocessed() -> None:
    records = (Found(0, "a", 1), Found(1, "b", 1))
    stored = Stored(at_ms=9, who="x", partition=P, is_committed=True, start_offset=0, end_offset=2, records=records)

    def polled(*read: Found) -> Polled:
        return Polled(at_ms=1, who=f"{CONSUMERS} 0", partition=P, is_committed=True, position=0, records=read, next_position=2)

    assert kinds(polled(*records), *commit("a", 2, 2), resumes(2), stored) == set()
    assert kinds(polled(records[0]), *commit("a", 2, 2), resumes(2), stored) == {"unprocessed"}


# ---- offsets -----------------------------------------------------------------------------------------------------------------


def test_offset_went_back() -> None:
    assert kinds(resumes(-1), *commit("a", 91, 1), resumes(1, 93, 92)) == set()
    assert kinds(*commit("a", 1, 1), *commit("a", 2, 2, number=2), resumes(1)) == {"offset went back"}
    assert kinds(*commit("a", 1, 1), resumes(-1)) == {"offset went back"}
    assert kinds(*commit("a", 1, 1), resumes(-1, begun_ms=0)) == set(), "asked before"
    assert kinds(*commit("a", 1, 1), *commit("a", 2, 2, number=2, is_kept=False), resumes(2)) == {"offset went back"}


def test_a_commit_without_an_answer_counts_or_not_until_its_member_is_fenced() -> None:
    open_commit = commit("a", 1, 1, is_kept=None)
    assert kinds(*open_commit, *commit("a", 2, 2, number=2), resumes(1)) == set()
    assert kinds(*open_commit, told("b", 2, P), *commit("b", 3, 2), resumes(1)) == {"offset went back"}
    assert kinds(*open_commit, told("b", 2, P), resumes(1)) == set()


def mixed(*commits: tuple[str, int], end: bool | None = True) -> list[Event]:
    return [
        *(MixedCommit(at_ms=1, who="x", offset=o, transaction=0 if kind == "t" else None, is_kept=True) for kind, o in commits),
        MixedEnd(at_ms=2, who="x", transaction=0, is_committed=end),
    ]


def test_offsets_of_transactions_among_others() -> None:
    def answers(offset: int, *events: Event) -> set[str]:
        return kinds(*events, resumes(offset, group=MIXED))

    assert answers(2, *mixed(("t", 1), ("p", 2))) == set()
    assert answers(1, *mixed(("t", 1), ("p", 2))) == {"offset went back"}
    assert answers(2, *mixed(("p", 1), ("t", 2))) == set()
    assert answers(1, *mixed(("p", 1), ("t", 2))) == {"offset went back"}
    assert answers(2, *mixed(("p", 1), ("t", 2), end=False)) == {"offset went back"}
    assert answers(1, *mixed(("p", 1), ("t", 2), end=None)) == answers(2, *mixed(("p", 1), ("t", 2), end=None)) == set()


# ---- share groups ------------------------------------------------------------------------------------------------------------


SHARE: Final = ShareGroupIs(at_ms=0, who="x", group=SHARERS, topics=("in",), is_committed=False, lock_ms=50, delivery_limit=2)


def beats(*members: str) -> list[Event]:
    return [heard(member, 1, until_ms=1000, group=SHARERS) for member in members]


def acquired(member: str, at_ms: int, count: int = 1, record: str | None = "a", last: int = 0) -> Acquired:
    ids = () if record is None else ((0, record),)
    return Acquired(
        **of(member, at_ms, group=SHARERS),
        partition=P,
        first=0,
        last=last,
        delivery_count=count,
        begun_ms=at_ms - 1,
        ids=ids,
    )


def says(member: str, at_ms: int, kind: int, *, is_kept: bool | None = True, error: str = "", number: int = 1) -> list[Event]:
    who = of(member, at_ms, group=SHARERS)
    return [
        Acknowledges(**who, number=number, partition=P, said=((0, kind),)),
        Accepted(**who, number=number, is_kept=is_kept, error=error),
    ]


def log(*ids: str) -> list[Event]:
    records = tuple(Found(offset, each, 1) for offset, each in enumerate(ids))
    sent = Send(at_ms=0, who="x", partition=P, producer="p", records=tuple(Sent(each, 1) for each in ids))
    whole = Stored(at_ms=99, who="x", partition=P, is_committed=False, start_offset=0, end_offset=1, records=records)
    return [sent, whole]


def share(*events: Event) -> set[str]:
    sent, whole = log("a")
    return kinds(SHARE, sent, *beats("m", "n"), *events, whole)


def damaged(offset: int) -> Damaged:
    return Damaged(at_ms=50, who="operator", partition=P, first_offset=offset, next_offset=offset + 1)


def stands_at(offset: int) -> StandsAt:
    return StandsAt(at_ms=95, who="x", group=SHARERS, partition=P, offset=offset)


def test_given_once_and_accepted() -> None:
    assert share(acquired("m", 5), *says("m", 6, ACCEPT)) == set()
    assert share(acquired("m", 5), *says("m", 6, ACCEPT, is_kept=None)) == set()


def test_given_twice() -> None:
    both = [acquired("m", 5), acquired("n", 8, count=2)]
    assert share(*both, *says("n", 9, ACCEPT)) == {"given twice"}
    assert share(acquired("m", 5), acquired("n", 60, count=2), *says("n", 61, ACCEPT)) == set(), "the lock is over"
    ended = SessionEnded(**of("m", 6, group=SHARERS))
    assert share(both[0], ended, both[1], *says("n", 9, ACCEPT)) == set()
    assert share(both[0], *says("m", 6, RELEASE), both[1], *says("n", 9, ACCEPT)) == set()


def test_a_renewed_lock_lasts() -> None:
    renewed = [acquired("m", 5), *says("m", 50, RENEW)]
    assert share(*renewed, acquired("n", 60, count=2), *says("n", 61, ACCEPT)) == {"given twice"}


def test_given_again() -> None:
    assert share(acquired("m", 5), *says("m", 6, ACCEPT), acquired("n", 60, count=2)) == {"given again"}


def test_another_record() -> None:
    assert share(acquired("m", 5, record="b"), *says("m", 6, ACCEPT)) == {"another record"}
    assert share(acquired("m", 5, record=None), *says("m", 6, ACCEPT)) == {"another record"}
    assert share(acquired("m", 5, last=1), *says("m", 6, ACCEPT)) == set(), "there is none at the second offset"
    given = [acquired("m", 5, record="b"), *says("m", 6, ACCEPT)]
    assert share(*given, damaged(0)) == set(), "it is gone"
    assert share(*given, damaged(1)) == {"another record"}


def test_wrong_count() -> None:
    back = [acquired("m", 5), *says("m", 6, RELEASE)]
    assert share(*back, acquired("n", 8, count=1), *says("n", 9, ACCEPT)) == {"wrong count"}
    assert share(acquired("m", 5, count=3), *says("m", 6, ACCEPT)) == {"wrong count"}


def test_broken_lock() -> None:
    refused = {"is_kept": False, "error": "INVALID_RECORD_STATE"}
    again = [acquired("n", 80, count=2), *says("n", 81, ACCEPT)]
    assert share(acquired("m", 5), *says("m", 6, ACCEPT, **refused), *again) == {"broken lock"}
    assert share(acquired("m", 5), *says("m", 60, ACCEPT, **refused), *again) == set()


def test_unconsumed() -> None:
    assert share() == {"unconsumed"}
    assert share(acquired("m", 5)) == {"unconsumed"}
    assert share(acquired("m", 5), acquired("n", 60, count=2)) == set(), "it is given up"
    assert share(acquired("m", 5), Unanswered(**of("n", 60, group=SHARERS))) == set(), "it may have been"


def test_a_share_group_does_not_come_over_damage() -> None:
    sent, whole = log("a", "b", "c")
    first = [SHARE, sent, *beats("m", "n"), acquired("m", 5), *says("m", 6, ACCEPT)]
    assert kinds(*first, whole) == {"unconsumed"}
    assert kinds(*first, damaged(1), whole) == {"unconsumed"}, "nobody was told of it"
    assert kinds(*first, damaged(1), stands_at(1), whole) == set()
    assert kinds(*first, damaged(1), stands_at(2), whole) == {"unconsumed"}, "there it is whole"
    assert kinds(*first, damaged(2), stands_at(2), whole) == {"unconsumed"}, "this lies before it"


# ---- stages ------------------------------------------------------------------------------------------------------------------


def staged(attempt: str, *ids: str, version: int = 0) -> list[Event]:
    """And about to be committed."""
    who = {"at_ms": 1, "who": "x", "application": "app", "version": version, "attempt": attempt}
    return [Staged(**who, ids=ids), CommitsStage(**who, ids=((P, ids),))]


def was_committed(attempt: str, *, is_mine: bool = True, base: int = 0, end: int = 2, version: int = 0) -> StageCommitted:
    who = {"at_ms": 2, "who": "x", "application": "app", "version": version, "attempt": attempt}
    return StageCommitted(**who, is_mine=is_mine, places=((P, base, end),))


def test_a_version_is_there_whole_and_once() -> None:
    assert kinds(*staged("a", "1", "2"), was_committed("a"), *log("1", "2")) == set()
    assert kinds(*staged("a", "1", "2"), *log()) == set(), "nobody knows"
    assert kinds(*staged("a", "1", "2"), *staged("b", "3", "4"), was_committed("b", is_mine=False), *log("1", "2")) == set()


@pytest.mark.parametrize("there", [(), ("1",), ("2", "1"), ("0", "1", "2"), ("3", "1", "2"), ("1", "2", "4")], ids=str)
def test_inexact_stage(there: tuple[str, ...]) -> None:
    events = [
        *staged("a", "1", "2"),
        *staged("b", "4"),
        Staged(at_ms=1, who="x", application="app", version=0, attempt="a", ids=("3",)),
    ]
    assert kinds(*events, was_committed("a"), *log(*there)) == {"inexact stage"}


def test_what_was_not_committed_is_not_there() -> None:
    asked = LastCommit(at_ms=3, who="x", application="app", version=-1, begun_ms=2)
    assert kinds(*staged("a", "1", "2"), asked, *log("1", "2")) == {"inexact stage"}


def test_what_somebody_has_damaged_of_a_version_may_be_missing() -> None:
    committed = [*staged("a", "1", "2"), was_committed("a")]
    assert kinds(*committed, damaged(1), *log("1")) == set()
    assert kinds(*committed, damaged(0), damaged(1), *log()) == set()
    assert kinds(*staged("a", "1", "2"), was_committed("a", is_mine=False), damaged(1), *log()) == set()
    assert kinds(*committed, damaged(2), *log("1")) == {"inexact stage"}
    assert kinds(*committed, *staged("b", "3"), damaged(1), *log("1", "3")) == {"inexact stage"}


def test_last_commit_went_back() -> None:
    asked = LastCommit(at_ms=9, who="x", application="app", version=-1, begun_ms=8)
    assert kinds(*staged("a", "1", "2"), was_committed("a"), asked, *log("1", "2")) == {"last commit went back"}
