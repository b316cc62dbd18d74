"""Going through everything that a request names, or that an answer shows, to see what the client may have of it.

A request of a megabyte names a hundred thousand things, and each costs 10 us with many ACLs. So all of this is done in steps,
whatever the protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")
Steps = Generator[None, None, T]
"""Pauses now and then, and answers a T in the end."""

JUDGED_PER_PAUSE: Final = 64


def divide_steps(elements: Iterable[T], refusal: Callable[[T], R | None]) -> Steps[tuple[list[T], list[tuple[int, T, R]]]]:
    """(elements that are served, the place and the element of each that is refused, with why)."""
    kept: list[T] = []
    refused: list[tuple[int, T, R]] = []
    for place, element in enumerate(elements):
        if place and not place % JUDGED_PER_PAUSE:
            yield
        why = refusal(element)
        if why is None:
            kept.append(element)
        else:
            refused.append((place, element, why))
    return kept, refused


def seen_steps(elements: Iterable[T], may_see: Callable[[T], bool]) -> Steps[list[T]]:
    """Those that the client may see."""
    seen, _ = yield from divide_steps(elements, lambda each: None if may_see(each) else True)
    return seen


def map_steps(elements: Iterable[T], function: Callable[[T], R]) -> Steps[list[R]]:
    """Return the function's result for each element."""
    made: list[R] = []
    yield from each_steps(elements, lambda each: made.append(function(each)))
    return made


def each_steps(elements: Iterable[T], change: Callable[[T], Any]) -> Steps[None]:
    """Do something with each."""
    for number, element in enumerate(elements, 1):
        change(element)
        if not number % JUDGED_PER_PAUSE:
            yield


def finish(steps: Steps[T]) -> T:
    """Return the result of the steps and run them without pauses. Use it only for small work."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            found: T = stop.value
            return found
