"""The shared state of all Kafka connections of a broker: supported APIs, the cluster as clients see it, and the call.

Regular expressions in requests need RE2; `pattern_of` and `check_subscription` know whether it is installed.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar

import attrs
import trio

from ....protocol.errors import ErrorCode, RequestError, UnknownTopicOrPartitionError, UnsupportedVersionError
from ....protocol.kafka.apis import APIS, Api, ApiKey
from ....protocol.kafka.authorization import CLUSTER_NAME, OPERATIONS, AclOperation, ResourceType, bit_field
from ....protocol.kafka.connection import GivenAnswer
from ....protocol.patterns import MISSING, compiled_pattern, load_patterns
from ....protocol.schema.fields import all_fields, cached
from ....protocol.types import TopicPartition
from ...broker import Broker, Security
from ...config.broker_config import Address
from ...loop.procedures import Procedure, mapped
from ..access.rules import Asker
from ..connections.session import IDLE_TIMEOUT_S
from .error_answers import put_error
from .fetch_sessions import FetchSessions
from .login import KafkaLogin
from .session import KafkaSession

Q = TypeVar("Q", bound=Any)
A = TypeVar("A")
R = TypeVar("R")
T = TypeVar("T")

NO_TOPIC_ID: Final = bytes(16)
TELEMETRY: Final = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})
"""Advertised where clients are asked for metrics."""
ENTRIES_PER_TURN: Final = 512
"""Partitions, or topics, whose entries of an answer are made before other tasks run."""
_PARTITIONS: Final = attrgetter("partitions")
_SEE_CLUSTER: Final = (AclOperation.DESCRIBE, ResourceType.CLUSTER)


class Node(NamedTuple):
    """A broker as clients see it."""

    node_id: int
    host: str
    port: int


@attrs.define(eq=False, repr=False)
class KafkaDoor:
    """Owner: the Kafka listener of a broker."""

    broker: Broker
    advertised: Address | None = None
    """Where clients are sent; None: to the address that they have connected to."""
    apis: dict[int, Api] = attrs.field(factory=lambda: APIS)
    idle_timeout_s: float = IDLE_TIMEOUT_S
    """A connection without a request for so long is closed."""
    fetch_sessions: FetchSessions = attrs.field(init=False)
    guard: Security | None = attrs.field(init=False)
    """Who knows what a principal may do; None: everybody may do everything."""
    sasl_mechanisms: tuple[str, ...] = attrs.field(init=False)
    """How users log in; none: nobody does."""

    def __attrs_post_init__(self) -> None:
        config, security = self.broker.config, self.broker.security
        self.fetch_sessions = FetchSessions(account=self.broker.client_memory.account("fetch sessions"))
        if not config.telemetry_enable:
            self.apis = {key: api for key, api in self.apis.items() if key not in TELEMETRY}
        self.guard = None if security.authorizer is None else security
        self.sasl_mechanisms = config.sasl_enabled_mechanisms if config.kafka_security.has_sasl else ()

    @property
    def node_id(self) -> int:
        return self.broker.node_id

    def leader_of(self, topic: str, partition: int) -> int:
        """The node that leads a partition."""
        return self.node_id

    def check_coordinator(self, name: str) -> None:
        """Raises RequestError: NOT_COORDINATOR when another node coordinates the group or transactional id."""

    @property
    def lenient(self) -> bool:
        """Return whether the server accepts requests that Kafka refuses; for tests."""
        return self.broker.config.lenient

    def nodes(self, session: KafkaSession) -> list[Node]:
        """The brokers of the cluster."""
        address = self.advertised or self._local_address(session)
        return [Node(self.node_id, address.host, address.port)]

    @staticmethod
    def _local_address(session: KafkaSession) -> Address:
        host, port = session.transport.stream.socket.getsockname()[:2]
        return Address(host, port)


class Given(NamedTuple):
    """An answer that is written from its numbers, without the message's objects."""

    form: GivenAnswer
    elements: Sequence[Any]
    is_single: bool
    """Whether each list of the answer has one element. `elements` has its numbers then, side by side."""


