"""Drives procedures and waits between them: the interface to a client for consumers, appenders and transactions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from typing import Protocol, TypeVar

import attrs

from ....protocol.errors import RequestError
from ..backoff import Backoff
from ..config import ConsumerConfig, ProducerConfig
from ..loops import Loop
from .topics import Procedure

T = TypeVar("T")


class Caller(Protocol):
    """A client in its loop."""

    @property
    def loop(self) -> Loop: ...
    async def run(self, procedure: Procedure[T]) -> T: ...
    def within(self, deadline: float) -> AbstractContextManager[object]: ...


@attrs.frozen(eq=False, repr=False)
class Driver:
    """A client's way to call and to wait."""

    _client: Caller

    def lock(self) -> AbstractAsyncContextManager[object]:
        """Return a block that one task at a time is in."""
        return self._client.loop.lock()

    async def run(self, procedure: Procedure[T]) -> T:
        """Drive a procedure to its result."""
        return await self._client.run(procedure)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await self._client.loop.sleep(seconds)

    def now(self) -> float:
        """Seconds of the clock that `sleep` waits by."""
        return self._client.loop.now()

    def within(self, deadline: float) -> AbstractContextManager[object]:
        """A block in which no call of a blocking program goes on beyond the deadline. Tasks of other programs share a client,
        so nothing is set there."""
        return self._client.within(deadline) if self._client.loop.is_in_place else nullcontext()

    def shielded(self, seconds: float) -> AbstractContextManager[object]:
        """A block that is not cancelled from outside, but after this time."""
        return self._client.loop.scope(shield=True, deadline=self.now() + seconds)

    async def retried(
        self,
        attempt: Callable[[], Awaitable[T]],
        timeout_ms: int,
        config: ConsumerConfig | ProducerConfig,
        *,
        passes: Callable[[RequestError], bool] = lambda error: error.retriable,
        failed: Callable[[], object] = lambda: None,
        deadline: float = float("inf"),
        from_first_failure: bool = False,
    ) -> T:
        """Repeat an attempt that fails with what may pass, until its time is up, or the deadline would be before the next. The
        time counts from the beginning, or from the first failure. `failed` is called for every attempt that did, also when it
        was cancelled or interrupted."""
        backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        give_up_at = float("inf") if from_first_failure else self.now() + timeout_ms / 1000
        while True:
            try:
                return await attempt()
            except BaseException as exc:
                failed()
                now, pause_s = self.now(), backoff.pause_s()
                give_up_at = min(give_up_at, now + timeout_ms / 1000)
                is_late = now >= give_up_at or now + pause_s >= deadline
                if is_late or not isinstance(exc, RequestError) or not passes(exc):
                    raise
            await self.sleep(pause_s)
