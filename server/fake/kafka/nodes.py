"""Several listeners that look like several brokers of one cluster, which have one log between them. For tests only.

Every partition has one leader, every group and transactional id one coordinator; a node that is asked for what another one has
answers NOT_LEADER_OR_FOLLOWER or NOT_COORDINATOR, and Metadata and FindCoordinator say whom to ask. Leaders move on demand,
with a leader epoch that goes up in the log itself; those of a node that is down go to the next one that is up.

A topic has the replicas that its CreateTopics names, by number or one by one. One that was created without has a replica on
every node. What administrators add up over all nodes counts once: a node lists the groups and transactional ids that it
coordinates, and the log directories with the partitions that have a replica on it.
"""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from ....protocol.errors import ErrorCode, RequestError
from ....protocol.kafka.apis import ApiKey, ServedBy
from ....protocol.types import TopicPartition
from ...listeners.kafka.door import KafkaDoor, Node
from ...listeners.kafka.session import KafkaSession, Turn
from .subjects import subject_of

TELL_OF_NODES: Final = frozenset(
    {
        *(ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_CLUSTER, ApiKey.DESCRIBE_TOPIC_PARTITIONS),
        *(ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_TOPICS),
        *(ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_LOG_DIRS),
    }
)

Serve = Callable[[Turn], Awaitable[None]]


@attrs.frozen
class Placement:
    """The nodes that have the replicas of a topic."""

    factor: int
    """Replicas of each partition that is not assigned."""
    assigned: Mapping[int, tuple[int, ...]]
    """By partition, the preferred leader first."""


