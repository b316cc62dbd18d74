"""Inputs and outputs of the state machine of a group whose assignments the server computes. Kafka: the heartbeat and describe
APIs of consumer, share and Streams groups, without their versions.

Times are whole milliseconds of a clock that only goes forward.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

import attrs

from ...config.values import MigrationPolicy
from ..values import GroupState

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
"""A static member is away for now: the group keeps its assignment."""
NO_TIMEOUT: Final = -1
FIRST_EPOCH: Final = 1
"""Epoch of a group without members and records. Its first member makes it 2, as in Kafka."""
NOT_SEEN: Final = -1

TopicPartitionId = tuple[bytes, int]
"""(topic id, partition)."""
Partitions = frozenset[TopicPartitionId]
NO_PARTITIONS: Final[Partitions] = frozenset()
K = TypeVar("K", bytes, str)


def by_first(pairs: Iterable[tuple[K, int]]) -> dict[K, list[int]]:
    """Return sorted numbers by the topic, or the subtopology, so that equal assignments have equal bytes."""
    found: dict[K, list[int]] = {}
    for first, number in sorted(pairs):
        found.setdefault(first, []).append(number)
    return found


def epochs_in(
    parts: Iterable[tuple[K, Sequence[int], Sequence[int] | None]], member_epoch: int
) -> Iterator[tuple[K, int, int]]:
    """Yield each number of a record's parts with its epoch. Where a part has none, or fewer than numbers, that is the
    member's epoch."""
    for first, numbers, epochs in parts:
        if epochs is None or len(epochs) != len(numbers):
            epochs = [member_epoch] * len(numbers)
        yield from ((first, number, epoch) for number, epoch in zip(numbers, epochs, strict=True))


@attrs.frozen
class AssignedGroupSettings:
    """Limits of one kind of group."""

    max_size: int = 10_000
    """Members of a group."""
    max_groups: int = 10_000
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    """Of consumer groups."""


@attrs.frozen
class MemberTimes:
    """The heartbeat interval and the session timeout of a group's members, ms."""

    heartbeat_interval_ms: int = 5_000
    session_timeout_ms: int = 45_000


# ---- topics ------------------------------------------------------------------------------------------------------------------


class TopicMetadata(NamedTuple):
    topic_id: bytes
    partitions: int


class TopicImage(Protocol):
    """The existing topics, as groups see them."""

    @property
    def version(self) -> int:
        """Changes with every topic that is created, deleted or grows."""

    def find(self, name: str) -> TopicMetadata | None: ...

    def name_of(self, topic_id: bytes) -> str | None:
        """None for a topic that does not exist."""

    def names(self) -> Iterable[str]: ...


def metadata_hash(names: Iterable[str], topics: TopicImage) -> int:
    """Return 64 bits with a sign that change when one of these topics is created, deleted, created again or grows."""
    digest = hashlib.blake2b(digest_size=8)
    for name in sorted(names):
        found = topics.find(name)
        if found is not None:
            digest.update(found.topic_id + found.partitions.to_bytes(4) + len(name.encode()).to_bytes(4) + name.encode())
    return int.from_bytes(digest.digest(), signed=True)


# ---- heartbeats --------------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class MemberHeartbeat:
    """A sign of life of a member, with its news; None for a field that has not changed."""

    group_id: str
    member_id: str = ""
    member_epoch: int = JOIN_EPOCH
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NO_TIMEOUT
    client_id: str = ""
    client_host: str = ""

    @property
    def is_joining(self) -> bool:
        return self.member_epoch == JOIN_EPOCH

    @property
    def is_leaving(self) -> bool:
        return self.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH)


@attrs.frozen(kw_only=True)
class HeartbeatAnswer:
    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None
    """The partitions of the member from now on; None: no change."""


class TimerKind(enum.Enum):
    SESSION = enum.auto()
    """Ends when a member has been silent for too long."""
    REBALANCE = enum.auto()
    """Ends when a member has not given up its partitions or tasks in time."""
    INITIAL = enum.auto()
    """Ends when a Streams group has waited long enough for more members."""
    JOIN = enum.auto()
    """Ends when a member that uses the classic protocol has not joined again in time."""
    SYNC = enum.auto()
    """Ends when that member has joined, and has not requested its assignment in time."""


class TimerKey(NamedTuple):
    group_id: str
    member_id: str
    """Empty for the group's own timer."""
    kind: TimerKind


# ---- descriptions ------------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class AssignedMemberDescription:
    """A member of a consumer or share group."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    topic_regex: str | None = None
    is_classic: bool = False
    """It uses the classic protocol in a consumer group."""
    assignment: Partitions = NO_PARTITIONS
    target_assignment: Partitions = NO_PARTITIONS


@attrs.frozen(kw_only=True)
class AssignedGroupDescription:
    """A consumer or share group, as ConsumerGroupDescribe and ShareGroupDescribe show it."""

    group_id: str
    state: GroupState
    group_epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[AssignedMemberDescription, ...] = ()
