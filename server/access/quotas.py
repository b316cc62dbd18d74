"""Client quotas in effect: which one holds for whom, what was used of it, and for how long who is above it has to be quiet.

A quota of a user or client id is shared by all connections that it holds for. Of those that could hold the first one does:

| | user | client id | shared by |
|---|---|---|---|
| 1 | its name | its name | the client id of that user |
| 2 | its name | default | each client id of that user |
| 3 | its name | - | all of that user |
| 4 | default | its name | the client id of each user |
| 5 | default | default | each client id of each user |
| 6 | default | - | all of each user |
| 7 | - | its name | the client id, whoever it is |
| 8 | - | default | each client id, whoever it is |

Source: KIP-55; Kafka's ClientQuotaManager, ClientRequestQuotaManager, ConnectionQuotas. Nothing of this is asked while there
are no quotas: `is_active` is a plain attribute.

What may be used at once, and how fast that comes back: a bucket of tokens.

As Kafka measures changes of topics (`TokenBucket` with `controller.quota.window.num` 11 and
`controller.quota.window.size.seconds` 1): it holds what the bound gives in eleven seconds, is full at first, and may be below
zero, which is to be waited out.

The quota of changes of topics: partitions that a client makes and deletes (KIP-599; Kafka: ControllerMutationQuotaManager,
StrictControllerMutationQuota, PermissiveControllerMutationQuota).

A client that understands the error is refused while it owes; one that does not gets what it wants, and has to be quiet.

A rate over a sliding window: what was used in the last samples, divided by the time that they cover.

As Kafka measures (`Rate` and `SampledStat` with `quota.window.num` 11 and `quota.window.size.seconds` 1): use is added to a
sample until that is a second old; eleven samples are kept, and one whose last use is eleven seconds old is forgotten. A window
that has just begun counts as ten seconds, so that a burst is measured by what it is over ten seconds.

Source of what quotas limit and which values they may have: KIP-13, KIP-124, KIP-546, KIP-612; Kafka's QuotaConfig and
ClientQuotaControlManager. An entity names a user, a client id, or both, each by name or as the default; or an address, or the
default of all addresses.
"""

from __future__ import annotations

import ipaddress
import math
from collections import deque
from collections.abc import Iterable, Mapping
from types import EllipsisType
from typing import Final, NamedTuple

import attrs

from ...protocol.errors import InvalidRequestError
from ...protocol.limits import INT32_MAX, INT64_MAX
from ..system.client_memory import MAX_NAME_CHARS, shortened

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

WHOLE_NUMBERS: Final = {
    PRODUCER_BYTE_RATE: INT64_MAX,
    CONSUMER_BYTE_RATE: INT64_MAX,
    CONNECTION_CREATION_RATE: INT32_MAX,
}
"""Keys whose values have no fractions, and the largest one."""
KEYS_OF_CLIENTS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
KEYS_OF_ADDRESSES: Final = (CONNECTION_CREATION_RATE,)
FRACTION: Final = 1e-6
"""What is nearer to a whole number is one."""

QuotaEntity = tuple[tuple[str, str | None], ...]
"""(type, name) in the order of the types; None is the default."""


