"""Where a partition goes on: every case of what is known upstream and in the source."""

from __future__ import annotations

import pytest
from triolog.protocol.types import TopicPartition
from triolog.tools.client.procedures.groups import CommittedOffset
from triolog.tools.forward.errors import TopicStoppedError
from triolog.tools.forward.source.source import OffsetRange
from triolog.tools.forward.upstream.resume import Resumed, resume

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
    assert resumed(at(400), at(350)) == Resumed(offset=400, avoided=50)
    assert resumed(at(400), at(450)) == Resumed(offset=400)


def test_an_upstream_that_has_forgotten_leaves_what_the_source_has_noted() -> None:
    found = resumed(None, at(350))
    assert found.offset == 350
    assert "the upstream has no offset" in str(found.note)


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
