"""A life for the time of a block, and the directory that goes with it."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import trio

from ..config.broker_config import Address, BrokerConfig
from ..config.broker_settings import KAFKA, METRICS, NATIVE, REGISTRY, check_exposure
from ..fake.clock import MovedClock
from ..fake.life import Life, told_over_http
from ..listeners.addresses import Addresses

MEMORY: Final = ":memory:"
LOCALHOST: Final = Address(host="127.0.0.1", port=0)

PREFIX: Final = "triolog-run-"
"""Of directories that go with their broker. Those of earlier versions, `triolog-*`, have no lock and are left alone."""
YOUNG_S: Final = 60.0

_SHARED_MEMORY: Final = "/dev/shm"
_LIVES: Final[weakref.WeakSet[Life]] = weakref.WeakSet()
"""Those of this process."""


class Living(NamedTuple):
    """A life, and where it is told over HTTP how things stand."""

    life: Life
    metrics: Address | None


@asynccontextmanager
async def living(
    life_of: Callable[..., Life], settings: BrokerConfig, wanted: Addresses, clock: MovedClock
) -> AsyncIterator[Living]:
    """`life_of` makes it. Rules go before it stops: a test that ends with a full disk is not about a stop on one. Raises what
    keeps it from starting."""
    others = {METRICS: settings.metrics, REGISTRY: settings.schema_registry}
    check_exposure(settings, {NATIVE: wanted.native, KAFKA: wanted.kafka, **others})
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        life = life_of(settings, wanted, nursery, clock)
        _LIVES.add(life)
        try:
            metrics = await nursery.start(_tell, settings, life)
            await life.start()
            if settings.schema_registry is not None:
                await life.serve_registry(settings.schema_registry)
            yield Living(life, metrics)
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


async def _tell(settings: BrokerConfig, life: Life, *, task_status: trio.TaskStatus[Address | None]) -> None:
    """Raises what the one of its tasks raises that fails, not a group with it."""
    try:
        async with told_over_http(settings, life) as address:
            task_status.started(address)
            if address is not None:
                await trio.sleep_forever()
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise


@contextmanager
def data_directory(path: str | os.PathLike[str] | None) -> Iterator[tuple[str, bool]]:
    """(directory, whether it stays)."""
    if path is not None and path != MEMORY:
        yield str(Path(path).absolute()), True
        return
    parent = _SHARED_MEMORY if path == MEMORY and os.access(_SHARED_MEMORY, os.W_OK) else tempfile.gettempdir()
    remove_left(parent)
    directory, owner = tempfile.mkdtemp(prefix=PREFIX, dir=parent), os.getpid()
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        data = Path(directory, "data")  # whose own lock is a server's, and free while that is down
        data.mkdir(0o700)
        yield str(data), False
    finally:
        if os.getpid() == owner:  # not in a process that was forked meanwhile
            shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)


@functools.cache
def remove_left(parent: str) -> None:
    """Remove directories that killed processes of this user have left: nobody holds their lock. Once in a process is enough. A
    directory that is younger than a minute may be about to be locked."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(parent):
            if entry.name.startswith(PREFIX):
                with contextlib.suppress(OSError):
                    _remove_if_left(entry)


def _remove_if_left(entry: os.DirEntry[str]) -> None:
    """Raises OSError: it is in use, or gone."""
    about = entry.stat(follow_symlinks=False)
    if about.st_uid != os.getuid() or time.time() - about.st_ctime < YOUNG_S:
        return
    lock = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(entry.path, ignore_errors=True)
    finally:
        os.close(lock)


@contextmanager
def directory_like(path: str) -> Iterator[str]:
    """A new directory that goes with the block: in memory where `path` lies there."""
    with data_directory(MEMORY if path.startswith(_SHARED_MEMORY) else None) as (directory, _):
        yield directory


def _forked() -> None:
    for life in list(_LIVES):
        life.after_fork()


os.register_at_fork(after_in_child=_forked)
