"""A life for the time of a block, and the directory that goes with it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import trio

from ..control.clock import MovedClock
from ..control.life import Life
from ..listeners.opening import Addresses
from ..settings.broker_config import Address, BrokerConfig

MEMORY: Final = ":memory:"
LOCALHOST: Final = Address(host="127.0.0.1", port=0)

_SHARED_MEMORY: Final = "/dev/shm"


@asynccontextmanager
async def living(
    life_of: Callable[..., Life], settings: BrokerConfig, wanted: Addresses, clock: MovedClock
) -> AsyncIterator[Life]:
    """`life_of` makes it. Rules go before it stops: a test that ends with a full disk is not about a stop on one. Raises what
    keeps it from starting."""
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        life = life_of(settings, wanted, nursery, clock)
        try:
            await life.start()
            yield life
        except trio.Cancelled:
            raise
        except BaseException as exc:
            # Kept outside of the nursery, which would wrap it in a group.
            failure = exc
        finally:
            life.faults.clear()
            life.disk_faults.clear()
            await life.stop()
            life.close()
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


@contextmanager
def data_directory(path: str | os.PathLike[str] | None) -> Iterator[tuple[str, bool]]:
    """(directory, whether it stays)."""
    if path is not None and path != MEMORY:
        yield str(Path(path).absolute()), True
        return
    parent = _SHARED_MEMORY if path == MEMORY and os.access(_SHARED_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="triolog-", dir=parent, ignore_cleanup_errors=True) as directory:
        yield directory, False


@contextmanager
def directory_like(path: str) -> Iterator[str]:
    """A new directory that goes with the block: in memory where `path` lies there."""
    with data_directory(MEMORY if path.startswith(_SHARED_MEMORY) else None) as (directory, _):
        yield directory
