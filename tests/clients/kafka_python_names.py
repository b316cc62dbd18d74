"""What aiokafka has of kafka-python, out of which it has grown: names of settings, of records, of what a listener is told.

Where the two differ their drivers say so themselves.
"""

from __future__ import annotations

from typing import Any

import attrs

from tests.clients.driver import Access, Message, Producing, Received
from tests.clients.python_driver import PolledMember

FETCH_MAX_WAIT_MS = 50


def login(access: Access) -> dict[str, Any]:
    """The settings of a client that gets in so, but for those of TLS."""
    settings: dict[str, Any] = {"security_protocol": access.protocol}
    if access.mechanism:
        names = {"sasl_plain_username": access.user, "sasl_plain_password": access.password}
        settings |= {"sasl_mechanism": access.mechanism, **names}
    return settings


def producing(asked: Producing) -> dict[str, Any]:
    return {
        "acks": asked.acks if asked.acks == "all" else int(asked.acks),
        "compression_type": None if asked.codec == "none" else asked.codec,
        "transactional_id": asked.transactional_id or None,
    }


def reading(*, committed: bool) -> dict[str, Any]:
    return {
        "enable_auto_commit": False,
        "auto_offset_reset": "none",
        "fetch_max_wait_ms": FETCH_MAX_WAIT_MS,
        "isolation_level": "read_committed" if committed else "read_uncommitted",
    }


def joining(group: str, instance: str, assignor: type) -> dict[str, Any]:
    return {
        **reading(committed=True),
        "auto_offset_reset": "earliest",
        "group_id": group,
        "group_instance_id": instance or None,
        "partition_assignment_strategy": [assignor],
        "heartbeat_interval_ms": 50,
        "session_timeout_ms": 10_000,
    }


def sending(message: Message) -> dict[str, Any]:
    """What `send` of a producer is told beside the topic."""
    return {**attrs.asdict(message), "headers": list(message.headers)}


def received(batches: dict[Any, list[Any]]) -> list[Received]:
    return [
        Received(
            partition=each.partition,
            offset=each.offset,
            timestamp_ms=each.timestamp,
            key=each.key,
            value=each.value,
            headers=tuple(each.headers),
        )
        for records in batches.values()
        for each in records
    ]


@attrs.define(eq=False)
class Assignments:
    """Tells a member what it gets and gives. The clients want it to be a listener of theirs, too."""

    member: PolledMember

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.member.given(each.partition for each in assigned)

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.member.taken(each.partition for each in revoked)
