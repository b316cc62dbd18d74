"""Every anomaly is found in a history that has it, and none in the one without."""

from __future__ import annotations

import itertools
from typing import Any, Final

import attrs
import pytest
from triolog.protocol.types import TopicPartition

from .checker import check, copy_id, write_cycles
from .history import (
    Acknowledged,
    CommitsOffset,
    Compacts,
    Damaged,
    Ended,
    Event,
    Expires,
    Found,
    GivenUp,
    Introduced,
    LookedUp,
    Lost,
    Moved,
    OffsetCommitted,
    OffsetFetched,
    Polled,
    Send,
    Sent,
    Stored,
    Trims,
)

IN: Final = TopicPartition("in", 0)
OTHER: Final = TopicPartition("in", 1)
OUT: Final = TopicPartition("out", 0)
WHO: Final = {"at_ms": 0, "who": "somebody"}


def stamp(identity: str) -> int:
    """Every record's timestamp: its number behind 1000."""
    return 1000 + int(identity.partition(":")[2].split()[0].partition("#")[0])


def send(*ids: str, partition: TopicPartition = IN, transaction: str | None = None, producer: str = "p") -> Send:
    records = tuple(Sent(identity, stamp(identity)) for identity in ids)
    return Send(**WHO, partition=partition, producer=producer, records=records, transaction=transaction)


def acknowledged(base_offset: int, *ids: str, partition: TopicPartition = IN) -> Acknowledged:
    return Acknowledged(**WHO, partition=partition, ids=ids, base_offset=base_offset)


def found(base_offset: int, *ids: str) -> tuple[Found, ...]:
    return tuple(Found(offset, identity, stamp(identity)) for offset, identity in enumerate(ids, base_offset))


def polled(position: int, records: tuple[Found, ...], next_position: int, **fields: Any) -> Polled:
    fields = {"partition": IN, "is_committed": False, **fields}
    return Polled(**WHO, position=position, records=records, next_position=next_position, **fields)


def stored(
    *records: Found, partition: TopicPartition = IN, start: int = 0, committed: tuple[Found, ...] | None = None
) -> list[Event]:
    """For both kinds of readers; `committed` where the second finds something else."""
    end = max((record.offset for record in records), default=start - 1) + 1
    return [
        Stored(**WHO, partition=partition, is_committed=is_committed, start_offset=start, end_offset=end, records=there)
        for is_committed, there in ((False, records), (True, records if committed is None else committed))
    ]


def looked_up(timestamp: int, offset: int, found_timestamp: int, begun_ms: int = 1) -> LookedUp:
    return LookedUp(**WHO, partition=IN, timestamp=timestamp, begun_ms=begun_ms, offset=offset, found_timestamp=found_timestamp)


def kinds(*events: Event | list[Event]) -> set[str]:
    flat = itertools.chain.from_iterable(event if isinstance(event, list) else [event] for event in events)
    return {anomaly.kind for anomaly in check(flat)}


SENT: Final = [send("a:0", "a:1", "a:2"), acknowledged(0, "a:0", "a:1", "a:2")]
A, B, C = found(0, "a:0", "a:1", "a:2")


def test_a_history_in_which_all_is_well_has_no_anomaly() -> None:
    polls = [polled(0, (A, B), 2), polled(2, (C,), 3), looked_up(1001, 1, 1001), looked_up(5000, -1, -1)]
    assert kinds(SENT, polls, stored(A, B, C)) == set()


def test_what_was_given_up_may_be_there_or_not() -> None:
    given_up = [*SENT, send("b:0"), GivenUp(**WHO, ids=("b:0",), error="no answer")]
    assert kinds(given_up, stored(A, B, C)) == set()
    assert kinds(given_up, stored(A, B, C, *found(3, "b:0"))) == set()


def test_lost() -> None:
    assert kinds(SENT, stored(A, B)) == {"lost"}
    assert kinds(SENT, stored(C, start=2)) == {"lost"}
    assert kinds(SENT[0], acknowledged(-1, "a:0"), stored(B, C)) == {"lost"}
    assert kinds(SENT, Trims(**WHO, partition=IN, before_offset=2), stored(C, start=2)) == set()


