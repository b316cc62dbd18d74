"""Both brokers, set up alike."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from triolog.server.config.broker_config import Address
from triolog.server.embedded import MEMORY, BlockingBroker

from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_jars import KafkaCalls

from .sides import Side

SETTINGS: Final = {
    "group.min.session.timeout.ms": "1",  # as embedded brokers have it
    "group.coordinator.append.linger.ms": "0",
    "controller.quorum.append.linger.ms": "0",
    "log.retention.check.interval.ms": "86400000",  # records of long ago stay
    "log.initial.task.delay.ms": "86400000",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",  # assignments at once, as they are here
    "group.streams.min.assignment.interval.ms": "0",
    "group.streams.assignor.offload.enable": "false",
}


SHARING: Final = {
    **SETTINGS,
    "group.share.assignment.interval.ms": "0",  # assignments at once, as they are here
    "group.share.assignor.offload.enable": "false",
    "group.share.max.session.timeout.ms": "3600000",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.max.record.lock.duration.ms": "3600000",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.append.linger.ms": "0",
}
"""For scripts about share groups."""


@contextmanager
def both(folder: Path, classes: str, calls: KafkaCalls) -> Iterator[tuple[Side, Side]]:
    """triolog and Kafka, for the time of the block; both are strict."""
    with _both(folder, classes, calls, SETTINGS, lenient=False) as sides:
        yield sides


@contextmanager
def both_sharing(folder: Path, classes: str, calls: KafkaCalls) -> Iterator[tuple[Side, Side]]:
    """The same with shorter and longer locks than either has by itself."""
    with _both(folder, classes, calls, SHARING, lenient=True) as sides:
        yield sides


@contextmanager
def _both(
    folder: Path, classes: str, calls: KafkaCalls, settings: dict[str, str], *, lenient: bool
) -> Iterator[tuple[Side, Side]]:
    with (
        BlockingBroker(MEMORY, native=None, kafka=Address("127.0.0.1", 0), lenient=lenient) as broker,
        KafkaBroker(folder / "kafka", classes, calls, settings=settings) as kafka,
    ):
        kafka.format()
        kafka.start()
        with closing(Side.connect(broker.kafka)) as mine, closing(Side.connect(Address.parse(kafka.address))) as theirs:
            yield mine, theirs
        kafka.stop()