@attrs.define(eq=False, repr=False)
class Nodes:
    """The nodes of a fake cluster, and the leaders and coordinators among them. Owner: the task that opened the listeners."""

    first_id: int
    addresses: dict[int, Node] = attrs.field(factory=dict)
    """Every node, those that are down too."""
    down: set[int] = attrs.field(factory=set)
    advertised: dict[int, Node] = attrs.field(factory=dict)
    """Nodes that clients reach at another address than the one that they listen on."""
    _leaders: dict[TopicPartition, int] = attrs.field(factory=dict)
    _coordinators: dict[str, int] = attrs.field(factory=dict)
    _placements: dict[str, Placement] = attrs.field(factory=dict)
    """Of topics whose CreateTopics named replicas."""

    def listed(self) -> list[Node]:
        """The nodes that clients know. It is never empty, because clients that lose all nodes do not come back."""
        numbers = [number for number in self.addresses if number not in self.down] or self.addresses
        return [self.shown(number) for number in numbers]

    def shown(self, number: int) -> Node:
        """Return a node as clients get it."""
        return self.advertised.get(number, self.addresses[number])

    @property
    def controller(self) -> int:
        return self.listed()[0].node_id

    def leader_of(self, topic: str, partition: int) -> int:
        """The node that leads a partition. Partitions are spread over the nodes until `move_leader`."""
        moved = self._leaders.get(TopicPartition(topic, partition))
        placed = self._placed(topic, partition)
        wanted = moved if moved is not None else placed[0]
        if topic not in self._placements:
            return self._up(wanted)
        return next((each for each in (wanted, *placed) if each not in self.down), self._up(wanted))

    def replicas_of(self, topic: str, partition: int) -> list[int]:
        """The nodes that have a replica of a partition. One that leads without having had one has it in place of the last."""
        if topic not in self._placements:
            return list(self.addresses)
        leader, placed = self.leader_of(topic, partition), self._placed(topic, partition)
        return placed if leader in placed else [leader, *placed[:-1]]

    def _placed(self, topic: str, partition: int) -> list[int]:
        placement = self._placements.get(topic)
        if placement is not None and (assigned := placement.assigned.get(partition)):
            return list(assigned)
        numbers = list(self.addresses)
        first = (_spread(topic) + partition) % len(numbers)
        return [*numbers[first:], *numbers[:first]][: None if placement is None else placement.factor]

    def place(self, topic: str, factor: int, assigned: Mapping[int, Sequence[int]]) -> None:
        """Give a topic replicas: `factor` of each partition, or those of `assigned`. Nodes that do not exist get none."""
        known = {number: tuple(each for each in nodes if each in self.addresses) for number, nodes in assigned.items()}
        self._placements[topic] = Placement(max(1, min(factor, len(self.addresses))), known)

    def place_more(self, topic: str, assigned: Mapping[int, Sequence[int]]) -> None:
        """Assign partitions that a topic gets in addition."""
        placement = self._placements.get(topic, Placement(len(self.addresses), {}))
        self.place(topic, placement.factor, {**placement.assigned, **assigned})

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted: another one of that name has no replicas by name."""
        self._placements.pop(topic, None)

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
        self._placements.clear()


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

    def leader_of(self, topic: str, partition: int) -> int:
        return self.cluster.leader_of(topic, partition)

    def check_coordinator(self, name: str) -> None:
        if self.cluster.coordinator_of(name) != self.number:
            raise RequestError(f"node {self.number} does not coordinate {name!r}", ErrorCode.NOT_COORDINATOR)


def refusal(door: NodeDoor, turn: Turn) -> ErrorCode | None:
    """NOT_COORDINATOR when another node coordinates something that the request names, else None."""
    served_by = turn.request.api.served_by
    if served_by not in (ServedBy.GROUP, ServedBy.TRANSACTION) or turn.request.api.key is ApiKey.ADD_PARTITIONS_TO_TXN:
        return None
    subject = subject_of(turn.request, door.number, door.broker.topics.named)
    names = subject.groups if served_by is ServedBy.GROUP else subject.transactional_ids
    is_elsewhere = any(door.cluster.coordinator_of(name) != door.number for name in names)
    return ErrorCode.NOT_COORDINATOR if is_elsewhere else None


def is_elsewhere(door: NodeDoor, topic: str, partition: int | None) -> bool:
    """Return whether another node leads the partition. A partition that does not exist has no leader: any node may report
    that."""
    if partition is None or door.cluster.leader_of(topic, partition) == door.number:
        return False
    try:
        door.broker.reader.snapshot(TopicPartition(topic, partition))
    except RequestError:
        return False
    return True


def tell(door: NodeDoor, key: ApiKey, request: Any, response: Any) -> Any:
    """Change the response of a single broker into the response of one node of a cluster."""
    cluster = door.cluster
    if (change := _CHANGES.get(key)) is not None:
        change(door, request, response)
        return response
    if key is not ApiKey.DESCRIBE_TOPIC_PARTITIONS:
        response.controller_id = cluster.controller
    for topic in response.topics if key is not ApiKey.DESCRIBE_CLUSTER else ():
        for partition in topic.partitions:
            if partition.leader_id >= 0:
                name, number = topic.name or "", partition.partition_index
                replicas = cluster.replicas_of(name, number)
                partition.leader_id = cluster.leader_of(name, number)
                partition.replica_nodes = replicas
                partition.isr_nodes = [each for each in replicas if each not in cluster.down]
                partition.offline_replicas = sorted(cluster.down.intersection(replicas))
    return response


def _tell_coordinators(door: NodeDoor, request: Any, response: Any) -> None:
    cluster = door.cluster
    answers = [(answer, answer.key) for answer in response.coordinators] or [(response, request.key)]
    for answer, name in answers:
        if not answer.error_code:
            node = cluster.shown(cluster.coordinator_of(name))
            answer.node_id, answer.host, answer.port = node


def _place_topics(door: NodeDoor, request: Any, response: Any) -> None:
    cluster, asked = door.cluster, {each.name: each for each in request.topics}
    for answer in response.topics:
        if answer.error_code:
            continue
        topic = asked[answer.name]
        assigned = {each.partition_index: each.broker_ids for each in topic.assignments}
        factor = len(topic.assignments[0].broker_ids) if topic.assignments else topic.replication_factor
        if factor < 1:
            factor = len(cluster.addresses)
        answer.replication_factor = min(factor, len(cluster.addresses))
        if not request.validate_only:
            cluster.place(answer.name, factor, assigned)


def _place_partitions(door: NodeDoor, request: Any, response: Any) -> None:
    asked = {each.name: each for each in request.topics}
    for answer in response.results:
        topic = asked[answer.name]
        if not answer.error_code and not request.validate_only and topic.assignments:
            first = topic.count - len(topic.assignments)
            assigned = {first + slot: each.broker_ids for slot, each in enumerate(topic.assignments)}
            door.cluster.place_more(answer.name, assigned)


def _forget_topics(door: NodeDoor, _request: Any, response: Any) -> None:
    for answer in response.responses:
        if not answer.error_code and answer.name is not None:
            door.cluster.forget_topic(answer.name)


def _list_own_groups(door: NodeDoor, _request: Any, response: Any) -> None:
    coordinator_of, number = door.cluster.coordinator_of, door.number
    response.groups = [each for each in response.groups if coordinator_of(each.group_id) == number]


def _list_own_transactions(door: NodeDoor, _request: Any, response: Any) -> None:
    coordinator_of, number = door.cluster.coordinator_of, door.number
    response.transaction_states = [
        each for each in response.transaction_states if coordinator_of(each.transactional_id) == number
    ]


def _describe_own_replicas(door: NodeDoor, _request: Any, response: Any) -> None:
    replicas_of, number = door.cluster.replicas_of, door.number
    for directory in response.results:
        for topic in directory.topics:
            topic.partitions = [each for each in topic.partitions if number in replicas_of(topic.name, each.partition_index)]
        directory.topics = [topic for topic in directory.topics if topic.partitions]


_CHANGES: Final[Mapping[ApiKey, Callable[[NodeDoor, Any, Any], None]]] = {
    ApiKey.FIND_COORDINATOR: _tell_coordinators,
    ApiKey.CREATE_TOPICS: _place_topics,
    ApiKey.CREATE_PARTITIONS: _place_partitions,
    ApiKey.DELETE_TOPICS: _forget_topics,
    ApiKey.LIST_GROUPS: _list_own_groups,
    ApiKey.LIST_TRANSACTIONS: _list_own_transactions,
    ApiKey.DESCRIBE_LOG_DIRS: _describe_own_replicas,
}
"""What a node changes in the answer of a single broker, and remembers of it."""
