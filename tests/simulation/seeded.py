"""Runs trio so that nothing but a seed decides what happens: the order of tasks, time, random numbers, and worker threads.

Threads are tasks here: what would run in one is done on the spot after as long as a device may take. Set iteration depends on
the hashes of strings too, so that two runs are alike in every byte only with PYTHONHASHSEED set: see `replay`.
"""

from __future__ import annotations

import contextlib
import gc
import random
import secrets
import uuid
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, TypeVar
from unittest.mock import patch

import trio
import trio._core._run as trio_run
import trio.testing
from triolog.server.partitions import disk as triolog_disk
from triolog.server.partitions.disk import WritesAtOnce
from triolog.tools.client import backoff
from triolog.tools.client.sending import partitioner

T = TypeVar("T")

Latency = Callable[[], float]
"""Seconds that what runs in a thread takes."""


def run_seeded(seed: str, main: Callable[[], Awaitable[T]], latency: Latency, *, open_listeners: Callable[..., Any]) -> T:
    """What `main` returns. `open_listeners` stands for `trio.open_tcp_listeners`."""
    with _chances_of(seed), _threads_on_the_spot(latency), patch.object(trio, "open_tcp_listeners", open_listeners):
        gc.collect()
        gc.freeze()
        gc.disable()
        try:
            return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
        finally:
            gc.enable()


@contextlib.contextmanager
def _chances_of(seed: str) -> Iterator[None]:
    """Random numbers, and what is made of the system's, come from the seed for the time of the block."""
    state = random.getstate()
    random.seed(seed)
    system = random.Random(f"{seed}/system")
    for source in (trio_run._r, backoff._random, partitioner._random):
        source.seed(f"{seed}/tasks")
    with (
        patch.object(trio_run, "_ALLOW_DETERMINISTIC_SCHEDULING", True),
        patch.object(uuid, "uuid4", lambda: uuid.UUID(int=system.getrandbits(128), version=4)),
        patch.object(secrets, "token_bytes", lambda size=32: system.randbytes(size)),
        patch.object(random, "_urandom", system.randbytes),
    ):
        try:
            yield
        finally:
            random.setstate(state)


@contextlib.contextmanager
def _threads_on_the_spot(latency: Latency) -> Iterator[None]:
    places = trio.CapacityLimiter(1000)

    async def run_sync(function: Callable[..., T], *args: Any, limiter: trio.CapacityLimiter | None = None, **_: Any) -> T:
        await trio.lowlevel.checkpoint_if_cancelled()
        borrower = object()
        limiter = limiter or places
        await limiter.acquire_on_behalf_of(borrower)
        try:
            with trio.CancelScope(deadline=trio.current_time() + latency(), shield=True):
                await trio.sleep_forever()
            return function(*args)
        finally:
            limiter.release_on_behalf_of(borrower)

    # From the start on: what one slow write of a busy machine would change stays changed.
    at_once = partial(WritesAtOnce, clock=trio.current_time)
    with patch.object(trio.to_thread, "run_sync", run_sync), patch.object(triolog_disk, "WritesAtOnce", at_once):
        yield
