"""Both brokers, set up alike."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from triolog.server.embedded import MEMORY, BlockingBroker
from triolog.server.settings.broker_config import Address

from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_jars import KafkaCalls

from .sides import Side

SETTINGS: Final = {
    "group.min.session.timeout.ms": "1",  # as embedded brokers have it
    "group.coordinator.append.linger.ms": "0",
    "controller.quorum.append.linger.ms": "0",
    "log.retention.check.interval.ms": "86400000",  # records of long ago stay
    "log.initial.task.delay.ms": "86400000",
}


@contextmanager
def both(folder: Path, classes: str, calls: KafkaCalls) -> Iterator[tuple[Side, Side]]:
    """triolog and Kafka, for the time of the block; both are strict."""
    with (
        BlockingBroker(MEMORY, native=None, kafka=Address("127.0.0.1", 0), lenient=False) as broker,
        KafkaBroker(folder / "kafka", classes, calls, settings=SETTINGS) as kafka,
    ):
        kafka.format()
        kafka.start()
        assert broker.kafka is not None
        with closing(Side.connect(broker.kafka)) as ours, closing(Side.connect(Address.parse(kafka.address))) as theirs:
            yield ours, theirs
        kafka.stop()
