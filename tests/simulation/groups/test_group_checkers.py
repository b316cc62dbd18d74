"""The checkers of groups and stages find every anomaly in a history that has it."""

from __future__ import annotations

from typing import Any, Final

import attrs
import pytest
from triolog.protocol.types import TopicPartition

from tests.simulation.verdict import check_groups

from ..history import Damaged, Event, Found, Polled, Send, Sent, Stored, Torn
from . import events as e

P: Final = TopicPartition("in", 0)
Q: Final = TopicPartition("in", 1)
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


def of(member: str, at_ms: int, epoch: int = 1, group: str = e.CONSUMERS) -> dict[str, Any]:
    return {"at_ms": at_ms, "who": f"{group} 0", "group": group, "member": member, "epoch": epoch}


def told(member: str, at_ms: int, *partitions: TopicPartition, until_ms: int = 100, **who: Any) -> e.Told:
    return e.Told(**of(member, at_ms, **who), partitions=partitions, until_ms=until_ms)


def lets_go(member: str, at_ms: int, *partitions: TopicPartition) -> e.LetsGo:
    return e.LetsGo(**of(member, at_ms), partitions=partitions)


def heard(member: str, at_ms: int, until_ms: int, begun_ms: int = 0, **who: Any) -> e.Heard:
    return e.Heard(**of(member, at_ms, **who), begun_ms=begun_ms, until_ms=until_ms)


def commit(
    member: str, at_ms: int, offset: int, *, number: int = 1, is_kept: bool | None = True, where: TopicPartition = P, **who: Any
) -> list[Event]:
    said = {"number": number, "partition": where, "offset": offset}
    return [e.Commits(**of(member, at_ms, **who), **said), e.Committed(**of(member, at_ms, **who), **said, is_kept=is_kept)]


def resumes(offset: int, at_ms: int = 90, begun_ms: int = 80, group: str = e.CONSUMERS) -> e.Resumes:
    return e.Resumes(at_ms=at_ms, who="x", group=group, partition=P, offset=offset, begun_ms=begun_ms)


def by(client: str, event: e.MemberEvent) -> e.MemberEvent:
    return attrs.evolve(event, who=client)


def returned(has: TopicPartition, epoch: int) -> e.Returned:
    return e.Returned(**of("s", 9), had=(P,), has=(has,), epochs=(1, 1), epochs_after=(1, epoch))


def generations(*epochs: int) -> list[Event]:
    """One member after the other has everything."""
    return [
        event
        for epoch in epochs
        for event in (
            e.Assigns(**of(f"m{epoch}", 10 * epoch, epoch, e.CLASSIC), assignment=((f"m{epoch}", (P,)),)),
            told(f"m{epoch}", 10 * epoch + 1, P, until_ms=10 * epoch + 2, epoch=epoch, group=e.CLASSIC),
            *commit(f"m{epoch}", 10 * epoch + 3, epoch, epoch=epoch, group=e.CLASSIC),
        )
    ]


def mixed(*commits: tuple[str, int], end: bool | None = True) -> list[Event]:
    return [
        *(
            e.MixedCommit(at_ms=1, who="x", offset=o, transaction=0 if kind == "t" else None, is_kept=True)
            for kind, o in commits
        ),
        e.MixedEnd(at_ms=2, who="x", transaction=0, is_committed=end),
    ]


SHARE: Final = e.ShareGroupIs(
    at_ms=0, who="x", group=e.SHARERS, topics=("in",), is_committed=False, lock_ms=50, delivery_limit=2
)


def beats(*members: str) -> list[Event]:
    return [heard(member, 1, until_ms=1000, group=e.SHARERS) for member in members]


def acquired(member: str, at_ms: int, count: int = 1, record: str | None = "a", last: int = 0) -> e.Acquired:
    ids = () if record is None else ((0, record),)
    return e.Acquired(
        **of(member, at_ms, group=e.SHARERS), partition=P, first=0, last=last, delivery_count=count, begun_ms=at_ms - 1, ids=ids
    )


