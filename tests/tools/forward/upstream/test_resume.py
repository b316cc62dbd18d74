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


@pytest.mark.parametrize(
    ("upstream", "local", "expected"),
    [
        (None, None, Resumed(offset=300, is_first=True)),  # where the link says
        (at(400), at(350), Resumed(offset=400, avoided=50, mark=Mark(ID))),  # the upstream is believed
        (at(400), at(450), Resumed(offset=400, mark=Mark(ID))),
        (at(20), None, Resumed(offset=20, mark=Mark(ID))),  # before the start of the log, so that the gap is seen
        (CommittedOffset(120, ""), at(350), Resumed(offset=120, avoided=0)),  # set by hand
        (None, at(350), Resumed(offset=350, mark=Mark(ID))),  # an upstream that never had anything has forgotten nothing
    ],
)
def test_the_upstream_says_where_it_goes_on(
    upstream: CommittedOffset | None, local: CommittedOffset | None, expected: Resumed
) -> None:
    assert resumed(upstream, local) == expected


def test_an_upstream_that_has_forgotten_leaves_what_the_source_has_noted() -> None:
    found = resumed(None, at(350, f"{ID} 349:1700000000000"))
    assert found.offset == 350
    assert "the upstream has no offset" in str(found.note)


@pytest.mark.parametrize("is_upstreams", [True, False])
@pytest.mark.parametrize(
    ("known", "reason"),
    [
        (at(400, "other"), r"it was deleted and made again.*id other, this one is JUj1.*forward reset --topic readings"),
        (at(501), r"has partition 2 up to 501 and the source ends at 500.*-o end"),
    ],
)
def test_a_topic_that_was_made_anew_or_is_behind_is_not_gone_on_with(
    known: CommittedOffset, reason: str, is_upstreams: bool
) -> None:
    with pytest.raises(TopicStoppedError, match=reason):
        resumed(*((known, None) if is_upstreams else (None, known)))


@pytest.mark.parametrize("mark", [Mark(ID), Mark(ID, 0, 0), Mark(ID, 499, 1_700_000_000_000), Mark(ID, 499, -1)])
def test_a_mark_is_read_as_it_was_written(mark: Mark) -> None:
    assert Mark.parse(str(mark)) == mark
    assert resumed(at(500, str(mark)), None).mark == mark
    assert Mark.parse(None) is Mark.parse("") is None


def test_another_record_where_the_last_one_was_is_seen_by_its_time() -> None:
    mark = Mark(ID, 399, 1_700_000_000_000)
    check_last(PARTITION, mark, 1_700_000_000_000)
    check_last(PARTITION, mark, -1)
    with pytest.raises(
        TopicStoppedError,
        match=r"offset 399 of partition 2 has time 1700000000001, and the one that was forwarded last had 1700",
    ):
        check_last(PARTITION, mark, 1_700_000_000_001)
