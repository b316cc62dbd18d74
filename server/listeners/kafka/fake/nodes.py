"""Several listeners that look like several brokers of one cluster, which have one log between them. For tests only.

Every partition has one leader, every group and transactional id one coordinator; a node that is asked for what another one has
answers NOT_LEADER_OR_FOLLOWER or NOT_COORDINATOR, and Metadata and FindCoordinator say whom to ask. Leaders move on demand,
with a leader epoch that goes up in the log itself; those of a node that is down go to the next one that is up.
"""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

import attrs

from .....protocol.errors import ErrorCode, RequestError
from .....protocol.kafka.apis import ApiKey, ServedBy
from .....protocol.types import TopicPartition
from ..door import KafkaDoor, Node
from ..session import KafkaSession, Turn
from .subjects import subject_of

TELL_OF_NODES: Final = frozenset(
    {ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_CLUSTER, ApiKey.DESCRIBE_TOPIC_PARTITIONS}
)

Serve = Callable[[Turn], Awaitable[None]]


@attrs.define(eq=False, repr=False)
class Nodes:
    """Who is there and who has what. Owner: who opened the listeners."""

    first_id: int
    addresses: dict[int, Node] = attrs.field(factory=dict)
    """Every node, those that are down too."""
    down: set[int] = attrs.field(factory=set)
    _leaders: dict[TopicPartition, int] = attrs.field(factory=dict)
    _coordinators: dict[str, int] = attrs.field(factory=dict)

    def listed(self) -> list[Node]:
        """The nodes that clients are told of; never none, since clients that lose all of them do not come back."""
        return [node for number, node in self.addresses.items() if number not in self.down] or list(self.addresses.values())

    @property
    def controller(self) -> int:
        return self.listed()[0].node_id

    def leader_of(self, topic: str, partition: int) -> int:
        """The node that leads a partition. Partitions are spread over the nodes until `move_leader`."""
        moved = self._leaders.get(TopicPartition(topic, partition))
        return self._up(moved if moved is not None else self.first_id + (_spread(topic) + partition) % len(self.addresses))

    def coordinator_of(self, name: str) -> int:
        """The node that coordinates a group or a transactional id."""
        moved = self._coordinators.get(name)
        return self._up(moved if moved is not None else self.first_id + _spread(name) % len(self.addresses))

    def _up(self, wanted: int) -> int:
        """This node, or the next one that is up."""
        numbers = list(self.addresses)
        at = numbers.index(wanted)
        return next((each for each in [*numbers[at:], *numbers[:at]] if each not in self.down), wanted)

    def move_leader(self, topic: str, partition: int, node: int) -> None:
        """Raises KeyError for an unknown node."""
        self._leaders[TopicPartition(topic, partition)] = self.addresses[node].node_id

    def move_coordinator(self, name: str, node: int) -> None:
        """Raises KeyError for an unknown node."""
        self._coordinators[name] = self.addresses[node].node_id

    def forget_moves(self) -> None:
        """Put all nodes up, and leaders and coordinators where they were at first."""
        self.down.clear()
        self._leaders.clear()
        self._coordinators.clear()


def _spread(name: str) -> int:
    return zlib.crc32(name.encode())


@attrs.define(eq=False, repr=False, kw_only=True)
class NodeDoor(KafkaDoor):
    """The door of one of several nodes."""

    number: int
    cluster: Nodes

    @property
    def node_id(self) -> int:
        return self.number

    def nodes(self, session: KafkaSession) -> list[Node]:
        return self.cluster.listed()


def refusal(door: NodeDoor, turn: Turn) -> ErrorCode | None:
    """NOT_COORDINATOR when another node coordinates something that the request names, else None."""
    served_by = turn.request.api.served_by
    if served_by not in (ServedBy.GROUP, ServedBy.TRANSACTION):
        return None
    subject = subject_of(turn.request, door.number, door.broker.topics.named)
    names = subject.groups if served_by is ServedBy.GROUP else subject.transactional_ids
    is_elsewhere = any(door.cluster.coordinator_of(name) != door.number for name in names)
    return ErrorCode.NOT_COORDINATOR if is_elsewhere else None


def is_elsewhere(door: NodeDoor, topic: str, partition: int | None) -> bool:
    """Whether another node leads the partition. Nobody leads one that does not exist: any node may say so."""
    if partition is None or door.cluster.leader_of(topic, partition) == door.number:
        return False
    try:
        door.broker.reader.snapshot(TopicPartition(topic, partition))
    except RequestError:
        return False
    return True


def tell(door: NodeDoor, key: ApiKey, request: Any, response: Any) -> Any:
    """Change the answer of a single broker into the one that a node of the cluster gives."""
    cluster = door.cluster
    if key is ApiKey.FIND_COORDINATOR:
        _tell_coordinators(cluster, request, response)
        return response
    if key is not ApiKey.DESCRIBE_TOPIC_PARTITIONS:
        response.controller_id = cluster.controller
    for topic in response.topics if key is not ApiKey.DESCRIBE_CLUSTER else ():
        for partition in topic.partitions:
            if partition.leader_id >= 0:
                partition.leader_id = cluster.leader_of(topic.name or "", partition.partition_index)
                partition.replica_nodes = list(cluster.addresses)
                partition.isr_nodes = [number for number in cluster.addresses if number not in cluster.down]
                partition.offline_replicas = sorted(cluster.down)
    return response


def _tell_coordinators(cluster: Nodes, request: Any, response: Any) -> None:
    answers = [(answer, answer.key) for answer in response.coordinators] or [(response, request.key)]
    for answer, name in answers:
        if not answer.error_code:
            node = cluster.addresses[cluster.coordinator_of(name)]
            answer.node_id, answer.host, answer.port = node