@attrs.frozen
class Call(Asker):
    """A connection's requests in one version, seen by who answers them."""

    door: KafkaDoor
    session: KafkaSession
    version: int
    login: KafkaLogin | None = None
    """None where nobody logs in."""
    needs_message: bool = True
    """Whether somebody looks at the answer before it leaves, so that it must not be `Given`."""
    guard: Security | None = attrs.field(init=False, default=attrs.Factory(lambda call: call.door.guard, takes_self=True))
    """The door's."""
    broker: Broker = attrs.field(init=False, default=attrs.Factory(lambda call: call.door.broker, takes_self=True))
    """The door's."""

    def authorized_operations(self, kind: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Return the client's permitted operations on a resource, as the bit field of responses."""
        return bit_field(each for each in OPERATIONS[kind] if self.authorize(each, kind, name, quietly=True))

    def operations_on_cluster(self) -> int:
        """Return the client's permitted operations on the cluster, as the bit field of responses; 0 if it may not describe the
        cluster."""
        return self.authorized_operations(ResourceType.CLUSTER) if self.authorize(*_SEE_CLUSTER, quietly=True) else 0

    def charge_partitions(self, partitions: int, first_strict: int) -> None:
        """So many are to be made or deleted, which counts for the client's quota of changes. Raises RequestError:
        THROTTLING_QUOTA_EXCEEDED, in versions from `first_strict` on, while it owes; below it has to be quiet, that is all."""
        session = self.session
        if not session.quotas.is_active:
            return
        mutation = session.quotas.mutate(
            session.user,
            session.asking_client,
            partitions,
            trio.current_time(),
            is_strict=self.version >= first_strict,
        )
        session.owed_s = max(session.owed_s, mutation.throttle_s)
        if not mutation.is_allowed:
            raise RequestError("The throttling quota has been exceeded.", ErrorCode.THROTTLING_QUOTA_EXCEEDED)

    def topic_name(self, name: str, topic_id: bytes, *, by_id: bool) -> str:
        """The topic that a request means, by its name, or its id in versions that have one. Raises RequestError."""
        return self.broker.topics.named(topic_id) if by_id else name

    def check_partition(self, topic_partition: TopicPartition) -> None:
        """Raises RequestError when there is no such topic, or it has no such partition."""
        count = self.broker.topics.partition_count(topic_partition.topic)
        if not 0 <= topic_partition.partition < count:
            raise UnknownTopicOrPartitionError(
                f"topic {topic_partition.topic!r} has partitions 0 to {count - 1}, not {topic_partition.partition}"
            )


def topics_of_answer(
    topics: Sequence[Q], answers: Iterable[A], partition: Callable[[tuple[Any, A]], R], topic: Callable[[Iterator[R], Q], T]
) -> Procedure[list[T]]:
    """The topics of an answer: `partition` makes its entry from (partition of the request, its answer), `topic` takes its
    entries from an iterator and gets the topic of the request. `answers` are in the order of the request."""
    pairs = zip(chain.from_iterable(map(_PARTITIONS, topics)), answers, strict=True)
    entries = iter((yield from mapped(partition, pairs, ENTRIES_PER_TURN)))
    return (yield from mapped(partial(topic, entries), topics, ENTRIES_PER_TURN))


def error_code(error: RequestError | None) -> int:
    """The code for an answer's `error_code`; 0 without an error."""
    return 0 if error is None else error.code


def error_message(error: RequestError | None) -> str | None:
    """Return the `error_message` of a response."""
    return None if error is None else error.message


def reported(cls: type[T], error: RequestError | None, **fields: Any) -> T:
    """Return a structure of an answer that says how its part of the request went. Fields that are not given have defaults."""
    answer = cls(**fields)
    put_error(answer, "error_code", error_code(error), error_message(error))
    return answer


def filled(cls: type[T], source: object, **fields: Any) -> T:
    """Return a structure of an answer that repeats a value of the broker: `fields`, and what `source` has under the names of
    the others. The elements of a list are made in the same way."""
    for name, element in _fields_in(cls, type(source)):
        if name not in fields:
            value = getattr(source, name)
            fields[name] = value if element is None or value is None else [filled(element, each) for each in value]
    return cls(**fields)


@cached
def _fields_in(cls: type, source: type) -> Sequence[tuple[str, type | None]]:
    """Return the fields that a class of the broker has under the name of a structure's field, each with the structure of its
    elements if it is a list of structures."""
    return [
        (field.name, field.element if field.is_array and isinstance(field.element, type) else None)
        for field in all_fields(cls)
        if hasattr(source, field.name)
    ]


LOGGER: Final = logging.getLogger(__name__)

NOT_RESOLVED: Final = (
    "The cluster does not support regular expressions resolution on ConsumerGroupHeartbeat API version 0. It must be upgraded "
    "to use ConsumerGroupHeartbeat API version >= 1 to allow to subscribe to a SubscriptionPattern."
)
"""What Kafka says of a broker without SubscribedTopicRegex. The Java client shows the message of an UNSUPPORTED_VERSION only
when it has this in it, and says otherwise that the broker has no KIP-848 (ConsumerHeartbeatRequestManager)."""


def pattern_of(text: str) -> Callable[[str], bool]:
    """`compiled_pattern`; the log says once when RE2 is missing. Raises RequestError."""
    try:
        return compiled_pattern(text)
    except UnsupportedVersionError:
        _warn()
        raise


def check_subscription() -> None:
    """Check that consumers can subscribe by pattern; log a warning once if they cannot. Raises UNSUPPORTED_VERSION."""
    if not load_patterns():
        _warn()
        raise UnsupportedVersionError(f"{MISSING}. {NOT_RESOLVED}")


@functools.cache
def _warn() -> None:
    LOGGER.warning("regular expression of a client refused, and so are all later ones: %s", MISSING)
