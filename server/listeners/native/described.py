"""The native calls that describe transactions, producers, segments, connections and the whole broker: values in, values out.
They look at memory and read nothing. docs/native-protocol.md lists the map that `statistics` returns.
"""

from __future__ import annotations

import heapq
import operator
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final

import attrs
import trio

from ....protocol.coordinator.transactions import STATE_NAMES, TransactionLogValue, TransactionState
from ....protocol.errors import ErrorCode, InvalidRequestError, RequestError, error_name
from ....protocol.limits import MAX_DESCRIBED_GAPS
from ....protocol.native import messages
from ....protocol.types import NO_OFFSET, TopicPartition
from ...broker import (
    DURATION_BOUNDS_S,
    Broker,
    BrokerStatistics,
    DirectoryWear,
    Durations,
    LogDescription,
    ProducerEntry,
    WearStatistics,
)
from ...loop.procedures import in_turns
from ...system.tcp_info import TcpBytes, tcp_bytes
from ..connections.counters import ProtocolCounters
from ..connections.session import NOT_SAID, Session
from ..connections.sockets import Admission, Listener

OPEN_STATES: Final = frozenset({TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
IDS_PER_TURN: Final = 256
PARTITIONS_PER_TURN: Final = 4
NOT_OPEN: Final = -1

MaySee = Callable[[str], bool]
MayHaveOwner = Callable[[int, TopicPartition], bool]
"""(producer id, partition): whether what is open there may belong to a transactional id."""


async def list_transactions(
    broker: Broker, message: messages.ListTransactionsRequest, may_see: MaySee | None = None
) -> messages.ListTransactionsResponse:
    """Those that `may_see` says, None: all."""
    now_ms, states = broker.now_ms(), _states(message.states)
    found = []
    async for name, value in in_turns(list(broker.transactions.ids.states()), IDS_PER_TURN):
        if states is not None and value.state not in states:
            continue
        if message.open_for_ms is not None and not 0 <= message.open_for_ms <= _open_ms(value, now_ms):
            continue
        if may_see is None or may_see(name):
            found.append((name, value))
    told = heapq.nsmallest(message.max_transactions, found, key=_rank)
    return messages.ListTransactionsResponse(
        tuple(
            messages.ListedTransaction(
                name,
                STATE_NAMES[value.state],
                value.producer_id,
                value.producer_epoch,
                value.timeout_ms,
                value.start_ms,
                value.last_update_ms,
                _open_ms(value, now_ms),
                len(value.partitions),
            )
            for name, value in told
        ),
        len(found) - len(told),
    )


def _states(names: tuple[str, ...] | None) -> frozenset[TransactionState] | None:
    if names is None:
        return None
    by_name = {name: state for state, name in STATE_NAMES.items()}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise InvalidRequestError(f"{unknown[0]!r} is not a state of a transaction. Use one of {', '.join(by_name)}")
    return frozenset(by_name[name] for name in names)


def _open_ms(value: TransactionLogValue, now_ms: int) -> int:
    return max(0, now_ms - value.start_ms) if value.state in OPEN_STATES else NOT_OPEN


def _rank(found: tuple[str, TransactionLogValue]) -> tuple[bool, int, str]:
    name, value = found
    is_open = value.state in OPEN_STATES
    return not is_open, value.start_ms if is_open else -value.last_update_ms, name


async def describe_transactions(
    broker: Broker, message: messages.DescribeTransactionsRequest
) -> messages.DescribeTransactionsResponse:
    now_ms = broker.now_ms()
    return messages.DescribeTransactionsResponse(
        tuple([_described_transaction(broker, name, now_ms) async for name in in_turns(message.transactions)])
    )


def _described_transaction(broker: Broker, name: str, now_ms: int) -> messages.DescribedTransaction:
    try:
        value = broker.transactions.ids.owner(name).value
        if value is None:
            raise RequestError(f"transactional id {name!r} is not known", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    except RequestError as exc:
        return messages.DescribedTransaction(name, exc.as_answer())
    return messages.DescribedTransaction(
        name,
        None,
        STATE_NAMES[value.state],
        value.producer_id,
        value.producer_epoch,
        value.timeout_ms,
        value.start_ms,
        value.last_update_ms,
        _open_ms(value, now_ms),
        tuple(messages.Partition(*each) for each in sorted(value.partitions)),
    )


async def describe_producers(broker: Broker, message: messages.DescribeProducersRequest) -> messages.DescribeProducersResponse:
    may_have_owner = broker.producers.may_have_owner
    left, answers = message.max_producers, []
    async for each in in_turns(message.partitions, PARTITIONS_PER_TURN):
        try:
            producers = broker.producers.active(each.topic_partition, open_only=message.open_only)
        except RequestError as exc:
            answers.append(messages.DescribeProducersPartitionResponse(*each.topic_partition, exc.as_answer()))
            continue
        told = heapq.nsmallest(left, producers, key=_producer_rank)
        left -= len(told)
        answers.append(
            messages.DescribeProducersPartitionResponse(
                *each.topic_partition,
                None,
                tuple(_producer(each.topic_partition, entry, may_have_owner) for entry in told),
                len(producers) - len(told),
            )
        )
    return messages.DescribeProducersResponse(tuple(answers))


def _producer_rank(entry: ProducerEntry) -> tuple[bool, int, int]:
    start = entry.current_txn_first_offset
    return start is None, -entry.last_timestamp if start is None else start, entry.producer_id


def _producer(
    topic_partition: TopicPartition, entry: ProducerEntry, may_have_owner: MayHaveOwner
) -> messages.DescribedProducer:
    start = entry.current_txn_first_offset
    return messages.DescribedProducer(
        entry.producer_id,
        entry.epoch,
        entry.last_sequence,
        entry.last_timestamp,
        entry.coordinator_epoch,
        NO_OFFSET if start is None else start,
        start is not None and not may_have_owner(entry.producer_id, topic_partition),
    )


SEGMENTS_PER_TURN: Final = 64
"""A segment takes 5 us, or 15 when it has its most stretches of timestamps."""


async def describe_segments(broker: Broker, message: messages.DescribeSegmentsRequest) -> messages.DescribeSegmentsResponse:
    segments_left, gaps_left = message.max_segments, MAX_DESCRIBED_GAPS
    answers = []
    async for each in in_turns(message.partitions):
        try:
            log = broker.logs.describe(each.topic_partition)
        except RequestError as exc:
            answers.append(messages.DescribeSegmentsPartitionResponse(*each.topic_partition, exc.as_answer()))
            continue
        answer = await _described_log(each, log, segments_left, gaps_left)
        segments_left -= len(answer.segments)
        gaps_left -= len(answer.gaps)
        answers.append(answer)
    return messages.DescribeSegmentsResponse(tuple(answers))


async def _described_log(
    asked: messages.DescribeSegmentsPartition, log: LogDescription, max_segments: int, max_gaps: int
) -> messages.DescribeSegmentsPartitionResponse:
    snapshot = log.snapshot
    first = max(0, snapshot.slot_of(asked.from_offset))
    told = range(first, min(len(snapshot), first + max_segments))
    gaps = [gap for gap in snapshot.gaps if gap.end_offset > asked.from_offset]
    return messages.DescribeSegmentsPartitionResponse(
        *asked.topic_partition,
        error=None,
        log_start_offset=snapshot.log_start_offset,
        log_end_offset=snapshot.log_end_offset,
        high_watermark=snapshot.high_watermark,
        last_stable_offset=snapshot.last_stable_offset,
        recovery_point=log.recovery_point,
        cleaned_up_to=NO_OFFSET if log.clean_up_to is None else log.clean_up_to,
        size_bytes=snapshot.size_in_bytes,
        segment_count=len(snapshot),
        waiting=None if log.waiting is None else log.waiting.message,
        segments=tuple([_segment(log, slot) async for slot in in_turns(told, SEGMENTS_PER_TURN)]),
        left_out=len(snapshot) - first - len(told),
        gaps=tuple(
            messages.Gap(gap.start_offset, gap.end_offset, gap.side_file, found_ms=gap.found_ms, accepted_ms=gap.accepted_ms)
            for gap in gaps[:max_gaps]
        ),
        gaps_left_out=max(0, len(gaps) - max_gaps),
    )


def _segment(log: LogDescription, slot: int) -> messages.DescribedSegment:
    snapshot = log.snapshot
    view, is_active = snapshot.segment(slot), slot == len(snapshot.inactive)
    next_offset = snapshot.log_end_offset if is_active else snapshot.segment(slot + 1).base_offset
    return messages.DescribedSegment(
        base_offset=view.base_offset,
        next_offset=next_offset,
        size_bytes=view.size,
        least_timestamp=view.least_timestamp,
        max_timestamp=view.max_timestamp,
        is_active=is_active,
        is_cleaned=not is_active and log.clean_up_to is not None and next_offset <= log.clean_up_to,
        offset_index_entries=view.offset_entries,
        time_index_entries=view.time_entries,
        transaction_index_entries=view.transaction_entries,
    )


CONNECTIONS_PER_TURN: Final = 64
"""One takes 10 us."""


async def list_connections(
    broker: Broker, admission: Admission, message: messages.ListConnectionsRequest
) -> messages.ListConnectionsResponse:
    """The oldest of each listener first. Those that have just ended may be among them."""
    count = sum(listener.connections for listener in admission.listeners)
    served = ((listener, *each) for listener in admission.listeners for each in listener.sessions())
    wanted = list(islice(served, message.max_connections))
    told = tuple([_listed(broker, *each) async for each in in_turns(wanted, CONNECTIONS_PER_TURN)])
    return messages.ListConnectionsResponse(told, count - len(told))


def _listed(broker: Broker, listener: Listener, session: Session[Any], since: float) -> messages.ListedConnection:
    transport = session.transport
    name, _, version = _said(session.software).partition(" ")
    stream = transport.stream
    over_wire = tcp_bytes(stream.socket) if isinstance(stream, trio.SocketStream) else TcpBytes()
    return messages.ListedConnection(
        protocol=listener.protocol,
        listener=listener.listens_on,
        peer=transport.peer,
        client_id=_said(session.client_id),
        software_name=name,
        software_version=version,
        user=session.principal,
        since_timestamp=max(-1, broker.now_ms() - round((trio.current_time() - since) * 1000)),
        requests=session.taken_count,
        requests_in_flight=session.requests_in_flight,
        received_bytes=over_wire.received,
        sent_bytes=over_wire.sent,
        is_encrypted=transport.encrypts,
        is_throttled=session.muted_until > 0,
    )


def _said(text: str) -> str:
    return "" if text == NOT_SAID else text


async def statistics(broker: Broker, protocols: Iterable[ProtocolCounters]) -> messages.StatisticsResponse:
    """Return what a broker and its connections have counted."""
    told = statistics_map(await broker.statistics(), broker.now_ms(), protocols)
    security = attrs.asdict(broker.security.statistics)
    return messages.StatisticsResponse({**told, "insecure": list(broker.security.exposed), "security": security})


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
        "clock": attrs.asdict(told.clock),
        "mirrors": [attrs.asdict(each) for each in told.mirrors],
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
