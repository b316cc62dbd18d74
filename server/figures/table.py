"""The figures of a server, one a line: kind, name, how it is read, explanation. `/metrics` renders this table.

Nothing is counted here. Where clients choose the labels, the number of rows is limited; `left_out` says how many rows are missing,
and totals count everything. docs/operations/monitoring.md explains more than the table.
"""

from __future__ import annotations

import heapq
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from ...protocol.errors import error_name
from ..broker import BrokerStatistics, QuotaStatistics, Series, ShareStatistics
from ..listeners.connections.counters import ProtocolCounters

MAX_SHARE_GROUPS: Final = 500
"""Share groups with a row: those whose members have most."""
MAX_GAP_GROUPS: Final = 500
"""Pairs of a group and a topic with a row: those that have skipped most."""


@attrs.frozen(kw_only=True)
class Figures:
    """Everything at one moment, or nearly. Nothing in it changes any more."""

    broker: BrokerStatistics
    protocols: Sequence[ProtocolCounters]
    security: Mapping[str, int]
    exposed: Sequence[str]
    """Listeners that other machines reach and that do not ask clients to log in."""
    quotas: QuotaStatistics
    memory: Sequence[tuple[str, int, int]]
    """(account, bytes, refused requests) of the memory that the server keeps for clients."""
    shares: ShareStatistics
    series: Sequence[Series]
    """Metrics that clients have sent (KIP-714)."""
    series_left_out: int
    telemetry_clients: int
    pushes: Mapping[str, int]
    fired: Sequence[tuple[str, int]] = ()
    """(fault rule, how often it fired)."""
    tasks: int = 0


Rows = Iterable[tuple[Sequence[str], Any]]
"""(values of the labels, object that figures are read from)."""
Read = Callable[[Any], Any]


@attrs.frozen
class Figure:
    """A line of the table. `name` is without `triolog_`, and of a counter without `_total`."""

    kind: str
    name: str
    read: Read
    """From a row; None: the value is not known."""
    help: str
    labels: tuple[str, ...] = ()
    rows: Callable[[Figures], Rows] = lambda told: [((), told)]

    def samples(self, told: Figures) -> list[tuple[Sequence[str], Any]]:
        """(values of the labels, value) of the rows whose value is known."""
        return [(labels, value) for labels, row in self.rows(told) if (value := self.read(row)) is not None]


def _kind(kind: str) -> Callable[[str, str | Read, str], Figure]:
    """`read`: a path of attributes, or a function; without it the row is the value."""

    def figure(name: str, read: str | Read, help: str) -> Figure:  # noqa: A002 - Prometheus calls it so
        return Figure(kind, name, read if callable(read) else operator.attrgetter(read) if read else lambda row: row, help)

    return figure


def _of(labels: str, rows: Callable[[Figures], Rows], *figures: Figure) -> list[Figure]:
    """Figures with these labels, read from these rows."""
    return [attrs.evolve(figure, labels=tuple(labels.split()), rows=rows) for figure in figures]


def _items(counts: Mapping[str, Any]) -> Rows:
    return (((name,), count) for name, count in counts.items())


def _largest(limit: int, counts: Mapping[Any, int]) -> list[tuple[Any, int]]:
    return heapq.nlargest(limit, counts.items(), key=operator.itemgetter(1))


def _apis(told: Figures) -> list[tuple[tuple[str, str], Any]]:
    return [((each.protocol, name), api) for each in told.protocols for name, api in sorted(each.apis.items())]


def _partitions(told: Figures) -> list[tuple[tuple[str, str], Any]]:
    return [((each.topic, str(each.partition)), each) for each in told.broker.partitions if each.error is None]


def _sent(told: Figures) -> Rows:
    parts = ("client_id", "client_instance_id")
    return [
        ((*(each.client.get(part, "") for part in parts), each.metric, each.attributes), each.value) for each in told.series
    ]


def _left_out(told: BrokerStatistics) -> dict[str, int]:
    partitions = told.total.partitions - len(told.partitions)
    return {"topics": told.topic_count - len(told.topics), "partitions": partitions, "lags": told.offset_count - len(told.lags)}


_OUTCOMES: Final = {"done": "rounds", "given_up": "given_up", "failed": "failed"}
_counter, _gauge, _histogram = map(_kind, ("counter", "gauge", "histogram"))