def test_what_has_expired_may_be_gone_and_nothing_younger() -> None:
    def expires(before: int) -> Expires:
        return Expires(**WHO, partition=IN, before_timestamp=before)

    assert kinds(SENT, expires(1002), stored(C, start=2)) == set()
    assert kinds(SENT, expires(1001), stored(C, start=2)) == {"lost"}
    assert kinds(SENT, expires(1002), stored(A, C)) == {"lost"}, "it is not the beginning that is missing"


def test_of_a_compacted_topic_the_last_record_of_each_key_is_there() -> None:
    keys = {"a:0": "k", "a:1": "k", "a:2": "l"}
    records = tuple(Sent(identity, stamp(identity), key) for identity, key in keys.items())
    sent = [Send(**WHO, partition=IN, producer="p", records=records), acknowledged(0, *keys), Compacts(**WHO, partition=IN)]
    assert kinds(sent, stored(A, B, C)) == set()
    assert kinds(sent, stored(B, C)) == set()
    assert kinds(sent, stored(A, C)) == {"lost"}
    assert kinds(sent, stored(A, B)) == {"lost"}
    assert kinds(sent[0], acknowledged(-1, "a:0"), sent[2], stored(B, C)) == set(), "its producer was not told where it is"


def test_unsent() -> None:
    assert kinds(SENT, stored(A, B, C, *found(3, "z:0"))) == {"unsent"}
    assert kinds(SENT, stored(A, B, C._replace(timestamp=1))) == {"unsent"}
    refused = [send("b:0"), GivenUp(**WHO, ids=("b:0",), error="refused", is_refused=True)]
    assert kinds(SENT, refused, stored(A, B, C, *found(3, "b:0"))) == {"unsent"}


def test_duplicate() -> None:
    assert kinds(SENT, stored(A, B, C, *found(3, "a:2"))) == {"duplicate"}


def test_divergent() -> None:
    assert "divergent" in kinds(SENT, send("b:0"), polled(2, found(2, "b:0"), 3), stored(A, B, C))


def test_reordered() -> None:
    sent = [send("a:0"), send("a:1"), acknowledged(1, "a:0"), acknowledged(0, "a:1")]
    assert kinds(sent, stored(*found(0, "a:1", "a:0"))) == {"reordered"}


@pytest.mark.parametrize(
    "polls",
    [
        [polled(0, (A, B), 2), polled(1, (B, C), 3)],
        [polled(0, (B, A), 2)],
        [polled(1, (A,), 2)],
        [polled(0, (A, B), 2), polled(3, (), 3)],
    ],
    ids=["back", "descending", "before the position", "ahead"],
)
def test_nonmonotonic_poll(polls: list[Event]) -> None:
    assert "nonmonotonic poll" in kinds(SENT, polls, stored(A, B, C))


def test_a_reader_may_move_on_purpose() -> None:
    assert (
        kinds(SENT, polled(0, (A, B), 2), Moved(**WHO, partition=IN, position=0), polled(0, (A,), 1), stored(A, B, C)) == set()
    )


def test_skipped() -> None:
    assert kinds(SENT, polled(0, (A, C), 3), stored(A, B, C)) == {"skipped"}


TRANSACTION: Final = [send("t:0", "t:1", transaction="t"), acknowledged(0, "t:0", "t:1")]
T, U = found(0, "t:0", "t:1")


def ended(outcome: bool | None, transaction: str = "t") -> Ended:
    return Ended(**WHO, transaction=transaction, is_committed=outcome)


def test_aborted_read() -> None:
    assert kinds(TRANSACTION, ended(False), stored(T, U, committed=())) == set()
    assert kinds(TRANSACTION, polled(0, (T,), 1, is_committed=True), ended(False), stored(T, U, committed=())) == {
        "aborted read"
    }
    assert "aborted read" in kinds(TRANSACTION, ended(False), stored(T, U))