def says(member: str, at_ms: int, kind: int, *, is_kept: bool | None = True, error: str = "", number: int = 1) -> list[Event]:
    who = of(member, at_ms, group=e.SHARERS)
    return [
        e.Acknowledges(**who, number=number, partition=P, said=((0, kind),)),
        e.Accepted(**who, number=number, is_kept=is_kept, error=error),
    ]


def log(*ids: str) -> list[Event]:
    records = tuple(Found(offset, each, 1) for offset, each in enumerate(ids))
    sent = Send(at_ms=0, who="x", partition=P, producer="p", records=tuple(Sent(each, 1) for each in ids))
    whole = Stored(at_ms=99, who="x", partition=P, is_committed=False, start_offset=0, end_offset=1, records=records)
    return [sent, whole]


def share(*events: Event, ids: str = "a") -> list[Event]:
    """A share group's history over records with these ids."""
    sent, whole = log(*ids)
    return [SHARE, sent, *beats("m", "n"), *events, whole]


def queue(*is_rejected: bool, failed: int = 0, record: str = "a") -> e.DeadLetters:
    """With a letter of the first record for each."""
    letters = tuple(e.DeadLetter(P, 0, each, record) for each in is_rejected)
    return e.DeadLetters(at_ms=98, who="x", letters=letters, failed=failed)


def damaged(offset: int) -> Damaged:
    return Damaged(at_ms=50, who="operator", partition=P, first_offset=offset, next_offset=offset + 1)


def stands_at(offset: int) -> e.StandsAt:
    return e.StandsAt(at_ms=95, who="x", group=e.SHARERS, partition=P, offset=offset)


def staged(attempt: str, *ids: str, version: int = 0) -> list[Event]:
    """And about to be committed."""
    who = {"at_ms": 1, "who": "x", "application": "app", "version": version, "attempt": attempt}
    return [e.Staged(**who, ids=ids), e.CommitsStage(**who, ids=((P, ids),))]


def was_committed(attempt: str, *, is_mine: bool = True, base: int = 0, end: int = 2, version: int = 0) -> e.StageCommitted:
    who = {"at_ms": 2, "who": "x", "application": "app", "version": version, "attempt": attempt}
    return e.StageCommitted(**who, is_mine=is_mine, places=((P, base, end),))


def dismissed(at_ms: int, member: str = "a", *, is_explained: bool = False) -> e.Dismissed:
    return e.Dismissed(**of(member, at_ms), error="UNKNOWN_MEMBER_ID", is_explained=is_explained)


def described(epoch: int, at_ms: int) -> e.Described:
    return e.Described(at_ms=at_ms, who="x", group=e.CONSUMERS, epoch=epoch, begun_ms=at_ms - 1)


def assigns(a: TopicPartition, b: TopicPartition) -> e.Assigns:
    return e.Assigns(**of("a", 0, 1, e.CLASSIC), assignment=(("a", (a,)), ("b", (b,))))


def polled(*read: Found) -> Polled:
    return Polled(at_ms=1, who=f"{e.CONSUMERS} 0", partition=P, is_committed=True, position=0, records=read, next_position=2)


def answers(offset: int, *events: Event) -> list[Event]:
    return [*events, resumes(offset, group=e.MIXED)]


def last_commit(at_ms: int) -> e.LastCommit:
    return e.LastCommit(at_ms=at_ms, who="x", application="app", version=-1, begun_ms=at_ms - 1)


TAKEN_OVER: Final = [told("a", 1, P, until_ms=2), told("b", 3, P)]
REPLACED: Final = [by("old", told("s", 1, P)), by("new", e.TakesPlace(**of("s", 2))), by("new", told("s", 3, P))]
LATE_COMMIT: Final = commit("m1", 90, 5, number=2, epoch=1, group=e.CLASSIC)
LATE_BEAT: Final = heard("m1", 99, until_ms=100, begun_ms=98, epoch=1, group=e.CLASSIC)
READ: Final = (Found(0, "a", 1), Found(1, "b", 1))
ENDS_AT_2: Final = [
    *(*commit("a", 2, 2), resumes(2)),
    Stored(at_ms=9, who="x", partition=P, is_committed=True, start_offset=0, end_offset=2, records=READ),
]
Row = tuple[str, list[Event]]
"""Kinds of anomalies, and a history."""

