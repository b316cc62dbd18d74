"""The progress and state of a link: its thread counts, and other threads read plain values. The table of states and events is
the only thing that decides what a link may do next.
"""

from __future__ import annotations

import enum
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from ...protocol.types import TopicPartition
from .source.source import Gap, OffsetRange, SourceTopic

RATE_S: Final = 30.0
"""Over which rates are told."""
LEAST_RATE_S: Final = 1.0


@attrs.define(eq=False, repr=False)
class _Partition:
    target: str
    offset: int
    there: OffsetRange
    timestamp: int = -1
    """Of the last record that was forwarded, ms."""
    lost_records: int = 0

    @property
    def backlog_records(self) -> int:
        return max(0, self.there.end_offset - max(self.offset, self.there.start_offset))

    @property
    def backlog_bytes(self) -> int:
        held = self.there.end_offset - self.there.start_offset
        return self.there.size_bytes * self.backlog_records // held if held > 0 else 0


@attrs.frozen
class _Sample:
    at_s: float
    records: int
    bytes: int
    backlog_bytes: int


class Progress:
    """State, latest failure, counts and rates of any link. Thread-safe. Changed by the link."""

    def __init__(self, facts: Mapping[str, Any], counts: Iterable[str]) -> None:
        self._lock = threading.Lock()
        self._facts: Final = facts
        self._state = LinkState.CONNECTING
        self._since_ms = _now_ms()
        self._troubles: dict[str, str] = {}
        self._error: str | None = None
        self._error_ms = -1
        self._counts = dict.fromkeys(("records", "bytes", "failures", *counts), 0)
        self._samples: deque[_Sample] = deque()

    @property
    def state(self) -> LinkState:
        return self._state

    def happened(self, event: LinkEvent) -> None:
        """Go on to the next state."""
        with self._lock:
            self._state = next_state(self._state, event)
            self._since_ms = _now_ms()

    def failed(self, message: str) -> None:
        """Record the latest failure."""
        with self._lock:
            self._error, self._error_ms = message, _now_ms()
            self._counts["failures"] += 1

    def troubled(self, troubles: Mapping[str, str]) -> None:
        """The topics that cannot go on, and why."""
        with self._lock:
            self._troubles = dict(troubles)

    def snapshot(self) -> dict[str, Any]:
        """Everything, in base units."""
        with self._lock:
            return self._snapshot()

    # ---- for subclasses, which hold the lock -----------------------------------------------------------------------------

    def _snapshot(self) -> dict[str, Any]:
        records_rate, bytes_rate, _ = self._rates()
        return {
            **self._facts,
            "state": self._state.value,
            "since_ms": self._since_ms,
            "error": self._error,
            "error_ms": self._error_ms,
            "troubles": dict(self._troubles),
            "records_per_second": records_rate,
            "bytes_per_second": bytes_rate,
            **self._counts,
        }

    def _sample(self, backlog_bytes: int = 0) -> None:
        now_s = time.monotonic()
        self._samples.append(_Sample(now_s, self._counts["records"], self._counts["bytes"], backlog_bytes))
        while len(self._samples) > 2 and self._samples[1].at_s < now_s - RATE_S:
            self._samples.popleft()

    def _rates(self) -> tuple[float, float, float]:
        """Records and bytes a second, and how fast the backlog shrinks."""
        if not self._samples:
            return 0.0, 0.0, 0.0
        first, last = self._samples[0], self._samples[-1]
        took_s = max(LEAST_RATE_S, time.monotonic() - first.at_s)
        return (
            (last.records - first.records) / took_s,
            (last.bytes - first.bytes) / took_s,
            (first.backlog_bytes - last.backlog_bytes) / took_s,
        )


