"""librdkafka with `check.crcs=true` on a log that was damaged on the disk: an error for the damaged batch, the rest delivered.

Who checks differs: librdkafka, where the server does not look at what it serves; the server, with the topic key
`fetch.check.crcs` or since it has recovered the log. What it has recovered it passes over, or with `gap.policy=refuse` refuses,
until somebody has accepted the range. A reader that wants to go on assigns itself the offset behind the error,
offset by offset. Seeking there is not enough: behind a batch whose CRC is wrong, librdkafka 2.16 reads on in the middle of
the next batch, asks for the offset that it takes those bytes for, gets OFFSET_OUT_OF_RANGE, says so with an error of its own
(`_AUTO_OFFSET_RESET`, with `auto.offset.reset=error`), and refuses every seek from then on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import pytest
import triolog
from confluent_kafka import Consumer, KafkaError, TopicPartition
from triolog.protocol.types import TopicPartition as Partition
from triolog.server.config.broker_config import Address
from triolog.server.embedded import BlockingBroker
from triolog.tools.client.blocking import BlockingAdmin, BlockingClient

TOPIC: Final = "orders"
BATCHES: Final = 40
VALUES: Final = [b"%04d" % number + b"x" * 150 for number in range(2 * BATCHES)]
"""Two in each batch, five batches in each segment."""
CONFIG: Final = {"segment.bytes": "2000"}
REFUSE: Final = {"gap.policy": "refuse"}
PATIENCE_S: Final = 30.0
LENGTH: Final = slice(8, 12)
BEHIND_HEADER: Final = 200
"""Somewhere in the records of a batch."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BlockingBroker]:
    with triolog.blocking.open(tmp_path, for_tests=True, kafka=Address("127.0.0.1", 0), native="127.0.0.1:0") as broker:
        broker.create_topic(TOPIC, 1, CONFIG)
        for first in range(0, len(VALUES), 2):
            broker.append(TOPIC, VALUES[first : first + 2])
        yield broker


def flip(directory: Path) -> int:
    """One bit of the second batch of a closed segment; answers the first offset of that batch."""
    log = sorted((directory / f"{TOPIC}-0").glob("*.log"))[2]
    with log.open("r+b") as file:
        start = int.from_bytes(file.read(12)[LENGTH], "big") + 12
        file.seek(start + BEHIND_HEADER)
        [byte] = file.read(1)
        file.seek(start + BEHIND_HEADER)
        file.write(bytes([byte ^ 16]))
    return int(log.stem) + 2


@contextmanager
def member(broker: BlockingBroker, group: str) -> Iterator[Consumer]:
    """An ordinary consumer of a group; nothing but its waits is set."""
    quick = {"fetch.error.backoff.ms": 1, "fetch.wait.max.ms": 20, "log_level": 0, "auto.commit.interval.ms": 10}
    where = {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
    with closing(Consumer({**where, **quick})) as consumer:
        consumer.subscribe([TOPIC])
        yield consumer


def read_up_to(consumer: Consumer, last: int, *, past_errors: bool = False) -> tuple[list[int], list[int]]:
    """The offsets that are delivered, in order, up to this one; or up to the first error, and its code. Errors that came before
    somebody has accepted the range may still be on their way."""
    offsets: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    while not offsets or offsets[-1] < last:
        assert time.monotonic() < deadline, offsets
        message = consumer.poll(0.1)
        if message is None:
            continue
        if (error := message.error()) is not None:
            if past_errors:
                continue
            return offsets, [error.code()]
        offset = message.offset()
        assert offset is not None
        assert message.value() == VALUES[offset]
        offsets.append(offset)
    return offsets, []


LAST: Final = len(VALUES) - 1


def test_an_ordinary_consumer_goes_on_behind_what_recovery_took_out(broker: BlockingBroker, tmp_path: Path) -> None:
    damaged = flip(tmp_path)
    broker.crash()
    broker.restart()
    with member(broker, "g") as consumer:
        assert read_up_to(consumer, LAST) == ([each for each in range(LAST + 1) if each not in (damaged, damaged + 1)], [])


def test_an_ordinary_consumer_stands_under_refuse_until_the_range_is_accepted(broker: BlockingBroker, tmp_path: Path) -> None:
    broker.alter_config(TOPIC, REFUSE)
    damaged = flip(tmp_path)
    behind = list(range(damaged + 2, LAST + 1))
    broker.crash()
    broker.restart()
    with member(broker, "g") as consumer:
        assert read_up_to(consumer, LAST) == (list(range(damaged)), [KafkaError.INVALID_MSG])
        with BlockingClient(broker.native) as client:
            assert BlockingAdmin(client).accept_gap(Partition(TOPIC, 0), damaged) == damaged + 2
        assert read_up_to(consumer, LAST, past_errors=True) == (behind, [])
    broker.crash()
    broker.restart()
    with member(broker, "another") as consumer:
        assert read_up_to(consumer, LAST) == ([*range(damaged), *behind], [])


@pytest.mark.parametrize(
    ("config", "code"),
    [({}, KafkaError._BAD_MSG), ({"fetch.check.crcs": "true"}, KafkaError.INVALID_MSG)],
    ids=["librdkafka checks", "the server checks"],
)
def test_a_damaged_batch_is_an_error_and_everything_else_is_delivered(
    broker: BlockingBroker, tmp_path: Path, config: dict[str, str], code: int
) -> None:
    damaged = flip(tmp_path)
    broker.alter_config(TOPIC, config)
    values, errors = read_past_errors(broker)
    assert errors == {damaged: code, damaged + 1: code}
    assert values == [value for offset, value in enumerate(VALUES) if offset not in errors]


def read_past_errors(broker: BlockingBroker) -> tuple[list[bytes], dict[int, int]]:
    """What is read, and the error at each offset where there was one."""
    values: list[bytes] = []
    errors: dict[int, int] = {}
    wanted, deadline = 0, time.monotonic() + PATIENCE_S
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "unused", "auto.offset.reset": "error"}
    quick = {"fetch.error.backoff.ms": 1, "fetch.wait.max.ms": 20, "log_level": 0}
    with closing(Consumer({**settings, **quick, "check.crcs": True})) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        while wanted < len(VALUES):
            assert time.monotonic() < deadline, (wanted, errors)
            message = consumer.poll(0.1)
            if message is None:
                continue
            if (error := message.error()) is not None:
                if error.code() != KafkaError._AUTO_OFFSET_RESET:
                    errors[wanted] = error.code()
                    wanted += 1
                consumer.assign([TopicPartition(TOPIC, 0, wanted)])
            else:
                assert message.offset() == wanted
                values.append(message.value() or b"")
                wanted += 1
    return values, errors
