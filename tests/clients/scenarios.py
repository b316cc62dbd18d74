"""Producing and reading: rows of the compatibility table. A new row is a function here."""

from __future__ import annotations

from tests.clients.driver import CODECS, EARLIEST, Message
from tests.clients.features import START_MS, Broker, Cell, feature, messages, values


@feature("produce with every codec")
def produce_with_every_codec(cell: Cell) -> None:
    for codec in CODECS:
        topic = cell.topic(codec)
        sent = [Message(value=bytes([number]) * 5000, timestamp_ms=START_MS) for number in range(20)]
        with cell.driver.producer(codec=codec) as producer:
            assert producer.send(topic, sent) == list(range(20))
        assert [each.value for each in cell.driver.read(topic, 20, starts={0: EARLIEST})] == [each.value for each in sent]


@feature("keys, headers, nulls, timestamps")
def keys_headers_nulls_and_timestamps(cell: Cell) -> None:
    topic = cell.topic()
    sent = [
        Message(value=b"v", key=b"k", headers=(("a", b"1"), ("a", b"2"), ("b", b"")), timestamp_ms=START_MS),
        Message(value=None, key=b"tombstone", timestamp_ms=START_MS + 1),
        Message(value=b"no key", timestamp_ms=START_MS + 5),
        Message(value=b"", key=b"", timestamp_ms=START_MS + 2),
        Message(value="grüße".encode(), key="schlüssel".encode(), headers=(("größe", b"\xff\x00"),), timestamp_ms=START_MS),
    ]
    with cell.driver.producer() as producer:
        producer.send(topic, sent)
    found = cell.driver.read(topic, len(sent), starts={0: EARLIEST})
    assert [(each.key, each.value, each.headers, each.timestamp_ms) for each in found] == [
        (each.key, each.value, each.headers, each.timestamp_ms) for each in sent
    ]


@feature("acks 0, 1 and all")
def acks_none_one_and_all(cell: Cell) -> None:
    for acks in ("0", "1", "all"):
        topic = cell.topic(f"acks-{acks}")
        with cell.driver.producer(acks=acks) as producer:
            offsets = producer.send(topic, values(50))
        assert offsets == ([-1] * 50 if acks == "0" else list(range(50)))
        assert [each.offset for each in cell.driver.read(topic, 50, starts={0: EARLIEST})] == list(range(50))


@feature("topics made by producing")
def a_topic_is_made_by_producing(cell: Cell) -> None:
    topic = cell.name("made")
    with cell.driver.producer() as producer:
        assert producer.send(topic, messages("a", "b", "c")) == [0, 1, 2]
    assert cell.driver.partitions(topic) == {0}


@feature("assign and seek")
def assign_and_seek(cell: Cell) -> None:
    topic = cell.topic()
    with cell.driver.producer() as producer:
        for start in range(0, 100, 10):
            producer.send(topic, values(100)[start : start + 10])
    for offset in (0, 1, 55, 99):
        found = cell.driver.read(topic, 100 - offset, starts={0: offset})
        assert [each.offset for each in found] == list(range(offset, 100))


@feature("seek by time")
def seek_by_time(cell: Cell) -> None:
    topic = cell.topic()
    with cell.driver.producer() as producer:
        for late in (100, 200, 300):
            producer.send(topic, [Message(value=b"x", timestamp_ms=START_MS + late)])
    expected = {0: 0, 100: 0, 101: 1, 150: 1, 200: 1, 250: 2, 300: 2}
    assert {late: cell.driver.offset_for_time(topic, 0, START_MS + late) for late in expected} == expected
    assert cell.driver.offset_for_time(topic, 0, START_MS + 301) is None


@feature("watermarks")
def watermarks(cell: Cell) -> None:
    topic = cell.topic(partitions=2)
    assert cell.driver.watermarks(topic, 0) == (0, 0)
    with cell.driver.producer() as producer:
        producer.send(topic, values(10))
    cell.driver.delete_records(topic, {0: 4})
    assert [cell.driver.watermarks(topic, number) for number in (0, 1)] == [(4, 10), (0, 0)]


@feature("big messages")
def big_messages(cell: Cell) -> None:
    size = 5_000_000
    topic = cell.topic(configs={"max.message.bytes": str(size + 1000)})
    sent = [Message(value=bytes([number]) * size, timestamp_ms=START_MS) for number in range(3)]
    with cell.driver.producer(max_bytes=size + 1000) as producer:
        assert producer.send(topic, sent) == [0, 1, 2]
    assert [each.value for each in cell.driver.read(topic, 3, starts={0: EARLIEST})] == [each.value for each in sent]


@feature("many partitions")
def many_partitions(cell: Cell) -> None:
    count = 100
    topic = cell.topic("wide", count)
    assert cell.driver.partitions(topic) == set(range(count))
    sent = [Message(value=f"{number}".encode(), partition=number % count, timestamp_ms=START_MS) for number in range(3 * count)]
    with cell.driver.producer() as producer:
        producer.send(topic, sent)
    found = cell.driver.read(topic, 3 * count, starts=dict.fromkeys(range(count), EARLIEST))
    assert {(each.partition, each.value) for each in found} == {(each.partition, each.value) for each in sent}


@feature("idempotence across a broker restart", broker=Broker.OWN)
def idempotence_across_a_broker_restart(cell: Cell) -> None:
    """A producer goes on where it was: its sequence numbers are known to the broker that comes back."""
    topic = cell.topic()
    with cell.driver.producer(idempotent=True) as producer:
        for number in range(3):
            if number:
                cell.restart()
            assert producer.send(topic, values(10, f"run-{number}")) == list(range(10 * number, 10 * number + 10))
    expected = [f"run-{number}-{each}".encode() for number in range(3) for each in range(10)]
    assert [each.value for each in cell.driver.read(topic, 30, starts={0: EARLIEST})] == expected
