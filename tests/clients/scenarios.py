"""What every client has to be able to do: one function per row of the compatibility table. A new row is a function here.

A scenario has a cluster of its own. It says what it expects in plain asserts; it may ask the broker itself only for what a
client cannot, such as stopping it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs
from triolog.server.broker_config import Address
from triolog.server.embedded import BlockingBroker

from tests.clients.driver import CODECS, EARLIEST, Driver, Message

START_MS: Final = 1_750_000_000_000


@attrs.define(eq=False)
class Cluster:
    """A broker that can be started again on the same data and port. Owner: the test."""

    path: str
    broker: BlockingBroker

    @classmethod
    def start(cls, path: str) -> Cluster:
        return cls(path, _started(path, Address("127.0.0.1", 0)))

    @property
    def address(self) -> Address:
        """Where clients connect to."""
        address = self.broker._running().kafka
        assert address is not None
        return address

    def restart(self) -> None:
        address = self.address
        self.broker.stop()
        self.broker = _started(self.path, address)


def _started(path: str, address: Address) -> BlockingBroker:
    # Messages of the scenarios are older than the retention of a week.
    broker = BlockingBroker(path, native=None, kafka=address, durability="os", config={"retention.ms": "-1"})
    broker.start()
    return broker


Scenario = Callable[[Driver, Cluster], None]
SCENARIOS: Final[dict[str, Scenario]] = {}
"""By the name of the row."""


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__.replace("_", " ")] = function
    return function


def _values(count: int, prefix: str = "value") -> list[Message]:
    return [Message(value=f"{prefix}-{number}".encode(), timestamp_ms=START_MS + number) for number in range(count)]


@scenario
def produce_with_every_codec(driver: Driver, cluster: Cluster) -> None:
    for codec in CODECS:
        cluster.broker.create_topic(codec)
        sent = [Message(value=bytes([number]) * 5000, timestamp_ms=START_MS) for number in range(20)]
        with driver.producer(codec=codec) as producer:
            assert producer.send(codec, sent) == list(range(20))
        assert [each.value for each in driver.read(codec, 20, starts={0: EARLIEST})] == [each.value for each in sent]


@scenario
def keys_headers_nulls_and_timestamps(driver: Driver, cluster: Cluster) -> None:
    cluster.broker.create_topic("t")
    sent = [
        Message(value=b"v", key=b"k", headers=(("a", b"1"), ("a", b"2"), ("b", b"")), timestamp_ms=START_MS),
        Message(value=None, key=b"tombstone", timestamp_ms=START_MS + 1),
        Message(value=b"no key", timestamp_ms=START_MS + 5),
        Message(value=b"", key=b"", timestamp_ms=START_MS + 2),
        Message(value="grüße".encode(), key="schlüssel".encode(), headers=(("größe", b"\xff\x00"),), timestamp_ms=START_MS),
    ]
    with driver.producer() as producer:
        producer.send("t", sent)
    found = driver.read("t", len(sent), starts={0: EARLIEST})
    assert [(each.key, each.value, each.headers, each.timestamp_ms) for each in found] == [
        (each.key, each.value, each.headers, each.timestamp_ms) for each in sent
    ]


@scenario
def acks_none_one_and_all(driver: Driver, cluster: Cluster) -> None:
    for acks in ("0", "1", "all"):
        topic = f"acks-{acks}"
        cluster.broker.create_topic(topic)
        with driver.producer(acks=acks) as producer:
            offsets = producer.send(topic, _values(50))
        assert offsets == ([-1] * 50 if acks == "0" else list(range(50)))
        assert [each.offset for each in driver.read(topic, 50, starts={0: EARLIEST})] == list(range(50))


@scenario
def a_topic_is_made_by_producing(driver: Driver, cluster: Cluster) -> None:
    with driver.producer() as producer:
        assert producer.send("made-by-producing", _values(3)) == [0, 1, 2]
    assert driver.partitions("made-by-producing") == {0}


@scenario
def assign_and_seek(driver: Driver, cluster: Cluster) -> None:
    cluster.broker.create_topic("t")
    with driver.producer() as producer:
        for start in range(0, 100, 10):
            producer.send("t", _values(100)[start : start + 10])
    for offset in (0, 1, 55, 99):
        found = driver.read("t", 100 - offset, starts={0: offset})
        assert [each.offset for each in found] == list(range(offset, 100))


@scenario
def seek_by_time(driver: Driver, cluster: Cluster) -> None:
    cluster.broker.create_topic("t")
    with driver.producer() as producer:
        for late in (100, 200, 300):
            producer.send("t", [Message(value=b"x", timestamp_ms=START_MS + late)])
    expected = {0: 0, 100: 0, 101: 1, 150: 1, 200: 1, 250: 2, 300: 2}
    assert {late: driver.offset_for_time("t", 0, START_MS + late) for late in expected} == expected
    assert driver.offset_for_time("t", 0, START_MS + 301) is None


@scenario
def watermarks(driver: Driver, cluster: Cluster) -> None:
    cluster.broker.create_topic("t", 2)
    assert driver.watermarks("t", 0) == (0, 0)
    with driver.producer() as producer:
        producer.send("t", _values(10))
    cluster.broker.delete_records("t", 4)
    assert [driver.watermarks("t", number) for number in (0, 1)] == [(4, 10), (0, 0)]


@scenario
def big_messages(driver: Driver, cluster: Cluster) -> None:
    size = 5_000_000
    cluster.broker.create_topic("t", 1, {"max.message.bytes": str(size + 1000)})
    sent = [Message(value=bytes([number]) * size, timestamp_ms=START_MS) for number in range(3)]
    with driver.producer(max_bytes=size + 1000) as producer:
        assert producer.send("t", sent) == [0, 1, 2]
    assert [each.value for each in driver.read("t", 3, starts={0: EARLIEST})] == [each.value for each in sent]


@scenario
def many_partitions(driver: Driver, cluster: Cluster) -> None:
    count = 100
    cluster.broker.create_topic("wide", count)
    assert driver.partitions("wide") == set(range(count))
    sent = [Message(value=f"{number}".encode(), partition=number % count, timestamp_ms=START_MS) for number in range(3 * count)]
    with driver.producer() as producer:
        producer.send("wide", sent)
    found = driver.read("wide", 3 * count, starts=dict.fromkeys(range(count), EARLIEST))
    assert {(each.partition, each.value) for each in found} == {(each.partition, each.value) for each in sent}


@scenario
def idempotence_across_a_broker_restart(driver: Driver, cluster: Cluster) -> None:
    """A producer goes on where it was: its sequence numbers are known to the broker that comes back."""
    cluster.broker.create_topic("t")
    with driver.producer(idempotent=True) as producer:
        for number in range(3):
            if number:
                cluster.restart()
            assert producer.send("t", _values(10, f"run-{number}")) == list(range(10 * number, 10 * number + 10))
    expected = [f"run-{number}-{each}".encode() for number in range(3) for each in range(10)]
    assert [each.value for each in driver.read("t", 30, starts={0: EARLIEST})] == expected
