"""The models of what survives a kill see it when a promise is broken: a test against them can fail."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from triolog.protocol.types import Record

from tests.support.kill_models import (
    CompactedModel,
    KeptModel,
    LogModel,
    Numbered,
    RetainedModel,
    TransactedModel,
)
from tests.support.stored_log import StoredLog

RECORDS = [Numbered("producer", number, 1000 + number, b"%d" % (number % 2), b"value") for number in range(6)]


def acknowledged(model: LogModel, records: Iterable[Numbered] = RECORDS) -> None:
    """Everything was sent, and acknowledged from offset 0 on."""
    records = list(records)
    model.send(records)
    model.acknowledge(0, records)


def stored(
    records: dict[int, Numbered], *, start: int = 0, end: int = 6, control: tuple[int, ...] = (), size: int = 0
) -> StoredLog:
    """A partition with these records by offset."""
    return StoredLog(
        records=tuple(
            Record(offset, sent.timestamp, sent.key, sent.value, (("id", sent.id),)) for offset, sent in records.items()
        ),
        control_offsets=control,
        batch_bytes=size,
        log_start_offset=start,
        high_watermark=end,
        last_stable_offset=end,
    )


def without(*offsets: int) -> dict[int, Numbered]:
    return {offset: sent for offset, sent in enumerate(RECORDS) if offset not in offsets}


def test_a_log_that_keeps_its_promises_passes() -> None:
    model = KeptModel("kept")
    acknowledged(model)
    model.check(stored(without()))
    later = RECORDS[0]._replace(number=9)
    model.send([later])
    model.check(stored({**without(), 6: later}, end=7))


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (stored(without(3)), "lost"),
        (stored(without(5), end=5), "was acknowledged"),
        (stored(without(0), start=1), "lost"),
        (stored({**without(), 6: RECORDS[2]}, end=7), "is behind number"),
        (stored({**without(5), 5: RECORDS[5]._replace(value=b"other")}), "was sent as"),
        (stored({**without(5), 5: RECORDS[5]._replace(number=7)}), "nobody sent"),
        (stored(without(), end=8), "lacks offsets"),
    ],
)
def test_every_broken_promise_of_a_log_that_keeps_all_is_seen(log: StoredLog, said: str) -> None:
    model = KeptModel("kept")
    acknowledged(model)
    with pytest.raises(AssertionError, match=said):
        model.check(log)


def test_an_offset_is_given_once_and_what_was_read_is_a_promise() -> None:
    model = KeptModel("kept")
    model.send(RECORDS)
    model.check(stored(without()))
    with pytest.raises(AssertionError, match="was given to"):
        model.acknowledge(3, [RECORDS[0]])
    with pytest.raises(AssertionError, match="is at offset"):
        model.acknowledge(6, [RECORDS[0]])
    with pytest.raises(AssertionError, match="was acknowledged"):
        model.check(stored(without(5), end=5))


def test_retention_takes_what_it_may_and_no_more() -> None:
    model = RetainedModel("sized", retention_bytes=100)
    acknowledged(model)
    model.check(stored(without(0, 1), start=2, size=100))
    with pytest.raises(AssertionError, match="99 bytes are left"):
        model.check(stored(without(0, 1), start=2, size=99))
    with pytest.raises(AssertionError, match="lost"):
        model.check(stored(without(0, 1, 3), start=2, size=100))
    by_time = RetainedModel("aged", fresh_ms=1002)
    acknowledged(by_time)
    by_time.check(stored(without(0, 1), start=2))
    with pytest.raises(AssertionError, match="youngest below is of 1002"):
        by_time.check(stored(without(0, 1, 2), start=3))


def test_deleted_records_stay_deleted_and_no_others_go() -> None:
    model = RetainedModel("trimmed")
    acknowledged(model)
    model.ask_delete(3)
    model.check(stored(without()))
    model.answered_delete(3)
    model.check(stored(without(0, 1, 2), start=3))
    with pytest.raises(AssertionError, match="3 was answered"):
        model.check(stored(without(0, 1), start=2))
    with pytest.raises(AssertionError, match="delete_records was asked for 3"):
        model.check(stored(without(0, 1, 2, 3), start=4))


def test_compaction_takes_what_has_a_successor() -> None:
    model = CompactedModel("compacted")
    acknowledged(model)
    model.check(stored(without(0, 1, 2)))
    with pytest.raises(AssertionError, match="number 3 is there, 5 is not"):
        model.check(stored(without(5)))
    with pytest.raises(AssertionError, match="has no successor"):
        model.check(stored(without(0, 2, 4)))


def test_a_tombstone_may_go_and_nothing_older_comes_back() -> None:
    model = CompactedModel("compacted")
    tombstone = Numbered("producer", 6, 1006, b"0", None)
    acknowledged(model, [*RECORDS, tombstone])
    model.check(stored(without(0, 2, 4), end=7))
    with pytest.raises(AssertionError, match="number 4 is there, 6 is not"):
        model.check(stored(without(0, 2), end=7))


def test_committed_transactions_stay_and_only_compaction_takes_aborted_records() -> None:
    for is_compacted in (True, False):
        model = TransactedModel("transactions", is_compacted=is_compacted, aborted={RECORDS[1].id})
        acknowledged(model)
        model.check(stored(without(), control=(6,), end=7))
        with pytest.raises(AssertionError, match="lost"):
            model.check(stored(without(2), end=7))
        if is_compacted:
            model.check(stored(without(1), end=7))
        else:
            with pytest.raises(AssertionError, match="lost"):
                model.check(stored(without(1), control=(6,), end=7))
