"""The call `statistics`: what a broker and its connections have counted, as the map that docs/native-protocol.md lists."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Any, Final

import attrs

from ....protocol.errors import ErrorCode
from ....protocol.native import messages
from ...broker import DURATION_BOUNDS_S, Broker, BrokerStatistics, DirectoryWear, Durations, TopicFigures, WearStatistics
from ..connections.counters import ProtocolCounters

MAX_LAGS: Final = 200
"""Of an answer, the largest, and as many groups that have passed over gaps; metrics have more."""


def error_name(code: int) -> str:
    """Kafka's name of an error code; of one that has none, its number."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


async def statistics(broker: Broker, protocols: Iterable[ProtocolCounters]) -> messages.StatisticsResponse:
    """Answers the call."""
    told = statistics_body(await broker.statistics(), broker.now_ms(), protocols)
    return messages.StatisticsResponse({**told, "insecure": list(broker.security.exposed)})


def statistics_body(told: BrokerStatistics, now_ms: int, protocols: Iterable[ProtocolCounters]) -> dict[str, Any]:
    """Everything as maps, lists, text and numbers."""
    return {
        "time_ms": now_ms,
        "duration_bounds_s": list(DURATION_BOUNDS_S),
        "protocols": {each.protocol: _protocol(each) for each in protocols},
        "total": _topic(told.total),
        "topics": [{"topic": each.topic, **_topic(each)} for each in told.topics],
        "topic_count": told.topic_count,
        "unsynced_records": told.unsynced_records,
        "waiting_appends": told.waiting_appends,
        "open_transactions": told.open_transactions,
        "groups": {
            "count": told.group_count,
            "lag": told.total_lag,
            "lags": [
                {
                    "group": each.group,
                    "topic": each.topic_partition.topic,
                    "partition": each.topic_partition.partition,
                    "offset": each.offset,
                    "lag": each.lag,
                }
                for each in told.lags[:MAX_LAGS]
            ],
            "gap_passes": [
                {"group": group, "topic": topic, "ranges": count}
                for (group, topic), count in heapq.nlargest(MAX_LAGS, told.group_gap_passes.items(), key=lambda each: each[1])
            ],
        },
        **_below(told),
    }


def _below(told: BrokerStatistics) -> dict[str, Any]:
    """The device, and the tasks in the background."""
    disk, cleaner = told.disk, told.cleaner
    return {
        "disk": {
            "hops": disk.hops,
            "writes_at_once": disk.writes_at_once,
            "cached_reads": disk.cached_reads,
            "cold_reads": disk.cold_reads,
            "descriptors": disk.descriptors,
            "syncs": _durations(disk.syncs),
            "failed_syncs": disk.failed_syncs,
        },
        "directories": [
            {
                "path": each.description.path,
                "partitions": each.description.partitions,
                "error": each.description.error,
                "is_refusing": each.description.is_refusing,
                "reserve_bytes": each.description.reserve_bytes,
                "given_up_segments": each.description.given_up_segments,
                "given_up_bytes": each.description.given_up_bytes,
                "free_bytes": each.free_bytes,
                "total_bytes": each.total_bytes,
            }
            for each in told.directories
        ],
        "log_bound": attrs.asdict(told.log_bound),
        "dropped": [
            {"topic": each.topic, "partition": each.partition, **each.dropped._asdict()}
            for each in told.partitions
            if each.dropped.records
        ],
        "cleaner": attrs.asdict(cleaner),
        "scrub": attrs.asdict(told.scrub),
        "wear": _wear(told.wear),
        "retention": {"taken_segments": told.taken_segments, "doomed_segments": told.doomed_segments},
    }


def _wear(told: WearStatistics) -> dict[str, Any]:
    return {
        "longest_unsynced_ms": told.longest_unsynced_ms,
        "process_written_bytes": told.process_written_bytes,
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
        "life_used_percent": told.health.life_used_percent,
        "pre_eol": told.health.pre_eol,
        "days_left": told.days_left,
        "full_in_s": told.recent.full_in_s,
    }


def _topic(figures: TopicFigures) -> dict[str, Any]:
    body = attrs.asdict(figures)
    del body["topic"]
    return body


def _protocol(counters: ProtocolCounters) -> dict[str, Any]:
    return {
        "connections": counters.connections,
        "accepted": counters.accepted,
        "refused": counters.refused,
        "bugs": counters.bugs,
        "received_bytes": counters.received_bytes,
        "sent_bytes": counters.sent_bytes,
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
