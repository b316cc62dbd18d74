from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.records.batch import empty_batch_header, end_txn_marker, iter_batches, parse_header, stamp
from triolog.protocol.records.builder import build_batch
from triolog.protocol.records.record import CommittedFilter


def data(producer_id: int, offset: int, *, transactional: bool = True, records: int = 1) -> bytes:
    return build_batch(
        [(0, None, b"%d" % (offset + index), ()) for index in range(records)],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=transactional,
    )


def marker(producer_id: int, offset: int, *, commit: bool) -> bytes:
    return end_txn_marker(
        producer_id=producer_id, producer_epoch=0, commit=commit, timestamp=0, coordinator_epoch=0, base_offset=offset
    )


def seen(batches: list[bytes], aborted: list[tuple[int, int]]) -> list[int]:
    """Base offsets of the batches that are not left out."""
    committed = CommittedFilter(aborted)
    return [header.base_offset for header, batch in iter_batches(b"".join(batches)) if not committed.leaves_out(header, batch)]


def test_where_damage_took_the_abort_marker_out_the_next_commit_ends_the_transaction() -> None:
    """Kafka's readers go on leaving out; a COMMIT cannot stand inside of an aborted transaction."""
    assert seen([data(1, 0), marker(1, 2, commit=True), data(1, 3)], [(1, 0)]) == [3]


def test_batches_without_transaction_stay_whatever_their_producer_aborts() -> None:
    assert seen([data(1, 0), data(1, 1, transactional=False), data(1, 2, transactional=False)], [(1, 0)]) == [1, 2]


def test_a_marker_that_compaction_emptied_is_left_out_and_ends_nothing() -> None:
    empty = empty_batch_header(
        base_offset=1, last_offset=1, max_timestamp=0, producer_id=1, producer_epoch=0, is_transactional=True, is_control=True
    )
    assert seen([data(1, 0), empty, data(1, 2)], [(1, 0)]) == []


class Step(NamedTuple):
    producer_id: int
    action: str  # "write", "commit", "abort"


STEPS = st.lists(st.builds(Step, st.integers(0, 3), st.sampled_from(["write", "write", "commit", "abort"])), max_size=40)


@given(steps=STEPS, from_batch=st.integers(0, 40))
def test_any_interleaving_of_transactions_shows_exactly_the_committed_batches(steps: list[Step], from_batch: int) -> None:
    """Against a model that knows each batch's fate when its transaction ends; open ones lie past the last stable offset.

    As a broker's answer does, the list leaves out transactions whose marker lies before the first batch read.
    """
    batches: list[bytes] = []
    fate: dict[int, bool] = {}  # base offset of a batch -> committed
    open_since: dict[int, list[int]] = {}
    aborted: list[tuple[int, int]] = []
    for offset, (producer_id, action) in enumerate(steps):
        if action == "write":
            batches.append(data(producer_id, offset))
            open_since.setdefault(producer_id, []).append(offset)
        else:
            batches.append(marker(producer_id, offset, commit=action == "commit"))
            written = open_since.pop(producer_id, [])
            fate |= dict.fromkeys(written, action == "commit")
            if written and action == "abort" and offset >= from_batch:
                aborted.append((producer_id, written[0]))
    stable = min((written[0] for written in open_since.values()), default=len(steps))
    read = [batch for batch in batches[from_batch:] if parse_header(batch).base_offset < stable]
    expected = [offset for offset in sorted(fate) if fate[offset] and from_batch <= offset < stable]
    assert seen(read, aborted) == expected


def test_stamping_does_not_hide_a_transaction() -> None:
    batch = data(1, 0)
    stamped = stamp(5, parse_header(batch), 3) + batch[16:]
    assert seen([stamped, marker(1, 6, commit=False)], [(1, 5)]) == []