@pytest.mark.parametrize("outcome", [True, None])
def test_intermediate_read(outcome: bool | None) -> None:
    assert "intermediate read" in kinds(TRANSACTION, ended(outcome), stored(T, U, committed=(T,)))


def test_a_transaction_of_unknown_outcome_is_there_or_not() -> None:
    assert kinds(TRANSACTION, ended(None), stored(T, U, committed=())) == set()
    assert kinds(TRANSACTION, ended(None), stored(T, U)) == set()


def test_what_a_committed_transaction_has_written_is_not_lost() -> None:
    assert kinds(TRANSACTION, ended(True), stored(T, U, committed=())) == {"lost"}


def test_circular_information_flow() -> None:
    both = [send("t:0", transaction="t"), send("u:1", transaction="u"), acknowledged(0, "t:0", "u:1")]
    records = found(0, "t:0", "u:1")
    reads = [
        polled(0, (records[0],), 1, transaction="u"),
        polled(1, (records[1],), 2, transaction="t"),
    ]
    copies = [
        send(copy_id("t:0", "u"), copy_id("u:1", "t"), partition=OUT),
        stored(
            *(Found(n, copy, stamp(copy)) for n, copy in enumerate([copy_id("t:0", "u"), copy_id("u:1", "t")])), partition=OUT
        ),
    ]
    assert kinds(both, reads, ended(True), ended(True, "u"), stored(*records), *copies) == {"circular information flow"}
    assert kinds(both, reads[:1], ended(True), ended(True, "u"), stored(*records)) == {"inexact pipe"}


def test_write_cycles_are_counted() -> None:
    sent = [
        send("t:0", transaction="t"),
        send("u:0", transaction="u"),
        send("t:1", transaction="t", partition=OTHER),
        send("u:1", transaction="u", partition=OTHER),
    ]
    history = [*sent, *stored(*found(0, "t:0", "u:0")), *stored(*found(0, "u:1", "t:1"), partition=OTHER)]
    assert write_cycles(history) == 1
    assert write_cycles([*sent, *stored(*found(0, "t:0", "u:0")), *stored(*found(0, "t:1", "u:1"), partition=OTHER)]) == 0
    third = [send("v:0", transaction="v"), send("v:1", transaction="v", partition=OTHER)]
    turned = [*stored(*found(0, "t:0", "u:0", "v:0")), *stored(*found(0, "v:1", "u:1", "t:1"), partition=OTHER)]
    assert write_cycles([*sent, *third, *turned]) == 3


def commits(offset: int, transaction: str | None = None) -> CommitsOffset:
    return CommitsOffset(**WHO, group="g", partition=IN, offset=offset, transaction=transaction)


def committed(offset: int, is_kept: bool | None = True) -> OffsetCommitted:
    return OffsetCommitted(**WHO, group="g", partition=IN, offset=offset, is_kept=is_kept)


def fetched(offset: int) -> OffsetFetched:
    return OffsetFetched(**WHO, group="g", partition=IN, offset=offset)


def test_offset_went_back() -> None:
    assert kinds(fetched(-1), commits(1), committed(1), fetched(1)) == set()
    assert kinds(commits(1), committed(1), commits(2), committed(2), fetched(1)) == {"offset went back"}
    assert kinds(commits(1), committed(1), fetched(-1)) == {"offset went back"}
    assert kinds(commits(1), committed(1), commits(2), committed(2, None), fetched(1)) == set()
    assert kinds(commits(1), committed(1), commits(2), committed(2, None), fetched(2)) == set()
    assert kinds(commits(3, "t"), ended(False), fetched(3)) == {"offset went back"}
    assert kinds(commits(3, "t"), ended(True), fetched(-1)) == {"offset went back"}


