"""Runs the links of a server's file inside the server, with a control socket and metrics for each.

| request | answer |
|---|---|
| `{"command": "status"}` | what `MirrorLink.snapshot` has |
| `{"command": "promote", "incomplete": false}` | the same, afterwards, with `promoted`: topics, partitions, `has_cut` |

An error is `{"error": "..."}`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from ...protocol.errors import RequestError
from ...server.broker import Broker
from ...server.service.service import Change, Service
from ...server.storage.errors import StorageError
from ..forward.process.control import serve_requests
from ..forward.process.place import LinkPlace, default_state_dir
from .link import MirrorLink, MirrorState
from .settings import TABLE, MirrorSettings, read_links

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

GAUGES: Final = {
    "lag_records": "Offsets at the source that the mirror does not have.",
    "lag_bytes": "The same in bytes, estimated from the average size of copied records.",
    "lag_ms": "Age of the source's state that is completely copied. -1: none was yet.",
    "partitions": "Partitions that the link copies.",
}
COUNTERS: Final = {"copied_bytes": "Bytes of record batches that were copied since the start."}


def state_folder() -> Path:
    """Return the directory in which the links can be reached."""
    return default_state_dir(os.environ, TABLE)


@attrs.define(eq=False, repr=False)
class Mirrors:
    """The links of one server. Owner: the process that serves."""

    _config_file: str
    _settings: tuple[MirrorSettings, ...]
    _others: Callable[[], Awaitable[Iterable[Any]]] | None
    """Metrics of others."""
    _links: list[MirrorLink] = attrs.field(factory=list)
    _places: list[LinkPlace] = attrs.field(factory=list)

    def opened(self, broker: Broker) -> Callable[[], Awaitable[None]]:
        """Make the links before clients come, and return the function that runs them until cancelled. Raises SettingsError,
        LinkStoppedError: another process on this machine has a link of that name."""
        self._links = [MirrorLink(each, broker) for each in self._settings]
        try:
            for link in self._links:
                chosen = link.settings.state_dir
                self._places.append(LinkPlace.take(Path(chosen) if chosen else state_folder(), link.settings.name))
                link.reserve()
        except BaseException:
            self._release()
            raise
        return self._run

    async def _run(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                for link, place in zip(self._links, self._places, strict=True):
                    nursery.start_soon(link.run)
                    nursery.start_soon(serve_requests, place, partial(_answer, link))
        finally:
            self._release()

    def _release(self) -> None:
        for place in self._places:
            place.release()
        self._places.clear()

    async def part(self, config: Any) -> Change:
        """SIGHUP: changed tables need a restart. Raises SettingsError."""
        found = await trio.to_thread.run_sync(read_links, self._config_file)
        changed = () if found == self._settings else ("[[mirror]] has changed and needs a restart",)
        return Change(changed)

    async def metrics(self) -> list[Any]:
        """Return the links' progress as Prometheus metrics."""
        others = [] if self._others is None else await self._others()
        return [*others, *_families([each.snapshot() for each in self._links])]


def mirror_beside(config_file: str, settings: tuple[MirrorSettings, ...], service: Service) -> None:
    """Let a server run these links while it serves."""
    mirrors = Mirrors(config_file, settings, service.scraped)
    service.parts.append(mirrors.part)
    service.beside.append(mirrors.opened)
    service.scraped = mirrors.metrics


async def _answer(link: MirrorLink, line: bytes) -> dict[str, Any]:
    try:
        request = json.loads(line)
        command = request["command"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {"error": "not a request"}
    if command == "status":
        return link.snapshot()
    if command != "promote":
        return {"error": f"there is no command {command!r}"}
    try:
        promotion = await link.promote(accept_incomplete=bool(request.get("incomplete")))
    except (RequestError, OSError, StorageError) as exc:
        return {"error": str(getattr(exc, "message", exc))}
    promoted = {"topics": list(promotion.topics), "partitions": promotion.partitions, "has_cut": promotion.has_cut}
    return {**link.snapshot(), "promoted": promoted}


def _families(told: Sequence[dict[str, Any]]) -> Iterator[Metric]:
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

    state = GaugeMetricFamily("triolog_mirror_state", "1 for the state that a link is in.", labels=["link", "state"])
    troubles = GaugeMetricFamily(
        "triolog_mirror_troubles", "Topics, partitions and groups that are not copied.", labels=["link"]
    )
    for each in told:
        for known in MirrorState:
            state.add_metric([each["link"], known.value], float(each["state"] == known.value))
        troubles.add_metric([each["link"]], len(each["troubles"]))
    yield state
    yield troubles
    for names, form in ((GAUGES, GaugeMetricFamily), (COUNTERS, CounterMetricFamily)):
        for name, text in names.items():
            family = form(f"triolog_mirror_{name}", text, labels=["link"])
            for each in told:
                family.add_metric([each["link"]], each[name])
            yield family
