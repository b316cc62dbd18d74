"""Tasks of the loop of a blocking client, and their waiting: events, locks, scopes and nurseries, which behave as trio's.

A cancelled task is cancelled where it waits, again at every further wait, until its scope ends. `loop` decides when a task
runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import TracebackType, coroutine
from typing import Any, Final, Protocol, Self

from ..loops import WaitingLine

INFINITY: Final = float("inf")


class Cancelled(BaseException):
    """Raised in a task where it waits, when a scope that it is in is cancelled or at its deadline. The scope catches it."""


class Task:
    """A coroutine that is run. Owner: the loop."""

    __slots__ = ("coroutine", "error", "is_done", "is_patient", "is_ready", "nursery", "result", "scopes", "thrown")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], scopes: tuple[Scope, ...], nursery: Nursery | None) -> None:
        self.coroutine = coroutine
        self.scopes = scopes
        self.nursery = nursery
        self.thrown: BaseException | None = None
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_ready = False
        self.is_patient = False  # waits although it is cancelled
        self.is_done = False


class Runner(Protocol):
    """The interface that waiting needs of the loop, which decides when a task runs."""

    task: Task
    """The one that runs."""
    timed: dict[Scope, None]
    """Open scopes with a deadline."""

    def start(self, coroutine: Awaitable[Any], scopes: tuple[Scope, ...], nursery: Nursery | None) -> Task: ...
    def wake(self, task: Task) -> None: ...
    def cancel_tasks(self) -> None: ...
    async def checkpoint(self) -> None: ...


NO_TASK: Final = Task(None, (), None)  # type: ignore[arg-type]


@coroutine
def pause() -> Generator[None, None, None]:
    """Wait until the loop continues the task."""
    yield


class Event:
    """Something that happens once."""

    __slots__ = ("_is_set", "_loop", "_waiting")

    def __init__(self, loop: Runner) -> None:
        self._loop = loop
        self._is_set = False
        self._waiting: list[Task] = []

    def set(self) -> None:
        """It has happened."""
        self._is_set = True
        for task in self._waiting:
            self._loop.wake(task)
        self._waiting.clear()

    async def wait(self) -> None:
        """Wait until it has happened."""
        if self._is_set:
            return
        task = self._loop.task
        self._waiting.append(task)
        try:
            await pause()
        except BaseException:
            if task in self._waiting:
                self._waiting.remove(task)
            raise


class Lock:
    """A block that one task at a time is in, the first one first."""

    def __init__(self, line: WaitingLine) -> None:
        self._line = line
        self._is_held = False

    async def __aenter__(self) -> None:
        while self._is_held:
            await self._line.park()
        self._is_held = True

    async def __aexit__(self, *error: object) -> None:
        self._is_held = False
        self._line.unpark()


class Scope:
    """A block of one task that can be cancelled, with what it has started. It is at its deadline."""

    __slots__ = ("_loop", "_outer", "_task", "cancelled_caught", "deadline", "is_cancelled", "is_shielded")

    def __init__(self, loop: Runner, *, deadline: float = INFINITY, shield: bool = False) -> None:
        self._loop = loop
        self.deadline = deadline
        self.is_shielded = shield
        self.is_cancelled = False
        self.cancelled_caught = False
        self._task = NO_TASK
        self._outer: tuple[Scope, ...] = ()

    def cancel(self) -> None:
        """Cancel what is in the block, now or as soon as it begins."""
        if not self.is_cancelled:
            self.is_cancelled = True
            self._loop.cancel_tasks()

    def __enter__(self) -> Self:
        task = self._task = self._loop.task
        self._outer = task.scopes
        task.scopes = (*task.scopes, self)
        if self.deadline != INFINITY:
            self._loop.timed[self] = None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        self._task.scopes = self._outer
        self._loop.timed.pop(self, None)
        if kind is Cancelled and self.is_cancelled and (self.is_shielded or not is_cancelled(self._outer)):
            self.cancelled_caught = True
        return self.cancelled_caught


def is_cancelled(scopes: tuple[Scope, ...]) -> bool:
    """Return whether one of these scopes, the innermost last, cancels what is in all of them."""
    for scope in reversed(scopes):
        if scope.is_cancelled:
            return True
        if scope.is_shielded:
            return False
    return False


class Nursery:
    """A block with tasks. It ends when all of them have ended; the failure of one cancels the others."""

    def __init__(self, loop: Runner) -> None:
        self._loop = loop
        self.cancel_scope = Scope(loop)
        self._parent: Task | None = None
        self._tasks = 0
        self._errors: list[BaseException] = []

    def start_soon(self, function: Callable[..., Awaitable[Any]], /, *arguments: Any) -> None:
        """Start a task."""
        assert self._parent is not None, "a nursery has tasks while it is open"
        self._tasks += 1
        self._loop.start(function(*arguments), (*self.cancel_scope._outer, self.cancel_scope), self)

    def ended(self, error: BaseException | None) -> None:
        """A task has ended."""
        self._tasks -= 1
        if error is not None:
            self._errors.append(error)
            self.cancel_scope.cancel()
        if not self._tasks and self._parent is not None and self._parent.is_patient:
            self._loop.wake(self._parent)

    async def __aenter__(self) -> Self:
        self._parent = self._loop.task
        self.cancel_scope.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if isinstance(error, GeneratorExit):  # the client was dropped without being closed
            return False
        parent = self._loop.task
        is_cancellation = isinstance(error, Cancelled)
        if error is not None:
            self.cancel_scope.cancel()
            if not is_cancellation:
                self._errors.append(error)
        while self._tasks:
            parent.is_patient = True
            await pause()
            parent.is_patient = False
        self._parent = None
        is_caught = self.cancel_scope.__exit__(Cancelled if is_cancellation else None, None, None)
        if self._errors:
            raise BaseExceptionGroup("tasks have failed", self._errors)
        await self._loop.checkpoint()
        return is_caught
