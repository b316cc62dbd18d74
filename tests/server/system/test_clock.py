"""The server's clock: what it believes at a start, what a jump suspends, and when the clock is trusted again."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.server.system.clock import HOLD_S, MAX_STEP_MS, ServerClock, time_text

from tests.support.brokers import PARTITION, actor_of, one_partition, until, value
from tests.support.logs import START_MS, Clock

YEAR_MS: Final = 365 * 86_400_000
HOUR_MS: Final = 3_600_000
FLOOR_MS: Final = START_MS
LATEST_MS: Final = START_MS + 20 * YEAR_MS


@attrs.define
class Machine:
    """A machine with a wall clock and a time that only goes ahead."""

    wall_ms: int = START_MS
    elapsed_s: float = 0.0
    clock: ServerClock = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.clock = ServerClock(lambda: self.wall_ms, lambda: self.elapsed_s)

    def begin(self, resume_ms: int = FLOOR_MS) -> ServerClock:
        self.clock.begin(FLOOR_MS, LATEST_MS, resume_ms, "a record")
        return self.clock

    def pass_by(self, seconds: float) -> None:
        self.elapsed_s += seconds
        self.wall_ms += round(seconds * 1000)
        self.clock.look()

    def step(self, ms: int) -> None:
        self.wall_ms += ms
        self.clock.look()

    @property
    def state(self) -> tuple[bool, bool]:
        assert self.clock.is_plausible or not self.clock.is_trusted
        return self.clock.is_plausible, self.clock.is_trusted


TRUSTED: Final = (True, True)
HELD: Final = (True, False)
IMPLAUSIBLE: Final = (False, False)


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="only Linux has a clock that stops while the machine sleeps")
def test_a_machine_that_wakes_up_shows_no_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    wall_ms, clocks = [START_MS], {time.CLOCK_MONOTONIC: 5.0, time.CLOCK_BOOTTIME: 5.0}
    monkeypatch.setattr(time, "clock_gettime", clocks.__getitem__)
    monkeypatch.setattr(time, "monotonic", lambda: clocks[time.CLOCK_MONOTONIC])
    clock = ServerClock(lambda: wall_ms[0])
    wall_ms[0] += 8 * HOUR_MS
    clocks[time.CLOCK_BOOTTIME] += 8 * 3600
    clock.look()
    assert (clock.is_trusted, clock.jumps) == (True, 0)


def test_time_that_passes_is_trusted() -> None:
    machine = Machine()
    machine.begin()
    for seconds in (1, 60, 86_400):
        machine.pass_by(seconds)
        assert machine.state == TRUSTED
        assert machine.clock.now_ms() == machine.wall_ms


def test_a_jump_ahead_is_held_for_an_hour_and_believed_then(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    machine.begin()
    with caplog.at_level(logging.WARNING):
        machine.step(YEAR_MS)
    assert f"clock jumped ahead: wall_clock={time_text(START_MS + YEAR_MS)} jump_ms={YEAR_MS}" in caplog.text
    assert machine.state == HELD
    assert machine.clock.now_ms() == machine.wall_ms
    machine.pass_by(HOLD_S - 1)
    assert machine.state == HELD
    machine.pass_by(1)
    assert machine.state == TRUSTED


def test_a_clock_that_is_set_right_again_within_the_hour_is_trusted_at_once() -> None:
    machine = Machine()
    machine.begin()
    machine.step(YEAR_MS)
    machine.pass_by(60)
    machine.step(-YEAR_MS)
    assert machine.state == TRUSTED
    assert machine.clock.jumps == 2


def test_steps_of_a_time_service_are_no_jumps(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    machine.begin()
    with caplog.at_level(logging.WARNING):
        machine.step(MAX_STEP_MS)
        machine.step(-MAX_STEP_MS)
    assert (machine.state, caplog.text, machine.clock.jumps) == (TRUSTED, "", 0)


@pytest.mark.parametrize("wall_ms", [0, FLOOR_MS - HOUR_MS, LATEST_MS + 1, 2**62], ids=["1970", "floor", "latest", "far"])
def test_a_start_with_a_wrong_clock_continues_from_the_last_known_time(wall_ms: int, caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine(wall_ms)
    with caplog.at_level(logging.WARNING):
        clock = machine.begin(FLOOR_MS + 5)
    assert caplog.messages[0].startswith(f"clock implausible: wall_clock={time_text(wall_ms)} earliest={time_text(FLOOR_MS)}")
    assert machine.state == IMPLAUSIBLE
    machine.pass_by(60)
    assert (machine.state, clock.now_ms()) == (IMPLAUSIBLE, FLOOR_MS + 60_005)
    machine.step(FLOOR_MS + YEAR_MS - machine.wall_ms)
    assert (machine.state, clock.now_ms()) == (HELD, FLOOR_MS + YEAR_MS)
    machine.pass_by(HOLD_S)
    assert machine.state == TRUSTED


@pytest.mark.parametrize("wall_ms", [FLOOR_MS, LATEST_MS], ids=["floor", "latest"])
def test_both_ends_of_the_plausible_time_are_plausible(wall_ms: int) -> None:
    machine = Machine(wall_ms)
    machine.begin()
    assert machine.state == TRUSTED


def test_a_clock_that_is_set_back_waits_until_it_has_caught_up() -> None:
    machine = Machine()
    clock = machine.begin()
    machine.pass_by(5)
    machine.step(-2 * HOUR_MS)
    assert (machine.state, clock.now_ms()) == (IMPLAUSIBLE, START_MS + 5000)
    machine.pass_by(2 * 3600 - 1)
    assert (machine.state, clock.now_ms()) == (IMPLAUSIBLE, START_MS + 2 * HOUR_MS + 4000)
    machine.pass_by(1)
    assert (machine.state, clock.now_ms()) == (TRUSTED, machine.wall_ms)


def test_a_jump_that_nobody_has_looked_at_yet_moves_no_time_back() -> None:
    machine = Machine()
    clock = machine.begin()
    machine.wall_ms = 12_000
    machine.elapsed_s += 3
    assert clock.now_ms() == START_MS + 3000


def test_an_unchecked_clock_is_always_the_wall_clock() -> None:
    wall = Clock(5)
    clock = ServerClock(wall, lambda: 0.0, is_checked=False)
    clock.begin(FLOOR_MS, LATEST_MS, FLOOR_MS, "a record")
    assert (clock.now_ms(), clock.is_plausible, clock.is_trusted) == (5, True, True)
    wall.advance(YEAR_MS)
    clock.look()
    assert (clock.now_ms(), clock.is_plausible, clock.is_trusted) == (5 + YEAR_MS, True, False)
    wall.advance(-YEAR_MS - 5)
    clock.look()
    assert (clock.now_ms(), clock.is_plausible, clock.is_trusted) == (0, True, True)


steps = st.lists(st.tuples(st.integers(0, 86_400), st.integers(-2 * YEAR_MS, 2 * YEAR_MS) | st.just(0)), max_size=8)


@given(st.integers(0, START_MS + 3 * YEAR_MS), steps)
def test_server_time_goes_back_only_by_what_an_implausible_clock_has_lasted(
    wall_ms: int, history: list[tuple[int, int]]
) -> None:
    machine = Machine(wall_ms)
    clock = machine.begin()
    before_ms, implausible_since_s = clock.now_ms(), 0.0
    for seconds, step_ms in history:
        was = machine.state
        if was != IMPLAUSIBLE:
            implausible_since_s = machine.elapsed_s
        machine.wall_ms = max(0, machine.wall_ms + step_ms)
        machine.pass_by(seconds)
        now_ms, lasted_ms = clock.now_ms(), round((machine.elapsed_s - implausible_since_s) * 1000)
        if was != HELD:  # a held clock may be set back to where it was
            assert now_ms >= before_ms - lasted_ms - MAX_STEP_MS
        before_ms = now_ms


async def test_a_clock_a_year_ahead_does_not_expire_everything(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    settings = {"segment.bytes": "100", "retention.bytes": "250", "retention.ms": str(HOUR_MS)}
    async with one_partition(tmp_path, clock=clock, topic=settings, retention_check_interval_ms=100) as broker:
        await broker.writer.append(PARTITION, value("x"))
        with caplog.at_level(logging.WARNING):
            clock.advance(YEAR_MS)
            await until(lambda: "jumped ahead" in caplog.text)
        for _ in range(5):
            await broker.writer.append(PARTITION, value("y"))
        await until(lambda: actor_of(broker).log.log_start_offset > 0)
        assert actor_of(broker).log.log_start_offset == 2, "retention by size goes on"
        await broker._manager.retention.run_pass(by_time=False)
        assert actor_of(broker).log.log_start_offset == 2