ALONE: Final = [assigns(P, Q), told("a", 1, P, group=e.CLASSIC)]
THEN_ANOTHER: Final = [assigns(Q, P), told("b", 3, P, group=e.CLASSIC)]
MEMBERS: Final[list[Row]] = [
    ("", [told("a", 1, P), told("b", 2, Q)]),
    ("owned twice", [told("a", 1, P), told("b", 2, P)]),
    ("", [told("a", 1, P), lets_go("a", 2, P), told("b", 3, P)]),
    ("", [told("a", 1, P, until_ms=5), told("b", 9, P)]),
    ("", [told("a", 1, P), told("b", 9, P, until_ms=5)]),
    # another client of the static member has joined, and the group has rebalanced
    ("", [*REPLACED[:2], told("b", 3, P)]),
    ("owned twice", [*REPLACED, told("b", 4, P)]),
    (
        "owned twice",
        [assigns(P, P), *(told(each, at, P, until_ms=at + 1, group=e.CLASSIC) for each, at in (("a", 1), ("b", 5)))],
    ),
    ("", [assigns(P, Q), told("a", 1, P, group=e.CLASSIC), told("b", 1, Q, group=e.CLASSIC)]),
    # it has left, and the group, which had no offsets, was forgotten
    ("", [*ALONE, e.LetsGo(**of("a", 2, group=e.CLASSIC), partitions=(P,)), *THEN_ANOTHER]),
    ("owned twice", [*ALONE, *THEN_ANOTHER]),
    ("another assignment", [assigns(P, Q), told("a", 1, Q, group=e.CLASSIC)]),
    ("forgotten member", [heard("a", 1, until_ms=5), dismissed(4)]),
    ("", [heard("a", 1, until_ms=5), dismissed(6)]),
    ("", [heard("a", 1, until_ms=5), dismissed(4, is_explained=True)]),
    ("", [told("a", 1, P), *commit("a", 2, 7)]),
    ("fenced commit", [*TAKEN_OVER, *commit("a", 4, 7)]),
    ("", [*TAKEN_OVER, *commit("a", 4, 7, is_kept=False)]),
    # it may have been kept before
    ("", [TAKEN_OVER[0], commit("a", 2, 7)[0], TAKEN_OVER[1], commit("a", 2, 7)[1]]),
    ("", generations(1, 2)),
    ("fenced commit", [*generations(1, 2), *LATE_COMMIT]),
    ("", [*generations(1), *LATE_COMMIT, LATE_BEAT]),
    ("zombie heartbeat", [*generations(1, 2), LATE_BEAT]),
    ("epoch went back", [*commit("a", 1, 1), described(3, 5), described(2, 9)]),
    ("epoch went back", [*commit("a", 1, 1), told("a", 2, P, epoch=3), described(2, 9)]),
    # without offsets a group without members is forgotten
    ("", [described(3, 5), described(2, 9)]),
    ("", REPLACED),
    ("", [*REPLACED, by("old", dismissed(4, "s")), by("old", heard("s", 4, until_ms=9, begun_ms=2))]),
    ("unfenced member", [*REPLACED, by("old", heard("s", 6, until_ms=9, begun_ms=4))]),
    ("unfenced member", [*REPLACED, *(by("old", each) for each in commit("s", 6, 1))]),
    ("", [*REPLACED, *(by("old", each) for each in commit("s", 6, 1, is_kept=False))]),
    ("forgotten member", [*REPLACED, by("new", dismissed(4, "s"))]),
    ("", [*REPLACED, by("old", e.TakesPlace(**of("s", 4))), by("new", dismissed(5, "s"))]),
    ("", [by("new", told("s", 1, P)), by("new", e.TakesPlace(**of("s", 2))), by("new", dismissed(3, "s"))]),
    (
        "forgotten member",
        [*(by("new", each) for each in (e.TakesPlace(**of("s", 1)), told("s", 2, P), dismissed(3, "s")))],
    ),
    ("", [returned(P, 1)]),
    ("lost place", [returned(Q, 1)]),
    ("lost place", [returned(P, 2)]),
    ("unsettled group", [e.Settled(at_ms=1, who="x", group=e.CLASSIC, lacks="a member")]),
    ("", [polled(*READ), *ENDS_AT_2]),
    ("unprocessed", [polled(READ[0]), *ENDS_AT_2]),
]
OFFSETS: Final[list[Row]] = [
    ("", [resumes(-1), *commit("a", 91, 1), resumes(1, 93, 92)]),
    ("offset went back", [*commit("a", 1, 1), *commit("a", 2, 2, number=2), resumes(1)]),
    ("offset went back", [*commit("a", 1, 1), resumes(-1)]),
    ("", [*commit("a", 1, 1), resumes(-1, begun_ms=0)]),
    ("offset went back", [*commit("a", 1, 1), *commit("a", 2, 2, number=2, is_kept=False), resumes(2)]),
    # a commit without an answer counts or not until its member is fenced
    ("", [*commit("a", 1, 1, is_kept=None), *commit("a", 2, 2, number=2), resumes(1)]),
    ("offset went back", [*commit("a", 1, 1, is_kept=None), told("b", 2, P), *commit("b", 3, 2), resumes(1)]),
    ("", [*commit("a", 1, 1, is_kept=None), told("b", 2, P), resumes(1)]),
    ("", answers(2, *mixed(("t", 1), ("p", 2)))),
    ("offset went back", answers(1, *mixed(("t", 1), ("p", 2)))),
    ("", answers(2, *mixed(("p", 1), ("t", 2)))),
    ("offset went back", answers(1, *mixed(("p", 1), ("t", 2)))),
    ("offset went back", answers(2, *mixed(("p", 1), ("t", 2), end=False))),
    ("", answers(1, *answers(2, *mixed(("p", 1), ("t", 2), end=None)))),
]
FIRST: Final = acquired("m", 5)
LAST: Final = [acquired("n", 8, count=2), *says("n", 9, ACCEPT)]
AGAIN: Final = [acquired("n", 60, count=2), *says("n", 61, ACCEPT)]
REFUSED: Final = {"is_kept": False, "error": "INVALID_RECORD_STATE"}
DELIVERIES: Final[list[Row]] = [
    ("", share(FIRST, *says("m", 6, ACCEPT))),
    ("", share(FIRST, *says("m", 6, ACCEPT, is_kept=None))),
    ("given twice", share(FIRST, *LAST)),
    ("", share(FIRST, *AGAIN)),
    ("", share(FIRST, e.SessionEnded(**of("m", 6, group=e.SHARERS)), *LAST)),
    ("", share(FIRST, *says("m", 6, RELEASE), *LAST)),
    ("given twice", share(FIRST, *says("m", 50, RENEW), *AGAIN)),
    ("given again", share(FIRST, *says("m", 6, ACCEPT), AGAIN[0])),
    ("another record", share(acquired("m", 5, record="b"), *says("m", 6, ACCEPT))),
    ("another record", share(acquired("m", 5, record=None), *says("m", 6, ACCEPT))),
    ("", share(acquired("m", 5, last=1), *says("m", 6, ACCEPT))),
    ("", share(acquired("m", 5, record="b"), *says("m", 6, ACCEPT), damaged(0))),
    ("another record", share(acquired("m", 5, record="b"), *says("m", 6, ACCEPT), damaged(1))),
    ("wrong count", share(FIRST, *says("m", 6, RELEASE), acquired("n", 8, count=1), *says("n", 9, ACCEPT))),
    ("wrong count", share(acquired("m", 5, count=3), *says("m", 6, ACCEPT))),
    ("broken lock", share(FIRST, *says("m", 6, ACCEPT, **REFUSED), acquired("n", 80, count=2), *says("n", 81, ACCEPT))),
    ("", share(FIRST, *says("m", 60, ACCEPT, **REFUSED), acquired("n", 80, count=2), *says("n", 81, ACCEPT))),
    ("broken lock", share(FIRST, *says("m", 6, ACCEPT, is_kept=False, error="SHARE_SESSION_NOT_FOUND"), *AGAIN)),
    ("unconsumed", share()),
    ("unconsumed", share(FIRST)),
    ("", share(FIRST, acquired("n", 60, count=2))),
    ("", share(FIRST, e.Unanswered(**of("n", 60, group=e.SHARERS)))),
    ("", share(FIRST, *says("m", 6, REJECT), queue(True))),
    ("", share(FIRST, *says("m", 6, REJECT), queue(True, True))),
    ("no dead letter", share(FIRST, *says("m", 6, REJECT), queue())),
    ("", share(FIRST, *says("m", 6, REJECT), queue(failed=1))),
    ("no dead letter", share(acquired("m", 5, count=2), *says("m", 6, RELEASE), queue())),
    ("", share(acquired("m", 5, count=2), *says("m", 6, RELEASE), queue(False))),
    ("wrong dead letter", share(FIRST, *says("m", 6, ACCEPT), queue(False))),
    # kept without an effect, as its lock had ended
    ("", share(FIRST, *says("m", 60, ACCEPT), queue(False))),
    ("", share(FIRST, *says("m", 60, REJECT), queue())),
    ("wrong dead letter", share(FIRST, acquired("n", 60, count=2), queue(True))),
    ("wrong dead letter", share(FIRST, *says("m", 6, REJECT), queue(True, record="b"))),
    # a share group does not pass damage that it was told of
    ("unconsumed", share(FIRST, *says("m", 6, ACCEPT), ids="abc")),
    ("unconsumed", share(FIRST, *says("m", 6, ACCEPT), damaged(1), ids="abc")),
    ("", share(FIRST, *says("m", 6, ACCEPT), damaged(1), stands_at(1), ids="abc")),
    ("unconsumed", share(FIRST, *says("m", 6, ACCEPT), damaged(1), stands_at(2), ids="abc")),
    ("unconsumed", share(FIRST, *says("m", 6, ACCEPT), damaged(2), stands_at(2), ids="abc")),
]
STAGED: Final = staged("a", "1", "2")
COMMITTED: Final = [*STAGED, was_committed("a")]
TORN: Final = Torn(at_ms=50, who="operator", partition=P, gaps=(range(1, 2),))
COMPETING: Final = [
    *(*STAGED, *staged("b", "4")),
    e.Staged(at_ms=1, who="x", application="app", version=0, attempt="a", ids=("3",)),
    was_committed("a"),
]
STAGES: Final[list[Row]] = [
    ("", [*COMMITTED, *log("1", "2")]),
    ("", [*STAGED, *log()]),
    ("", [*STAGED, *staged("b", "3", "4"), was_committed("b", is_mine=False), *log("1", "2")]),
    *(("inexact stage", [*COMPETING, *log(*there)]) for there in ("", "1", "21", "012", "312", "124")),
    ("inexact stage", [*STAGED, last_commit(3), *log("1", "2")]),
    ("", [*COMMITTED, damaged(1), *log("1")]),
    ("", [*COMMITTED, damaged(0), damaged(1), *log()]),
    ("", [*STAGED, was_committed("a", is_mine=False), damaged(1), *log()]),
    ("inexact stage", [*COMMITTED, damaged(2), *log("1")]),
    ("", [*COMMITTED, TORN, *log("2", "1")]),
    ("inexact stage", [*COMMITTED, TORN, *log("2")]),
    ("inexact stage", [*COMMITTED, *staged("b", "3"), damaged(1), *log("1", "3")]),
    ("last commit went back", [*COMMITTED, last_commit(9), *log("1", "2")]),
]


@pytest.mark.parametrize(("expected", "events"), [*MEMBERS, *OFFSETS, *DELIVERIES, *STAGES])
def test_a_history_has_the_anomalies_that_were_planted_in_it_and_no_other(expected: str, events: list[Event]) -> None:
    assert ", ".join(sorted({anomaly.kind for anomaly in check_groups(events)})) == expected
