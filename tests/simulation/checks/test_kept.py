"""What may be gone, and what may not."""

from __future__ import annotations

from typing import Final

import attrs

from tests.support.logs import START_MS

from ..history import (
    ClockMoved,
    CommitsOffset,
    Damaged,
    Ended,
    Event,
    Found,
    Introduced,
    Lost,
    Made,
    Moved,
    OffsetCommitted,
    OffsetFetched,
    Refused,
    StartForgotten,
    Survived,
    Trimmed,
    Trims,
    Wrong,
)
from ..test_checker import IN, OTHER, SENT, WHO, A, B, C, acknowledged, found, kinds, looked_up, polled, send, stamp, stored

COMPACTED: Final = Made(**WHO, topic="in", config={"cleanup.policy": "compact", "delete.retention.ms": "1000"})
KEYED: Final = [COMPACTED, send("a:0#k1", "a:1#k2", "a:2#k1"), acknowledged(0, "a:0#k1", "a:1#k2", "a:2#k1")]


def found_at(*places: tuple[int, str]) -> tuple[Found, ...]:
    return tuple(Found(offset, identity, stamp(identity)) for offset, identity in places)


def test_of_a_compacted_topic_the_newest_of_each_key_is_there() -> None:
    assert kinds(KEYED, stored(*found_at((1, "a:1#k2"), (2, "a:2#k1")))) == set()
    assert kinds(KEYED, stored(*found_at((0, "a:0#k1"), (1, "a:1#k2")))) == {"lost"}
    assert kinds(KEYED, polled(0, found_at((0, "a:0#k1")), 3), stored(*found_at((1, "a:1#k2"), (2, "a:2#k1")))) == {
        "lost",
        "skipped",
    }


def test_what_was_aborted_replaces_nothing() -> None:
    events = [
        *KEYED,
        send("b:0#k1", transaction="t"),
        acknowledged(3, "b:0#k1"),
        Ended(**WHO, transaction="t", is_committed=False),
    ]
    assert kinds(events, stored(*found_at((1, "a:1#k2"), (2, "a:2#k1")))) == set()
    assert kinds(events, stored(*found_at((1, "a:1#k2")))) == {"lost"}


def test_a_tombstone_goes_when_it_is_old() -> None:
    events = [*KEYED, send("b:0#k1!"), acknowledged(3, "b:0#k1!")]
    there = stored(*found_at((1, "a:1#k2")))
    assert kinds(events, there) == {"lost"}
    assert kinds(events, ClockMoved(**WHO, ms=1000), there) == set()


def test_retention_takes_what_is_old_or_too_much() -> None:
    def with_config(**config: str) -> Made:
        return Made(**WHO, topic="in", config={key.replace("_", "."): value for key, value in config.items()})

    assert kinds(with_config(), SENT, stored(C, start=2)) == {"lost"}
    assert kinds(with_config(retention_ms=str(START_MS)), SENT, stored(C, start=2)) == {"lost"}
    assert kinds(with_config(retention_ms="1"), SENT, stored(C, start=2)) == set()
    assert kinds(with_config(retention_bytes="1"), SENT, stored(C, start=2)) == {"lost"}
    damaged = Damaged(**WHO, partition=IN, first_offset=3, next_offset=4)
    assert kinds(with_config(retention_bytes="1"), SENT, damaged, stored(C, start=2)) == set(), "seed 2610"
    assert kinds(with_config(retention_bytes="0"), SENT, stored(C, start=2)) == set()


def test_what_was_trimmed_stays_away() -> None:
    trim = [Trims(**WHO, partition=IN, before_offset=2), Trimmed(**WHO, partition=IN, before_offset=2)]
    assert kinds(SENT, trim, stored(C, start=2)) == set()
    assert kinds(SENT, trim, stored(A, B, C)) == {"came back"}


def test_a_log_begins_where_its_files_do_when_somebody_takes_away_what_says_otherwise() -> None:
    """Seed 60490."""
    trim = [Trims(**WHO, partition=IN, before_offset=2), Trimmed(**WHO, partition=IN, before_offset=2)]
    forgotten = StartForgotten(**WHO, partition=IN)
    assert kinds(SENT, trim, forgotten, stored(A, B, C)) == set()
    assert kinds(SENT, trim, forgotten, trim, stored(A, B, C)) == {"came back"}


