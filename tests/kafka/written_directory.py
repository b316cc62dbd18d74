"""A log directory as triolog leaves it after a day of everything: codecs, both clocks, a trimmed start, idempotent producers,
transactions of every outcome, a compacted topic, committed offsets.

The steps of docs/kafka-migration.md, as a user takes them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import trio
from click.testing import CliRunner
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import CompressionType, TopicPartition
from triolog.server.broker import Broker
from triolog.server.storage.disk.checkpoints import read_cleaner_offsets
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.system.clock import system_now_ms
from triolog.tools.cli.main import main

from tests.kafka.served import KEPT
from tests.kafka.written_logs import SEED, mixed_records
from tests.support.brokers import actor_of, running_broker, until
from tests.support.kafka_broker import KafkaBroker
from tests.support.logs import START_MS
from tests.support.transactions import TransactionalProducer

SMALL: Final = {"segment.bytes": "20000", "index.interval.bytes": "300"}
TRANSACTION_TIMEOUT_MS: Final = 600_000

CODECS: Final = [TopicPartition("codecs", partition) for partition in range(2)]
APPEND_TIME: Final = TopicPartition("append-time", 0)
TRIMMED: Final = TopicPartition("trimmed", 0)
IDEMPOTENT: Final = TopicPartition("idempotent", 0)
TRANSACTIONS: Final = TopicPartition("transactions", 0)
COMPACTED: Final = TopicPartition("compacted", 0)
EMPTY: Final = TopicPartition("empty", 0)
PARTITIONS: Final = (*CODECS, APPEND_TIME, TRIMMED, IDEMPOTENT, TRANSACTIONS, COMPACTED, EMPTY)

TRIMMED_AT: Final = 333
LEFT_OPEN: Final = "left-open"
"""Transactional id of the transaction that nobody ended."""
GROUP: Final = "readers"
COMMITTED: Final = 17


def write_directory(directory: Path) -> None:
    """Run a broker on a new directory, write all of it, and stop in order."""
    trio.run(_write, directory)


async def _write(directory: Path) -> None:
    settings = {"cleaner_backoff_ms": 10, "topic": KEPT, "clock": system_now_ms}
    async with running_broker(directory, **settings) as broker:
        await broker.topics.create("codecs", 2, SMALL)
        await broker.topics.create("append-time", 1, {**SMALL, "message.timestamp.type": "LogAppendTime"})
        await broker.topics.create("trimmed", 1, SMALL)
        await broker.topics.create("idempotent", 1, SMALL)
        await broker.topics.create("transactions", 1, {**SMALL, "segment.bytes": "2000"})
        await broker.topics.create("compacted", 1, {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"})
        await broker.topics.create("empty", 1)
        for partition in (*CODECS, APPEND_TIME, TRIMMED):
            await _append_mixed(broker, partition)
        await broker.logs.delete_records(TRIMMED, TRIMMED_AT)
        await _append_idempotent(broker)
        await _append_transactions(broker)
        await _compact(broker, directory)
        [error] = await broker.offsets.commit(GROUP, [(CODECS[0], COMMITTED, "half way")])
        assert error is None


async def _append_mixed(broker: Broker, partition: TopicPartition) -> None:
    rng = random.Random(SEED)
    for number in range(60):
        records = mixed_records(rng, rng.randint(1, 30), START_MS + 1000 * number)
        codec = list(CompressionType)[number % len(CompressionType)]
        await broker.writer.append(partition, build_batch(records, compression_type=codec))


async def _append_idempotent(broker: Broker) -> None:
    """Ten producers; a new cluster gives their ids to others."""
    for _ in range(10):
        producer_id, producer_epoch = await broker.producers.init(None, 0)
        for sequence in range(5):
            batch = build_batch(
                [(START_MS + sequence, b"key", b"by %d" % producer_id, ())],
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=sequence,
            )
            await broker.writer.append(IDEMPOTENT, batch)


async def _append_transactions(broker: Broker) -> None:
    """Interleaved ones of three producers, then one that stays open, and committed records behind it."""
    rng = random.Random(SEED)
    producers = [
        await TransactionalProducer.start(broker, f"mover-{number}", timeout_ms=TRANSACTION_TIMEOUT_MS) for number in range(3)
    ]
    for number in range(120):
        producer = rng.choice(producers)
        await producer.produce(TRANSACTIONS, f"{producer.transactional_id} {number}")
        if rng.random() < 0.2:
            await (producer.commit() if rng.random() < 0.5 else producer.abort())
    for producer in producers:
        await producer.commit()
    left = await TransactionalProducer.start(broker, LEFT_OPEN, timeout_ms=TRANSACTION_TIMEOUT_MS)
    await left.produce(TRANSACTIONS, "never decided")
    await producers[0].produce(TRANSACTIONS, "hidden behind it")
    await producers[0].commit()


async def _compact(broker: Broker, directory: Path) -> None:
    """Values and tombstones of few keys, until the server's cleaner has been over most of it."""
    rng = random.Random(SEED)
    for number in range(300):
        value = None if rng.random() < 0.1 else b"%d" % number * 40
        await broker.writer.append(COMPACTED, [(START_MS + number, b"key-%d" % rng.randrange(20), value, ())])
    fs, active = OsFileSystem(), actor_of(broker, COMPACTED).log.active.base_offset
    assert active > 0
    await until(lambda: read_cleaner_offsets(fs, str(directory)).get(COMPACTED) == active)


def triolog(*arguments: object) -> str:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def migrate(source: Path, broker: KafkaBroker, *, commands: Sequence[str] = (), export: Sequence[str] = ()) -> None:
    """The how-to: format, create the topics, stop, export. Kafka is not running afterwards. Options of both commands."""
    create_topics(source, broker, *commands)
    triolog("export-kafka", source, broker.log_directory, *export)


def create_topics(source: Path, broker: KafkaBroker, *options: str) -> None:
    """Everything before the export itself."""
    broker.format()
    broker.start()
    commands = triolog("export-kafka", source, "--print-commands", "--bootstrap-server", broker.address, *options)
    broker.run_commands([line for line in commands.splitlines() if not line.startswith("#")])
    broker.stop()
