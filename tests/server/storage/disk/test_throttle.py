"""Bytes per second."""

from __future__ import annotations

import pytest
from triolog.server.storage.child_process import MAX_PAUSE_S, Throttle


class Seconds:
    """A clock that moves when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0
        self.pauses: list[float] = []

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def test_work_takes_as_long_as_its_bytes_allow_and_time_spent_on_it_is_not_saved_up() -> None:
    seconds = Seconds()
    throttle = Throttle(1000, seconds.clock, seconds.sleep)
    for _ in range(10):
        throttle.spend(250, lambda: None)
    assert seconds.now == pytest.approx(102.5)
    seconds.now += 50
    for _ in range(2):
        throttle.spend(100, lambda: None)
    assert sum(seconds.pauses) == pytest.approx(2.7)
    Throttle(0, seconds.clock, seconds.sleep).spend(10**12, lambda: None)
    assert sum(seconds.pauses) == pytest.approx(2.7), "without a limit nobody waits"


def test_a_long_pause_can_be_ended() -> None:
    seconds = Seconds()

    def stop() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        Throttle(1, seconds.clock, seconds.sleep).spend(3600, stop)
    assert seconds.pauses == [MAX_PAUSE_S]
