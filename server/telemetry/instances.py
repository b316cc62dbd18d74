"""Clients that send metrics, and what each of them is asked for (KIP-714; Kafka: ClientMetricsManager, ClientMetricsInstance).

A client that is seen for the first time gets an id. What it is asked for follows from the subscriptions that it matches: all
their metrics, at the shortest of their intervals. It is begun anew when subscriptions change.

Telemetry of clients: who is asked for what, what has come, and how pushes ended. Of each of their metrics the last number is
kept. Sums are added up, since clients send increments.

Everything has a limit, because names and attributes are the clients' own.
"""

from __future__ import annotations

import base64
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import attrs

from ...protocol.errors import ErrorCode, InvalidRequestError, RequestError
from ...protocol.limits import INT32_MAX
from ...protocol.records.batch import crc32c
from ...protocol.types import CompressionType
from ..config.resource_keys import ALL_METRICS, DEFAULT_INTERVAL_MS, Subscription
from ..system.client_memory import Account, ClientMemory, deep_bytes
from .otlp import Point

MAX_INSTANCES: Final = 16_384
"""As in Kafka; who was silent for longest is forgotten."""
INSTANCE_BYTES: Final = 1_500
LEAST_EXPIRY_MS: Final = 60_000
INTERVALS_OF_SILENCE: Final = 3
"""After which a client is forgotten."""
ACCEPTED_COMPRESSION: Final = (CompressionType.ZSTD, CompressionType.LZ4, CompressionType.GZIP, CompressionType.SNAPPY)
RESERVED: Final = frozenset({bytes(16), bytes(15) + b"\x01"})
"""Kafka's Uuid.RESERVED: no client has them."""
NO_INSTANCE: Final = bytes(16)
_LENIENT_AFTER: Final = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})
"""Errors after which a client may ask at once what it is to send."""


class Push(NamedTuple):
    """The fields that a client sends with its metrics."""

    subscription_id: int
    is_terminating: bool
    compression_type: int
    size_bytes: int


@attrs.define(eq=False, repr=False)
class ClientInstance:
    """A client. Owner: `ClientInstances`."""

    instance_id: bytes
    client: Mapping[str, str]
    version: int
    """Of the subscriptions that it was made by."""
    subscription_id: int
    metrics: tuple[str, ...]
    interval_ms: int
    got_ms: int | None = None
    pushed_ms: int | None = None
    seen_ms: int = 0
    is_terminating: bool = False
    last_error: ErrorCode = ErrorCode.NONE

    def may_get(self, now_ms: int) -> bool:
        last_ms = max((each for each in (self.got_ms, self.pushed_ms) if each is not None), default=None)
        if last_ms is None or now_ms - last_ms >= self.interval_ms:
            self.got_ms = now_ms
            return True
        return self.last_error in _LENIENT_AFTER

    def may_push(self, now_ms: int) -> bool:
        has_asked_since = self.got_ms is not None and (self.pushed_ms is None or self.got_ms > self.pushed_ms)
        if has_asked_since or self.pushed_ms is None or now_ms - self.pushed_ms >= self.interval_ms:
            self.pushed_ms = now_ms
            return True
        return False

    @property
    def expiry_ms(self) -> int:
        """After how much silence it is forgotten."""
        return max(LEAST_EXPIRY_MS, INTERVALS_OF_SILENCE * self.interval_ms)