def test_commits_and_looks_that_overlap_may_come_in_any_order() -> None:
    def at(event: Any, who: str) -> Any:
        return attrs.evolve(event, who=who)

    both = [at(commits(1), "x"), at(commits(2), "y"), at(committed(2), "y"), at(committed(1), "x")]
    assert kinds(both, fetched(1)) == set()
    assert kinds(both, fetched(2)) == set()
    assert kinds(both, fetched(-1)) == {"offset went back"}
    after = [commits(3), committed(3)]
    assert kinds(both, after, fetched(2)) == {"offset went back"}
    moments = [*both, *after, attrs.evolve(fetched(2), begun_ms=3.5)]
    assert kinds(*(attrs.evolve(event, at_ms=float(number)) for number, event in enumerate(moments))) == set()
    late = [*moments[:-1], attrs.evolve(fetched(2), begun_ms=5.5)]
    assert kinds(*(attrs.evolve(event, at_ms=float(number)) for number, event in enumerate(late))) == {"offset went back"}


def test_whose_offset_nobody_was_told_may_have_been_trimmed() -> None:
    trims = Trims(**WHO, partition=IN, before_offset=1)
    unknown = [SENT[0], acknowledged(-1, "a:0", "a:1")]
    assert kinds(unknown, trims, stored(*found(1, "a:1"), *found(2, "a:2"), start=1)) == set()
    assert kinds(unknown, stored(*found(0, "a:0"), *found(1, "a:2"))) == {"lost"}


def test_passed_over() -> None:
    read = [polled(0, (A,), 1, group="g"), polled(1, (B, C), 3, group="g")]
    end = [commits(3), committed(3), fetched(3)]
    assert kinds(SENT, read, end, stored(A, B, C)) == set()
    assert kinds(SENT, read[1:], end, stored(A, B, C)) == {"passed over"}
    assert kinds(SENT, read[:1], commits(1), committed(1), fetched(1), stored(A, B, C)) == set()
    aborted = [polled(0, (A, B, C), 3, group="g", transaction="t"), ended(False), *end]
    assert kinds(SENT, aborted, stored(A, B, C)) == {"passed over"}, "it was read for nothing"


def test_zombie() -> None:
    def introduced(producer: str, epoch: int) -> Introduced:
        return Introduced(**WHO, transactional_id="id", producer=producer, producer_id=7, epoch=epoch)

    late = [send("a:0", producer="old"), acknowledged(0, "a:0")]
    assert kinds(introduced("old", 0), introduced("new", 1), late, stored(A)) == {"zombie"}
    assert kinds(introduced("old", 0), late, introduced("new", 1), stored(A)) == set()
    assert kinds(introduced("old", 0), introduced("new", 1), introduced("old", 2), late, stored(A)) == set()
    assert kinds(introduced("new", 1), introduced("old", 0), late, stored(A)) == {"zombie"}, "it hears of its epoch late"
    assert kinds(introduced("old", 1), introduced("new", 0), late, stored(A)) == set(), "the other one hears of its own late"
    lost = Lost(**WHO, window_ms=None, synced={}, oldest_ms={})
    told = [introduced("old", 0), introduced("new", 1), late[0], lost, late[1]]
    assert kinds(*told, stored(A)) == set(), "seed 60342: it is taken by a server that has forgotten the new one"


def test_out_of_sequence() -> None:
    def given_up(error: str) -> GivenUp:
        return GivenUp(**WHO, ids=("c:0",), error=error)

    assert kinds(send("c:0"), given_up("OUT_OF_ORDER_SEQUENCE_NUMBER"), stored()) == {"out of sequence"}
    assert kinds(send("c:0"), given_up("no answer in time"), stored()) == set()
    told = [given_up("OUT_OF_ORDER_SEQUENCE_NUMBER"), stored()]
    assert kinds(send("c:0"), Lost(**WHO, window_ms=None, synced={}, oldest_ms={}), *told) == set(), (
        "the batches before it may have gone"
    )
    damaged = Damaged(**WHO, partition=OTHER, first_offset=0, next_offset=1)
    assert kinds(send("c:0"), damaged, *told) == {"out of sequence"}
    behind = stored(*found(0, "c:1"))
    assert kinds(send("c:0", "c:1"), told[0], behind) == set(), "it was the first of its producer, and the next one was taken"
    other = GivenUp(**WHO, ids=("c:2",), error="OUT_OF_ORDER_SEQUENCE_NUMBER")
    assert kinds(send("c:0", "c:1"), send("c:2", partition=OTHER), told[0], other, behind) == set(), "given up with it"
    assert kinds(send("c:0", "c:1"), acknowledged(0, "c:0"), told[0], behind) >= {"out of sequence"}
    middle = GivenUp(**WHO, ids=("c:1",), error="OUT_OF_ORDER_SEQUENCE_NUMBER")
    three = [send("c:0", "c:1", "c:2"), acknowledged(0, "c:0"), middle]
    assert kinds(three, stored(*found(0, "c:0"), *found(2, "c:2"))) == set(), "a power cut has taken it and left the next one"
    assert kinds(three, stored(*found(0, "c:0"))) == {"out of sequence"}
    assert kinds(three, stored(*found(0, "c:0", "c:1", "c:2"))) == {"out of sequence"}
    hit = attrs.evolve(damaged, partition=IN)
    assert kinds(send("c:0"), hit, *told) == set()
    elsewhere = [send("c:0"), send("c:2", partition=OTHER), hit]
    assert kinds(*elsewhere, told[0], other, stored()) == set(), "given up with what was behind the damage"
    assert kinds(*elsewhere, other, stored()) == {"out of sequence"}


