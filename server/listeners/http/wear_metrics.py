"""What logs cost the flash below them, as metrics: only what the system tells; what it does not has no sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from ...broker import DirectoryWear, WearStatistics

GAUGES: Final[tuple[tuple[str, str, Callable[[DirectoryWear], float | None]], ...]] = (
    (
        "disk_bytes_per_appended_byte",
        "Bytes to a directory's disk, whoever wrote them, for each byte appended, in the last ten minutes.",
        lambda each: each.recent.written_per_appended,
    ),
    (
        "disk_life_used_ratio",
        "How much of its life a disk says is behind it, at most.",
        lambda each: None if each.health.life_used_percent is None else each.health.life_used_percent / 100,
    ),
    (
        "disk_seconds_left",
        "Until a disk has had disk_endurance_bytes, at the rate of the last day.",
        lambda each: None if each.days_left is None else each.days_left * 86_400,
    ),
    (
        "directory_full_in_seconds",
        "Until appends are refused for want of space, at the rate of the last ten minutes.",
        lambda each: each.recent.full_in_s,
    ),
)


def wear_metrics(told: WearStatistics) -> Iterator[Metric]:
    """All of them."""
    process = CounterMetricFamily("triolog_process_written_bytes", "Bytes that the process has written to disks.")
    if told.process_written_bytes is not None:
        process.add_metric((), told.process_written_bytes)
    yield process
    ratio = GaugeMetricFamily(
        "triolog_process_bytes_per_appended_byte",
        "Bytes that the process wrote to disks for each byte appended, in the last ten minutes.",
    )
    if told.process.written_per_appended is not None:
        ratio.add_metric((), told.process.written_per_appended)
    yield ratio
    written = CounterMetricFamily(
        "triolog_disk_written_bytes", "Bytes to a directory's disk since it is there.", labels=["directory", "disk"]
    )
    for each in told.directories:
        if each.device is not None and each.disk_written_bytes is not None:
            written.add_metric((each.path, ",".join(each.device.disks)), each.disk_written_bytes)
    yield written
    for name, doc, value_of in GAUGES:
        family = GaugeMetricFamily(f"triolog_{name}", doc, labels=["directory"])
        for each in told.directories:
            value = value_of(each)
            if value is not None:
                family.add_metric((each.path,), value)
        yield family
    reserve = GaugeMetricFamily(
        "triolog_disk_pre_eol",
        "1 for how a disk says that its blocks in reserve stand: normal, warning, urgent.",
        labels=["directory", "state"],
    )
    for each in told.directories:
        if each.health.pre_eol is not None:
            reserve.add_metric((each.path, each.health.pre_eol), 1)
    yield reserve