@attrs.define(eq=False, repr=False)
class ClientInstances:
    """See the module. Owner: the broker. Times are ms that only grow."""

    max_bytes: int
    """Of metrics, as they are sent."""
    subscriptions: Callable[[], tuple[Mapping[str, Subscription], int]]
    """What is wanted now, and its version."""
    _account: Account = attrs.field(factory=lambda: ClientMemory().account("client instances"))
    """Where they are charged."""
    _instances: dict[bytes, ClientInstance] = attrs.field(factory=dict)
    """Who was seen last is at the end."""
    _of_connection: dict[object, bytes] = attrs.field(factory=dict)

    def __len__(self) -> int:
        return len(self._instances)

    def get(self, instance_id: bytes, client: Mapping[str, str], connection: object, now_ms: int) -> ClientInstance:
        """A client asks what it is to send. Raises RequestError: THROTTLING_QUOTA_EXCEEDED."""
        if instance_id == NO_INSTANCE:
            instance_id = uuid.uuid4().bytes
        instance = self._seen(instance_id, client, connection, now_ms)
        if not instance.may_get(now_ms):
            raise _too_early(instance)
        instance.last_error = ErrorCode.NONE
        return instance

    def push(
        self, instance_id: bytes, client: Mapping[str, str], push: Push, connection: object, now_ms: int
    ) -> ClientInstance:
        """A client sends metrics, which may be taken. Raises RequestError: INVALID_REQUEST, THROTTLING_QUOTA_EXCEEDED,
        UNKNOWN_SUBSCRIPTION_ID, UNSUPPORTED_COMPRESSION_TYPE, TELEMETRY_TOO_LARGE."""
        if instance_id in RESERVED:
            raise InvalidRequestError(f"client instance id {instance_id.hex()} is not valid")
        instance = self._seen(instance_id, client, connection, now_ms)
        try:
            self._check(instance, push, now_ms)
        except RequestError as exc:
            instance.last_error = ErrorCode(exc.code)
            raise
        finally:
            instance.is_terminating = push.is_terminating
        instance.last_error = ErrorCode.NONE
        return instance

    def _check(self, instance: ClientInstance, push: Push, now_ms: int) -> None:
        who = f"client instance {instance.instance_id.hex()}"
        if instance.is_terminating:
            raise InvalidRequestError(f"{who} has ended, but sends metrics again")
        if not instance.may_push(now_ms) and not push.is_terminating:
            raise _too_early(instance)
        if push.subscription_id != instance.subscription_id:
            raise RequestError(
                f"{who}: subscription {push.subscription_id} is over, the current one is {instance.subscription_id}",
                ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
            )
        if push.compression_type not in set(CompressionType):
            raise RequestError(f"{who}: unknown compression {push.compression_type}", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if push.size_bytes > self.max_bytes:
            raise RequestError(
                f"{who}: {push.size_bytes} bytes of metrics are more than telemetry_max_bytes={self.max_bytes}",
                ErrorCode.TELEMETRY_TOO_LARGE,
            )

    def _seen(self, instance_id: bytes, client: Mapping[str, str], connection: object, now_ms: int) -> ClientInstance:
        """The client, made anew when what is wanted has changed."""
        subscriptions, version = self.subscriptions()
        instance = self._instances.pop(instance_id, None)
        if instance is None or instance.version < version:
            self._make_room(now_ms)
            size = INSTANCE_BYTES + deep_bytes(client)
            self._account.take(instance_id, size, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
            instance = _made(instance_id, client, subscriptions.values(), version)
        instance.seen_ms = now_ms
        self._instances[instance_id] = instance
        self._of_connection[connection] = instance_id
        return instance

    def _make_room(self, now_ms: int) -> None:
        """Forget who was silent for too long, and at the limit who was for longest."""
        while self._instances:
            oldest = next(iter(self._instances.values()))
            if len(self._instances) < MAX_INSTANCES and now_ms - oldest.seen_ms < oldest.expiry_ms:
                return
            del self._instances[oldest.instance_id]
            self._account.drop(oldest.instance_id)

    def disconnected(self, connection: object) -> None:
        """A connection has ended: its client comes anew, if it comes."""
        instance_id = self._of_connection.pop(connection, None)
        if instance_id is not None:
            self._instances.pop(instance_id, None)
            self._account.drop(instance_id)


def _made(instance_id: bytes, client: Mapping[str, str], subscriptions: Iterable[Subscription], version: int) -> ClientInstance:
    """Create a client instance from all subscriptions that the client matches."""
    known = {**client, "client_instance_id": base64.urlsafe_b64encode(instance_id).decode().rstrip("=")}
    matching = [each for each in subscriptions if each.matches(known)]
    metrics = tuple(sorted({name for each in matching for name in each.metrics}))
    if ALL_METRICS in metrics:
        metrics = (ALL_METRICS,)
    interval_ms = min((each.interval_ms for each in matching), default=DEFAULT_INTERVAL_MS)
    interval_ms = min(interval_ms, DEFAULT_INTERVAL_MS)  # a longer one is not heeded, as in Kafka
    text = f"[{', '.join(metrics)}]{interval_ms}".encode()
    mixed = crc32c(text) ^ int.from_bytes(instance_id[:4], "big") ^ int.from_bytes(instance_id[12:], "big")
    subscription_id = mixed - 2**32 if mixed > INT32_MAX else mixed
    return ClientInstance(instance_id, known, version, subscription_id, metrics, interval_ms)


def _too_early(instance: ClientInstance) -> RequestError:
    return RequestError(
        f"client instance {instance.instance_id.hex()} comes before {instance.interval_ms} ms are over",
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    )


MAX_CLIENTS: Final = 500
MAX_SERIES_OF_CLIENT: Final = 500
SERIES_BYTES: Final = 300
MAX_SERIES: Final = 10_000
"""Of all clients together."""


class Series(NamedTuple):
    """A number, with its client, metric and attributes."""

    client: Mapping[str, str]
    metric: str
    attributes: str
    value: float


@attrs.define(eq=False, repr=False)
class _OfClient:
    client: Mapping[str, str]
    expires_ms: int
    values: dict[tuple[str, str], float] = attrs.field(factory=dict)


@attrs.define(eq=False, repr=False)
class Collected:
    """Owner: `Telemetry`. Times are ms that only grow."""

    left_out: int = 0
    """Numbers that there was no room for, since the start."""
    _account: Account = attrs.field(factory=lambda: ClientMemory().account("client metrics"), kw_only=True)
    """Where they are charged."""
    _clients: dict[bytes, _OfClient] = attrs.field(factory=dict)
    """Who has sent last is at the end."""
    _series: int = 0

    def add(
        self, instance_id: bytes, client: Mapping[str, str], points: Iterable[Point], *, now_ms: int, expires_ms: int
    ) -> None:
        """A client has sent these; they are kept until `expires_ms`, or until it sends more."""
        found = self._clients.pop(instance_id, None)
        self._make_room(now_ms)
        of_client = self._clients[instance_id] = found or _OfClient(client, expires_ms)
        of_client.expires_ms = expires_ms
        for point in points:
            key = point.metric, point.attributes
            before = of_client.values.get(key)
            if before is None:
                size = SERIES_BYTES + sys.getsizeof(point.metric) + sys.getsizeof(point.attributes)
                is_full = len(of_client.values) >= MAX_SERIES_OF_CLIENT or self._series >= MAX_SERIES
                if is_full or not self._account.fits(instance_id, size):
                    self.left_out += 1
                    continue
                self._account.put(instance_id, self._account.size_of(instance_id) + size)
                self._series += 1
            of_client.values[key] = point.value + (before or 0.0) if point.is_delta else point.value

    def _make_room(self, now_ms: int) -> None:
        """Forget who was silent for too long, and at the limit who was for longest."""
        for instance_id, each in list(self._clients.items()):
            if each.expires_ms <= now_ms or len(self._clients) >= MAX_CLIENTS:
                self._series -= len(each.values)
                del self._clients[instance_id]
                self._account.drop(instance_id)

    def series(self, now_ms: int) -> Iterator[Series]:
        """All numbers of clients that were not silent for too long."""
        for each in self._clients.values():
            if each.expires_ms > now_ms:
                for (metric, attributes), value in each.values.items():
                    yield Series(each.client, metric, attributes, value)


@attrs.define(eq=False, repr=False)
class Telemetry:
    """Owner: the broker."""

    instances: ClientInstances
    collected: Collected = attrs.field(factory=Collected)
    pushes: Counter[str] = attrs.field(factory=Counter)
    """By the name of the error; NONE is what was taken."""