class LinkProgress(Progress):
    """The progress of a link to an upstream."""

    def __init__(self, name: str, to: str, delivery: str) -> None:
        counts = ("transactions", "lost_records", "avoided_records", "dead_letter_records")
        super().__init__({"link": name, "to": to, "delivery": delivery}, counts)
        self._partitions: dict[TopicPartition, _Partition] = {}
        self.node = ""

    def begins(self, partition: TopicPartition, target: str, offset: int, there: OffsetRange, avoided: int) -> None:
        """A session goes on with this partition."""
        with self._lock:
            before = self._partitions.get(partition)
            self._partitions[partition] = _Partition(target, offset, there)
            if before is not None:
                self._partitions[partition].timestamp = before.timestamp
                self._partitions[partition].lost_records = before.lost_records
            self._counts["avoided_records"] += avoided

    def seen(self, topics: Iterable[SourceTopic]) -> None:
        """Record the current offset ranges of the source's logs."""
        with self._lock:
            for topic in topics:
                for number, there in topic.partitions.items():
                    known = self._partitions.get(TopicPartition(topic.name, number))
                    if known is not None:
                        known.there = there
            self._sample(self._backlog_bytes)

    def committed(
        self, offsets: Mapping[TopicPartition, int], times: Mapping[TopicPartition, int], records: int, sent_bytes: int
    ) -> None:
        """A stretch is upstream."""
        with self._lock:
            for partition, offset in offsets.items():
                self._partitions[partition].offset = offset
            for partition, timestamp in times.items():
                self._partitions[partition].timestamp = timestamp
            self._counts["records"] += records
            self._counts["bytes"] += sent_bytes
            self._counts["transactions"] += 1
            self._sample(self._backlog_bytes)

    def lost(self, partition: TopicPartition, gap: Gap) -> None:
        """The upstream has been told of a gap."""
        with self._lock:
            self._partitions[partition].lost_records += gap.offsets
            self._counts["lost_records"] += gap.offsets

    def avoided(self, records: int) -> None:
        """Records of a transaction that was not committed go once more: nobody sees those that went before."""
        with self._lock:
            self._counts["avoided_records"] += records

    def dead_lettered(self) -> None:
        """A record has gone to the dead-letter topic."""
        with self._lock:
            self._counts["dead_letter_records"] += 1

    @property
    def _backlog_bytes(self) -> int:
        return sum(part.backlog_bytes for part in self._partitions.values())

    def _snapshot(self) -> dict[str, Any]:
        parts = self._partitions.values()
        backlog_bytes = self._backlog_bytes
        behind = [part.timestamp for part in parts if part.backlog_records and part.timestamp >= 0]
        shrinking = self._rates()[2]
        return {
            **super()._snapshot(),
            "node": self.node,
            "backlog_records": sum(part.backlog_records for part in parts),
            "backlog_bytes": backlog_bytes,
            "backlog_ms": max(0, _now_ms() - min(behind)) if behind else 0,
            "eta_s": backlog_bytes / shrinking if shrinking > 0 and backlog_bytes else None,
            "partitions": [
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "target": part.target,
                    "offset": part.offset,
                    "end_offset": part.there.end_offset,
                    "backlog_records": part.backlog_records,
                    "backlog_bytes": part.backlog_bytes,
                    "lost_records": part.lost_records,
                }
                for partition, part in sorted(self._partitions.items())
            ],
        }


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class LinkState(enum.Enum):
    """The state of a link."""

    CONNECTING = "connecting"
    RUNNING = "running"
    DRAINING = "draining"
    """As running, whatever the windows say, until nothing is left."""
    PAUSED = "paused"
    WAITING = "waiting"
    """For a time window."""
    BACKING_OFF = "backing off"
    STOPPED = "stopped"
    """As it was asked to, or because nothing is left that it should send."""
    FAILED = "failed"
    """Somebody has to do something."""

    @property
    def is_final(self) -> bool:
        return not TRANSITIONS[self]


class LinkEvent(enum.Enum):
    """An event that changes the state of a link."""

    CONNECTED = "connected"
    LOST = "lost"
    TRY_AGAIN = "try again"
    RECONNECT = "reconnect"
    PAUSE = "pause"
    RESUME = "resume"
    WINDOW_CLOSES = "window closes"
    WINDOW_OPENS = "window opens"
    DRAIN = "drain"
    DRAINED = "drained"
    STOP = "stop"
    FAIL = "fail"


_ENDS: Final = {LinkEvent.STOP: LinkState.STOPPED, LinkEvent.FAIL: LinkState.FAILED}
_RESTS: Final = {
    LinkEvent.PAUSE: LinkState.PAUSED,
    LinkEvent.WINDOW_CLOSES: LinkState.WAITING,
    LinkEvent.LOST: LinkState.BACKING_OFF,
}
_SESSION: Final = {LinkEvent.RECONNECT: LinkState.CONNECTING, **_RESTS, **_ENDS}

TRANSITIONS: Final[Mapping[LinkState, Mapping[LinkEvent, LinkState]]] = {
    LinkState.CONNECTING: {
        LinkEvent.CONNECTED: LinkState.RUNNING,
        LinkEvent.DRAIN: LinkState.DRAINING,
        **_RESTS,
        **_ENDS,
    },
    LinkState.RUNNING: {LinkEvent.DRAIN: LinkState.DRAINING, **_SESSION},
    LinkState.DRAINING: {LinkEvent.DRAINED: LinkState.RUNNING, **_SESSION},
    LinkState.PAUSED: {LinkEvent.RESUME: LinkState.CONNECTING, **_ENDS},
    LinkState.WAITING: {LinkEvent.WINDOW_OPENS: LinkState.CONNECTING, **_ENDS},
    LinkState.BACKING_OFF: {LinkEvent.TRY_AGAIN: LinkState.CONNECTING, **_ENDS},
    LinkState.STOPPED: {},
    LinkState.FAILED: {},
}


def next_state(state: LinkState, event: LinkEvent) -> LinkState:
    """Return the state after an event. Raises AssertionError for an event that cannot happen in this state."""
    after = TRANSITIONS[state].get(event)
    assert after is not None, f"a link that is {state.value} cannot {event.value}"
    return after
