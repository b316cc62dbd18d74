"""Reads committed records upstream with a Kafka client and compares them with the source while reading."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from ....protocol.types import Record, TopicPartition
from ...forward.handing import GAP_HEADER
from ..flights import ROW_HEADER, Flight
from ..showing import DemoError
from .devices import Arrivals

if TYPE_CHECKING:
    from confluent_kafka import Message

PATIENCE_S: Final = 30.0
"""Without a record."""
POLL_S: Final = 1.0
CHUNK: Final = 1000


@attrs.define(eq=False, repr=False)
class Arrived:
    """Of one partition, in the order of its offsets upstream. Owned by the thread that reads."""

    flights: Mapping[bytes, Flight] = attrs.field(repr=False)
    """What was acknowledged for the partition, by row."""
    rows: list[bytes] = attrs.field(factory=list)
    gaps: list[tuple[int, int]] = attrs.field(factory=list)
    """First and last offset of what was lost, as records tell it."""
    differing: list[str] = attrs.field(factory=list)

    def add(self, record: Record) -> None:
        """Take the next record."""
        own = tuple((name, value) for name, value in record.headers if name != GAP_HEADER)
        for name, value in record.headers:
            if name == GAP_HEADER:
                first, _, last = (value or b"").decode().partition("-")
                self.gaps.append((int(first), int(last)))
        row = (own[0][1] or b"") if own else b""
        flight = self.flights.get(row)
        stored = (record.key, record.timestamp, record.value, own)
        if flight is None or stored != (flight.key, flight.timestamp, flight.value, ((ROW_HEADER, row),)):
            self.differing.append(f"offset {record.offset} upstream: {record!r}, the source has {flight!r}")
        self.rows.append(row)


def read_upstream(to: str, arrived: Mapping[TopicPartition, Arrived | Arrivals]) -> None:
    """Read all records of topics upstream, from the first on. Blocks. Raises DemoError."""
    from confluent_kafka import Consumer, KafkaException
    from confluent_kafka import TopicPartition as Place

    consumer = Consumer(
        {
            "bootstrap.servers": to,
            "group.id": "triolog-edge-demo",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([Place(place.topic, place.partition, 0) for place in arrived])
        unread, heard_s = set(arrived), time.monotonic()
        while unread:
            messages = consumer.consume(CHUNK, POLL_S)
            unread -= _take(messages, arrived)
            if messages:
                heard_s = time.monotonic()
            elif time.monotonic() - heard_s > PATIENCE_S:
                raise DemoError(f"{to} has sent no record of {min(unread)} for {PATIENCE_S:.0f} s")
    except KafkaException as exc:
        raise DemoError(f"{to}: {exc}") from exc
    finally:
        consumer.close()


def _take(messages: Iterable[Message], arrived: Mapping[TopicPartition, Arrived | Arrivals]) -> set[TopicPartition]:
    """Hand the messages on; return the partitions whose end was reached."""
    ended = set()
    for message in messages:
        place = TopicPartition(message.topic() or "", message.partition() or 0)
        error = message.error()
        if error is None:
            headers = tuple((name, _bytes(value)) for name, value in _pairs(message))
            key, value = _bytes(message.key()), _bytes(message.value())
            arrived[place].add(Record(message.offset() or 0, message.timestamp()[1], key, value, headers))
        elif error.name() == "_PARTITION_EOF":
            ended.add(place)
        elif not error.retriable():
            raise DemoError(f"{place}: {error.str()}")
    return ended


def _pairs(message: Message) -> Iterable[tuple[str, str | bytes | None]]:
    found: Any = message.headers()
    return found or ()


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def delete_topics(to: str, topics: Iterable[str]) -> None:
    """Delete the topics. Blocks. Raises DemoError."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": to})
    try:
        for future in admin.delete_topics(list(topics), request_timeout=PATIENCE_S).values():
            future.result()
    except KafkaException as exc:
        raise DemoError(f"{to}: cannot delete the demo's topics: {exc}") from exc
