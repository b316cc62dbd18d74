"""`/metrics`: what a broker has counted, as metrics of Prometheus. docs/operations/monitoring.md says what each means.

Nothing is counted here: a scrape takes what `broker.statistics` and the listeners' counters say at that moment, and the text is
made of it in a thread. What has labels that clients choose (topics, partitions, groups) has the limits of `statistics`, and
`triolog_left_out` says how many were more than that; totals count everything.
"""

from __future__ import annotations

import copy
import heapq
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import attrs
import trio
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from ...broker import DURATION_BOUNDS_S, Broker, BrokerStatistics, Durations, QuotaStatistics, Series, ShareStatistics
from ..connections.counters import ApiCounters, ProtocolCounters
from ..native.statistics import error_name
from .gap_metrics import gap_metrics
from .wear_metrics import wear_metrics

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
MAX_SHARE_GROUPS: Final = 500
"""That are told one by one: those whose members have most."""
MAX_CLIENT_SERIES: Final = 10_000
"""Of all clients that send metrics together."""
MAX_FAULTS: Final = 100
"""Fault rules that are told one by one, the last ones."""

Fired = Callable[[], Iterable[tuple[str, int]]]
"""(which fault rule, how often it fired)."""
More = Callable[[], Awaitable[Iterable[Metric]]]
"""What is counted outside of the server."""


def no_faults() -> Iterable[tuple[str, int]]:
    """A broker without fault rules."""
    return ()


@attrs.frozen(kw_only=True)
class Told:
    """What clients have sent."""

    series: Sequence[Series]
    left_out: int
    clients: int
    pushes: Mapping[str, int]


@attrs.frozen(kw_only=True)
class Scraped:
    """Everything of one scrape, which nobody changes any more."""

    broker: BrokerStatistics
    protocols: tuple[ProtocolCounters, ...]
    security: Mapping[str, int]
    exposed: tuple[str, ...]
    """Listeners that everybody may use who reaches the machine."""
    quotas: QuotaStatistics
    memory: Sequence[tuple[str, int, int]]
    """(account, bytes, refused requests) of what is kept for clients."""
    shares: ShareStatistics
    telemetry: Told
    fired: Sequence[tuple[str, int]] = ()
    more: Iterable[Metric] = ()
    tasks: int = 0

    def metrics(self) -> Iterator[Metric]:
        """All metrics."""
        yield from _requests(self.protocols)
        yield from _connections(self.protocols, self.security)
        yield _insecure(self.exposed)
        yield from _quotas(self.quotas)
        yield from _client_memory(self.memory)
        yield from _topics(self.broker)
        yield from _partitions(self.broker)
        yield from gap_metrics(self.broker)
        yield from _groups(self.broker)
        yield from _share_groups(self.shares)
        if self.telemetry.pushes:
            yield from _telemetry(self.telemetry)
        yield from _loss_window(self.broker)
        yield from _device(self.broker)
        yield from wear_metrics(self.broker.wear)
        yield from _background(self.broker)
        yield _gauge("tasks", "Tasks of the event loop.", _NOTHING, _one(self.tasks))
        fired = (([rule], count) for rule, count in self.fired)
        yield _counter("faults_fired", "How often a fault rule was carried out.", ["rule"], fired)
        yield from self.more


async def scrape(
    broker: Broker, protocols: Mapping[str, ProtocolCounters], fired: Fired = no_faults, more: More | None = None
) -> bytes:
    """The text of one scrape. Collecting takes turns with everything else, writing runs in a thread."""
    told, audit = await broker.statistics(), broker.security.audit
    scraped = Scraped(
        broker=told,
        protocols=tuple(map(_copied, protocols.values())),
        security={**attrs.asdict(broker.security.statistics), "audit_lost": 0 if audit is None else audit.lost},
        exposed=broker.security.exposed,
        quotas=copy.deepcopy(broker.security.quotas.statistics),
        memory=[(each.name, each.used_bytes, each.refused) for each in broker.client_memory.accounts.values()],
        shares=await broker.shares.statistics(),
        telemetry=_sent(broker),
        fired=list(fired())[-MAX_FAULTS:],
        more=() if more is None else await more(),
        tasks=trio.lowlevel.current_statistics().tasks_living,
    )
    return await trio.to_thread.run_sync(_text, scraped)


