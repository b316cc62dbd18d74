"""`/metrics`: the figures of a server as the text format of Prometheus (extra `metrics`).

Figures are collected in the trio thread, which takes turns with everything else; the text is written in a worker thread.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Final

import attrs
import trio
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from ..broker import DURATION_BOUNDS_S, Broker, Durations
from ..listeners.connections.counters import ApiCounters, ProtocolCounters
from .table import FIGURES, Figures

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
MAX_CLIENT_SERIES: Final = 10_000
"""Of all clients that send metrics together."""
MAX_FAULTS: Final = 100
"""Fault rules with a row, the last ones."""
FAMILIES: Final = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}

Fired = Callable[[], Iterable[tuple[str, int]]]
"""(fault rule, how often it fired)."""
More = Callable[[], Awaitable[Iterable[Metric]]]
"""Metrics that are counted outside of the server."""


def no_faults() -> Iterable[tuple[str, int]]:
    """A broker without fault rules."""
    return ()


async def scrape(
    broker: Broker, protocols: Mapping[str, ProtocolCounters], fired: Fired = no_faults, more: More | None = None
) -> bytes:
    """Return the text of one scrape."""
    figures = await collected(broker, protocols, fired)
    others = () if more is None else await more()
    return await trio.to_thread.run_sync(_text, figures, others)


async def collected(broker: Broker, protocols: Mapping[str, ProtocolCounters], fired: Fired = no_faults) -> Figures:
    """Return the figures as they are now. What others continue to change is copied."""
    statistics, shares = await broker.statistics(), await broker.shares.statistics()
    security, telemetry, audit = broker.security, broker.telemetry, broker.security.audit
    series = list(telemetry.collected.series(round(trio.current_time() * 1000)))
    return Figures(
        broker=statistics,
        protocols=tuple(map(_copied, protocols.values())),
        security={**attrs.asdict(security.statistics), "audit_lost": 0 if audit is None else audit.lost},
        exposed=security.exposed,
        quotas=copy.deepcopy(security.quotas.statistics),
        memory=[(each.name, each.used_bytes, each.refused) for each in broker.client_memory.accounts.values()],
        shares=shares,
        series=series[:MAX_CLIENT_SERIES],
        series_left_out=telemetry.collected.left_out + len(series[MAX_CLIENT_SERIES:]),
        telemetry_clients=len(telemetry.instances),
        pushes=dict(telemetry.pushes),
        fired=list(fired())[-MAX_FAULTS:],
        tasks=trio.lowlevel.current_statistics().tasks_living,
    )


def _copied(counters: ProtocolCounters) -> ProtocolCounters:
    apis = {name: ApiCounters(api.durations.copy(), dict(api.errors)) for name, api in counters.apis.items()}
    return attrs.evolve(counters, apis=apis, ended=dict(counters.ended))


def families(figures: Figures) -> Iterator[Metric]:
    """Yield the metric of every figure, which may have no samples."""
    for figure in FIGURES:
        family = FAMILIES[figure.kind](f"triolog_{figure.name}", figure.help, labels=figure.labels)
        for labels, value in figure.samples(figures):
            if isinstance(value, Durations):
                family.add_metric(labels, _buckets(value), value.seconds)
            else:
                family.add_metric(labels, value)
        yield family


def _buckets(durations: Durations) -> list[tuple[str, float]]:
    """Prometheus counts how many took at most so long, not how many fall into a class."""
    buckets, below = [], 0
    for bound, count in zip((*map(str, DURATION_BOUNDS_S), "+Inf"), durations.counts, strict=True):
        below += count
        buckets.append((bound, float(below)))
    return buckets


@attrs.frozen(eq=False, repr=False)
class _Collector(Collector):
    figures: Figures
    others: Iterable[Metric]

    def collect(self) -> Iterator[Metric]:
        yield from families(self.figures)
        yield from self.others


def _text(figures: Figures, others: Iterable[Metric]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(figures, others))
    ProcessCollector(registry=registry)
    return generate_latest(registry)
