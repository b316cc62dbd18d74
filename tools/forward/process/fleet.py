"""The links of a process while it lives: each has a thread and a socket, and SIGHUP changes which there are.

A link whose settings have changed is stopped and begins anew in the same place; one that has failed begins anew as well. Links
that are as before are left alone. Nothing changes when the settings cannot be read, or a new link cannot be had.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import trio

from ..errors import LinkStoppedError, SettingsError
from ..link import Claims, Link
from ..progress import LinkProgress
from ..settings.forward_settings import PROCESS_KEYS, ForwardSettings
from ..settings.link_settings import LINK_KEYS, LinkSettings
from ..source.source import Source
from ..topic_ids import TopicIds
from ..wishes import Wishes
from .control import serve_control
from .place import LinkPlace

LOGGER: Final = logging.getLogger(__name__)


@attrs.define(eq=False, repr=False)
class _Running:
    link: Link
    place: LinkPlace
    asked: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """Of its socket, which is there until the link is replaced or the process ends."""
    ended: trio.Event = attrs.field(factory=trio.Event)
    unasked: trio.Event = attrs.field(factory=trio.Event)


@attrs.define(eq=False, repr=False)
class Fleet:
    """Owner: the main task of the process."""

    _settings: ForwardSettings
    _state_dir: Path
    _open_source: Callable[[], Source]
    _drain: bool
    _nursery: trio.Nursery | None = None
    _places: dict[str, LinkPlace] = attrs.field(factory=dict)
    """Of links that are to begin."""
    _links: dict[str, _Running] = attrs.field(factory=dict)
    _claims: Claims = attrs.field(factory=Claims)
    _busy: int = 0
    """Links that have not ended, and a reload that is under way."""
    _is_stopping: bool = False
    over: trio.Event = attrs.field(factory=trio.Event)
    """Every link has ended."""

    @property
    def links(self) -> list[Link]:
        return [each.link for each in self._links.values()]

    def progress(self) -> list[LinkProgress]:
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

    async def reload(self, read: Callable[[], ForwardSettings]) -> None:
        """Take up what has changed. `read` blocks and raises SettingsError."""
        if self.over.is_set():
            return
        self._busy += 1
        try:
            new = await trio.to_thread.run_sync(read)
            self._places = self._take([each for each in new.links if each.name not in self._links])
        except (SettingsError, LinkStoppedError) as exc:
            LOGGER.error("SIGHUP: the links are as before, all of them: %s", exc)
        except Exception:
            LOGGER.exception("SIGHUP: unhandled exception: the links are as before, all of them")
        else:
            await self._change(new)
        finally:
            self._less_busy()

    # ---- inside --------------------------------------------------------------------------------------------------------

    def _take(self, links: Iterable[LinkSettings]) -> dict[str, LinkPlace]:
        places: dict[str, LinkPlace] = {}
        try:
            for each in links:
                places[each.name] = LinkPlace.take(self._state_dir, each.name)
        except BaseException:
            for place in places.values():
                place.release()
            raise
        return places

    async def _change(self, new: ForwardSettings) -> None:
        old, wanted = self._settings, {each.name: each for each in new.links}
        anew = [name for name in wanted if name in self._links and self._changes(name, wanted[name])]
        gone = [name for name in self._links if name not in wanted]
        LOGGER.info(
            "SIGHUP: settings are read again: %d links begin, %d end", len(anew) + len(self._places), len(anew) + len(gone)
        )
        for key in PROCESS_KEYS:
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

    def _changes(self, name: str, wanted: LinkSettings) -> bool:
        link = self._links[name].link
        keys = [key for key in LINK_KEYS if getattr(link.settings, key) != getattr(wanted, key)]
        if keys:
            LOGGER.info("SIGHUP: link %s begins anew: %s", name, ", ".join(keys))
        return bool(keys) or link.progress.state.is_final

    async def _begin_all(self) -> None:
        """Those that have a place."""
        assert self._nursery is not None
        for settings in self._settings.links:
            place = self._places.pop(settings.name, None)
            if place is None:
                continue
            wishes = Wishes(paused=place.is_paused, drain_and_end=self._drain)
            ids = TopicIds(place.topics)
            link = Link(settings, self._settings.node, self._open_source, wishes, self._claims, topic_ids=ids)
            running = self._links[settings.name] = _Running(link, place)
            self._busy += 1
            await self._nursery.start(self._serve, running)
            self._nursery.start_soon(self._run, running)

    async def _end(self, name: str) -> None:
        running = self._links[name]
        running.link.wishes.stop()
        await running.ended.wait()
        running.asked.cancel()
        await running.unasked.wait()
        self._claims.release(name)

    async def _serve(self, running: _Running, *, task_status: trio.TaskStatus[None]) -> None:
        with running.asked:
            await serve_control(running.link, running.place, task_status=task_status)
        running.unasked.set()

    async def _run(self, running: _Running) -> None:
        await trio.to_thread.run_sync(partial(self._run_link, running.link), limiter=trio.CapacityLimiter(1))
        running.ended.set()
        self._less_busy()

    def _run_link(self, link: Link) -> None:
        try:
            link.run()
        except BaseException:  # the process is to end: the threads of the others are waited for
            LOGGER.exception("link %s has ended the process", link.settings.name)
            self.stop()
            raise

    def _less_busy(self) -> None:
        self._busy -= 1
        if not self._busy:
            self.over.set()
