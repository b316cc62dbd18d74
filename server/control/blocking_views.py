"""The views of a broker for programs without trio: the same calls, which may come from any thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar, Unpack

import attrs

from ...protocol.types import Record, TopicPartition
from ..faults.disk_faults import DiskFault
from ..faults.requests import LoggedRequest
from ..faults.rules import Rule
from .clock import MovedClock
from .fault_views import DiskRuleWords, FaultsView, FaultView, RequestsView, RuleWords
from .groups_view import GroupMember, GroupsView
from .log_view import Headers, LogView, Text
from .waiting import PATIENCE_S

T = TypeVar("T")


class Caller(Protocol):
    """Runs functions in the broker's trio thread."""

    def call(self, function: Callable[[], Awaitable[T]]) -> T: ...
    def call_now(self, function: Callable[[], T]) -> T: ...


@attrs.frozen(eq=False)
class BlockingFault:
    """See FaultView."""

    _view: FaultView
    _caller: Caller

    @property
    def number(self) -> int:
        return self._view.number

    @property
    def rule(self) -> Rule:
        return self._view.rule

    @property
    def matched(self) -> int:
        """Requests that it applies to."""
        return self._view.matched

    @property
    def fired(self) -> int:
        """Requests that it was carried out on."""
        return self._view.fired

    def release(self) -> None:
        """See FaultView.release."""
        self._caller.call_now(self._view.release)

    def remove(self) -> None:
        """See FaultView.remove."""
        self._caller.call_now(self._view.remove)

    def wait_fired(self, times: int = 1, *, timeout_s: float = PATIENCE_S) -> int:
        """See FaultView.wait_fired."""
        return self._caller.call(lambda: self._view.wait_fired(times, timeout_s=timeout_s))


@attrs.frozen(eq=False)
class BlockingFaults:
    """See FaultsView."""

    _view: Callable[[], FaultsView]
    _caller: Caller

    def __iter__(self) -> Iterator[BlockingFault]:
        views = self._caller.call_now(lambda: list(self._view()))
        return (BlockingFault(view, self._caller) for view in views)

    def __len__(self) -> int:
        return self._caller.call_now(lambda: len(self._view()))

    def add(self, api: str | Sequence[str] | None = None, **told: Unpack[RuleWords]) -> BlockingFault:
        """See FaultsView.add."""
        return self.add_rule({"api": api, **told})

    def add_rule(self, told: dict[str, Any]) -> BlockingFault:
        """See FaultsView.add_rule."""
        return BlockingFault(self._caller.call_now(lambda: self._view().add_rule(told)), self._caller)

    def disk(self, effect: str, **told: Unpack[DiskRuleWords]) -> DiskFault:
        """See FaultsView.disk."""
        return self._caller.call_now(lambda: self._view().disk(effect, **told))

    def clear(self) -> None:
        """See FaultsView.clear."""
        self._caller.call_now(lambda: self._view().clear())


@attrs.frozen(eq=False)
class BlockingRequests:
    """See RequestsView."""

    _view: Callable[[], RequestsView]
    _caller: Caller

    def __iter__(self) -> Iterator[LoggedRequest]:
        return self._caller.call_now(lambda: iter(self._view()))

    def __len__(self) -> int:
        return self._caller.call_now(lambda: len(self._view()))

    @property
    def last(self) -> int:
        """See RequestsView.last."""
        return self._caller.call_now(lambda: self._view().last)

    def find(self, api: str | None = None, **wanted: Any) -> list[LoggedRequest]:
        """See RequestsView.find."""
        return self._caller.call_now(lambda: self._view().find(api, **wanted))

    def count(self, api: str | None = None, **wanted: Any) -> int:
        """See RequestsView.count."""
        return len(self.find(api, **wanted))

    def clear(self) -> None:
        """See RequestsView.clear."""
        self._caller.call_now(lambda: self._view().clear())

    def wait_for(
        self, api: str | None = None, *, count: int = 1, timeout_s: float = PATIENCE_S, **wanted: Any
    ) -> list[LoggedRequest]:
        """See RequestsView.wait_for."""
        return self._caller.call(lambda: self._view().wait_for(api, count=count, timeout_s=timeout_s, **wanted))

    def tail(self, count: int = 20) -> str:
        """See RequestsView.tail."""
        return self._caller.call_now(lambda: self._view().tail(count))