def test_who_sent_only_what_was_trimmed_since_may_be_out_of_sequence() -> None:
    """Seed 307: a start after a power cut finds nothing but the marker."""
    refused = GivenUp(**WHO, ids=("c:2",), error="OUT_OF_ORDER_SEQUENCE_NUMBER")
    told = [send("c:0", "c:1", "c:2"), acknowledged(0, "c:0", "c:1"), refused]
    for before_offset, found_wrong in ((1, {"out of sequence"}), (2, set())):
        trims = Trims(**WHO, partition=IN, before_offset=before_offset)
        assert kinds(*told, trims, stored(*found(0, "c:0", "c:1")[before_offset:], start=before_offset)) == found_wrong


def test_inexact_pipe() -> None:
    copies = [copy_id(each, "t") for each in ("a:0", "a:1")]
    written = [send(*copies, partition=OUT, transaction="t")]
    read = polled(0, (A, B), 2, transaction="t", is_committed=True)
    out = tuple(Found(offset, copy, stamp(copy)) for offset, copy in enumerate(copies))
    begin = [*SENT, read, *written, ended(True), *stored(A, B, C)]
    assert kinds(begin, stored(*out, partition=OUT)) == set()
    assert kinds(begin, stored(out[0], partition=OUT)) == {"inexact pipe"}
    again = copy_id("a:0", "u")
    twice = [send(again, partition=OUT, transaction="u"), ended(True, "u"), polled(0, (A,), 1, transaction="u")]
    halves = [attrs.evolve(read, records=(A,), next_position=1), attrs.evolve(read, records=(B,), position=1)]
    assert kinds([*SENT, *halves, *written, ended(True), *stored(A, B, C)], stored(*out, partition=OUT)) == set()
    assert kinds(begin, twice, stored(*out, Found(2, again, stamp(again)), partition=OUT)) == {"inexact pipe"}


@pytest.mark.parametrize(
    ("timestamp", "offset", "answer"),
    [(1001, 2, 1002), (1001, 0, 1000), (1002, -1, -1), (1001, 1, 1002), (5000, 2, 1002)],
    ids=["too late", "too early", "none", "another timestamp", "something"],
)
def test_wrong_time(timestamp: int, offset: int, answer: int) -> None:
    assert kinds(SENT, looked_up(timestamp, offset, answer), stored(A, B, C)) == {"wrong time"}


def test_who_is_not_told_the_timestamp_says_the_offset() -> None:
    silent = attrs.evolve(looked_up(1001, 1, 0), found_timestamp=None)
    assert kinds(SENT, silent, stored(A, B, C)) == set()
    assert kinds(SENT, attrs.evolve(silent, offset=2), stored(A, B, C)) == {"wrong time"}


def test_what_comes_while_somebody_asks_may_be_missed() -> None:
    assert kinds(SENT, looked_up(1002, -1, -1, begun_ms=0), stored(A, B, C)) == set()
