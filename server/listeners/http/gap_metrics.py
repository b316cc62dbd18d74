"""What damage took out of logs, who has passed over it and who stands before it, as metrics; `logs/gap_passes` counts."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from ...broker import BrokerStatistics

MAX_GROUPS: Final = 500
"""Pairs of a group and a topic that are told, those that have passed over most."""
GAUGES: Final = (
    ("gaps", "Ranges of offsets that damage took out of a topic's logs.", "gaps"),
    ("gap_records", "Offsets in the ranges that damage took out of a topic's logs.", "gap_records"),
    ("gaps_not_accepted", "Those of the ranges that nobody has accepted.", "open_gaps"),
)
COUNTERS: Final = (
    ("gap_passes", "Such ranges that clients have passed over, each once a client.", "gap_passes"),
    ("gap_refusals", "Such ranges that clients were refused to pass over, each once a client.", "gap_refusals"),
)


def gap_metrics(told: BrokerStatistics) -> Iterator[Metric]:
    """All of them. A topic without damage has no sample."""
    damaged = [each for each in told.topics if each.gaps or each.gap_passes or each.gap_refusals]
    for name, doc, field in GAUGES:
        gauge = GaugeMetricFamily(f"triolog_{name}", doc, labels=["topic"])
        for topic in damaged:
            gauge.add_metric((topic.topic,), getattr(topic, field))
        yield gauge
    for name, doc, field in COUNTERS:
        counter = CounterMetricFamily(f"triolog_{name}", doc, labels=["topic"])
        for topic in damaged:
            counter.add_metric((topic.topic,), getattr(topic, field))
        yield counter
    doc = "Such ranges that a group has passed over, by what it commits or, of a share group, was given."
    groups = CounterMetricFamily("triolog_group_gap_passes", doc, labels=["group", "topic"])
    for labels, count in heapq.nlargest(MAX_GROUPS, told.group_gap_passes.items(), key=lambda each: each[1]):
        groups.add_metric(labels, count)
    yield groups
