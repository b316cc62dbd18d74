"""Appends that are made only where the log ends as their sender thinks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import ErrorCode, ExpectedOffsetError, RequestError
from triolog.server.config import LogConfig
from triolog.server.storage.log.append import AppendResult
from triolog.server.storage.log.prepare import PreparedAppend

from tests.support.logs import START_MS, DrivenLog, batch, open_driven


def expecting(driven: DrivenLog, offset: int, records: bytes | None = None) -> PreparedAppend:
    return driven.prepare(batch() if records is None else records)._replace(expected_offset=offset)


def of_producer(sequence: int, *timestamps: int) -> bytes:
    return batch(*timestamps or (START_MS,), producer_id=7, producer_epoch=0, base_sequence=sequence)


def outcome(answer: AppendResult | RequestError) -> int | str:
    if isinstance(answer, AppendResult):
        return answer.base_offset
    assert isinstance(answer, ExpectedOffsetError)
    assert answer.code is ErrorCode.OFFSET_OUT_OF_RANGE
    return f"ends at {answer.log_end_offset}"


def test_an_append_goes_where_the_log_ends_or_nowhere(tmp_path: Path) -> None:
    driven = open_driven(tmp_path)
    driven.append(batch(*[START_MS] * 3))
    (answer,) = driven.append_group([expecting(driven, 2)])
    assert isinstance(answer, RequestError)
    assert answer.message.startswith("topic-0: the log ends at offset 3, expected_offset is 2; nothing was appended")


def test_one_that_is_refused_does_not_roll(tmp_path: Path) -> None:
    driven = open_driven(tmp_path, config=LogConfig(segment_bytes=len(batch())))
    driven.append(batch())
    driven.append_group([expecting(driven, 0)])
    assert len(driven.log.segments) == 1
    assert [outcome(each) for each in driven.append_group([expecting(driven, 1)])] == [1]
    assert len(driven.log.segments) == 2


def test_what_comes_again_is_answered_as_the_first_time_though_the_log_has_gone_on(tmp_path: Path) -> None:
    driven = open_driven(tmp_path)
    assert outcome(driven.append_group([expecting(driven, 0, of_producer(0))])[0]) == 0
    driven.append(batch())
    again = driven.append_group([expecting(driven, 0, of_producer(0)), expecting(driven, 1, of_producer(1))])
    assert [outcome(answer) for answer in again] == [0, "ends at 2"]
    assert outcome(driven.append_group([expecting(driven, 2, of_producer(1))])[0]) == 2
    assert driven.offsets() == [0, 1, 2]


@pytest.mark.parametrize("comes_between", [False, True])
def test_the_rest_of_an_append_that_a_crash_has_cut_follows_its_beginning_or_is_refused(
    tmp_path: Path, comes_between: bool
) -> None:
    driven = open_driven(tmp_path)
    driven.append(of_producer(0))
    if comes_between:
        driven.append(batch())
    whole = of_producer(0) + of_producer(1)
    (answer,) = driven.append_group([expecting(driven, 0, whole)])
    assert outcome(answer) == ("ends at 2" if comes_between else 0)
    assert driven.offsets() == [0, 1]


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 3), st.booleans()), max_size=12))
def test_any_group_of_appends_is_as_one_after_the_other(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[int, int, bool]]
) -> None:
    driven = open_driven(tmp_path_factory.mktemp("expected"))
    end, expected = 0, list[Any]()
    appends = []
    for offset, count, is_conditional in drawn:
        records = batch(*[START_MS] * count)
        appends.append(expecting(driven, offset, records) if is_conditional else driven.prepare(records))
        if is_conditional and offset != end:
            expected.append(f"ends at {end}")
            continue
        expected.append(end)
        end += count
    assert [outcome(answer) for answer in driven.append_group(appends)] == expected
    assert driven.log.log_end_offset == end
