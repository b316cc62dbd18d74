"""Every link's progress as metrics of Prometheus: in `/metrics` of a process with links, and of the server that has one as its
child. docs/forward.md and docs/edge.md say what each means.
"""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import trio

from ....protocol.errors import InvalidConfigError
from ....protocol.extras import how_to_install
from ....server.config.broker_config import Address
from ..errors import SettingsError
from ..progress import LinkState, Progress
from ..settings.process_settings import LinkKind, ProcessSettings

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from ....server.listeners.connections.sockets import Listener

NOT_RUNNING: Final = "not running"
"""Of a link that no process answers for."""


def families(kind: LinkKind, told: Sequence[Mapping[str, Any]]) -> Iterator[Metric]:
    """Yield the metrics of a scrape. `told` has a snapshot of each link, or only its name when the link does not respond."""
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

    prefix = f"triolog_{kind.name}_"
    state = GaugeMetricFamily(f"{prefix}state", "1 for the state that a link is in.", labels=["link", "state"])
    for each in told:
        for known in (*(possible.value for possible in LinkState), NOT_RUNNING):
            state.add_metric([each["link"], known], float(each.get("state", NOT_RUNNING) == known))
    yield state
    answered = [each for each in told if "state" in each]
    troubles = GaugeMetricFamily(
        f"{prefix}stopped_topics", "Topics that are stopped, or filters that a broker refuses.", labels=["link"]
    )
    for each in answered:
        troubles.add_metric([each["link"]], len(each["troubles"]))
    yield troubles
    kinds: list[tuple[Mapping[str, str], Any]] = [(kind.gauges, GaugeMetricFamily), (kind.counters, CounterMetricFamily)]
    for names, form in kinds:
        for name, text in names.items():
            family = form(prefix + name, text, labels=["link"])
            for each in answered:
                family.add_metric([each["link"]], each[name])
            yield family


@asynccontextmanager
async def answering_metrics(
    kind: LinkKind, settings: ProcessSettings, links: Callable[[], Sequence[Progress]]
) -> AsyncIterator[None]:
    """Answer `/metrics` for the time of the block, where the settings say so, to those who are answered by a server's. Raises
    SettingsError."""
    if settings.metrics is None:
        yield
        return
    listener, failed = _listener(kind, settings, settings.metrics, links), None
    async with trio.open_nursery() as nursery:
        try:
            await nursery.start(listener.run)
        except OSError as exc:
            failed = SettingsError(f"cannot serve metrics at {settings.metrics}: {exc.strerror or exc}")
        else:
            yield
            nursery.cancel_scope.cancel()
    if failed is not None:
        raise failed


def _listener(kind: LinkKind, settings: ProcessSettings, address: Address, links: Callable[[], Sequence[Progress]]) -> Listener:
    if any(importlib.util.find_spec(name) is None for name in ("prometheus_client", "h11")):
        raise SettingsError(f"metrics need prometheus_client and h11: {how_to_install('metrics')}")
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
    from prometheus_client.exposition import CONTENT_TYPE_LATEST
    from prometheus_client.registry import Collector

    from ....server.listeners.http.access import READING, HttpAccess, HttpAnswer, HttpRequest, read_token
    from ....server.listeners.http.server import http_listener

    class Links(Collector):
        def collect(self) -> Iterator[Metric]:
            return families(kind, [link.snapshot() for link in links()])

    try:
        token = None if settings.metrics_token_file is None else read_token(settings.metrics_token_file)
    except InvalidConfigError as exc:
        raise SettingsError(exc.message) from exc
    access, registry = HttpAccess.of(address, token), CollectorRegistry()
    registry.register(Links())
    ProcessCollector(registry=registry)

    async def answer(request: HttpRequest) -> HttpAnswer:
        if request.path != "/metrics":
            return HttpAnswer.text(404, "use /metrics")
        if request.method not in READING:
            refusal = HttpAnswer.text(405, "/metrics is read with GET")
            return refusal._replace(headers=(("allow", ", ".join(READING)),))
        if (refused := access.refusal(request)) is not None:
            return refused
        return HttpAnswer(200, await trio.to_thread.run_sync(generate_latest, registry), CONTENT_TYPE_LATEST)

    return http_listener(address, answer, changes_nothing=True)
