"""`broker.faults` and `broker.requests`: rules to add and count, requests to look at and wait for.

What waits does so until a state is as a test wants it, for as long as the test has patience.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, TypedDict, TypeVar, Unpack

import attrs
import trio

from ....protocol.errors import ErrorCode
from ....protocol.kafka.apis import APIS
from ..faults.faults import DiskFaults, Fault, FaultRules, Faults
from ..faults.requests import LoggedRequest, RequestLog, Wanted
from ..faults.rules import DiskRule, Intercept, Rule, disk_rule_of, hint, plain_name, rule_of

T = TypeVar("T")

PATIENCE_S: Final = 10.0
LOOK_S: Final = 0.005
"""Interval of checks of a state without a notification."""


class Watched(Protocol):
    """A state that calls watchers at each change, from any thread."""

    def watch(self, watcher: Callable[[], None]) -> None: ...
    def unwatch(self, watcher: Callable[[], None]) -> None: ...


async def wait_until(watched: Watched, look: Callable[[], T | None], timeout_s: float, missing: Callable[[], str]) -> T:
    """Return the result of `look` as soon as it is not None. Raises TimeoutError that names the `missing` thing."""
    changed, token = trio.Event(), trio.lowlevel.current_trio_token()

    def look_again() -> None:
        changed.set()

    def wake() -> None:
        token.run_sync_soon(look_again, idempotent=True)

    watched.watch(wake)
    try:
        with trio.move_on_after(timeout_s):
            while (found := look()) is None:
                await changed.wait()
                changed = trio.Event()
            return found
    finally:
        watched.unwatch(wake)
    raise TimeoutError(f"{missing()} within {timeout_s:g} s")


async def look_until(look: Callable[[], Awaitable[T | None]], timeout_s: float, missing: Callable[[], str]) -> T:
    """`wait_until` for a state that calls no watchers."""
    with trio.move_on_after(timeout_s):
        while True:
            found = await look()
            if found is not None:
                return found
            await trio.sleep(LOOK_S)
    raise TimeoutError(f"{missing()} after {timeout_s:g} s")


_KAFKA_APIS: Final = frozenset(plain_name(api.name) for api in APIS.values())


class RuleWords(TypedDict, total=False):
    """The fields of a rule besides its API; `server.fake.faults.rules` explains each of them. None: as if left out."""

    topic: str | None
    partition: int | None
    group: str | None
    transactional_id: str | None
    client_id: str | None
    node: int | None
    once: bool
    nth: int | None
    times: int | None
    probability: float | None
    seed: int | None
    once_per_member: bool
    rejoining: Collection[str] | None
    error: str | int | ErrorCode | None
    applied: bool
    delay_ms: int | None
    hold: bool
    disconnect: bool
    black_hole: bool
    corrupt: bool
    truncate_to: int | None
    throttle_ms: int | None
    intercept: Intercept | None


class DiskRuleWords(TypedDict, total=False):
    """The fields of a disk rule besides its effect."""

    operation: str | None
    path: str | None
    delay_ms: int | None
    once: bool
    nth: int | None
    times: int | None
    probability: float | None
    seed: int | None


class RequestWords(TypedDict, total=False):
    """The fields of a search for requests, besides the API; None matches any."""

    topic: str | None
    group: str | None
    client_id: str | None
    node: int | None
    error: str | None
    answered: bool | None
    after: int


@attrs.frozen(eq=False, repr=False)
class FaultView:
    """A rule in force, of requests or of the device, with its counts."""

    fault: Fault[Any]
    _faults: FaultRules[Any]

    def __repr__(self) -> str:
        return f"<fault #{self.number} {self.rule.as_json()} fired {self.fired} of {self.matched} matches>"

    @property
    def number(self) -> int:
        return self.fault.number

    @property
    def rule(self) -> Rule | DiskRule:
        rule: Rule | DiskRule = self.fault.rule
        return rule

    @property
    def matched(self) -> int:
        """Requests, or operations of the device, that it applies to."""
        return self.fault.matched

    @property
    def fired(self) -> int:
        """Requests, or operations of the device, that it was carried out on."""
        return self.fault.fired

    def release(self) -> None:
        """Release everything that it holds, or the device's operations that it delays, now and from now on."""
        self.fault.release()

    def remove(self) -> None:
        """Remove the rule; requests that it holds go on."""
        self._faults.remove(self.fault.number)

    async def wait_fired(self, times: int = 1, *, timeout_s: float = PATIENCE_S) -> int:
        """Wait until it has acted on `times` requests, and return their number. Raises TimeoutError."""
        return await wait_until(
            self.fault,
            lambda: self.fired if self.fired >= times else None,
            timeout_s,
            lambda: f"the rule {self.rule.as_json()} fired {self.fired} times of {times} ({self.matched} matched)",
        )


