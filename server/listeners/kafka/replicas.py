"""Numbers of partitions and replicas, and manual assignments of them, checked as Kafka's controller does. Source:
ReplicationControlManager."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from ....protocol.errors import ErrorCode, InvalidRequestError, RequestError

BY_DEFAULT: Final = -1
"""As a number of partitions or replicas: the server's choice."""


def check_counts(partitions: int, replication_factor: int) -> None:
    """Raises RequestError for impossible numbers of partitions or replicas."""
    if replication_factor < BY_DEFAULT or replication_factor == 0:
        raise RequestError(
            f"replication factor {replication_factor}: it is above 0, or -1 for the default",
            ErrorCode.INVALID_REPLICATION_FACTOR,
        )
    if partitions < BY_DEFAULT or partitions == 0:
        raise RequestError(
            f"{partitions} partitions: their number is above 0, or -1 for the default", ErrorCode.INVALID_PARTITIONS
        )


def check_reach(replication_factor: int, nodes: Collection[int]) -> None:
    """Raises RequestError when there are fewer nodes than replicas."""
    if replication_factor > len(nodes):
        raise RequestError(
            f"replication factor {replication_factor} cannot be reached: {len(nodes)} broker(s) are registered; say -1 or "
            f"{len(nodes)}, or run the server with lenient=true",
            ErrorCode.INVALID_REPLICATION_FACTOR,
        )


def partitions_of(assignments: Sequence[tuple[int, Sequence[int]]], nodes: Collection[int], *, lenient: bool) -> int:
    """Return the number of partitions of a topic with explicit replicas: (partition, its nodes) for each. Raises
    RequestError."""
    numbers = [number for number, _ in assignments]
    for number, replicas in assignments:
        if numbers.count(number) > 1:
            raise _wrong(f"partition {number} is assigned more than once")
        check_assignment(replicas, nodes, lenient=lenient)
        if len(replicas) != len(assignments[0][1]):
            raise _wrong(f"partition {number} has {len(replicas)} replicas, others have {len(assignments[0][1])}")
    if sorted(numbers) != list(range(len(numbers))):
        raise _wrong(f"partitions {numbers} are assigned; they are numbered from 0 without a gap")
    return len(numbers)


def check_addition(assignments: Sequence[Sequence[int]], additional: int, nodes: Collection[int], *, lenient: bool) -> None:
    """Raises RequestError unless these are the nodes of as many partitions as are added."""
    if len(assignments) != additional:
        raise _wrong(f"{additional} partitions are added, {len(assignments)} are assigned")
    for replicas in assignments:
        check_assignment(replicas, nodes, lenient=lenient)


def check_assignment(replicas: Sequence[int], nodes: Collection[int], *, lenient: bool = False) -> None:
    """Raises RequestError unless a partition can be on these nodes; `lenient`: they need not be there."""
    if not replicas:
        raise _wrong("an assignment names no replica")
    for node in replicas:
        if replicas.count(node) > 1:
            raise _wrong(f"an assignment names broker {node} more than once")
        if node not in nodes and not lenient:
            raise _wrong(f"an assignment names broker {node}, registered is {', '.join(map(str, nodes))}")


def check_exclusive(partitions: int, replication_factor: int) -> None:
    """Raises RequestError when numbers are given beside an assignment."""
    for name, count in (("replication factor", replication_factor), ("number of partitions", partitions)):
        if count != BY_DEFAULT:
            raise InvalidRequestError(f"the partitions are assigned by hand, so the {name} has to be -1, not {count}")


def _wrong(message: str) -> RequestError:
    return RequestError(message, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
