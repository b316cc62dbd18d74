from __future__ import annotations

import pytest
from triolog.protocol.errors import CorruptRecordError, RecordTooLargeError, RequestError
from triolog.protocol.native.messages import FetchPartitionResponse, FetchRequest, Gaps
from triolog.protocol.records.batch import parse_header, stamp
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.tools.forward.source.source import Gap, Piece, Places

A, B, C = (TopicPartition(name, 0) for name in "abc")


def batch(first: int, count: int) -> bytes:
    """Records `first` up to `first + count`, whose values are their offsets."""
    built = build_batch([(1, None, b"%d" % number, ()) for number in range(first, first + count)])
    return stamp(first, parse_header(built), 0) + bytes(built[16:])


def answer(partition: TopicPartition, records: bytes, end: int, **more: object) -> FetchPartitionResponse:
    return FetchPartitionResponse(
        partition.topic, partition.partition, None, high_watermark=end, last_stable_offset=end, records=records, **more
    )


def places(*partitions: TopicPartition, ranks: dict[str, int] | None = None) -> Places:
    return Places(dict.fromkeys(partitions, 0), ranks or {})


def asked(request: FetchRequest | None) -> list[str]:
    return [each.topic for each in request.partitions]


def values(pieces: list[Piece]) -> list[bytes | None]:
    return [record.value for piece in pieces for record in piece.records]


def test_partitions_of_one_rank_take_turns_at_being_first() -> None:
    found = places(A, B, C)
    assert {tuple(asked(found.plan_fetch(0))) for _ in range(3)} == {("a", "b", "c"), ("b", "c", "a"), ("c", "a", "b")}


def test_while_a_topic_is_known_to_have_more_only_those_before_it_are_asked_for_too() -> None:
    found = places(A, B, C, ranks={"a": 1, "b": 0, "c": 2})
    assert asked(found.plan_fetch(500)) == ["b", "a", "c"]
    found.accept((answer(B, b"", 0), answer(A, batch(0, 2), 10), answer(C, b"", 10)))
    request = found.plan_fetch(500)
    assert asked(request) == ["b", "a"]
    assert request.max_wait_ms == 0
    found.accept((answer(B, b"", 0), answer(A, batch(2, 8), 10)))
    assert asked(found.plan_fetch(500)) == ["b", "a", "c"]


def test_of_answers_whole_batches_behind_the_offset_are_handed_out() -> None:
    found = Places({A: 3}, {})
    found.plan_fetch(0)
    pieces, _ = found.accept((answer(A, batch(0, 6), 6),))
    assert values(pieces) == [b"3", b"4", b"5"]
    assert pieces[0].next_offset == 6
    found = places(A, B)
    found.plan_fetch(0)
    pieces, errors = found.accept((answer(A, batch(0, 2), 2), answer(B, batch(0, 50)[:100], 50)))
    assert (values(pieces), errors) == ([b"0", b"1"], []), "what the limit cut short comes again"
    assert found.offset(B) == 0
    found = places(A, B)
    found.plan_fetch(0)
    with pytest.raises(RecordTooLargeError, match="100 bytes of a-0 at offset 0 hold no whole batch"):
        found.accept((answer(A, batch(0, 50)[:100], 50), answer(B, b"", 0)))
    found.plan_fetch(0)
    with pytest.raises(CorruptRecordError, match="carries CRC"):
        found.accept((answer(A, batch(0, 5)[:-1] + b"x", 5),))


def test_a_gap_is_told_with_the_first_record_behind_it_and_the_offset_stays_before_it_until_then() -> None:
    found = Places({A: 5}, {})
    assert found.lost_before(A, 20) == Gap(5, 19)
    found.plan_fetch(0)
    pieces, _ = found.accept((answer(A, b"", 30, next_offset=25),))  # what compaction has left nothing of
    assert [(piece.next_offset, piece.gap) for piece in pieces] == [(5, None)]
    found.plan_fetch(0)
    pieces, _ = found.accept((answer(A, batch(25, 2), 30),))
    assert [(piece.next_offset, piece.gap) for piece in pieces] == [(27, Gap(5, 19))]


def test_damage_is_passed_over_alone_and_becomes_a_gap() -> None:
    found = places(A, B)
    found.plan_fetch(0)
    assert found.skip_damage(A)
    request = found.plan_fetch(500)
    assert (asked(request), request.gaps) == (["a"], Gaps.SKIP)
    pieces, _ = found.accept((answer(A, batch(7, 3), 10),))
    assert [(piece.next_offset, piece.gap) for piece in pieces] == [(10, Gap(0, 6))]
    request = found.plan_fetch(500)
    assert (sorted(asked(request)), request.gaps) == (["a", "b"], Gaps.REFUSE)


def test_nothing_is_left_when_all_were_asked_and_none_had_anything() -> None:
    found = places(A, B)
    found.plan_fetch(0)
    assert found.is_finished(*found.accept((answer(A, b"", 0), answer(B, b"", 0))))
    found.plan_fetch(0)
    assert not found.is_finished(*found.accept((answer(A, batch(0, 1), 1), answer(B, b"", 0))))
    found.plan_fetch(0)
    failed = FetchPartitionResponse("a", 0, RequestError("not now"))
    assert not found.is_finished(*found.accept((failed, answer(B, b"", 0))))
