"""The history of a server that is killed shows what is not there any more, or not as it was sent."""

from __future__ import annotations

import pytest
from triolog.protocol.types import Record, TopicPartition

from tests.support.kill_history import KillHistory, Numbered
from tests.support.stored_log import StoredLog

WHERE = TopicPartition("t", 0)
SENT = [Numbered("producer", number, 1000 + number, None, b"value") for number in range(3)]


def stored(*records: Numbered, start: int = 0) -> StoredLog:
    found = (
        Record(offset, sent.timestamp, sent.key, sent.value, (("id", sent.id.encode()),))
        for offset, sent in enumerate(records, start)
    )
    return StoredLog(
        records=tuple(found),
        control_offsets=(),
        batch_bytes=100,
        log_start_offset=start,
        high_watermark=start + len(records),
        last_stable_offset=start + len(records),
    )


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (SENT, SENT[:2], "lost"),
        (SENT[:2], SENT[:1], "lost"),
        (SENT, [*SENT, SENT[0]], "duplicate"),
        (SENT, [SENT[1], SENT[0], SENT[2]], "reordered"),
        (SENT, [*SENT[:2], SENT[2]._replace(value=b"other")], "unsent"),
        (SENT, [*SENT[:2], SENT[2]._replace(timestamp=1)], "unsent"),
        (SENT, [*SENT[:2], SENT[2]._replace(number=9)], "unsent"),
    ],
)
def test_what_a_kill_has_taken_or_changed_is_seen(before: list[Numbered], after: list[Numbered], said: str) -> None:
    history = KillHistory()
    history.send(WHERE, SENT)
    history.acknowledge(WHERE, 0, SENT[: len(before)])
    history.read(WHERE, stored(*before))
    history.check()
    history.read(WHERE, stored(*after))
    with pytest.raises(AssertionError, match=said):
        history.check()


def test_a_log_without_an_offset_is_not_dense() -> None:
    with pytest.raises(AssertionError, match=r"lacks offsets \[3\]"):
        StoredLog(
            records=stored(*SENT).records,
            control_offsets=(),
            batch_bytes=0,
            log_start_offset=0,
            high_watermark=4,
            last_stable_offset=4,
        ).check_dense()