@attrs.frozen(eq=False, repr=False)
class FaultsView:
    """`broker.faults`."""

    faults: Faults
    disk_faults: DiskFaults

    def __repr__(self) -> str:
        return f"<faults {[*self, *self.of_disk()]}>"

    def __iter__(self) -> Iterator[FaultView]:
        return (FaultView(fault, self.faults) for fault in self.faults)

    def __len__(self) -> int:
        return len(self.faults)

    def add(self, api: str | Sequence[str] | None = None, **told: Unpack[RuleWords]) -> FaultView:
        """Add a rule after those in force. Raises RuleError."""
        return self.add_rule({"api": api, **told})

    def add_rule(self, told: dict[str, Any]) -> FaultView:
        """`add` with all words in a dictionary, as JSON and YAML give them. Raises RuleError."""
        return FaultView(self.faults.add(rule_of(_without_defaults(told), _KAFKA_APIS)), self.faults)

    def disk(self, effect: str, **told: Unpack[DiskRuleWords]) -> FaultView:
        """Add a fault of the device: `full`, `error`, `delay` or `torn` (at the next crash). Raises RuleError."""
        return self.add_disk_rule({"effect": effect, **told})

    def add_disk_rule(self, told: dict[str, Any]) -> FaultView:
        """Add a rule of the device from a dictionary with its fields, `effect` among them. Raises RuleError."""
        return FaultView(self.disk_faults.add(disk_rule_of(_without_defaults(told))), self.disk_faults)

    def of_disk(self) -> list[FaultView]:
        """The rules of the device."""
        return [FaultView(fault, self.disk_faults) for fault in self.disk_faults]

    def clear(self) -> None:
        """Remove all rules, the device's too; requests that they hold go on."""
        self.faults.clear()
        self.disk_faults.clear()


def _without_defaults(told: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in told.items() if value is not None and value is not False}


def _check_names(api: str | None, error: str | None) -> None:
    """Raises ValueError with the nearest valid name."""
    if api is not None and plain_name(api) not in _KAFKA_APIS:
        raise ValueError(f"Kafka has no API {api!r}{hint(api, (each.name for each in APIS.values()))}")
    if error is not None and error not in ErrorCode.__members__:
        raise ValueError(f"Kafka has no error {error!r}{hint(error, ErrorCode.__members__)}")


@attrs.frozen(eq=False, repr=False)
class RequestsView:
    """`broker.requests`: the last ones, oldest first. Only Kafka's protocol is noted."""

    log: RequestLog

    def __repr__(self) -> str:
        return f"<{len(self)} requests, the last is #{self.last}>"

    def __iter__(self) -> Iterator[LoggedRequest]:
        return iter(self.log)

    def __len__(self) -> int:
        return len(self.log)

    def find(self, api: str | None = None, **wanted: Unpack[RequestWords]) -> list[LoggedRequest]:
        """The matching requests; names may have `*` and `?`, omitted fields match anything. Raises ValueError for an API or an
        error that Kafka does not have.
        """
        _check_names(api, wanted.get("error"))
        return self.log.find(Wanted(api=api, **wanted))

    def count(self, api: str | None = None, **wanted: Unpack[RequestWords]) -> int:
        """Return the number of requests that `find` finds."""
        return len(self.find(api, **wanted))

    @property
    def last(self) -> int:
        """The number of the newest request; 0 before the first."""
        return self.log.count

    def clear(self) -> None:
        """Forget the stored requests; numbers continue."""
        self.log.clear()

    async def wait_for(
        self, api: str | None = None, *, count: int = 1, timeout_s: float = PATIENCE_S, **wanted: Unpack[RequestWords]
    ) -> list[LoggedRequest]:
        """Wait until `find` finds that many. Raises TimeoutError, with the last requests."""

        def look() -> list[LoggedRequest] | None:
            found = self.find(api, **wanted)
            return found if len(found) >= count else None

        def missing() -> str:
            asked = " ".join([api or "any request", *(f"{name}={value}" for name, value in wanted.items())])
            return f"{count} of [{asked}] did not arrive, {self.count(api, **wanted)} did. The last were:\n{self.tail()}\n"

        return await wait_until(self.log, look, timeout_s, missing)

    def tail(self, count: int = 20) -> str:
        """The last requests, a line each."""
        return "\n".join(str(request) for request in list(self.log)[-count:])
