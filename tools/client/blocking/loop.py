"""An event loop for programs that wait in their calls: tasks run while a call waits, and at no other time.

A `BlockingClient` has one. `run` waits for a coroutine of the program; meanwhile the client's own tasks receive, send and
retry. `turn` lets them do what they can do without waiting. The loop holds no thread and no file descriptor.

*Invariants*
- A deadline counts only after everything that has arrived is read: a program that was away for long finds its responses.
- A cancelled task is cancelled where it waits, again at every further wait, until its scope ends.
- Ctrl-C interrupts the call that waits. It interrupts no task while a guarded one is open, however long a task computes;
  else a connection may be lost by it. Any exception that leaves a task outside of a nursery is raised in the call.
"""

from __future__ import annotations

import select
import signal
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from types import FrameType, TracebackType, coroutine
from typing import Any, Final, Self, TypeVar

from ..config import Address
from ..loops import Loop, WaitingLine
from ..running_loop import IN_PLACE
from .socket_stream import READABLE, WRITABLE, SocketStream

T = TypeVar("T")

SHORTEST_WAIT_S: Final = 0.001
"""A socket timeout of 0 would mean not to wait at all, which is another mode of the socket."""
_INFINITY: Final = float("inf")
_MAIN_THREAD: Final = threading.main_thread().ident


class Cancelled(BaseException):
    """Raised in a task where it waits, when a scope that it is in is cancelled or at its deadline. The scope catches it."""


class _Task:
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


_NO_TASK: Final = _Task(None, (), None)  # type: ignore[arg-type]


@coroutine
def _pause() -> Generator[None, None, None]:
    """Wait until the loop continues the task."""
    yield


class Event:
    """Something that happens once."""

    __slots__ = ("_is_set", "_loop", "_waiting")

    def __init__(self, loop: InPlaceLoop) -> None:
        self._loop = loop
        self._is_set = False
        self._waiting: list[_Task] = []

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
            await _pause()
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

    def __init__(self, loop: InPlaceLoop, *, deadline: float = _INFINITY, shield: bool = False) -> None:
        self._loop = loop
        self.deadline = deadline
        self.is_shielded = shield
        self.is_cancelled = False
        self.cancelled_caught = False
        self._task = _NO_TASK
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
        if self.deadline != _INFINITY:
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

    def __init__(self, loop: InPlaceLoop) -> None:
        self._loop = loop
        self.cancel_scope = Scope(loop)
        self._parent: _Task | None = None
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
            await _pause()
            parent.is_patient = False
        self._parent = None
        is_caught = self.cancel_scope.__exit__(Cancelled if is_cancellation else None, None, None)
        if self._errors:
            raise BaseExceptionGroup("tasks have failed", self._errors)
        await self._loop.checkpoint()
        return is_caught


