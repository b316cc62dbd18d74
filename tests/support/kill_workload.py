"""What a server is configured with and busy with when it is killed: topics of every kind, and loads on all of them at once."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import attrs
from triolog.protocol.types import CompressionType, TopicPartition

from tests.simulation.history import Expires, Made
from tests.support.kill_history import KillHistory, Numbered
from tests.support.kill_loads import OLD_MS, CommitterLoad, Load, ProducerLoad, RecreatingLoad, TransactionLoad, TrimmingLoad

TRANSACTIONS: Final = "transactions"
TRANSACTION_PARTITIONS: Final = 2
RETENTION_MS: Final = 3_600_000
KEPT: Final = TopicPartition("kept", 0)


@attrs.define(eq=False)
class Workload:
    """The seeded choices of a run, and the loads that outlive its servers. Owner: the run."""

    rng: random.Random
    environment: dict[str, str] = attrs.field(factory=dict)
    """Configuration of the server."""
    topics: dict[str, tuple[int, dict[str, str]]] = attrs.field(factory=dict)
    """Partitions and configuration."""
    history: KillHistory = attrs.field(factory=KillHistory)
    loads: list[Load] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        rng = self.rng
        self.environment = {
            "TRIOLOG_DURABILITY": rng.choice(("fsync", "fsync", "group:5", "os")),
            "TRIOLOG_CLEANER_BACKOFF_MS": rng.choice(("1", "20")),
            "TRIOLOG_RETENTION_CHECK_INTERVAL_MS": "100",
            "TRIOLOG_CHECKPOINT_INTERVAL_MS": rng.choice(("100", "60000")),
        }
        self._add_producer("kept", self._make_plain, {}, producers=2)
        self._add_compacted()
        self._add_retained()
        self._add_transactions()
        self._add_recreated()
        self.loads.append(CommitterLoad("committer", self._rng(), self.history, KEPT))

    def _add_topic(self, name: str, partitions: int, config: dict[str, str]) -> None:
        rng = self.rng
        shared = {
            "retention.ms": "-1",
            "segment.bytes": str(rng.choice((4096, 8192, 32_768))),
            "segment.index.bytes": str(rng.choice((48, 480, 4096))),
            "index.interval.bytes": str(rng.choice((0, 500, 4096))),
            "preallocate": rng.choice(("false", "false", "true")),
            "file.delete.delay.ms": rng.choice(("0", "200", "60000")),
        }
        self.topics[name] = partitions, {**shared, **config}
        self.history.add(Made, "run", topic=name, config=self.topics[name][1])

    def _add_producer(
        self,
        topic: str,
        make: Callable[[str, random.Random, int], Numbered],
        config: dict[str, str],
        *,
        producers: int = 1,
        kind: type[ProducerLoad] = ProducerLoad,
    ) -> None:
        self._add_topic(topic, 1, config)
        for number in range(producers):
            name = f"{topic}-producer-{number}"
            codec = self.rng.choice((CompressionType.NONE, CompressionType.NONE, CompressionType.ZSTD, CompressionType.LZ4))
            load: Any = kind(
                name=name,
                rng=self._rng(),
                history=self.history,
                where=TopicPartition(topic, 0),
                make=partial(make, name),
                max_records=self.rng.choice((1, 4, 10)),
                codec=codec,
            )
            self.loads.append(load)

    def _add_compacted(self) -> None:
        config = {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": self.rng.choice(("0", "0.2")),
            "delete.retention.ms": self.rng.choice(("0", "200", "86400000")),
        }
        keys = self.rng.choice((3, 20, 100))
        self._add_producer("compacted", partial(self._make_keyed, keys), config, producers=2)

    def _add_retained(self) -> None:
        retention_bytes = self.rng.choice((0, 3000, 20_000))
        self._add_producer("sized", self._make_plain, {"retention.bytes": str(retention_bytes)}, producers=2)
        fresh_ms = time.time_ns() // 1_000_000
        self.history.add(Expires, "run", partition=TopicPartition("aged", 0), before_timestamp=fresh_ms)
        make = partial(self._make_old_then_fresh, self.rng.choice((100, 1000)), fresh_ms)
        self._add_producer("aged", make, {"retention.ms": str(RETENTION_MS)})
        self._add_producer("trimmed", self._make_plain, {}, kind=TrimmingLoad)

    def _add_recreated(self) -> None:
        config = {"retention.ms": "-1", "segment.bytes": "4096", "file.delete.delay.ms": self.rng.choice(("0", "60000"))}
        self.loads.append(
            RecreatingLoad(
                name="recreated",
                rng=self._rng(),
                history=self.history,
                where=TopicPartition("recreated", 0),
                make=self._make_plain,
                max_records=self.rng.choice((1, 4, 10)),
                share=0.3,
                config=config,
            )
        )

    def _add_transactions(self) -> None:
        is_compacted = self.rng.random() < 0.5
        config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "delete.retention.ms": "0"}
        self._add_topic(TRANSACTIONS, TRANSACTION_PARTITIONS, config if is_compacted else {})
        partitions = [TopicPartition(TRANSACTIONS, number) for number in range(TRANSACTION_PARTITIONS)]
        for number in range(self.rng.randint(1, 2)):
            name = f"transactional-{number}"
            self.loads.append(TransactionLoad(name, self._rng(), self.history, partitions, KEPT))

    @property
    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for topic, (count, _) in self.topics.items() for number in range(count)]

    def _rng(self) -> random.Random:
        return random.Random(self.rng.getrandbits(64))

    @staticmethod
    def _make_plain(producer: str, rng: random.Random, number: int) -> Numbered:
        return Numbered(producer, number, OLD_MS + number, None, rng.randbytes(rng.randint(0, 100)))

    @staticmethod
    def _make_keyed(keys: int, producer: str, rng: random.Random, number: int) -> Numbered:
        key = b"%s-%d" % (producer.encode(), rng.randrange(keys))
        return Numbered(producer, number, OLD_MS + number, key, None if rng.random() < 0.2 else rng.randbytes(30))

    @staticmethod
    def _make_old_then_fresh(first_fresh: int, fresh_ms: int, producer: str, rng: random.Random, number: int) -> Numbered:
        is_fresh = number >= first_fresh and rng.random() < 0.02
        timestamp = fresh_ms + number if is_fresh else OLD_MS + number
        return Numbered(producer, number, timestamp, None, rng.randbytes(rng.randint(0, 100)))
