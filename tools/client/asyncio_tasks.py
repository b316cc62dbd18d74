"""Scopes and nurseries of the client under asyncio, which behave as trio's in what the client needs of them.

A cancelled scope cancels its task once, where it waits, and catches that cancellation at its end. asyncio's own cancellation
(`Task.cancel`, `asyncio.timeout`, Ctrl-C) is never caught here, and a scope with `shield` does not hold it up.

Invariants:
- Only callbacks of the loop call `Task.cancel`. The task is suspended then, so the cancellation reaches it inside the scope. A
  task that cancelled itself could leave the scope first.
- A task of a nursery runs up to its first wait, also when the nursery is cancelled: it closes the resources that it got.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from types import TracebackType
from typing import Any, Final, Self
from weakref import WeakKeyDictionary

_INNERMOST: Final[WeakKeyDictionary[asyncio.Task[Any], Scope]] = WeakKeyDictionary()
"""The innermost open scope of each task that has one."""


class Scope:
    """A block that can be cancelled, and is at its deadline. Owner: the task that enters it. Any task may cancel it."""

    __slots__ = (
        "_cancelling",
        "_deadline",
        "_is_cancelled",
        "_is_delivered",
        "_is_shielded",
        "_outer",
        "_task",
        "_timer",
        "cancelled_caught",
    )

    def __init__(self, *, deadline: float = inf, shield: bool = False) -> None:
        self._deadline = deadline
        self._is_shielded = shield
        self._is_cancelled = False
        self._is_delivered = False
        self.cancelled_caught = False
        self._task: asyncio.Task[Any] | None = None
        self._outer: Scope | None = None
        self._timer: asyncio.Handle | None = None
        self._cancelling = 0

    def cancel(self) -> None:
        """Cancel the block, or as soon as it begins to wait."""
        self._is_cancelled = True
        if self._task is not None:
            asyncio.get_running_loop().call_soon(self._deliver)

    def __enter__(self) -> Self:
        task = self._task = asyncio.current_task()
        assert task is not None, "the client is used in a task"
        self._outer = _INNERMOST.get(task)
        _INNERMOST[task] = self
        self._cancelling = task.cancelling()
        if self._is_cancelled:
            self.cancel()
        elif self._deadline != inf:
            self._timer = asyncio.get_running_loop().call_at(self._deadline, self._deliver)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        assert self._task is not None
        task, self._task = self._task, None
        if self._timer is not None:
            self._timer.cancel()
        self._remove_from(task)
        if self._is_shielded:
            self._deliver_outer()
        if self._is_delivered:
            is_last = task.uncancel() <= self._cancelling
            self.cancelled_caught = is_last and kind is not None and issubclass(kind, asyncio.CancelledError)
        return self.cancelled_caught

    def _remove_from(self, task: asyncio.Task[Any]) -> None:
        """Blocks of one task may end in another order than the reverse one, such as those of two clients."""
        inner = _INNERMOST[task]
        if inner is not self:
            while inner._outer is not self:
                assert inner._outer is not None
                inner = inner._outer
            inner._outer = self._outer
        elif self._outer is not None:
            _INNERMOST[task] = self._outer
        else:
            del _INNERMOST[task]

    def _deliver_outer(self) -> None:
        scope = self._outer
        while scope is not None:
            if scope._is_cancelled:
                scope.cancel()
            scope = scope._outer

    def _deliver(self) -> None:
        """Cancel the task, unless it is in a scope with `shield` inside of this one: then this is called again at its end."""
        if self._task is None or self._is_delivered:
            return
        self._is_cancelled = True
        if not _is_shielded_from(self, self._task):
            self._is_delivered = True
            self._task.cancel()


def _is_shielded_from(outer: Scope, task: asyncio.Task[Any]) -> bool:
    scope = _INNERMOST[task]
    while scope is not outer:
        if scope._is_shielded:
            return True
        assert scope._outer is not None
        scope = scope._outer
    return False


async def checkpoint_if_cancelled() -> None:
    """Raise CancelledError if a scope of the task is cancelled and has not cancelled it yet."""
    task = asyncio.current_task()
    scope = None if task is None else _INNERMOST.get(task)
    while scope is not None:
        if scope._is_cancelled and not scope._is_delivered:
            await asyncio.sleep(0)
            return
        scope = None if scope._is_shielded else scope._outer


class _NurseryScope(Scope):
    """The scope of a nursery's block. Cancelling it cancels the nursery's tasks too."""

    __slots__ = ("tasks",)

    def __init__(self) -> None:
        super().__init__()
        self.tasks: dict[asyncio.Task[None], Scope] = {}

    def cancel(self) -> None:
        super().cancel()
        self.cancel_tasks()

    def cancel_tasks(self) -> None:
        """Cancel the tasks, and those that start later, but not the block."""
        self._is_cancelled = True
        for scope in self.tasks.values():
            scope.cancel()


class Nursery:
    """A block with tasks. It ends when all of them have ended; the failure of one cancels the others."""

    def __init__(self) -> None:
        self._scope = _NurseryScope()
        self._errors: list[BaseException] = []
        self._emptied: asyncio.Future[None] | None = None

    @property
    def cancel_scope(self) -> Scope:
        return self._scope

    def start_soon(self, function: Callable[..., Awaitable[Any]], /, *arguments: Any) -> None:
        """Start a task."""
        scope = Scope()
        if self._scope._is_cancelled:
            scope.cancel()
        task = asyncio.get_running_loop().create_task(_run(scope, function, arguments))
        self._scope.tasks[task] = scope
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        del self._scope.tasks[task]
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._errors.append(error)
            self._scope.cancel()
        if not self._scope.tasks and self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)

    async def __aenter__(self) -> Self:
        self._scope.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        cancellation = error if isinstance(error, asyncio.CancelledError) else None
        if error is not None:
            self._scope.cancel_tasks()
            if cancellation is None:
                self._errors.append(error)
        while self._scope.tasks:
            self._emptied = asyncio.get_running_loop().create_future()
            try:
                await self._emptied
            except asyncio.CancelledError as exc:
                cancellation = exc
                self._scope.cancel_tasks()
        is_caught = self._scope.__exit__(None if cancellation is None else type(cancellation), None, None)
        if self._errors:
            raise BaseExceptionGroup("tasks have failed", self._errors)
        if cancellation is not None and cancellation is not error and not is_caught:
            raise cancellation
        return is_caught


async def _run(scope: Scope, function: Callable[..., Awaitable[Any]], arguments: tuple[Any, ...]) -> None:
    with scope:
        await function(*arguments)
