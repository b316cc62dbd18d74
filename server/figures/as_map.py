"""The figures of a server as the map that the native call `statistics` returns; docs/native-protocol.md lists it."""

from __future__ import annotations

import heapq
import operator
from collections.abc import Iterable
from typing import Any, Final

import attrs

from ...protocol.errors import error_name
from ..broker import DURATION_BOUNDS_S, BrokerStatistics, DirectoryWear, Durations, WearStatistics
from ..listeners.connections.counters import ProtocolCounters

MAX_LAGS: Final = 200
"""Of an answer, the largest, and as many groups that have skipped gaps; metrics have more."""


def statistics_map(told: BrokerStatistics, now_ms: int, protocols: Iterable[ProtocolCounters]) -> dict[str, Any]:
    """Return everything as maps, lists, text and numbers."""
    passes = heapq.nlargest(MAX_LAGS, told.group_gap_passes.items(), key=operator.itemgetter(1))
    lags = [
        {"group": each.group, **each.topic_partition._asdict(), **_some(each, "offset lag")} for each in told.lags[:MAX_LAGS]
    ]
    return {
        "time_ms": now_ms,
        "duration_bounds_s": list(DURATION_BOUNDS_S),
        "protocols": {each.protocol: _protocol(each) for each in protocols},
        "total": {name: value for name, value in attrs.asdict(told.total).items() if name != "topic"},
        "topics": [attrs.asdict(each) for each in told.topics],
        **_some(told, "topic_count unsynced_records waiting_appends open_transactions"),
        "groups": {
            "count": told.group_count,
            "lag": told.total_lag,
            "lags": lags,
            "gap_passes": [{"group": group, "topic": topic, "ranges": count} for (group, topic), count in passes],
        },
        "disk": {
            **_some(told.disk, "hops writes_at_once cached_reads cold_reads descriptors"),
            "syncs": _durations(told.disk.syncs),
            "failed_syncs": told.disk.failed_syncs,
        },
        "directories": [
            {
                **_some(each.description, "path partitions error is_refusing reserve_bytes given_up_segments given_up_bytes"),
                **_some(each, "free_bytes total_bytes"),
            }
            for each in told.directories
        ],
        "log_bound": attrs.asdict(told.log_bound),
        "dropped": [
            {**_some(each, "topic partition"), **each.dropped._asdict()} for each in told.partitions if each.dropped.records
        ],
        "cleaner": attrs.asdict(told.cleaner),
        "scrub": attrs.asdict(told.scrub),
        "wear": _wear(told.wear),
        "retention": _some(told, "taken_segments doomed_segments"),
    }


def _some(value: object, fields: str) -> dict[str, Any]:
    """Some fields of a value, by their names."""
    return {name: getattr(value, name) for name in fields.split()}


def _wear(told: WearStatistics) -> dict[str, Any]:
    return {
        **_some(told, "longest_unsynced_ms process_written_bytes"),
        "process_bytes_per_second": told.process.written_per_s,
        "process_bytes_per_appended_byte": told.process.written_per_appended,
        "directories": [_directory_wear(each) for each in told.directories],
    }


def _directory_wear(told: DirectoryWear) -> dict[str, Any]:
    return {
        "path": told.path,
        "device": None if told.device is None else told.device.name,
        "disks": [] if told.device is None else list(told.device.disks),
        "disk_written_bytes": told.disk_written_bytes,
        "disk_bytes_per_second": told.recent.written_per_s,
        "disk_bytes_per_appended_byte": told.recent.written_per_appended,
        "lifetime_written_bytes": told.lifetime_written_bytes,
        **_some(told.health, "life_used_percent pre_eol"),
        "days_left": told.days_left,
        "full_in_s": told.recent.full_in_s,
    }


def _protocol(counters: ProtocolCounters) -> dict[str, Any]:
    return {
        **_some(counters, "connections accepted refused bugs received_bytes sent_bytes"),
        "apis": {
            name: {
                **_durations(api.durations),
                "errors": {error_name(code): count for code, count in sorted(api.errors.items())},
            }
            for name, api in sorted(counters.apis.items())
        },
    }


def _durations(durations: Durations) -> dict[str, Any]:
    """`counts` has one class more than `duration_bounds_s`."""
    return {"count": durations.count, "seconds": durations.seconds, "counts": list(durations.counts)}
