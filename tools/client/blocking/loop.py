"""An event loop for programs that wait in their calls: tasks run while a call waits, and at no other time.

A `BlockingClient` has one. `run` waits for a coroutine of the program; meanwhile the client's own tasks receive, send and
retry. `turn` lets them do what they can do without waiting. The loop holds no thread and no file descriptor.

*Invariants*
- A deadline counts only after everything that has arrived is read: a program that was away for long finds its responses.
- Ctrl-C interrupts the call that waits. It interrupts no task while a guarded one is open, however long a task computes;
  else a connection may be lost by it. Any exception that leaves a task outside of a nursery is raised in the call.
"""

from __future__ import annotations

import signal
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from types import FrameType
from typing import Any, Final, TypeVar

from ..config import Address
from ..loops import Loop, WaitingLine
from ..running_loop import IN_PLACE
from .polling import READABLE, WRITABLE, new_poll
from .socket_stream import SocketStream
from .tasks import INFINITY, NO_TASK, Cancelled, Event, Lock, Nursery, Scope, Task, is_cancelled, pause

T = TypeVar("T")

SHORTEST_WAIT_S: Final = 0.001
"""A socket timeout of 0 would mean not to wait at all, which is another mode of the socket."""
_MAIN_THREAD: Final = threading.main_thread().ident


class InPlaceLoop:
    """The tasks of one blocking client. Owner: the client; one thread at a time."""

    def __init__(self) -> None:
        self.task: Task = NO_TASK
        self.timed: dict[Scope, None] = {}  # open, with a deadline
        self._tasks: dict[Task, None] = {}
        self._ready: deque[Task] = deque()
        self._poll = new_poll()
        self._polled: dict[int, dict[Task, int]] = {}  # by file descriptor: who waits for what
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
        return min((scope.deadline for scope in self.timed), default=INFINITY)

    # ---- for tasks -----------------------------------------------------------------------------------------------------------

    def start(self, coroutine: Awaitable[Any], scopes: tuple[Scope, ...], nursery: Nursery | None) -> Task:
        """Start a task in these scopes."""
        task = Task(coroutine, scopes, nursery)  # type: ignore[arg-type]
        self._tasks[task] = None
        self.wake(task)
        return task

    def wake(self, task: Task) -> None:
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
            await pause()

    async def ready(self, descriptor: int, kind: int) -> None:
        """Wait until a socket is READABLE or WRITABLE."""
        task, waiting = self.task, self._polled.setdefault(descriptor, {})
        waiting[task] = kind
        self._register(descriptor, waiting)
        try:
            await pause()
        finally:
            del waiting[task]
            self._register(descriptor, waiting)

    # ---- inside --------------------------------------------------------------------------------------------------------------

    async def _open_tcp(self, address: Address, context: ssl.SSLContext | None) -> SocketStream:
        deadline = min((scope.deadline for scope in self.task.scopes), default=INFINITY)
        timeout_s = None if deadline == INFINITY else max(SHORTEST_WAIT_S, deadline - time.monotonic())
        self._is_waiting = True  # nothing else can be done meanwhile; Ctrl-C interrupts it
        try:
            self._deliver_interrupt()
            opened = socket.create_connection(address, timeout_s)
        finally:
            self._is_waiting = False
        return await SocketStream.over(opened, self.ready, context, address[0])

    def _register(self, descriptor: int, waiting: dict[Task, int]) -> None:
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

    def _step(self, task: Task) -> None:
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

    def _end(self, task: Task) -> None:
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
        assert self._polled or deadline != INFINITY, "a call waits for nothing"
        if not self._poll_sockets(None if deadline == INFINITY else max(0.0, deadline - time.monotonic())):
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
