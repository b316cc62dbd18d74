"""Measures the processor time of a request: the time that it runs, without the time that it waits."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from time import perf_counter
from types import coroutine
from typing import Any, TypeVar

import attrs

T = TypeVar("T")


@attrs.define(eq=False, repr=False)
class Meter:
    """Owner: a request. Only one thing runs for it at a time."""

    _spent_s: float = 0.0
    _since_s: float | None = None
    """When it began to run; None: it does not."""

    def go(self) -> None:
        """It runs from now on."""
        self._since_s = perf_counter()

    def pause(self) -> None:
        """It does not, for a while."""
        self._spent_s, self._since_s = self.spent_s, None

    @property
    def spent_s(self) -> float:
        """Return the running time so far, in seconds."""
        running_s = 0.0 if self._since_s is None else perf_counter() - self._since_s
        return self._spent_s + running_s

    async def run(self, work: Awaitable[T]) -> T:
        """Return the result of `work`. Of its time only the stretches count in which its task runs."""
        return await _metered(work.__await__(), self)


@coroutine
def _metered(steps: Generator[Any, Any, T], meter: Meter) -> Generator[Any, Any, T]:
    """The scheduler sees what `steps` yields, and `steps` what the scheduler sends or throws."""
    answer: Any = None
    error: BaseException | None = None
    while True:
        meter.go()
        try:
            asked = steps.send(answer) if error is None else steps.throw(error)
        except StopIteration as exc:
            returned: T = exc.value
            return returned
        finally:
            meter.pause()
        answer = error = None
        try:
            answer = yield asked
        except BaseException as exc:
            error = exc
