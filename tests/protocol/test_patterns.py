"""Regular expressions that clients send."""

from __future__ import annotations

import time

import pytest
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.patterns import MAX_PATTERN_CHARS, compiled_pattern

pytest.importorskip("re2")


def test_a_whole_name_has_to_match() -> None:
    matches = compiled_pattern("orders-.*")
    assert matches("orders-eu")
    assert not matches("old-orders-eu")


@pytest.mark.parametrize("text", ["(", "*", "(?<=a)b", r"(a)\1", "a" * (MAX_PATTERN_CHARS + 1)])
def test_what_is_no_expression_of_re2_is_refused(text: str) -> None:
    with pytest.raises(RequestError) as caught:
        compiled_pattern(text)
    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_no_expression_takes_long() -> None:
    began = time.thread_time()
    assert not compiled_pattern("(a*)*(a*)*(a*)*b")("a" * 10_000)
    assert time.thread_time() - began < 1
