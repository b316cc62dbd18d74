"""Requests out of a KafkaConnection without a session, whatever they take to read."""

from __future__ import annotations

from triolog.protocol.kafka.connection import KafkaConnection, Request

from tests.support.in_steps import finished


def next_request(connection: KafkaConnection) -> Request | None:
    """The next request, read to its end."""
    found = connection.next_request()
    return found if found is None or isinstance(found, Request) else finished(found)
