"""What all Kafka connections of a broker share: which APIs are spoken, what clients are told of the cluster, what a call is."""

from __future__ import annotations

from typing import Final, NamedTuple

import attrs

from ....protocol.errors import RequestError
from ....protocol.kafka.apis import APIS, Api
from ...broker import Broker
from ...broker_config import Address
from .fetch_sessions import FetchSessions
from .session import IDLE_TIMEOUT_S, KafkaSession

NO_TOPIC_ID: Final = bytes(16)


class Node(NamedTuple):
    """A broker as clients see it."""

    node_id: int
    host: str
    port: int


@attrs.define(eq=False)
class KafkaDoor:
    """Owner: the Kafka listener of a broker."""

    broker: Broker
    advertised: Address | None = None
    """Where clients are sent; None: to the address that they have connected to."""
    apis: dict[int, Api] = attrs.field(factory=lambda: APIS)
    idle_timeout_s: float = IDLE_TIMEOUT_S
    """A connection without a request for so long is closed."""
    fetch_sessions: FetchSessions = attrs.field(factory=FetchSessions)

    @property
    def node_id(self) -> int:
        return self.broker.node_id

    @property
    def lenient(self) -> bool:
        """Whether tests get what they want instead of what Kafka refuses."""
        return self.broker.config.lenient

    def nodes(self, session: KafkaSession) -> list[Node]:
        """The brokers of the cluster."""
        address = self.advertised or self._local_address(session)
        return [Node(self.node_id, address.host, address.port)]

    @staticmethod
    def _local_address(session: KafkaSession) -> Address:
        host, port = session.transport.stream.socket.getsockname()[:2]
        return Address(host, port)


@attrs.frozen
class Call:
    """One request that is being answered."""

    door: KafkaDoor
    session: KafkaSession
    version: int

    @property
    def broker(self) -> Broker:
        return self.door.broker

    def topic_name(self, name: str, topic_id: bytes, *, by_id: bool) -> str:
        """The topic that a request means, by its name, or its id in versions that have one. Raises RequestError."""
        return self.broker.topic_named(topic_id) if by_id else name


def error_code(error: RequestError | None) -> int:
    """What stands in an answer's `error_code`."""
    return 0 if error is None else error.code


def error_message(error: RequestError | None) -> str | None:
    """What stands in an answer's `error_message`."""
    return None if error is None else error.message
