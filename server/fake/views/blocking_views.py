"""The views of a broker for programs without trio: the same calls, which may come from any thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from ..clock import MovedClock
from ..faults.disk_faults import DiskRule
from ..faults.requests import LoggedRequest
from ..faults.rules import Rule
from ..proxies import Proxy, StandsFor, at_once, waiting
from .fault_views import FaultsView, FaultView, RequestsView
from .groups_view import GroupsView
from .log_view import LogView
from .share_groups_view import ShareGroupsView
from .streams_groups_view import StreamsGroupsView

V = TypeVar("V")
P = ParamSpec("P")


class BlockingFault(Proxy[FaultView]):
    """A rule in force, and what it has done so far."""

    @property
    def number(self) -> int:
        return self._target.number

    @property
    def rule(self) -> Rule | DiskRule:
        return self._target.rule

    @property
    def matched(self) -> int:
        """Return the number of requests that the rule has matched."""
        return self._target.matched

    @property
    def fired(self) -> int:
        """Return the number of requests that the rule has acted on."""
        return self._target.fired

    release = at_once(FaultView.release)
    remove = at_once(FaultView.remove)
    wait_fired = waiting(FaultView.wait_fired)


def _fault(method: Callable[Concatenate[V, P], FaultView]) -> Callable[Concatenate[StandsFor[V], P], BlockingFault]:
    """A method that answers a rule."""

    @wraps(method)
    def call(proxy: StandsFor[V], /, *arguments: P.args, **keywords: P.kwargs) -> BlockingFault:
        return BlockingFault(at_once(method)(proxy, *arguments, **keywords), proxy._caller)

    return call


class BlockingFaults(Proxy[FaultsView]):
    """`broker.faults`."""

    def __iter__(self) -> Iterator[BlockingFault]:
        views = self._caller.call_now(lambda: list(self._target))
        return (BlockingFault(view, self._caller) for view in views)

    __len__ = at_once(FaultsView.__len__)
    add = _fault(FaultsView.add)
    add_rule = _fault(FaultsView.add_rule)
    disk = _fault(FaultsView.disk)
    clear = at_once(FaultsView.clear)

    def of_disk(self) -> list[BlockingFault]:
        """The rules of the device."""
        return [BlockingFault(view, self._caller) for view in self._caller.call_now(lambda: self._target.of_disk())]


class BlockingRequests(Proxy[RequestsView]):
    """`broker.requests`: the last ones, oldest first. Only Kafka's protocol is noted."""

    def __iter__(self) -> Iterator[LoggedRequest]:
        return iter(self._caller.call_now(lambda: list(self._target)))

    @property
    def last(self) -> int:
        """The number of the newest request; 0 before the first."""
        return self._target.last

    __len__ = at_once(RequestsView.__len__)
    find = at_once(RequestsView.find)
    count = at_once(RequestsView.count)
    clear = at_once(RequestsView.clear)
    wait_for = waiting(RequestsView.wait_for)
    tail = at_once(RequestsView.tail)


class BlockingLog(Proxy[LogView]):
    """The records of one topic. Raises RequestError where the broker would answer one."""

    records = waiting(LogView.records)
    values = waiting(LogView.values)
    produce = waiting(LogView.produce)
    produce_all = waiting(LogView.produce_all)
    wait_for = waiting(LogView.wait_for)
    start_offsets = at_once(LogView.start_offsets)
    end_offsets = at_once(LogView.end_offsets)
    delete_records = waiting(LogView.delete_records)
    compact = waiting(LogView.compact)


class BlockingGroups(Proxy[GroupsView]):
    """`broker.groups`. Raises RequestError where the broker would answer one."""

    is_known = at_once(GroupsView.is_known)
    committed = waiting(GroupsView.committed)
    commit = waiting(GroupsView.commit)
    lag = waiting(GroupsView.lag)
    wait_committed = waiting(GroupsView.wait_committed)
    wait_no_lag = waiting(GroupsView.wait_no_lag)
    state = at_once(GroupsView.state)
    members = at_once(GroupsView.members)
    wait_assigned = waiting(GroupsView.wait_assigned)
    kick = waiting(GroupsView.kick)
    rebalance = _fault(GroupsView.rebalance)
    freeze = _fault(GroupsView.freeze)


class BlockingShareGroups(Proxy[ShareGroupsView]):
    """`broker.share_groups`. Raises RequestError where the broker would answer one."""

    groups = at_once(ShareGroupsView.groups)
    partitions = at_once(ShareGroupsView.partitions)
    start_offsets = at_once(ShareGroupsView.start_offsets)
    locks = at_once(ShareGroupsView.locks)
    delivery_counts = at_once(ShareGroupsView.delivery_counts)
    in_state = at_once(ShareGroupsView.in_state)
    assignments = at_once(ShareGroupsView.assignments)
    lag = at_once(ShareGroupsView.lag)
    wait_done = waiting(ShareGroupsView.wait_done)


class BlockingStreamsGroups(Proxy[StreamsGroupsView]):
    """`broker.streams_groups`. Raises RequestError where the broker would answer one."""

    groups = at_once(StreamsGroupsView.groups)
    describe = at_once(StreamsGroupsView.describe)
    assignments = at_once(StreamsGroupsView.assignments)
    statuses = at_once(StreamsGroupsView.statuses)
    lag = waiting(StreamsGroupsView.lag)
    wait_stable = waiting(StreamsGroupsView.wait_stable)
    wait_status = waiting(StreamsGroupsView.wait_status)
    wait_done = waiting(StreamsGroupsView.wait_done)


class BlockingClock(Proxy[MovedClock]):
    """The broker's time. Deadlines move with it, as the broker's thread runs by it."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._target.now_ms()

    advance = at_once(MovedClock.advance)
    freeze = at_once(MovedClock.freeze)
    unfreeze = at_once(MovedClock.unfreeze)
