"""Drives procedures and waits between them, so that both clients' consumers, appenders and transactions are written once.

Coroutines that wait for nothing but a `Driver` run in a task of trio's, or, with a driver whose calls have returned when they
are awaited, to their end at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TypeVar

from ....protocol.errors import RequestError
from ..backoff import Backoff
from ..config import ConsumerConfig, ProducerConfig
from .topics import Procedure

T = TypeVar("T")


class Driver(ABC):
    """The interface to a client, and to its way to wait."""

    @abstractmethod
    def lock(self) -> AbstractAsyncContextManager[object]:
        """Return a block that one task at a time is in."""

    @abstractmethod
    async def run(self, procedure: Procedure[T]) -> T:
        """Drive a procedure to its result."""

    @abstractmethod
    async def sleep(self, seconds: float) -> None:
        """Wait."""

    @abstractmethod
    def now(self) -> float:
        """Seconds of the clock that `sleep` waits by."""

    @abstractmethod
    def within(self, deadline: float) -> AbstractContextManager[object]:
        """A block in which no call of a driver that waits in place goes on beyond the deadline."""

    @abstractmethod
    def shielded(self, seconds: float) -> AbstractContextManager[object]:
        """A block that is not cancelled from outside, but after this time."""

    async def retried(
        self,
        attempt: Callable[[], Awaitable[T]],
        timeout_ms: int,
        config: ConsumerConfig | ProducerConfig,
        *,
        passes: Callable[[RequestError], bool] = lambda error: error.retriable,
        failed: Callable[[], object] = lambda: None,
        deadline: float = float("inf"),
    ) -> T:
        """Repeat an attempt that fails with what may pass, until its time is up, or the deadline would be before the next.
        `failed` is called for every one that did, also when it was cancelled or interrupted."""
        backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        give_up_at = self.now() + timeout_ms / 1000
        while True:
            try:
                return await attempt()
            except BaseException as exc:
                failed()
                now, pause_s = self.now(), backoff.pause_s()
                is_late = now >= give_up_at or now + pause_s >= deadline
                if is_late or not isinstance(exc, RequestError) or not passes(exc):
                    raise
            await self.sleep(pause_s)
