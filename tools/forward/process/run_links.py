"""The process: a thread for each link, sockets to ask them, signals. Links do not know of each other.

It ends when every link has: told to (SIGTERM, SIGINT), because nothing is left that they should send (`--drain`),
or because they have failed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import trio

from ..claims import Claims
from ..link import Link
from ..settings.forward_settings import ForwardSettings
from ..source.source import Source
from ..wishes import Wishes
from .control import serve_control
from .metrics import serve_metrics
from .place import LinkPlace

LOGGER: Final = logging.getLogger(__name__)
PARENT_S: Final = 1.0
"""How often it is looked whether the process is there that started this one."""


async def run_links(
    settings: ForwardSettings,
    state_dir: Path,
    open_source: Callable[[], Source],
    *,
    drain: bool,
    parent: int | None = None,
    started: Callable[[], None] = lambda: None,
) -> list[Link]:
    """Forward until everything has ended; answers the links. Raises LinkStoppedError, SettingsError before anything is sent.
    `parent`: the process that started this one, with which it ends."""
    with contextlib.ExitStack() as stack:
        claims = Claims()
        links: list[tuple[Link, LinkPlace]] = []
        for each in settings.links:
            place = LinkPlace.take(state_dir, each.name)
            stack.callback(place.release)
            wishes = Wishes(paused=place.is_paused, drain_and_end=drain)
            links.append((Link(each, settings.node, open_source, wishes, claims), place))
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async with trio.open_nursery() as around:
                around.start_soon(_stop_on_signal, signals, [link for link, _ in links])
                for link, place in links:
                    await around.start(serve_control, link, place)
                if settings.metrics is not None:
                    stack.enter_context(serve_metrics(settings.metrics, [link.progress for link, _ in links]))
                if parent is not None:
                    around.start_soon(_end_with, parent, [link for link, _ in links])
                started()
                await _run_all([link for link, _ in links])
                around.cancel_scope.cancel()
    return [link for link, _ in links]


async def _run_all(links: Sequence[Link]) -> None:
    limiter = trio.CapacityLimiter(len(links))

    def run(link: Link) -> None:
        try:
            link.run()
        except BaseException:  # a bug of ours: the threads of the others are waited for
            LOGGER.exception("link %s has ended with a bug", link.settings.name)
            _stop(links)
            raise

    async with trio.open_nursery() as nursery:
        for link in links:
            nursery.start_soon(partial(trio.to_thread.run_sync, run, link, limiter=limiter))


async def _stop_on_signal(signals: AsyncIterator[int], links: Sequence[Link]) -> None:
    async for number in signals:
        LOGGER.info("stopping signal=%s", signal.Signals(number).name)
        _stop(links)


async def _end_with(parent: int, links: Sequence[Link]) -> None:
    while os.getppid() == parent:  # noqa: ASYNC110 - nobody says when it ends
        await trio.sleep(PARENT_S)
    LOGGER.warning("process %d, which started this one, is gone: stopping", parent)
    _stop(links)


def _stop(links: Sequence[Link]) -> None:
    for link in links:
        link.wishes.stop()
