"""The assignor `simple` of share groups (KIP-932; Kafka: SimpleAssignor).

Several members may read one partition. With P partitions and M members each partition gets ceil(M / P) of them, where that can
be, and no member more than its part of the result, so that members differ by one at most. Every partition has a member, every
member a partition. A member keeps what it has, unless that is more than its part, or too many read it.

Where all members are subscribed to the same topics their partitions are assigned together, else topic by topic. Kafka takes
members and partitions in the order of a hash table; here they are sorted, so that the same question has the same answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from ..assigned.values import Partitions, TopicPartitionId
from ..consumer.assignors import Subscribers

SIMPLE: Final = "simple"

AssignablePartitions = Mapping[bytes, Sequence[int]]
"""The partitions of each topic that may be read, by id, in order. A topic that is not here has none."""


def assign_simple(subscribers: Subscribers, assignable: AssignablePartitions) -> dict[str, Partitions]:
    """See the module."""
    given: dict[str, set[TopicPartitionId]] = {member_id: set() for member_id in subscribers}
    members = sorted(subscribers)
    if len({subscriber.topics for subscriber in subscribers.values()}) == 1:
        topics = sorted(next(iter(subscribers.values())).topics)
        partitions = [(topic_id, number) for topic_id in topics for number in assignable.get(topic_id, ())]
        _share_out(members, partitions, subscribers, given)
    else:
        for topic_id in sorted(assignable):
            readers = [member_id for member_id in members if topic_id in subscribers[member_id].topics]
            _share_out(readers, [(topic_id, number) for number in assignable[topic_id]], subscribers, given)
    return {member_id: frozenset(partitions) for member_id, partitions in given.items()}


def _share_out(
    members: Sequence[str],
    partitions: Sequence[TopicPartitionId],
    subscribers: Subscribers,
    given: dict[str, set[TopicPartitionId]],
) -> None:
    """Give these partitions to these members, and nothing else."""
    if not members or not partitions:
        return
    sharing = _divided_up(len(members), len(partitions))
    total = sharing * len(partitions)
    quotas = [
        _divided_up(total * (place + 1), len(members)) - _divided_up(total * place, len(members))
        for place in range(len(members))
    ]
    readers: dict[TopicPartitionId, int] = dict.fromkeys(partitions, 0)
    unfilled: deque[tuple[str, int]] = deque()
    for member_id, quota in zip(members, quotas, strict=True):
        kept = 0
        for partition in sorted(subscribers[member_id].owned & readers.keys(), key=lambda each: (readers[each], each)):
            if kept < quota and readers[partition] < sharing:
                given[member_id].add(partition)
                readers[partition] += 1
                kept += 1
        if kept < quota:
            unfilled.append((member_id, quota - kept))
    for partition, count in readers.items():
        _fill(partition, sharing - count, unfilled, given)


def _fill(
    partition: TopicPartitionId, wanted: int, unfilled: deque[tuple[str, int]], given: dict[str, set[TopicPartitionId]]
) -> None:
    """Give a partition to the next members that have space and do not have it; a member that got one goes to the end of the
    row."""
    for _ in range(len(unfilled)):
        if not wanted:
            return
        member_id, room = unfilled.popleft()
        if partition in given[member_id]:
            unfilled.append((member_id, room))
            continue
        given[member_id].add(partition)
        wanted -= 1
        if room > 1:
            unfilled.append((member_id, room - 1))


def _divided_up(number: int, divisor: int) -> int:
    return -(-number // divisor)