# fmt: off
FIGURES: Final[tuple[Figure, ...]] = (
    # ---- requests and connections
    *_of("protocol api", _apis,
        _histogram("request_seconds", "durations", "From receiving a request until its response is ready, including the wait of a long poll."),
    ),
    *_of("protocol api error", lambda told: [((*api, error_name(code)), n) for api, each in _apis(told) for code, n in sorted(each.errors.items())],
        _counter("request_errors", "", "Responses with this error in them."),
    ),
    *_of("protocol", lambda told: [((each.protocol,), each) for each in told.protocols],
        _gauge("connections", "connections", "Connections that are open."),
        _counter("connections_accepted", "accepted", "Connections that were accepted."),
        _counter("connections_refused", "refused", "Connections ended because of their peer's bytes."),
        _counter("bugs", "bugs", "Requests and connections ended by an unexpected error."),
        _counter("received_bytes", "received_bytes", "Bytes from clients."),
        _counter("sent_bytes", "sent_bytes", "Bytes to clients."),
    ),
    *_of("protocol reason", lambda told: [((each.protocol, why), n) for each in told.protocols for why, n in sorted(each.ended.items())],
        _counter("connections_ended", "", "Connections ended to protect others."),
    ),
    *_of("event", lambda told: _items(told.security), _counter("security_events", "", "Logins, and refusals.")),
    *_of("listener", lambda told: [((name,), 1) for name in told.exposed],
        _gauge("insecure_listener", "", "Listeners that other machines can reach and that require no login."),
    ),
    *_of("quota", lambda told: [((name,), (n, told.quotas.throttled_s.get(name))) for name, n in sorted(told.quotas.throttled.items())],
        _counter("quota_throttled", operator.itemgetter(0), "Requests and connections above a client's quota."),
        _counter("quota_throttle_seconds", operator.itemgetter(1), "Time that clients were throttled for it."),
    ),
    *_of("account", lambda told: [((each[0],), each) for each in told.memory],
        _gauge("client_memory_bytes", operator.itemgetter(1), "Memory that the server keeps on behalf of clients."),
        _counter("client_memory_refused", operator.itemgetter(2), "Requests refused because it would be too much."),
    ),
    # ---- logs
    _gauge("topics", "broker.topic_count", "Topics."),
    _gauge("partitions", "broker.total.partitions", "Partitions."),
    _gauge("partitions_offline", "broker.total.offline", "Partitions that cannot be served."),
    _gauge("partitions_waiting", "broker.total.waiting", "Partitions that are read only until there is space."),
    _gauge("log_bytes", "broker.total.size_bytes", "Bytes of all logs."),
    _counter("appended_bytes", "broker.total.appended_bytes", "Bytes appended, of all topics."),
    _counter("fetched_bytes", "broker.total.fetched_bytes", "Bytes handed to readers, of all topics."),
    _counter("dropped_records", "broker.total.dropped_records", "Records that went though a group held them, of all topics."),
    *_of("topic", lambda told: [((each.topic,), each) for each in told.broker.topics],
        _counter("topic_appended_bytes", "appended_bytes", "Bytes appended."),
        _counter("topic_fetched_bytes", "fetched_bytes", "Bytes handed to readers."),
        _gauge("topic_log_bytes", "size_bytes", "Bytes of a topic's logs."),
        _gauge("topic_records", "records", "Offsets between log start and end."),
        _counter("topic_dropped_records", "dropped_records", "Records that went though a group held them."),
        _counter("topic_dropped_bytes", "dropped_bytes", "Bytes that went though a group held them."),
    ),
    *_of("what", lambda told: _items(_left_out(told.broker)),
        _gauge("left_out", "", "Elements above the limit, which are not listed one by one."),
    ),
    *_of("topic partition", _partitions,
        _gauge("log_start_offset", "log_start_offset", "The first offset of a partition."),
        _gauge("high_watermark", "high_watermark", "One past the last offset that readers may see."),
        _gauge("log_end_offset", "log_end_offset", "One past the last offset of a partition."),
        _gauge("partition_log_bytes", "size_bytes", "Bytes of a partition's log."),
        _gauge("segments", "segments", "Segments of a partition."),
        _gauge("partition_loss_window_seconds", lambda each: each.unsynced_ms / 1000, "Age of the oldest byte of a partition that a power cut could take back."),
    ),
    *_of("topic partition", lambda told: [(labels, each.dropped) for labels, each in _partitions(told) if each.dropped.records],
        _counter("partition_dropped_records", "records", "Records of a partition that went though a group held them."),
        _gauge("dropped_end_offset", "end_offset", "One past the last offset that went though a group held it."),
    ),
    *_of("topic", lambda told: [((each.topic,), each) for each in told.broker.topics if each.gaps or each.gap_passes or each.gap_refusals],
        _gauge("gaps", "gaps", "Gaps: ranges of offsets lost to corruption in a topic's logs."),
        _gauge("gap_records", "gap_records", "Offsets in the gaps of a topic's logs."),
        _gauge("gaps_not_accepted", "open_gaps", "Gaps that are not accepted."),
        _counter("gap_passes", "gap_passes", "Gaps that clients have skipped, each once for a client."),
        _counter("gap_refusals", "gap_refusals", "Gaps at which clients got an error, each once for a client."),
    ),
    *_of("group topic", lambda told: _largest(MAX_GAP_GROUPS, told.broker.group_gap_passes),
        _counter("group_gap_passes", "", "Gaps that a group has skipped, by its commits or, for a share group, its deliveries."),
    ),
    # ---- groups
    _gauge("groups", "broker.group_count", "Groups."),
    _gauge("lag", "broker.total_lag", "Records that groups have not read, of all groups and partitions."),
    *_of("group topic partition", lambda told: [((each.group, *map(str, each.topic_partition)), each) for each in told.broker.lags],
        _gauge("group_lag", "lag", "Records that a group has not read of a partition."),
        _gauge("group_offset", "offset", "The offset that a group has committed for a partition."),
    ),
    _gauge("open_transactions", "broker.open_transactions", "Open transactions: of transactional ids, and hanging ones without an owner."),
    *_of("outcome", lambda told: _items(attrs.asdict(told.shares.counters)),
        _counter("share_records", "", "Records delivered to members of share groups, by their outcome."),
    ),
    _gauge("share_in_flight", lambda told: sum(told.shares.in_flight.values()), "Records that members of share groups have now."),
    *_of("group", lambda told: [((group,), count) for group, count in _largest(MAX_SHARE_GROUPS, told.shares.in_flight)],
        _gauge("share_group_in_flight", "", "Records that members of a share group have now."),
    ),
    # ---- metrics of clients
    *_of("error", lambda told: _items(dict(sorted(told.pushes.items()))),
        _counter("telemetry_pushes", "", "Metrics that clients have sent, by the error of the response."),
    ),
    *_of("", lambda told: [((), told)] if told.pushes else [],
        _gauge("telemetry_clients", "telemetry_clients", "Clients that send metrics, or have requested a subscription."),
        _counter("telemetry_left_out", "series_left_out", "Numbers of clients without space."),
    ),
    *_of("client_id client_instance_id metric attributes", _sent,
        _gauge("client_metric", "", "Last value that a client has sent. For a counter the sum since it began."),
    ),
    # ---- what a power cut could take, and the device
    _gauge("loss_window_seconds", lambda told: told.broker.total.unsynced_ms / 1000, "Age of the oldest byte that a power cut could lose. 0: none."),
    _gauge("loss_window_longest_seconds", lambda told: told.broker.wear.longest_unsynced_ms / 1000, "The largest that the age of such a byte has been in any log since the start."),
    _gauge("loss_window_records", "broker.unsynced_records", "Records that a power cut could take back."),
    _gauge("waiting_appends", "broker.waiting_appends", "Appends that wait for their partition's turn."),
    _histogram("sync_seconds", "broker.disk.syncs", "Forcing a log or an index to the device."),
    _counter("sync_failures", "broker.disk.failed_syncs", "Syncs that failed: their logs are offline."),
    _counter("disk_hops", "broker.disk.hops", "Operations handed to threads."),
    _counter("disk_writes_at_once", "broker.disk.writes_at_once", "Groups of small writes that needed no thread."),
    *_of("from", lambda told: _items({"cached": told.broker.disk.cached_reads, "device": told.broker.disk.cold_reads}),
        _counter("reads", "", "Reads of log files, from the page cache or the device."),
    ),
    _gauge("open_files", "broker.disk.descriptors", "Descriptors and maps of log files."),
    *_of("directory", lambda told: [((each.description.path,), each) for each in told.broker.directories],
        _gauge("directory_in_service", lambda each: each.description.error is None, "1: a log directory serves. 0: it is out of service."),
        _gauge("directory_refusing", "description.is_refusing", "1: appends are refused below disk_reserve_bytes."),
        _gauge("directory_free_bytes", "free_bytes", "Free space of a directory's device."),
        _gauge("directory_reserve_bytes", "description.reserve_bytes", "Free space below which appends are refused."),
        _gauge("directory_size_bytes", "total_bytes", "Size of a directory's device."),
        _counter("directory_given_up_segments", "description.given_up_segments", "Segments deleted to keep the reserve."),
        _counter("directory_given_up_bytes", "description.given_up_bytes", "Bytes deleted to keep the reserve."),
    ),
    _gauge("log_max_bytes", "broker.log_bound.max_bytes", "Bound of all logs together. 0: none."),
    _gauge("log_max_refusing", "broker.log_bound.is_refusing", "1: appends are refused at log_max_bytes."),
    _counter("log_max_given_up_segments", "broker.log_bound.given_up_segments", "Segments deleted to keep log_max_bytes."),
    _counter("log_max_given_up_bytes", "broker.log_bound.given_up_bytes", "Bytes deleted to keep log_max_bytes."),
    _gauge("clock_plausible", "broker.clock.is_plausible", "1: the wall clock can be right. 0: it is too early, too late, or was set back. Append times then continue from the last trusted time."),
    _gauge("clock_trusted", "broker.clock.is_trusted", "1: records and states expire by time. 0: expiry is suspended."),
    _counter("clock_jumps", "broker.clock.jumps", "Jumps of the wall clock by more than ten minutes."),
    # ---- wear; a figure that the system does not report has no sample
    _counter("process_written_bytes", "broker.wear.process_written_bytes", "Bytes that the process has written to disks."),
    _gauge("process_bytes_per_appended_byte", "broker.wear.process.written_per_appended", "Bytes that the process wrote to disks for each byte appended, in the last ten minutes."),
    *_of("directory disk", lambda told: [((each.path, ",".join(each.device.disks)), each) for each in told.broker.wear.directories if each.device is not None],
        _counter("disk_written_bytes", "disk_written_bytes", "Bytes to a directory's disk since it exists."),
    ),
    *_of("directory", lambda told: [((each.path,), each) for each in told.broker.wear.directories],
        _gauge("disk_bytes_per_appended_byte", "recent.written_per_appended", "Bytes to a directory's disk, by any process, for each byte appended, in the last ten minutes."),
        _gauge("disk_life_used_ratio", lambda each: None if (used := each.health.life_used_percent) is None else used / 100, "Share of its life that a disk reports as used, at most."),
        _gauge("disk_seconds_left", lambda each: None if each.days_left is None else each.days_left * 86_400, "Until a disk has had disk_endurance_bytes, at the rate of the last day."),
        _gauge("directory_full_in_seconds", "recent.full_in_s", "Until appends are refused for want of space, at the rate of the last ten minutes."),
    ),
    *_of("directory state", lambda told: [((each.path, state), 1) for each in told.broker.wear.directories if (state := each.health.pre_eol) is not None],
        _gauge("disk_pre_eol", "", "1 for the state that a disk reports of its reserve blocks: normal, warning, urgent."),
    ),
    # ---- tasks
    *_of("task", lambda told: _items(dict(sorted(told.broker.task_errors.items()))),
        _counter("background_errors", "", "Unhandled exceptions of background tasks."),
    ),
    *_of("outcome", lambda told: [((outcome,), getattr(told.broker.cleaner, field)) for outcome, field in _OUTCOMES.items()],
        _counter("compactions", "", "Rounds of compaction by their outcome."),
    ),
    _counter("compaction_seconds", "broker.cleaner.seconds", "Time in rounds that ended well."),
    _counter("compaction_freed_bytes", lambda told: max(0, told.broker.cleaner.bytes_before - told.broker.cleaner.bytes_after), "Bytes that logs became smaller by."),
    _gauge("compaction_running", lambda told: told.broker.cleaner.cleaning is not None, "1: a log is compacted now."),
    _gauge("uncleanable_partitions", "broker.cleaner.uncleanable", "Partitions that are not compacted any more, because of damage or a bug."),
    _counter("retention_segments", "broker.taken_segments", "Segments that retention removed."),
    _gauge("doomed_segments", "broker.doomed_segments", "Removed segments whose files are not unlinked yet."),
    _counter("scrub_passes", "broker.scrub.passes", "Completed passes through all closed segments."),
    _counter("scrub_bytes", "broker.scrub.bytes_read", "Bytes that scrubbing has read."),
    _counter("scrub_damages", "broker.scrub.damages", "Damages that scrubbing has found."),
    _gauge("tasks", "tasks", "Tasks of the event loop."),
    *_of("rule", lambda told: [((rule,), n) for rule, n in told.fired], _counter("faults_fired", "", "Effects of a fault rule.")),
)
# fmt: on
