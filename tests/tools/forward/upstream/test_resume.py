"""Where a partition goes on: every case of what is known upstream and in the source."""

from __future__ import annotations

import pytest
from triolog.protocol.types import TopicPartition
from triolog.tools.client.procedures.groups import CommittedOffset
from triolog.tools.forward.errors import TopicStoppedError
from triolog.tools.forward.source.source import OffsetRange
from triolog.tools.forward.upstream.resume import Mark, Resumed, check_last, resume

PARTITION = TopicPartition("readings", 2)
ID = "JUj1PIuBQCmVS0Ws5NGv2w"
THERE = OffsetRange(100, 500, 40_000)


def resumed(upstream: CommittedOffset | None, local: CommittedOffset | None) -> Resumed:
    return resume(PARTITION, ID, THERE, upstream, local, start=300)


def at(offset: int, topic_id: str = ID) -> CommittedOffset:
    return CommittedOffset(offset, topic_id)


def test_what_was_never_forwarded_begins_where_the_link_says() -> None:
    assert resumed(None, None) == Resumed(offset=300, is_first=True)


def test_the_upstream_is_believed_and_not_the_source() -> None:
    assert resumed(at(400), at(350)) == Resumed(offset=400, avoided=50, mark=Mark(ID))
    assert resumed(at(400), at(450)) == Resumed(offset=400, mark=Mark(ID))


def test_an_upstream_that_has_forgotten_leaves_what_the_source_has_noted() -> None:
    found = resumed(None, at(350, f"{ID} 349:1700000000000"))
    assert found.offset == 350
    assert "the upstream has no offset" in str(found.note)


def test_an_upstream_that_never_had_anything_has_forgotten_nothing() -> None:
    assert resumed(None, at(350)).note is None


def test_an_offset_before_the_start_of_the_log_is_kept_so_that_the_gap_is_seen() -> None:
    assert resumed(at(20), None).offset == 20


@pytest.mark.parametrize(("upstream", "local"), [(at(400, "other"), None), (None, at(400, "other"))])
def test_a_topic_that_was_made_anew_is_not_gone_on_with(
    upstream: CommittedOffset | None, local: CommittedOffset | None
) -> None:
    with pytest.raises(
        TopicStoppedError, match=r"it was deleted and made again.*id other, this one is JUj1.*forward reset --topic readings"
    ):
        resumed(upstream, local)


@pytest.mark.parametrize(("upstream", "local"), [(at(501), None), (None, at(501))])
def test_a_source_behind_the_upstream_is_not_gone_on_with(
    upstream: CommittedOffset | None, local: CommittedOffset | None
) -> None:
    with pytest.raises(TopicStoppedError, match=r"has partition 2 up to 501 and the source ends at 500.*--start latest"):
        resumed(upstream, local)


def test_an_offset_that_somebody_has_set_by_hand_is_taken_as_it_is() -> None:
    assert resumed(CommittedOffset(120, ""), at(350)).offset == 120


@pytest.mark.parametrize("mark", [Mark(ID), Mark(ID, 0, 0), Mark(ID, 499, 1_700_000_000_000), Mark(ID, 499, -1)])
def test_a_mark_is_read_as_it_was_written(mark: Mark) -> None:
    assert Mark.parse(str(mark)) == mark
    assert resumed(at(500, str(mark)), None).mark == mark


@pytest.mark.parametrize("metadata", [None, ""])
def test_an_offset_without_a_note_has_no_mark(metadata: str | None) -> None:
    assert Mark.parse(metadata) is None


def test_another_record_where_the_last_one_was_is_seen_by_its_time() -> None:
    mark = Mark(ID, 399, 1_700_000_000_000)
    check_last(PARTITION, mark, 1_700_000_000_000)
    check_last(PARTITION, mark, -1)
    with pytest.raises(
        TopicStoppedError,
        match=r"offset 399 of partition 2 has time 1700000000001, and the one that was forwarded last had 1700",
    ):
        check_last(PARTITION, mark, 1_700_000_000_001)