def _sent(broker: Broker) -> Told:
    telemetry = broker.telemetry
    series = list(telemetry.collected.series(round(trio.current_time() * 1000)))
    return Told(
        series=series[:MAX_CLIENT_SERIES],
        left_out=telemetry.collected.left_out + len(series[MAX_CLIENT_SERIES:]),
        clients=len(telemetry.instances),
        pushes=dict(telemetry.pushes),
    )


def _copied(counters: ProtocolCounters) -> ProtocolCounters:
    apis = {name: ApiCounters(api.durations.copy(), dict(api.errors)) for name, api in counters.apis.items()}
    return attrs.evolve(counters, apis=apis, ended=dict(counters.ended))


@attrs.frozen(eq=False, repr=False)
class _Collector(Collector):
    scraped: Scraped

    def collect(self) -> Iterator[Metric]:
        return self.scraped.metrics()


def _text(scraped: Scraped) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(scraped))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


# ---- families ----------------------------------------------------------------------------------------------------------------

Samples = Iterable[tuple[Sequence[str], float]]
"""(values of the labels, value)."""


def _counter(name: str, doc: str, labels: Sequence[str], samples: Samples) -> Metric:
    family = CounterMetricFamily(f"triolog_{name}", doc, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def _gauge(name: str, doc: str, labels: Sequence[str], samples: Samples) -> Metric:
    family = GaugeMetricFamily(f"triolog_{name}", doc, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def _histogram(name: str, doc: str, labels: Sequence[str], samples: Iterable[tuple[Sequence[str], Durations]]) -> Metric:
    family = HistogramMetricFamily(f"triolog_{name}", doc, labels=labels)
    for values, durations in samples:
        family.add_metric(values, _buckets(durations), durations.seconds)
    return family


def _buckets(durations: Durations) -> list[tuple[str, float]]:
    """Prometheus counts how many took at most so long, not how many fall into a class."""
    buckets, below = [], 0
    for bound, count in zip((*map(str, DURATION_BOUNDS_S), "+Inf"), durations.counts, strict=True):
        below += count
        buckets.append((bound, float(below)))
    return buckets


_NOTHING: Final[Sequence[str]] = ()


def _one(value: float) -> Samples:
    return [(_NOTHING, value)]


# ---- requests and connections ------------------------------------------------------------------------------------------------


def _requests(protocols: Sequence[ProtocolCounters]) -> Iterator[Metric]:
    apis = [((each.protocol, name), api) for each in protocols for name, api in sorted(each.apis.items())]
    yield _histogram(
        "request_seconds",
        "From taking a request up until its answer was ready; a long poll's wait is part of it.",
        ["protocol", "api"],
        ((labels, api.durations) for labels, api in apis),
    )
    yield _counter(
        "request_errors",
        "Answers with this error in them.",
        ["protocol", "api", "error"],
        (((*labels, error_name(code)), count) for labels, api in apis for code, count in sorted(api.errors.items())),
    )


def _insecure(exposed: Sequence[str]) -> Metric:
    reached = "Listeners that other machines reach and that ask nobody who he is."
    return _gauge("insecure_listener", reached, ["listener"], (((name,), 1) for name in exposed))


def _connections(protocols: Sequence[ProtocolCounters], security: Mapping[str, int]) -> Iterator[Metric]:
    def of(field: str) -> Samples:
        return [((each.protocol,), getattr(each, field)) for each in protocols]

    yield _gauge("connections", "Connections that are open.", ["protocol"], of("connections"))
    yield _counter("connections_accepted", "Connections that were accepted.", ["protocol"], of("accepted"))
    yield _counter("connections_refused", "Connections ended for what their peer sent.", ["protocol"], of("refused"))
    ended = (((each.protocol, why), count) for each in protocols for why, count in sorted(each.ended.items()))
    yield _counter("connections_ended", "Connections ended for what they cost others.", ["protocol", "reason"], ended)
    yield _counter("bugs", "Requests and connections ended by an error that nobody expected.", ["protocol"], of("bugs"))
    yield _counter("received_bytes", "Bytes from clients.", ["protocol"], of("received_bytes"))
    yield _counter("sent_bytes", "Bytes to clients.", ["protocol"], of("sent_bytes"))
    events = (((name,), count) for name, count in security.items())
    yield _counter("security_events", "Logins, and what was refused.", ["event"], events)


def _quotas(told: QuotaStatistics) -> Iterator[Metric]:
    throttled = (((key,), count) for key, count in sorted(told.throttled.items()))
    yield _counter("quota_throttled", "Requests and connections above a client's quota.", ["quota"], throttled)
    seconds = (((key,), count) for key, count in sorted(told.throttled_s.items()))
    yield _counter("quota_throttle_seconds", "For how long clients had to be quiet for it.", ["quota"], seconds)


def _client_memory(accounts: Sequence[tuple[str, int, int]]) -> Iterator[Metric]:
    used = (((name,), used_bytes) for name, used_bytes, _ in accounts)
    yield _gauge("client_memory_bytes", "Memory that the server keeps on behalf of clients.", ["account"], used)
    refused = (((name,), count) for name, _, count in accounts)
    yield _counter("client_memory_refused", "Requests refused because it would be too much.", ["account"], refused)


# ---- logs --------------------------------------------------------------------------------------------------------------------


def _topics(told: BrokerStatistics) -> Iterator[Metric]:
    def of(field: str) -> Samples:
        return [((each.topic,), getattr(each, field)) for each in told.topics]

    yield _gauge("topics", "Topics.", [], _one(told.topic_count))
    yield _gauge("partitions", "Partitions.", [], _one(told.total.partitions))
    yield _gauge("partitions_offline", "Partitions that cannot be served.", [], _one(told.total.offline))
    yield _gauge("partitions_waiting", "Partitions that are read only until there is space.", [], _one(told.total.waiting))
    yield _gauge("log_bytes", "Bytes of all logs.", [], _one(told.total.size_bytes))
    yield _counter("appended_bytes", "Bytes appended, of all topics.", [], _one(told.total.appended_bytes))
    yield _counter("fetched_bytes", "Bytes handed to readers, of all topics.", [], _one(told.total.fetched_bytes))
    yield _counter("topic_appended_bytes", "Bytes appended.", ["topic"], of("appended_bytes"))
    yield _counter("topic_fetched_bytes", "Bytes handed to readers.", ["topic"], of("fetched_bytes"))
    yield _gauge("topic_log_bytes", "Bytes of a topic's logs.", ["topic"], of("size_bytes"))
    yield _gauge("topic_records", "Offsets between log start and end.", ["topic"], of("records"))
    yield _counter(
        "dropped_records", "Records that went though a group held them, of all topics.", [], _one(told.total.dropped_records)
    )
    yield _counter("topic_dropped_records", "Records that went though a group held them.", ["topic"], of("dropped_records"))
    yield _counter("topic_dropped_bytes", "Bytes that went though a group held them.", ["topic"], of("dropped_bytes"))
    partitions, offsets = len(told.partitions), len(told.lags)
    left_out = {
        "topics": told.topic_count - len(told.topics),
        "partitions": told.total.partitions - partitions,
        "lags": told.offset_count - offsets,
    }
    doc = "How many are not told one by one, because there are more than the limit."
    yield _gauge("left_out", doc, ["what"], (((what,), count) for what, count in left_out.items()))


def _partitions(told: BrokerStatistics) -> Iterator[Metric]:
    served = [((each.topic, str(each.partition)), each) for each in told.partitions if each.error is None]

    def of(name: str, doc: str, field: str) -> Metric:
        return _gauge(name, doc, ["topic", "partition"], ((labels, getattr(each, field)) for labels, each in served))

    yield of("log_start_offset", "The first offset of a partition.", "log_start_offset")
    yield of("high_watermark", "One past the last offset that readers may see.", "high_watermark")
    yield of("log_end_offset", "One past the last offset of a partition.", "log_end_offset")
    yield of("partition_log_bytes", "Bytes of a partition's log.", "size_bytes")
    yield of("segments", "Segments of a partition.", "segments")
    windows = ((labels, each.unsynced_ms / 1000) for labels, each in served)
    doc = "Age of the oldest byte of a partition that a power cut could take back."
    yield _gauge("partition_loss_window_seconds", doc, ["topic", "partition"], windows)
    dropped = [(labels, each.dropped) for labels, each in served if each.dropped.records]
    doc = "Records of a partition that went though a group held them."
    yield _counter(
        "partition_dropped_records", doc, ["topic", "partition"], ((labels, each.records) for labels, each in dropped)
    )
    doc = "One past the last offset that went though a group held it."
    yield _gauge("dropped_end_offset", doc, ["topic", "partition"], ((labels, each.end_offset) for labels, each in dropped))


# ---- groups ------------------------------------------------------------------------------------------------------------------


def _groups(told: BrokerStatistics) -> Iterator[Metric]:
    yield _gauge("groups", "Groups.", [], _one(told.group_count))
    yield _gauge("lag", "Records that groups have not read, of all groups and partitions.", [], _one(told.total_lag))
    labels = ["group", "topic", "partition"]
    rows = [((each.group, *map(str, each.topic_partition)), each) for each in told.lags]
    doc = "Records that a group has not read of a partition."
    yield _gauge("group_lag", doc, labels, ((values, each.lag) for values, each in rows))
    doc = "The offset that a group has committed for a partition."
    yield _gauge("group_offset", doc, labels, ((values, each.offset) for values, each in rows))
    yield _gauge("open_transactions", "Transactional ids with an open transaction.", [], _one(told.open_transactions))


def _share_groups(told: ShareStatistics) -> Iterator[Metric]:
    outcomes = (((name,), count) for name, count in attrs.asdict(told.counters).items())
    yield _counter("share_records", "Records given to members of share groups, and what became of them.", ["outcome"], outcomes)
    in_flight = sum(told.in_flight.values())
    yield _gauge("share_in_flight", "Records that members of share groups have now.", [], _one(in_flight))
    largest = heapq.nlargest(MAX_SHARE_GROUPS, told.in_flight.items(), key=lambda each: each[1])
    doc = "Records that members of a share group have now."
    yield _gauge("share_group_in_flight", doc, ["group"], (((group,), count) for group, count in largest))


def _telemetry(told: Told) -> Iterator[Metric]:
    pushes = (((error,), count) for error, count in sorted(told.pushes.items()))
    yield _counter("telemetry_pushes", "Metrics that clients have sent, by the error of the answer.", ["error"], pushes)
    yield _gauge("telemetry_clients", "Clients that send metrics, or have asked which.", [], _one(told.clients))
    yield _counter("telemetry_left_out", "Numbers of clients that there was no room for.", [], _one(told.left_out))
    parts = ("client_id", "client_instance_id")
    series = (
        ((*(each.client.get(part, "") for part in parts), each.metric, each.attributes), each.value) for each in told.series
    )
    doc = "What a client has sent last; of what it counts the sum since it began."
    yield _gauge("client_metric", doc, [*parts, "metric", "attributes"], series)


# ---- what a power cut could take, and the device -----------------------------------------------------------------------------


def _loss_window(told: BrokerStatistics) -> Iterator[Metric]:
    doc = "Age of the oldest byte that a power cut could take back; 0: there is none."
    yield _gauge("loss_window_seconds", doc, [], _one(told.total.unsynced_ms / 1000))
    doc = "The largest that the age of such a byte has been in any log since the start."
    yield _gauge("loss_window_longest_seconds", doc, [], _one(told.wear.longest_unsynced_ms / 1000))
    yield _gauge("loss_window_records", "Records that a power cut could take back.", [], _one(told.unsynced_records))
    yield _gauge("waiting_appends", "Appends that wait for their partition's turn.", [], _one(told.waiting_appends))


def _device(told: BrokerStatistics) -> Iterator[Metric]:
    disk = told.disk
    yield _histogram("sync_seconds", "Forcing a log or an index to the device.", [], [(_NOTHING, disk.syncs)])
    errors = (((task,), count) for task, count in sorted(told.task_errors.items()))
    yield _counter("background_errors", "Unhandled exceptions of background tasks.", ["task"], errors)
    yield _counter("sync_failures", "Syncs that failed: their logs are offline.", [], _one(disk.failed_syncs))
    yield _counter("disk_hops", "Operations handed to threads.", [], _one(disk.hops))
    yield _counter("disk_writes_at_once", "Groups of small writes that needed no thread.", [], _one(disk.writes_at_once))
    reads = [(("cached",), disk.cached_reads), (("device",), disk.cold_reads)]
    yield _counter("reads", "Reads of log files, from the page cache or the device.", ["from"], reads)
    yield _gauge("open_files", "Descriptors and maps of log files.", [], _one(disk.descriptors))
    spaces = [((each.description.path,), each) for each in told.directories]
    in_service = ((labels, each.description.error is None) for labels, each in spaces)
    yield _gauge("directory_in_service", "1: a log directory serves; 0: it is out of service.", ["directory"], in_service)
    refusing = ((labels, each.description.is_refusing) for labels, each in spaces)
    yield _gauge("directory_refusing", "1: appends are refused below disk_reserve_bytes.", ["directory"], refusing)
    free = ((labels, each.free_bytes) for labels, each in spaces)
    yield _gauge("directory_free_bytes", "What a directory's device has left.", ["directory"], free)
    reserve = ((labels, each.description.reserve_bytes) for labels, each in spaces)
    yield _gauge("directory_reserve_bytes", "Below how much that is too little.", ["directory"], reserve)
    segments = ((labels, each.description.given_up_segments) for labels, each in spaces)
    yield _counter("directory_given_up_segments", "Segments deleted to keep the reserve.", ["directory"], segments)
    given_up = ((labels, each.description.given_up_bytes) for labels, each in spaces)
    yield _counter("directory_given_up_bytes", "Bytes deleted to keep the reserve.", ["directory"], given_up)
    bound = told.log_bound
    yield _gauge("log_max_bytes", "Bound of all logs together; 0: there is none.", [], _one(bound.max_bytes))
    yield _gauge("log_max_refusing", "1: appends are refused at log_max_bytes.", [], _one(bound.is_refusing))
    yield _counter("log_max_given_up_segments", "Segments deleted to keep log_max_bytes.", [], _one(bound.given_up_segments))
    yield _counter("log_max_given_up_bytes", "Bytes deleted to keep log_max_bytes.", [], _one(bound.given_up_bytes))
    total = ((labels, each.total_bytes) for labels, each in spaces)
    yield _gauge("directory_size_bytes", "What a directory's device has in all.", ["directory"], total)


def _background(told: BrokerStatistics) -> Iterator[Metric]:
    cleaner, scrub = told.cleaner, told.scrub
    rounds = [(("done",), cleaner.rounds), (("given_up",), cleaner.given_up), (("failed",), cleaner.failed)]
    yield _counter("compactions", "Rounds of compaction by how they ended.", ["outcome"], rounds)
    yield _counter("compaction_seconds", "Time in rounds that ended well.", [], _one(cleaner.seconds))
    freed = cleaner.bytes_before - cleaner.bytes_after
    yield _counter("compaction_freed_bytes", "Bytes that logs became smaller by.", [], _one(max(0, freed)))
    yield _gauge("compaction_running", "1: a log is compacted now.", [], _one(cleaner.cleaning is not None))
    doc = "Partitions that are not compacted any more, because of damage or a bug."
    yield _gauge("uncleanable_partitions", doc, [], _one(cleaner.uncleanable))
    yield _counter("retention_segments", "Segments that retention took out.", [], _one(told.taken_segments))
    yield _gauge("doomed_segments", "Segments taken out whose files are not unlinked yet.", [], _one(told.doomed_segments))
    yield _counter("scrub_passes", "Passes over all closed segments.", [], _one(scrub.passes))
    yield _counter("scrub_bytes", "Bytes that scrubbing has read.", [], _one(scrub.bytes_read))
    yield _counter("scrub_damages", "Damages that scrubbing has found.", [], _one(scrub.damages))