def test_a_deletion_that_was_not_answered_may_be_taken_back_though_a_reader_has_seen_it() -> None:
    """Seed 50270: the power was cut while the checkpoint was written."""
    trims, trimmed = (kind(**WHO, partition=IN, before_offset=2) for kind in (Trims, Trimmed))
    begins = Moved(**WHO, partition=IN, position=2, is_start=True)
    assert kinds(SENT, trims, begins, stored(A, B, C)) == set()
    assert kinds(SENT, trims, begins, stored(C, start=2)) == set()
    assert kinds(SENT, trims, begins, trimmed, stored(A, B, C)) == {"came back"}
    assert kinds(SENT, begins, stored(A, B, C)) == {"came back"}


def test_damage_costs_what_was_damaged() -> None:
    damaged = Damaged(**WHO, partition=IN, first_offset=1, next_offset=2)
    assert kinds(SENT, damaged, stored(A, C)) == set()
    assert kinds(SENT, damaged, stored(A)) == {"lost"}
    refused = [Refused(**WHO, partition=IN, is_committed=False, offset=offset) for offset in (1, 2)]
    assert kinds(SENT, damaged, refused[:1], stored(A, C)) == set()
    assert kinds(SENT, damaged, refused, stored(A, C)) == {"refused"}


def lost(at_ms: int, window_ms: float | None, *, synced: int = 0, oldest_ms: float = 10_000.0) -> Lost:
    return Lost(at_ms=at_ms, who="operator", window_ms=window_ms, synced={IN: synced}, oldest_ms={IN: oldest_ms})


def survived(*records: Found) -> Survived:
    return Survived(**WHO, partition=IN, records={record.offset: record.id for record in records})


def test_a_loss_takes_what_was_not_synced_so_long_ago() -> None:
    """What is lost may be sent again, and its offsets given to something else."""
    after = [survived(A), send("b:0"), acknowledged(1, "b:0"), *stored(A, *found(1, "b:0"))]
    assert kinds(SENT, lost(100, None), after) == set()
    assert kinds(SENT, after[1:]) == {"lost", "divergent"}
    assert kinds(SENT, lost(100, 101.0), after) == set()
    assert kinds(SENT, lost(100, 100.0), after) == {"lost"}
    assert kinds(SENT, lost(100, None, oldest_ms=50.0), after) == {"lost"}
    assert kinds(SENT, lost(100, None, synced=2), after) == {"lost", "divergent"}
    each = Made(**WHO, topic="in", config={"flush.messages": "1"})
    assert kinds(each, SENT, lost(100, None), after) == {"lost"}


def test_a_lookup_may_have_found_what_was_lost_then() -> None:
    """Seed 111787: it found the marker of a transaction, whose offset a record has now."""
    before = [SENT, looked_up(2000, 3, 2100), lost(100, None, synced=3)]
    after = [send("b:1500"), acknowledged(3, "b:1500"), stored(A, B, C, *found(3, "b:1500"))]
    whole = survived(A, B, C)
    assert kinds(*before, whole, *after) == set()
    assert kinds(*before, attrs.evolve(whole, markers=(3,), end_offset=4), *after) == {"wrong time"}
    assert kinds(*before[:2], *after) == {"wrong time"}


def test_what_a_log_has_lost_it_lost_the_first_time_that_it_could() -> None:
    """Seed 555: a directory failed, and was out of service when the power was cut later."""
    after = [survived(A), *stored(A)]
    elsewhere = attrs.evolve(lost(1, 10.0), partitions=(OTHER,))
    assert kinds(SENT, lost(1, 10.0), lost(1000, 10.0), after) == set()
    assert kinds(SENT, elsewhere, lost(1000, 10.0), after) == {"lost"}
    assert kinds(SENT, lost(1, 10.0), survived(A, B, C), lost(1000, 10.0), after) == {"lost"}


def test_a_loss_takes_markers_that_nobody_was_told_of() -> None:
    read = polled(0, found_at((0, "a:0"), (2, "a:1")), 3)
    after = [survived(A), send("b:0"), acknowledged(1, "b:0"), *stored(A, *found(1, "b:0"))]
    assert kinds(send("a:0", "a:1"), acknowledged(0, "a:0"), read, lost(100, None), after) == set()
    marked = attrs.evolve(survived(A), markers=(1,), end_offset=2)
    compacted = [COMPACTED, send("a:0#k1", "a:1#k2"), acknowledged(0, "a:0#k1", "a:1#k2"), lost(100, None)]
    left = found_at((0, "a:0#k1"))
    assert kinds(compacted, attrs.evolve(marked, records={0: "a:0#k1"}), stored(*left)) == set(), "seed 90164"
    assert kinds(compacted, attrs.evolve(marked, records={0: "a:0#k1"}, markers=()), stored(*left)) == {"lost"}
    only_a_marker = [send("a:0"), polled(0, found(0, "a:0"), 2), lost(100, None)]
    assert kinds(only_a_marker, after) == set()
    assert kinds(only_a_marker[:2], after[1:]) == {"skipped"}
    assert kinds(send("a:0", "a:1"), acknowledged(0, "a:0"), read, after[1:]) == {"skipped"}