def checked_entity(named: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """An entity that can have quotas; of a type that is named twice the last name counts, as in Kafka. Raises
    InvalidRequestError."""
    names = dict(named)
    if not names:
        raise InvalidRequestError("Invalid empty client quota entity")
    for kind, name in names.items():
        if kind not in ENTITY_TYPES:
            raise InvalidRequestError(f"Unhandled client quota entity type: {kind}. Use one of {', '.join(ENTITY_TYPES)}")
        if name == "":
            raise InvalidRequestError(f"Empty {kind} not supported")
    if IP in names:
        if len(names) > 1:
            raise InvalidRequestError(
                "Invalid quota entity combination: an address cannot be combined with a user or client id"
            )
        if (address := names[IP]) is not None and plain_address(address) is None:
            raise InvalidRequestError(f"{address} is not an IP address. Host names are not resolved")
    return tuple(sorted(names.items()))


def plain_address(text: str) -> str | None:
    """An address in the one way in which all that are equal are written; None for what is none."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None


def check_quota(entity: QuotaEntity, key: str, value: float) -> None:
    """Check that an entity may have this quota. Raises InvalidRequestError."""
    keys = KEYS_OF_ADDRESSES if entity[0][0] == IP else KEYS_OF_CLIENTS
    if key not in keys:
        raise InvalidRequestError(f"Invalid configuration key {key}. Use one of {', '.join(keys)}")
    if math.isnan(value):
        raise InvalidRequestError(f"Quota {key} is not a number")
    if value <= 0:
        raise InvalidRequestError(f"Quota {key} must be greater than 0")
    if (largest := WHOLE_NUMBERS.get(key)) is None:
        return
    if value > largest:
        raise InvalidRequestError(f"Proposed value for {key} is too large, the maximum is {largest}")
    if abs(value - round(value)) > FRACTION:
        raise InvalidRequestError(f"{key} cannot be a fractional value.")


MAX_BUCKETS: Final = 10_000
"""Users and clients whose use is remembered; beyond it who has changed nothing for longest is forgotten, and begins anew."""

Sharer = tuple[str | None, str | None]
"""The user and the client id that a bucket is of; None: whoever it is."""


class Mutation(NamedTuple):
    """The outcome of a change to topics or partitions: allowed or not, and the throttle time."""

    is_allowed: bool = True
    throttle_s: float = 0.0


ALLOWED: Final = Mutation()


@attrs.define(eq=False, repr=False)
class MutationBuckets:
    """The token buckets of clients for changes to topics and partitions. Owner: `ClientQuotas`."""

    _buckets: dict[Sharer, TokenBucket] = attrs.field(factory=dict)

    def use(self, sharer: Sharer, partitions: int, bound: float, now_s: float, *, is_strict: bool) -> Mutation:
        """So many partitions are to be made or deleted."""
        bucket = self._buckets.get(sharer)
        if bucket is None:
            if len(self._buckets) >= MAX_BUCKETS:
                self._make_room()
            bucket = self._buckets[sharer] = TokenBucket.full(bound, now_s)
        if is_strict:
            if missing_s := bucket.missing_s(bound, now_s):
                return Mutation(False, round(missing_s, 3))
            bucket.take(partitions, bound, now_s)
            return ALLOWED
        bucket.take(partitions, bound, now_s)
        return Mutation(True, round(bucket.missing_s(bound, now_s), 3))

    def _make_room(self) -> None:
        recent = sorted(self._buckets, key=lambda sharer: self._buckets[sharer].last_s)[-(MAX_BUCKETS // 2) :]
        self._buckets = {sharer: self._buckets[sharer] for sharer in recent}


SAMPLE_COUNT: Final = 11
SAMPLE_S: Final = 1.0
LEAST_WINDOW_S: Final = SAMPLE_S * (SAMPLE_COUNT - 1)


@attrs.define(eq=False, repr=False)
class _Sample:
    began_s: float
    last_s: float
    amount: float


@attrs.define(eq=False, repr=False)
class QuotaRate:
    """The usage of a user, client or address within a window. Owner: `ClientQuotas`. Times are seconds that only grow."""

    kept: float = 0.0
    """What the samples hold, those included that are too old to count: not more was used."""
    _samples: deque[_Sample] = attrs.field(factory=lambda: deque(maxlen=SAMPLE_COUNT))

    def add(self, amount: float, now_s: float) -> None:
        """Something was used; a negative amount takes back what was added."""
        samples = self._samples
        if samples and now_s - samples[-1].began_s < SAMPLE_S:
            samples[-1].amount += amount
            samples[-1].last_s = now_s
            self.kept += amount
        else:
            samples.append(_Sample(now_s, now_s, amount))
            self.kept = sum(sample.amount for sample in samples)

    @property
    def last_s(self) -> float:
        """Return the time of the last usage; -inf before the first."""
        return self._samples[-1].last_s if self._samples else -math.inf

    def is_unused(self, now_s: float) -> bool:
        """Return whether the window contains no usage."""
        samples = self._samples
        while samples and now_s - samples[0].last_s >= SAMPLE_COUNT * SAMPLE_S:
            samples.popleft()
        return not samples

    def window_s(self, now_s: float) -> float:
        """Return the length of the window over which the rate is measured."""
        if self.is_unused(now_s):
            return LEAST_WINDOW_S
        elapsed_s = now_s - self._samples[0].began_s
        full_s = elapsed_s // SAMPLE_S * SAMPLE_S
        return elapsed_s + max(0.0, LEAST_WINDOW_S - full_s)

    def per_second(self, now_s: float) -> float:
        """Use a second."""
        window_s = self.window_s(now_s)
        return sum(sample.amount for sample in self._samples) / window_s

    def over_s(self, bound: float, now_s: float) -> float:
        """After how long without use the rate would be at the bound again; 0 when it is not above it."""
        rate = self.per_second(now_s)
        return (rate - bound) / bound * self.window_s(now_s) if rate > bound else 0.0


MEASURED: Final = frozenset({PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE})
"""What requests count for."""
MOST_THROTTLE_S: Final = {REQUEST_PERCENTAGE: SAMPLE_S, CONNECTION_CREATION_RATE: SAMPLE_S}
"""Of one request, of one connection; by bytes there is no limit."""
MAX_KNOWN: Final = 10_000
"""Users, clients and addresses whose use is remembered; beyond it who has used nothing for longest is forgotten."""

_ABSENT: Final = ...
_Part = str | None | EllipsisType
"""A name, None for the default, or that the entity has no such part."""


@attrs.define
class QuotaStatistics:
    """Counted since the start, by key of the quota."""

    throttled: dict[str, int] = attrs.field(factory=dict)
    """Requests and connections that were above it."""
    throttled_s: dict[str, float] = attrs.field(factory=dict)
    """For how long their clients had to be quiet."""

    def count(self, key: str, seconds: float) -> None:
        self.throttled[key] = self.throttled.get(key, 0) + 1
        self.throttled_s[key] = self.throttled_s.get(key, 0.0) + seconds


@attrs.define(eq=False, repr=False)
class _Limit:
    """A quota, and what all have used together that it holds for."""

    bound: float
    rate: QuotaRate


_Known = tuple[str, str | None, str | None]
"""A key, and the user and the client id, or the address, that a rate is of."""


@attrs.define(eq=False, repr=False)
class ClientQuotas:
    """Owner: `Security`, which replaces the quotas; connections ask. All times are trio's."""

    is_active: bool = False
    """Whether any quota may hold for a request."""
    counts_time: bool = False
    """Whether it matters how long requests take."""
    limits_connections: bool = False
    """Whether any quota may hold for a new connection."""
    statistics: QuotaStatistics = attrs.field(factory=QuotaStatistics)
    _bounds: dict[str, dict[tuple[_Part, _Part], float]] = attrs.field(factory=dict)
    """By key, user and client id."""
    _addresses: dict[str | None, float] = attrs.field(factory=dict)
    _limits: dict[_Known, _Limit | None] = attrs.field(factory=dict)
    """Of who has asked: which limit holds."""
    _rates: dict[_Known, QuotaRate] = attrs.field(factory=dict)
    _mutations: MutationBuckets = attrs.field(factory=MutationBuckets)

    def replace(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """These are in effect from now on; what was used before is not forgotten."""
        self._bounds, self._addresses = {}, {}
        self._limits.clear()
        for entity, values in quotas.items():
            parts = dict(entity)
            if IP in parts:
                address = parts[IP]
                bound = values.get(CONNECTION_CREATION_RATE, math.inf)
                self._addresses[None if address is None else plain_address(address)] = bound
            else:
                place: tuple[_Part, _Part] = parts.get(USER, _ABSENT), parts.get(CLIENT_ID, _ABSENT)
                for key, bound in values.items():
                    if key in MEASURED:
                        self._bounds.setdefault(key, {})[place] = bound
        self.is_active, self.limits_connections = bool(self._bounds), bool(self._addresses)
        self.counts_time = REQUEST_PERCENTAGE in self._bounds

    # ---- requests ----------------------------------------------------------------------------------------------------------

    def largest_burst(self, key: str, user: str, client_id: str, now_s: float) -> float:
        """Return the most that a client without usage may use within the quota; infinite without a quota."""
        limit = self._limit(key, user, client_id, now_s)
        return math.inf if limit is None else limit.bound * LEAST_WINDOW_S

    def use(self, key: str, user: str, client_id: str, amount: float, now_s: float) -> float:
        """Something was used: for how long the connection is to be quiet, in seconds; mostly 0."""
        limit = self._limits.get((key, user, client_id), _ABSENT)
        if limit is _ABSENT:
            limit = self._limit(key, user, client_id, now_s)
        if limit is None:
            return 0.0
        rate = limit.rate
        rate.add(amount, now_s)
        if rate.kept <= limit.bound * LEAST_WINDOW_S:  # the common case, which would come to the same
            return 0.0
        return self._throttled(key, rate.over_s(limit.bound, now_s))

    def use_if_allowed(self, key: str, user: str, client_id: str, amount: float, now_s: float) -> float:
        """The same, and what is above the quota is not used after all. Who has used nothing yet gets it, however much it is:
        a batch that is larger than the quota would never be read otherwise."""
        limit = self._limit(key, user, client_id, now_s)
        if limit is None:
            return 0.0
        is_first = limit.rate.is_unused(now_s)
        limit.rate.add(amount, now_s)
        seconds = limit.rate.over_s(limit.bound, now_s)
        if not seconds or is_first:
            return 0.0
        limit.rate.add(-amount, now_s)
        return self._throttled(key, seconds)

    def mutate(self, user: str, client_id: str, partitions: int, now_s: float, *, is_strict: bool) -> Mutation:
        """So many partitions are to be made or deleted, if nothing is owed, or in any case when it is not `is_strict`."""
        found = self._holding(CONTROLLER_MUTATION_RATE, user, client_id)
        if found is None:
            return ALLOWED
        known, bound = found
        mutation = self._mutations.use(known[1:], partitions, bound, now_s, is_strict=is_strict)
        if mutation.throttle_s:
            self.statistics.count(CONTROLLER_MUTATION_RATE, mutation.throttle_s)
        return mutation

    def _throttled(self, key: str, seconds: float) -> float:
        """In whole milliseconds, as answers have it."""
        seconds = round(min(seconds, MOST_THROTTLE_S.get(key, math.inf)), 3)
        if seconds:
            self.statistics.count(key, seconds)
        return seconds

    def _limit(self, key: str, user: str, client_id: str, now_s: float) -> _Limit | None:
        asked = key, user, client_id
        limit = self._limits.get(asked, _ABSENT)
        if limit is _ABSENT:
            limit = self._look_up(key, user, client_id, now_s)
            if len(user) + len(client_id) <= MAX_NAME_CHARS:
                if len(self._limits) >= MAX_KNOWN:
                    self._limits.clear()
                self._limits[asked] = limit
        return limit

    def _look_up(self, key: str, user: str, client_id: str, now_s: float) -> _Limit | None:
        found = self._holding(key, user, client_id)
        return None if found is None else _Limit(found[1], self._rate(found[0], now_s))

    def _holding(self, key: str, user: str, client_id: str) -> tuple[_Known, float] | None:
        """Return the quota that applies, with its bound; None without one."""
        bounds = self._bounds.get(key, {})
        for of_user in (user, None, _ABSENT):
            for of_client in (client_id, None, _ABSENT):
                if (bound := bounds.get((of_user, of_client))) is not None:
                    known = (
                        key,
                        None if of_user is _ABSENT else shortened(user),
                        None if of_client is _ABSENT else shortened(client_id),
                    )
                    return known, bound
        return None

    def _rate(self, known: _Known, now_s: float) -> QuotaRate:
        rate = self._rates.get(known)
        if rate is None:
            if len(self._rates) >= MAX_KNOWN:
                self._make_room(now_s)
            rate = self._rates[known] = QuotaRate()
        return rate

    def _make_room(self, now_s: float) -> None:
        """Forget who uses nothing, and at least the half that has used nothing for longest."""
        used = [known for known, rate in self._rates.items() if not rate.is_unused(now_s)]
        used.sort(key=lambda known: self._rates[known].last_s)
        self._rates = {known: self._rates[known] for known in used[-(MAX_KNOWN // 2) :]}
        self._limits.clear()

    # ---- connections -------------------------------------------------------------------------------------------------------

    def connect(self, address: str, now_s: float) -> float:
        """Somebody connects: 0 when he may, else after how many seconds his connection is to be closed."""
        plain = plain_address(address)
        bound = self._addresses.get(plain, self._addresses.get(None, math.inf))
        if bound == math.inf:
            return 0.0
        rate = self._rate((CONNECTION_CREATION_RATE, plain, None), now_s)
        rate.add(1, now_s)
        seconds = self._throttled(CONNECTION_CREATION_RATE, rate.over_s(bound, now_s))
        if seconds:
            rate.add(-1, now_s)
        return seconds


BURST_S: Final = 11.0


@attrs.define(eq=False, repr=False)
class TokenBucket:
    """The tokens that a user or client has left. Owner: `ClientQuotas`. Times are seconds that only grow."""

    tokens: float
    last_s: float
    """When it was looked at last."""

    @classmethod
    def full(cls, bound: float, now_s: float) -> TokenBucket:
        return cls(bound * BURST_S, now_s)

    def refill(self, bound: float, now_s: float) -> None:
        """Add the tokens that have come back since the last call."""
        self.tokens = min(bound * BURST_S, self.tokens + bound * (now_s - self.last_s))
        self.last_s = now_s

    def take(self, amount: float, bound: float, now_s: float) -> None:
        """Something is used, whether it is there or not."""
        self.refill(bound, now_s)
        self.tokens -= amount

    def missing_s(self, bound: float, now_s: float) -> float:
        """After how long nothing is owed any more; 0 where nothing is."""
        self.refill(bound, now_s)
        return max(0.0, -self.tokens / bound)