class InPlaceLoop:
    """The tasks of one blocking client. Owner: the client; one thread at a time."""

    def __init__(self) -> None:
        self.task: _Task = _NO_TASK
        self.timed: dict[Scope, None] = {}  # open, with a deadline
        self._tasks: dict[_Task, None] = {}
        self._ready: deque[_Task] = deque()
        self._poll = select.poll()
        self._polled: dict[int, dict[_Task, int]] = {}  # by file descriptor: who waits for what
        self._failure: BaseException | None = None
        self._guarded = 0  # tasks that Ctrl-C must not interrupt
        self._is_waiting = False
        self._interrupt: tuple[int, FrameType | None] | None = None
        self._handler: Callable[[int, FrameType | None], Any] | None = None
        event = partial(Event, self)
        self.parts = Loop(
            event=event,
            lock=lambda: Lock(WaitingLine(event)),
            parking_lot=lambda: WaitingLine(event),
            scope=partial(Scope, self),
            open_nursery=lambda: Nursery(self),
            checkpoint=self.checkpoint,
            checkpoint_if_cancelled=self.checkpoint,
            now=time.monotonic,
            sleep=self.sleep,
            open_tcp=self._open_tcp,
            close_now=SocketStream.aclose,
            send_buffers=SocketStream.send_buffers,
            is_encrypted=lambda stream: stream.is_encrypted,
            send_at_once=SocketStream.send_at_once,
            is_in_place=True,
        )

    # ---- for the program -----------------------------------------------------------------------------------------------------

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine; the loop's tasks run until then."""
        before = self._enter()
        try:
            main = self.start(coroutine, (), None)
            while True:
                try:
                    self._run_ready()
                    if main.is_done:
                        break
                    self._raise_failure()
                    self._wait()
                except BaseException as exc:
                    if main.is_done:
                        raise
                    main.thrown = exc
                    self.wake(main)
        finally:
            self._leave(before)
        if main.error is not None:
            try:
                raise main.error
            finally:
                del main  # its traceback holds this frame
        return main.result  # type: ignore[no-any-return]

    def turn(self) -> None:
        """Let tasks receive, send and retry, without waiting."""
        before = self._enter()
        try:
            self._run_ready()
            while self._poll_sockets(0) or self._expire():
                self._run_ready()
            self._raise_failure()
        finally:
            self._leave(before)

    def start_soon(self, function: Callable[..., Awaitable[Any]], /, *arguments: Any) -> Scope:
        """Start a task that continues from call to call, and return the scope that it is in."""
        scope = Scope(self)
        self.start(function(*arguments), (scope,), None)
        return scope

    def start_guarded(self, function: Callable[[], Awaitable[None]]) -> Scope:
        """As `start_soon`, for a task that Ctrl-C must not interrupt. Until it ends no other task is interrupted either."""
        scope = Scope(self)
        self.start(self._guard(function), (scope,), None)
        self._guarded += 1
        return scope

    async def _guard(self, function: Callable[[], Awaitable[None]]) -> None:
        try:
            await function()
        finally:
            self._guarded -= 1

    def next_deadline(self) -> float:
        """Return when `turn` is worth calling again, whatever comes from the server."""
        return min((scope.deadline for scope in self.timed), default=_INFINITY)

    # ---- for tasks -----------------------------------------------------------------------------------------------------------

    def start(self, coroutine: Awaitable[Any], scopes: tuple[Scope, ...], nursery: Nursery | None) -> _Task:
        """Start a task in these scopes."""
        task = _Task(coroutine, scopes, nursery)  # type: ignore[arg-type]
        self._tasks[task] = None
        self.wake(task)
        return task

    def wake(self, task: _Task) -> None:
        """Continue a task that waits."""
        if not task.is_ready:
            task.is_ready = True
            self._ready.append(task)

    def cancel_tasks(self) -> None:
        """Interrupt the tasks that wait in a cancelled scope."""
        for task in self._tasks:
            if not task.is_ready and not task.is_patient and is_cancelled(task.scopes):
                task.thrown = Cancelled()
                self.wake(task)

    async def checkpoint(self) -> None:
        """Raise when the task is cancelled. Other tasks do not run."""
        if is_cancelled(self.task.scopes):
            raise Cancelled

    async def sleep(self, seconds: float) -> None:
        """Wait for some time."""
        if seconds <= 0:
            await self.checkpoint()
            return
        with Scope(self, deadline=time.monotonic() + seconds):
            await _pause()

    async def ready(self, descriptor: int, kind: int) -> None:
        """Wait until a socket is READABLE or WRITABLE."""
        task, waiting = self.task, self._polled.setdefault(descriptor, {})
        waiting[task] = kind
        self._register(descriptor, waiting)
        try:
            await _pause()
        finally:
            del waiting[task]
            self._register(descriptor, waiting)

    # ---- inside --------------------------------------------------------------------------------------------------------------

    async def _open_tcp(self, address: Address, context: ssl.SSLContext | None) -> SocketStream:
        deadline = min((scope.deadline for scope in self.task.scopes), default=_INFINITY)
        timeout_s = None if deadline == _INFINITY else max(SHORTEST_WAIT_S, deadline - time.monotonic())
        self._is_waiting = True  # nothing else can be done meanwhile; Ctrl-C interrupts it
        try:
            self._deliver_interrupt()
            opened = socket.create_connection(address, timeout_s)
        finally:
            self._is_waiting = False
        return await SocketStream.over(opened, self.ready, context, address[0])

    def _register(self, descriptor: int, waiting: dict[_Task, int]) -> None:
        if waiting:
            kinds = 0
            for kind in waiting.values():
                kinds |= kind
            self._poll.register(descriptor, kinds)
        else:
            del self._polled[descriptor]
            self._poll.unregister(descriptor)

    def _enter(self) -> Loop | None:
        """Become the loop of this thread; return the one that it had: this one, when a listener calls the client."""
        before, IN_PLACE.loop = IN_PLACE.loop, self.parts
        if self._guarded and self._handler is None:
            self._hold_interrupts()
        return before

    def _leave(self, before: Loop | None) -> None:
        IN_PLACE.loop = before
        if self._handler is not None and before is not self.parts:
            self._release_interrupts(self._handler)

    def _run_ready(self) -> None:
        while self._ready:
            self._step(self._ready.popleft())

    def _step(self, task: _Task) -> None:
        before, self.task = self.task, task
        thrown, task.thrown = task.thrown, None
        try:
            if thrown is None:
                task.coroutine.send(None)
            else:
                task.coroutine.throw(thrown)
        except StopIteration as stop:
            task.result = stop.value
            self._end(task)
        except BaseException as exc:
            task.error = exc
            self._end(task)
        else:
            task.is_ready = False  # while it ran nothing could continue it
            if not task.is_patient and is_cancelled(task.scopes):
                task.thrown = Cancelled()
                self.wake(task)
        finally:
            self.task = before

    def _end(self, task: _Task) -> None:
        task.is_done = True
        del self._tasks[task]
        error = None if isinstance(task.error, Cancelled) else task.error
        if task.nursery is not None:
            if isinstance(error, KeyboardInterrupt):
                self._failure, error = error, None
            task.nursery.ended(error)
        elif task.scopes and error is not None:  # of the client's own
            self._failure = error

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _wait(self) -> None:
        """Wait for a socket or a deadline."""
        deadline = self.next_deadline()
        assert self._polled or deadline != _INFINITY, "a call waits for nothing"
        if not self._poll_sockets(None if deadline == _INFINITY else max(0.0, deadline - time.monotonic())):
            self._expire()

    def _poll_sockets(self, seconds: float | None) -> bool:
        if not self._polled and not seconds:
            return False
        self._is_waiting = True
        try:
            self._deliver_interrupt()
            found = self._poll.poll(None if seconds is None else seconds * 1000)
        finally:
            self._is_waiting = False
        for descriptor, events in found:
            for task, kind in self._polled[descriptor].items():
                if events & ~(READABLE | WRITABLE) or events & kind:
                    self.wake(task)
        return bool(found)

    def _expire(self) -> bool:
        now = time.monotonic()
        late = [scope for scope in self.timed if scope.deadline <= now and not scope.is_cancelled]
        for scope in late:
            del self.timed[scope]
            scope.cancel()
        return bool(late)

    # ---- Ctrl-C --------------------------------------------------------------------------------------------------------------

    def _hold_interrupts(self) -> None:
        """Let Ctrl-C wait while a task computes. Only the main thread gets it."""
        handler = signal.getsignal(signal.SIGINT)
        if threading.get_ident() == _MAIN_THREAD and callable(handler):
            self._handler = handler
            signal.signal(signal.SIGINT, self._on_interrupt)

    def _release_interrupts(self, handler: Callable[[int, FrameType | None], Any]) -> None:
        self._handler = None
        signal.signal(signal.SIGINT, handler)
        if self._interrupt is not None:
            arguments, self._interrupt = self._interrupt, None
            handler(*arguments)

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:
        self._interrupt = number, frame
        if self._is_waiting:
            self._deliver_interrupt()

    def _deliver_interrupt(self) -> None:
        if self._interrupt is not None and self._handler is not None:
            arguments, self._interrupt = self._interrupt, None
            self._handler(*arguments)