@attrs.frozen(eq=False)
class BlockingLog:
    """See LogView."""

    _view: LogView
    _caller: Caller

    def records(self, partition: int | None = None, *, offset: int = 0, committed_only: bool = True) -> list[Record]:
        """See LogView.records."""
        return self._caller.call(lambda: self._view.records(partition, offset=offset, committed_only=committed_only))

    def values(self, partition: int | None = None) -> list[bytes | None]:
        """See LogView.values."""
        return self._caller.call(lambda: self._view.values(partition))

    def produce(
        self,
        value: Text = None,
        *,
        key: Text = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int = 0,
    ) -> int:
        """See LogView.produce."""
        return self._caller.call(
            lambda: self._view.produce(value, key=key, headers=headers, timestamp_ms=timestamp_ms, partition=partition)
        )

    def produce_all(self, values: Sequence[Text], *, partition: int = 0) -> int:
        """See LogView.produce_all."""
        return self._caller.call(lambda: self._view.produce_all(values, partition=partition))

    def wait_for(
        self,
        count: int = 1,
        *,
        where: Callable[[Record], bool] | None = None,
        partition: int | None = None,
        timeout_s: float = PATIENCE_S,
    ) -> list[Record]:
        """See LogView.wait_for."""
        return self._caller.call(lambda: self._view.wait_for(count, where=where, partition=partition, timeout_s=timeout_s))

    def start_offsets(self) -> dict[int, int]:
        """See LogView.start_offsets."""
        return self._caller.call_now(self._view.start_offsets)

    def end_offsets(self) -> dict[int, int]:
        """See LogView.end_offsets."""
        return self._caller.call_now(self._view.end_offsets)

    def delete_records(self, before_offset: int = -1, *, partition: int = 0) -> int:
        """See LogView.delete_records."""
        return self._caller.call(lambda: self._view.delete_records(before_offset, partition=partition))

    def compact(self, partition: int | None = None) -> int:
        """See LogView.compact."""
        return self._caller.call(lambda: self._view.compact(partition))


@attrs.frozen(eq=False)
class BlockingGroups:
    """See GroupsView."""

    _view: Callable[[], GroupsView]
    _caller: Caller

    def committed(self, group: str, topic: str | None = None) -> dict[TopicPartition, int]:
        """See GroupsView.committed."""
        return self._caller.call(lambda: self._view().committed(group, topic))

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """See GroupsView.commit."""
        self._caller.call(lambda: self._view().commit(group, offsets))

    def lag(self, group: str, topic: str | None = None) -> int:
        """See GroupsView.lag."""
        return self._caller.call(lambda: self._view().lag(group, topic))

    def wait_committed(self, group: str, topic: str, offset: int, *, partition: int = 0, timeout_s: float = PATIENCE_S) -> int:
        """See GroupsView.wait_committed."""
        return self._caller.call(
            lambda: self._view().wait_committed(group, topic, offset, partition=partition, timeout_s=timeout_s)
        )

    def wait_no_lag(self, group: str, topic: str, *, timeout_s: float = PATIENCE_S) -> None:
        """See GroupsView.wait_no_lag."""
        self._caller.call(lambda: self._view().wait_no_lag(group, topic, timeout_s=timeout_s))

    def state(self, group: str) -> str:
        """See GroupsView.state."""
        return self._caller.call_now(lambda: self._view().state(group))

    def members(self, group: str) -> list[GroupMember]:
        """See GroupsView.members."""
        return self._caller.call_now(lambda: self._view().members(group))

    def wait_assigned(self, group: str, members: int = 1, *, timeout_s: float = PATIENCE_S) -> list[GroupMember]:
        """See GroupsView.wait_assigned."""
        return self._caller.call(lambda: self._view().wait_assigned(group, members, timeout_s=timeout_s))

    def kick(self, group: str, member_id: str) -> None:
        """See GroupsView.kick."""
        self._caller.call(lambda: self._view().kick(group, member_id))

    def rebalance(self, group: str) -> BlockingFault:
        """See GroupsView.rebalance."""
        return BlockingFault(self._caller.call_now(lambda: self._view().rebalance(group)), self._caller)

    def freeze(self, group: str) -> BlockingFault:
        """See GroupsView.freeze."""
        return BlockingFault(self._caller.call_now(lambda: self._view().freeze(group)), self._caller)


@attrs.frozen(eq=False)
class BlockingClock:
    """See MovedClock: deadlines move with it, as the broker's thread runs by it."""

    _clock: MovedClock
    _caller: Caller

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def advance(self, seconds: float) -> None:
        """See MovedClock.advance."""
        self._caller.call_now(lambda: self._clock.advance(seconds))

    def freeze(self) -> None:
        """See MovedClock.freeze."""
        self._caller.call_now(self._clock.freeze)

    def unfreeze(self) -> None:
        """See MovedClock.unfreeze."""
        self._caller.call_now(self._clock.unfreeze)
