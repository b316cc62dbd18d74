"""Procedures: an operation of the broker or of a listener, written once, whether it has to wait or not.

A procedure is a generator. It yields only what must be waited for: a function without arguments that returns an awaitable.
The reactor begins a procedure in its turn and answers the request there when nothing is yielded. Otherwise a task continues it
with `perform`: it awaits what was yielded and sends the result back in, or throws the exception in.

*Invariants*: a procedure touches no task, scope or nursery of trio itself, because it does not know which task runs it. What it
does between two yields fits a turn, so it yields `PAUSE` after every few elements of something long (`mapped`): a request of a
few hundred KB names twenty thousand partitions, and each costs some 10 to 100 us. An async function pauses by `in_turns`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import Any, Final, Generic, TypeVar

import trio

T = TypeVar("T")
R = TypeVar("R")

Wait = Callable[[], Awaitable[Any]]
Procedure = Generator[Wait, Any, T]

PAUSE: Final[Wait] = trio.lowlevel.checkpoint
"""Lets other tasks run."""

ELEMENTS_PER_TURN: Final = 32
"""Of those that cost least; about 1 ms."""

PENDING: Final = object()
"""Stands for the result of a `Reply` that is not known yet."""


def mapped(function: Callable[[T], R], elements: Iterable[T], per_turn: int = ELEMENTS_PER_TURN) -> Procedure[list[R]]:
    """Return the results of a function for all elements. Other tasks run after every `per_turn` of them, first after twice as
    many: small requests need no check whether they are."""
    left = map(function, elements)
    results = list(islice(left, per_turn))
    while some := list(islice(left, per_turn)):
        results += some
        yield PAUSE
    return results


class InTurns(Generic[T]):
    """An iterator that lets others have their turn after every few elements. It may be left before its end: an async generator
    would want to be closed."""

    __slots__ = ("_elements", "_left", "_per_turn")

    def __init__(self, elements: Iterable[T], per_turn: int) -> None:
        self._elements: Iterator[T] = iter(elements)
        self._per_turn = self._left = per_turn

    def __aiter__(self) -> InTurns[T]:
        return self

    async def __anext__(self) -> T:
        for element in self._elements:
            if not self._left:
                self._left = self._per_turn
                await trio.lowlevel.checkpoint()
            self._left -= 1
            return element
        raise StopAsyncIteration


def in_turns(elements: Iterable[T], per_turn: int = ELEMENTS_PER_TURN) -> InTurns[T]:
    """The elements; others have their turn after `per_turn` of them. Fewer need no turn of the scheduler."""
    return InTurns(elements, per_turn)


async def perform(procedure: Procedure[T], wait: Wait | None = None) -> T:
    """Run a procedure to its end in this task and return its result. `wait` is what it has yielded already, if it was begun
    elsewhere, if that is not over. Cancelled: the procedure is closed where it waits."""
    try:
        if wait is None:
            wait = next(procedure)
        while True:
            try:
                wait = procedure.send(await wait())
            except StopIteration:
                raise
            except Exception as exc:  # of what was awaited; a procedure that raised one has ended, and raises it again
                wait = procedure.throw(exc)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        procedure.close()


class Reply:
    """A result that somebody else will `put`, once. A procedure yields it; whoever runs the procedure awaits it, or sets `then`
    to be called back in the turn of `put`, which costs no turn of the scheduler."""

    result: Any = PENDING
    then: Callable[[Any], None] | None = None

    def put(self, result: Any) -> None:
        """Called by the owner of the result, in any task. Raises what the callback raises."""
        self.result = result
        if self.then is not None:
            self.then(result)

    async def __call__(self) -> Any:
        """Wait for the result."""
        if self.result is PENDING:
            known = trio.Event()
            self.then = lambda _: known.set()
            await known.wait()
        return self.result
