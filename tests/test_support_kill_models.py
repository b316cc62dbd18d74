"""The models of what survives a kill see it when a promise is broken: a test against them can fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

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


def acknowledged(model: LogModel, records: Iterable[Numbered] = RECORDS) -> LogModel:
    """Everything was sent, and acknowledged from offset 0 on."""
    records = list(records)
    model.send(records)
    model.acknowledge(0, records)
    return model


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


def trimmed(*, is_answered: bool) -> LogModel:
    model = RetainedModel("trimmed")
    acknowledged(model)
    model.ask_delete(3)
    if is_answered:
        model.answered_delete(3)
    return model


MODELS: Final[dict[str, Callable[[], LogModel]]] = {
    "kept": lambda: acknowledged(KeptModel("kept")),
    "sized": lambda: acknowledged(RetainedModel("sized", retention_bytes=100)),
    "aged": lambda: acknowledged(RetainedModel("aged", fresh_ms=1002)),
    "being trimmed": lambda: trimmed(is_answered=False),
    "trimmed": lambda: trimmed(is_answered=True),
    "compacted": lambda: acknowledged(CompactedModel("compacted")),
    "with a tombstone": lambda: acknowledged(
        CompactedModel("compacted"), [*RECORDS, Numbered("producer", 6, 1006, b"0", None)]
    ),
    "transacted": lambda: acknowledged(TransactedModel("transactions", is_compacted=False, aborted={RECORDS[1].id})),
    "transacted, compacted": lambda: acknowledged(TransactedModel("transactions", is_compacted=True, aborted={RECORDS[1].id})),
}


@pytest.mark.parametrize(
    ("model", "log", "said"),
    [
        ("kept", stored(without()), ""),
        ("kept", stored(without(3)), "lost"),
        ("kept", stored(without(5), end=5), "was acknowledged"),
        ("kept", stored(without(0), start=1), "lost"),
        ("kept", stored({**without(), 6: RECORDS[2]}, end=7), "is behind number"),
        ("kept", stored({**without(5), 5: RECORDS[5]._replace(value=b"other")}), "was sent as"),
        ("kept", stored({**without(5), 5: RECORDS[5]._replace(number=7)}), "nobody sent"),
        ("kept", stored(without(), end=8), "lacks offsets"),
        ("sized", stored(without(0, 1), start=2, size=100), ""),
        ("sized", stored(without(0, 1), start=2, size=99), "99 bytes are left"),
        ("sized", stored(without(0, 1, 3), start=2, size=100), "lost"),
        ("aged", stored(without(0, 1), start=2), ""),
        ("aged", stored(without(0, 1, 2), start=3), "youngest below is of 1002"),
        ("being trimmed", stored(without()), ""),
        ("trimmed", stored(without(0, 1, 2), start=3), ""),
        ("trimmed", stored(without(0, 1), start=2), "3 was answered"),
        ("trimmed", stored(without(0, 1, 2, 3), start=4), "delete_records was asked for 3"),
        ("compacted", stored(without(0, 1, 2)), ""),
        ("compacted", stored(without(5)), "number 3 is there, 5 is not"),
        ("compacted", stored(without(0, 2, 4)), "has no successor"),
        ("with a tombstone", stored(without(0, 2, 4), end=7), ""),
        ("with a tombstone", stored(without(0, 2), end=7), "number 4 is there, 6 is not"),
        ("transacted", stored(without(), control=(6,), end=7), ""),
        ("transacted", stored(without(1), control=(6,), end=7), "lost"),
        ("transacted, compacted", stored(without(), control=(6,), end=7), ""),
        ("transacted, compacted", stored(without(1), end=7), ""),
        ("transacted, compacted", stored(without(2), end=7), "lost"),
    ],
)
def test_a_model_sees_what_breaks_its_promise_and_nothing_else(
    model: Callable[[], LogModel], log: StoredLog, said: str
) -> None:
    if said:
        with pytest.raises(AssertionError, match=said):
            MODELS[model]().check(log)
    else:
        MODELS[model]().check(log)


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
