from __future__ import annotations

import random

import pytest
from triolog.tools.forward.pacing import Failure, Retry


def pauses(failure: Failure, *, is_awaited: bool = False, count: int = 12) -> list[float]:
    retry = Retry(random.Random(1))
    return [retry.pause_s(failure, is_awaited=is_awaited) for _ in range(count)]


@pytest.mark.parametrize(
    ("failure", "is_awaited", "longest_s"),
    [
        (Failure.PASSING, False, 10),
        (Failure.REFUSED, False, 60),
        (Failure.PASSING, True, 1),
        (Failure.REFUSED, True, 60),  # a login that is refused once a second is soon locked
    ],
)
def test_pauses_double_up_to_what_the_failure_deserves(failure: Failure, is_awaited: bool, longest_s: float) -> None:
    found = pauses(failure, is_awaited=is_awaited)
    assert 0.4 <= found[0] <= 0.6
    assert all(longest_s * 0.8 <= pause_s <= longest_s * 1.2 for pause_s in found[8:])
    assert len(set(found)) == len(found)  # links that failed together do not come back together


def test_what_worked_forgets_failures_of_every_kind_and_one_reason_is_said_less_and_less_often() -> None:
    retry = Retry(random.Random(1))
    for failure in Failure:
        for _ in range(8):
            retry.pause_s(failure, is_awaited=False)
    assert retry.pause_s(Failure.PASSING, is_awaited=True) <= 1.2, "nor does one who comes to wait find a long pause"
    retry.reset()
    assert max(retry.pause_s(failure, is_awaited=False) for failure in Failure) <= 0.6
    said = [number for number in range(1, 20) if retry.is_news("nobody is there")]
    assert said == [1, 2, 4, 8, 16]
    assert retry.is_news("no right")
    assert retry.is_news("nobody is there")
    retry.reset()
    assert retry.is_news("nobody is there")
