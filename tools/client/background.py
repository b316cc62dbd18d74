"""A nursery for tasks that serve the body of a block, without making the body's own exception a group of one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def open_background() -> AsyncIterator[trio.Nursery]:
    """A nursery whose one failure leaves it as it was raised; several leave as a group.

    What the caller's block raises belongs to the caller, who did not ask for a nursery.
    """
    failure: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            yield nursery
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        failure = group.exceptions[0]
    if failure is not None:
        try:
            raise failure
        finally:
            del failure  # its traceback holds this frame
