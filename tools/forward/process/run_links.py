"""The process: a thread for each link, sockets to ask them, signals. Links do not know of each other.

It ends when every link has: told to (SIGTERM, SIGINT), because nothing is left that they should send (`--drain`),
or because they have failed. SIGHUP has the settings read again, where they come from a file.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import trio

from ..link import Link
from ..settings.forward_settings import ForwardSettings
from ..source.source import Source
from .fleet import Fleet
from .metrics import answering_metrics

LOGGER: Final = logging.getLogger(__name__)
PARENT_S: Final = 1.0
"""How often it is looked whether the process is there that started this one."""


async def run_links(
    settings: ForwardSettings,
    state_dir: Path,
    open_source: Callable[[], Source],
    *,
    drain: bool,
    read_again: Callable[[], ForwardSettings] | None = None,
    parent: int | None = None,
    started: Callable[[], None] = lambda: None,
) -> list[Link]:
    """Forward until everything has ended; answers the links. Raises LinkStoppedError, SettingsError before anything is sent.
    `parent`: the process that started this one, with which it ends. `read_again`, for SIGHUP, blocks and raises SettingsError.
    """
    with contextlib.ExitStack() as stack:
        fleet = Fleet(settings, state_dir, open_source, drain)
        stack.callback(fleet.release)
        fleet.take()
        if settings.is_exposed:
            LOGGER.warning("insecure metrics=%s: whoever reaches that from another machine reads it", settings.metrics)
        signals = stack.enter_context(trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT))
        async with answering_metrics(settings, fleet.progress), trio.open_nursery() as around:
            await fleet.start(around)
            around.start_soon(_stop_on_signal, signals, fleet)
            around.start_soon(_stop_when_cancelled, fleet)
            if read_again is not None:
                hangups = stack.enter_context(trio.open_signal_receiver(signal.SIGHUP))
                around.start_soon(_reload_on_signal, hangups, fleet, read_again)
            if parent is not None:
                around.start_soon(_end_with, parent, fleet)
            started()
            await fleet.over.wait()
            around.cancel_scope.cancel()
        return fleet.links


async def _stop_on_signal(signals: AsyncIterator[int], fleet: Fleet) -> None:
    async for number in signals:
        LOGGER.info("stopping signal=%s", signal.Signals(number).name)
        fleet.stop()


async def _stop_when_cancelled(fleet: Fleet) -> None:
    """Whatever ends the block, an error too: the threads of links do not know of it, and are waited for."""
    try:
        await trio.sleep_forever()
    finally:
        fleet.stop()


async def _reload_on_signal(hangups: AsyncIterator[int], fleet: Fleet, read_again: Callable[[], ForwardSettings]) -> None:
    async for _ in hangups:
        await fleet.reload(read_again)


async def _end_with(parent: int, fleet: Fleet) -> None:
    while os.getppid() == parent:  # noqa: ASYNC110 - nobody says when it ends
        await trio.sleep(PARENT_S)
    LOGGER.warning("process %d, which started this one, is gone: stopping", parent)
    fleet.stop()
