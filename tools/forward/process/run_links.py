"""The process: a thread and a socket for each link, and signals. Links do not know of each other.

It ends when every link has: told to (SIGTERM, SIGINT), because nothing is left that they should send (`--drain`), or because
they have failed. SIGHUP has the settings read again, where they come from a file. A link whose settings have changed is stopped
and begins again in the same place, and so does one that has failed; links that are as before are left alone. Nothing changes
when the settings cannot be read, or a new link cannot be had.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from ....server.config.key import keys_of
from ..errors import LinkStoppedError, SettingsError
from ..link_loop import LinkLoop
from ..memory import Wishes
from ..progress import Progress
from ..settings.process_settings import LinkKind, ProcessSettings
from .control import serve_control
from .metrics import answering_metrics
from .place import LinkPlace

LOGGER: Final = logging.getLogger(__name__)
PARENT_S: Final = 1.0
"""How often it is looked whether the process is there that started this one."""

MakeLink = Callable[[Any, LinkPlace, Wishes], LinkLoop]
"""Makes a link of its settings."""


async def run_links(
    kind: LinkKind,
    settings: ProcessSettings,
    state_dir: Path,
    make: MakeLink,
    *,
    drain: bool = False,
    read_again: Callable[[], ProcessSettings] | None = None,
    parent: int | None = None,
    started: Callable[[], None] = lambda: None,
) -> list[LinkLoop]:
    """Run links until everything has ended; answers the links. Raises LinkStoppedError, SettingsError before any begins.
    `parent`: the process that started this one, with which it ends. `read_again`, for SIGHUP, blocks and raises SettingsError.
    """
    with contextlib.ExitStack() as stack:
        fleet = Fleet(kind, settings, state_dir, make, drain)
        stack.callback(fleet.release)
        fleet.take()
        if settings.is_exposed:
            LOGGER.warning("insecure metrics=%s: clients on other machines can read it", settings.metrics)
        signals = stack.enter_context(trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT))
        async with answering_metrics(kind, settings, fleet.progress), trio.open_nursery() as around:
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


async def _reload_on_signal(hangups: AsyncIterator[int], fleet: Fleet, read_again: Callable[[], ProcessSettings]) -> None:
    async for _ in hangups:
        await fleet.reload(read_again)


async def _end_with(parent: int, fleet: Fleet) -> None:
    while os.getppid() == parent:  # noqa: ASYNC110 - nobody says when it ends
        await trio.sleep(PARENT_S)
    LOGGER.warning("stopping: parent process %d is gone", parent)
    fleet.stop()


@attrs.define(eq=False, repr=False)
class _Running:
    link: LinkLoop
    place: LinkPlace
    asked: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """Of its socket, which is there until the link is replaced or the process ends."""
    ended: trio.Event = attrs.field(factory=trio.Event)
    unasked: trio.Event = attrs.field(factory=trio.Event)


@attrs.define(eq=False, repr=False)
class Fleet:
    """Owner: the main task of the process."""

    _kind: LinkKind
    _settings: ProcessSettings
    _state_dir: Path
    _make: MakeLink
    _drain: bool
    _nursery: trio.Nursery | None = None
    _places: dict[str, LinkPlace] = attrs.field(factory=dict)
    """Of links that are to begin."""
    _links: dict[str, _Running] = attrs.field(factory=dict)
    _busy: int = 0
    """Links that have not ended, and a reload that is under way."""
    _is_stopping: bool = False
    over: trio.Event = attrs.field(factory=trio.Event)
    """Every link has ended."""

    @property
    def links(self) -> list[LinkLoop]:
        return [each.link for each in self._links.values()]

    def progress(self) -> list[Progress]:
        return [link.progress for link in self.links]

    def stop(self) -> None:
        """Every link is to end."""
        self._is_stopping = True
        for link in self.links:
            link.wishes.stop()

    def release(self) -> None:
        """Other processes may have the links."""
        for place in (*self._places.values(), *(each.place for each in self._links.values())):
            place.release()

    def take(self) -> None:
        """Other processes may not have the links. Raises LinkStoppedError, SettingsError."""
        self._places = self._take(self._settings.links)

    async def start(self, nursery: trio.Nursery) -> None:
        """All links, in tasks of `nursery`."""
        self._nursery = nursery
        await self._begin_all()

    async def reload(self, read: Callable[[], ProcessSettings]) -> None:
        """Take up what has changed. `read` blocks and raises SettingsError."""
        if self.over.is_set():
            return
        self._busy += 1
        try:
            new = await trio.to_thread.run_sync(read)
            self._places = self._take([each for each in new.links if each.name not in self._links])
        except (SettingsError, LinkStoppedError) as exc:
            LOGGER.error("SIGHUP: no link changed: %s", exc)
        except Exception:
            LOGGER.exception("SIGHUP: unhandled exception: no link changed")
        else:
            await self._change(new)
        finally:
            self._less_busy()

    # ---- inside --------------------------------------------------------------------------------------------------------

    def _take(self, links: Iterable[Any]) -> dict[str, LinkPlace]:
        places: dict[str, LinkPlace] = {}
        try:
            for each in links:
                places[each.name] = LinkPlace.take(self._state_dir, each.name)
        except BaseException:
            for place in places.values():
                place.release()
            raise
        return places

    async def _change(self, new: ProcessSettings) -> None:
        old, wanted = self._settings, {each.name: each for each in new.links}
        anew = [name for name in wanted if name in self._links and self._changes(name, wanted[name])]
        gone = [name for name in self._links if name not in wanted]
        LOGGER.info(
            "SIGHUP: settings read again: %d links started, %d stopped", len(anew) + len(self._places), len(anew) + len(gone)
        )
        for key in self._kind.process_keys:
            if getattr(old, key) != getattr(new, key):
                LOGGER.warning("SIGHUP: needs a restart: %s is %s, was %s", key, getattr(new, key), getattr(old, key))
        async with trio.open_nursery() as nursery:
            for name in (*anew, *gone):
                nursery.start_soon(self._end, name)
        for name in gone:
            self._links.pop(name).place.release()
        for name in anew:
            self._places[name] = self._links[name].place
        self._settings = attrs.evolve(old, links=new.links)
        await self._begin_all()
        if self._is_stopping:
            self.stop()

    def _changes(self, name: str, wanted: Any) -> bool:
        link = self._links[name].link
        keys = [key for key in keys_of(type(wanted)) if getattr(link.settings, key, None) != getattr(wanted, key)]
        if keys:
            LOGGER.info("SIGHUP: link %s starts again: %s", name, ", ".join(keys))
        return bool(keys) or link.progress.state.is_final

    async def _begin_all(self) -> None:
        """Those that have a place."""
        assert self._nursery is not None
        for settings in self._settings.links:
            place = self._places.pop(settings.name, None)
            if place is None:
                continue
            wishes = Wishes(paused=place.is_paused, drain_and_end=self._drain)
            running = self._links[settings.name] = _Running(self._make(settings, place, wishes), place)
            self._busy += 1
            await self._nursery.start(self._serve, running)
            self._nursery.start_soon(self._run, running)

    async def _end(self, name: str) -> None:
        running = self._links[name]
        running.link.wishes.stop()
        await running.ended.wait()
        running.asked.cancel()
        await running.unasked.wait()
        running.link.release()

    async def _serve(self, running: _Running, *, task_status: trio.TaskStatus[None]) -> None:
        with running.asked:
            await serve_control(running.link, running.place, task_status=task_status)
        running.unasked.set()

    async def _run(self, running: _Running) -> None:
        await trio.to_thread.run_sync(partial(self._run_link, running.link), limiter=trio.CapacityLimiter(1))
        running.ended.set()
        self._less_busy()

    def _run_link(self, link: LinkLoop) -> None:
        try:
            link.run()
        except BaseException:  # the process is to end: the threads of the others are waited for
            LOGGER.exception("link %s ended the process", link.settings.name)
            self.stop()
            raise

    def _less_busy(self) -> None:
        self._busy -= 1
        if not self._busy:
            self.over.set()