def test_what_compaction_has_taken_before_anybody_looked_is_not_lost() -> None:
    """A log directory failed, and this partition was in another one."""
    each = Made(**WHO, topic="in", config={**COMPACTED.config, "flush.messages": "1"})
    newest = found_at((1, "a:1#k2"), (2, "a:2#k1"))
    assert kinds(lost(0, None), each, KEYED[1:], survived(*newest), stored(*newest)) == set()
    assert kinds(lost(0, None), each, KEYED[1:], survived(newest[0]), stored(newest[0])) == {"lost"}
    assert kinds(lost(0, None), each, KEYED[1:], survived(newest[1]), stored(newest[1])) == {"lost"}


def test_what_was_about_to_be_deleted_need_not_be_synced() -> None:
    trims, trimmed = (kind(**WHO, partition=IN, before_offset=3) for kind in (Trims, Trimmed))
    after = [survived(), send("b:0"), acknowledged(0, "b:0"), *stored(*found(0, "b:0"))]
    assert kinds(SENT, trims, lost(5, None, synced=3), after) == set()
    assert kinds(SENT, trims, lost(5, None, synced=3, oldest_ms=0.0), after) == set()
    assert "divergent" in kinds(SENT, lost(5, None, synced=3), after)
    assert "divergent" in kinds(SENT, trims, trimmed, lost(5, None, synced=3), after)


def test_how_old_it_was_counts_from_the_loss_after_which_it_was_missing() -> None:
    """A marker may stand at its offset after the first one, and be gone after the second."""

    each = [COMPACTED, send("a:0#k1"), acknowledged(0, "a:0#k1")]
    first, second = (lost(at_ms, None, oldest_ms=10.0) for at_ms in (5, 100))
    with_a_marker = attrs.evolve(survived(), end_offset=1)
    assert kinds(each, first, with_a_marker, second, survived(), stored()) == set()
    assert kinds(each, second, survived(), stored()) == {"lost"}


def test_a_loss_tears_transactions_that_were_not_over_long_before() -> None:
    torn = [
        send("t:0", "t:1", transaction="t"),
        acknowledged(0, "t:0", "t:1"),
        Ended(**WHO, transaction="t", is_committed=True),
    ]
    there = stored(*found(0, "t:0", "t:1"), committed=found(0, "t:0"))
    still = survived(*found(0, "t:0", "t:1"))
    assert kinds(torn, there) == {"lost", "intermediate read"}
    assert kinds(torn, lost(100, None), still, there) == set()
    assert kinds(torn, lost(100, 50.0), still, there) == {"lost", "intermediate read"}


def test_a_loss_takes_commits_of_offsets_back() -> None:
    def commits(offset: int, at_ms: int) -> list[Event]:
        said = {"at_ms": at_ms, "who": "somebody", "group": "g", "partition": IN, "offset": offset}
        return [CommitsOffset(**said), OffsetCommitted(**said, is_kept=True)]

    def fetched(offset: int) -> OffsetFetched:
        return OffsetFetched(**WHO, group="g", partition=IN, offset=offset)

    events = [*commits(1, 0), *commits(2, 60), *commits(3, 90)]
    assert kinds(events, fetched(2)) == {"offset went back"}
    assert kinds(events, lost(100, 20.0), fetched(2), fetched(3)) == set()
    assert kinds(events, lost(100, 20.0), fetched(1)) == {"offset went back"}
    assert kinds(events, lost(100, None), fetched(-1)) == set()


def test_who_shares_an_identity_after_a_loss_may_be_told_of_what_the_other_one_sent() -> None:
    def introduced(producer: str, epoch: int) -> Introduced:
        return Introduced(**WHO, transactional_id="id", producer=producer, producer_id=7, epoch=epoch)

    begin = [introduced("p", 1), *SENT, lost(100, None), survived(A, B, C)]
    again = [send("b:0", producer="q"), acknowledged(0, "b:0"), *stored(A, B, C)]
    assert kinds(begin, introduced("q", 1), again) == set()
    assert kinds(begin, introduced("q", 2), again) == {"divergent", "lost"}


def test_what_somebody_saw_to_be_wrong_is_an_anomaly() -> None:
    assert kinds(Wrong(**WHO, kind="stuck", detail="at 5")) == {"stuck"}
