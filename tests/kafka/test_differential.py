"""The same requests to triolog and to Apache Kafka 4.3.1: their answers are equal, field by field.

Scripts are drawn by a seed; see `differential` for what they ask, what is not compared and which differences are meant.
`TRIOLOG_TEST_DIFFERENTIAL_SEEDS=20` runs as many scripts of 2,000 requests, from `TRIOLOG_TEST_DIFFERENTIAL_SEED` on.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NoReturn

import attrs
import pytest
from triolog.protocol.types import CompressionType

from tests.kafka.differential.answers import differences
from tests.kafka.differential.script import QUOTAS, WEIGHTS, Difference, Script
from tests.kafka.differential.sharing.script import SharingScript
from tests.kafka.differential.sides import Side, both, both_sharing
from tests.kafka.differential.symbols import After, Batch, Symbol
from tests.kafka.differential.world import NOON
from tests.support.counts import counts, session_seed
from tests.support.kafka_admin import create_topics, new_topic
from tests.support.kafka_jars import KafkaCalls
from tests.support.kafka_wire import ask

ASKED_FOR: Final = int(os.environ.get("TRIOLOG_TEST_DIFFERENTIAL_SEEDS", 0))
FIRST_SEED: Final = int(os.environ.get("TRIOLOG_TEST_DIFFERENTIAL_SEED") or 7 + session_seed())
SCRIPTS: Final = ASKED_FOR or (2 if counts(10) == 10 else 1)
REQUESTS: Final = 2000 if ASKED_FOR else counts(2000)
BATCHES: Final = max(60, counts(240))
LOOKUPS: Final = counts(10_000)


def fail(difference: Difference) -> NoReturn:
    again = f"TRIOLOG_TEST_DIFFERENTIAL_SEED={difference.seed} TRIOLOG_TEST_DIFFERENTIAL_SEEDS=1 repeats it"
    pytest.fail(f"{difference}\n{again}", pytrace=False)


@pytest.mark.timeout(300 + 120 * SCRIPTS)
def test_both_brokers_answer_alike(kafka: KafkaCalls, kafka_class_path: str, tmp_path: Path) -> None:
    """Scripts, each of which leaves the brokers as empty as it has found them; a script about client quotas,
    which stay; and lookups by time in random logs."""
    with both(tmp_path, kafka_class_path, kafka) as sides:
        seeds = range(FIRST_SEED, FIRST_SEED + SCRIPTS)
        for seed, weights in [*((seed, WEIGHTS) for seed in seeds), (FIRST_SEED, QUOTAS)]:
            script = Script.of(seed, *sides, weights)
            for difference in script.run(REQUESTS):
                fail(difference)
            if weights is WEIGHTS:
                script.clear()
        lookups = Lookups.of(FIRST_SEED, *sides)
        lookups.write(BATCHES)
        assert list(lookups.ask(LOOKUPS)) == []


@pytest.mark.timeout(600 * max(ASKED_FOR, 1))
def test_both_brokers_share_alike(kafka: KafkaCalls, kafka_class_path: str, tmp_path: Path) -> None:
    """Share groups: several members, real locks that end, acknowledgements right and wrong."""
    for seed in range(FIRST_SEED, FIRST_SEED + max(ASKED_FOR, 1)):
        both_sides = both_sharing(tmp_path / str(seed), kafka_class_path, kafka)
        with both_sides as sides, closing(SharingScript.of(seed, *sides)) as script:
            for difference in script.run(REQUESTS):
                fail(difference)


LOGS: Final[Mapping[str, Mapping[str, str]]] = {
    "ordered": {"segment.ms": "20000", "index.interval.bytes": "500"},
    "disordered": {"segment.ms": "30000", "index.interval.bytes": "1"},
    "one-segment": {"index.interval.bytes": "200"},
    "large": {"segment.bytes": "1048576", "index.interval.bytes": "4096"},
    "stamped": {"message.timestamp.type": "LogAppendTime", "segment.ms": "10", "index.interval.bytes": "100"},
    "packed": {"compression.type": "gzip", "segment.ms": "60000"},
}
"""Configuration of topics by their names. A segment is rolled when the times of its records span `segment.ms`."""
PARTITIONS: Final = 4
"""Logs of each topic. A request asks one question of each."""
SPAN_MS: Final = 200_000


@attrs.define(eq=False)
class Lookups:
    """One run. Owner: who runs it."""

    seed: int
    ours: Side
    kafka: Side
    rng: random.Random
    _appended: list[Symbol] = attrs.field(factory=list)

    @classmethod
    def of(cls, seed: int, ours: Side, kafka: Side) -> Lookups:
        return cls(seed, ours, kafka, random.Random(f"lookups {seed}"))

    def write(self, batches: int) -> None:
        """So many batches to each topic, one after the other to both brokers, which answer alike."""
        prefix = f"lookups-{self.seed}-"
        for name, configs in LOGS.items():
            topic = new_topic(prefix + name, PARTITIONS, configs={**configs, "retention.ms": "-1"})
            for side in (self.kafka, self.ours):
                answer = side.ask(create_topics(topic), 5)
                assert not answer["topics"][0]["error_code"], answer
            self.kafka.settle_metadata()
            for number in range(batches):
                self._append(prefix + name, self._batch(name, SPAN_MS * number // batches))

    def _append(self, topic: str, batch: Batch) -> None:
        part = {"index": self.rng.randrange(PARTITIONS), "records": batch}
        request = ask("Produce", acks=-1, timeout_ms=30_000, topic_data=[{"name": topic, "partition_data": [part]}])
        ours, theirs = (side.ask(request, 9) for side in (self.ours, self.kafka))
        assert not list(differences(ours, theirs)), f"seed {self.seed}, {topic}: {batch}: triolog {ours}, Kafka {theirs}"
        [answer] = theirs["responses"][0]["partition_responses"]
        assert answer["error_code"] == 0, answer
        if isinstance(answer["log_append_time_ms"], Symbol):
            self._appended.append(answer["log_append_time_ms"])

    def _batch(self, name: str, after_ms: int) -> Batch:
        now = NOON + after_ms
        spread = {"ordered": 0, "large": 1000}.get(name, 20_000)
        size = 9_000 if name == "large" else 40
        records = tuple(
            (
                -1 if self.rng.random() < 0.01 else now + each * 7 + self.rng.randint(-spread, spread),
                None,
                self.rng.randbytes(self.rng.randint(0, size)),
                (),
            )
            for each in range(self.rng.randint(1, 6))
        )
        codec = CompressionType.NONE if name == "large" else self.rng.choice(list(CompressionType))
        return Batch(records=records, codec=codec)

    def ask(self, count: int) -> Iterator[str]:
        """So many questions; what is answered differently."""
        for _ in range(0, count, PARTITIONS * len(LOGS)):
            request = self._questions()
            version = self.rng.randint(7, 10)
            ours, theirs = (side.ask(request, version) for side in (self.ours, self.kafka))
            for place, one, other in differences(ours, theirs):
                yield f"seed {self.seed}, {request}, {place}: triolog {one!r}, Kafka {other!r}"

    def _questions(self) -> Any:
        topics = []
        for name in LOGS:
            parts = [{"partition_index": each, "timestamp": self._time(name)} for each in range(PARTITIONS)]
            topics.append({"name": f"lookups-{self.seed}-{name}", "partitions": parts})
        return ask("ListOffsets", replica_id=-1, isolation_level=self.rng.randrange(2), topics=topics)

    def _time(self, name: str) -> int:
        if name == "stamped":
            return After(symbol=self.rng.choice(self._appended), milliseconds=self.rng.choice([0, 0, 1]))
        return self.rng.choice([NOON + self.rng.randint(-30_000, SPAN_MS + 30_000)] * 20 + [0, 1, -3, 2**62])
