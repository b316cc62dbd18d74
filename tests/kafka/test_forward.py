"""`triolog forward` to a real Apache Kafka: what its tests with triolog as upstream claim, where Kafka has its own ways.

`TRIOLOG_TEST_FORWARD_KILLS=100` makes so many runs in which Kafka is killed; `TRIOLOG_TEST_FORWARD_SEED=...` chooses what, and
when.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import triolog

from tests.support.counts import counts
from tests.support.forked_servers import ServerForker
from tests.support.forwarding import ANY_PORT, FOR_EVER, TOPIC, Forwarding, Running, until
from tests.support.forwarding_chain import KafkaUpstream, Upstream, chain
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_jars import KafkaCalls
from tests.tools.forward.test_sigkill import kill_in_runs, weather

pytestmark = pytest.mark.timeout(1800)

RUNS: Final = counts(10)
RUNS_WITH_KAFKA: Final = int(os.environ.get("TRIOLOG_TEST_FORWARD_KILLS") or counts(4))
HERE: Final = ("source", "forwarder")
STORM_S: Final = counts(60)
SEED: Final = os.environ.get("TRIOLOG_TEST_FORWARD_SEED") or "kafka"
SETTINGS: Final = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "auto.create.topics.enable": "false",
    "num.partitions": "1",
}


@contextlib.contextmanager
def kafka_upstream(kafka: KafkaCalls, classes: str, folder: Path, advertised: str, forker: ServerForker) -> Iterator[Upstream]:
    settings = {**SETTINGS, "advertised.listeners": f"PLAINTEXT://{advertised}"}
    with KafkaBroker(folder / "kafka", classes, kafka, settings=settings) as broker:
        broker.format()
        yield KafkaUpstream(broker)


def test_every_record_is_upstream_once_whoever_is_killed_and_whatever_the_weather(
    tmp_path: Path, kafka: KafkaCalls, kafka_class_path: str
) -> None:
    """One chain: a JVM takes seconds to start, so Kafka itself is killed in some runs only."""
    with chain(tmp_path, partial(kafka_upstream, kafka, kafka_class_path)) as made:
        kill_in_runs(made, [f"{SEED}-{number}" for number in range(RUNS)], (), HERE)
        kill_in_runs(made, [f"{SEED}-all-{number}" for number in range(RUNS_WITH_KAFKA)], ("upstream",), HERE)
        weather(made, STORM_S)


def test_topics_are_made_refused_records_are_found_and_a_second_forwarder_fences_the_first(
    tmp_path: Path, kafka: KafkaCalls, kafka_class_path: str
) -> None:
    broker = KafkaBroker(tmp_path / "kafka", kafka_class_path, kafka, settings=SETTINGS)
    with broker, triolog.blocking.open(native=ANY_PORT, config=FOR_EVER) as source:
        broker.format()
        broker.start()
        source.create_topic(TOPIC, 2, {"max.message.bytes": "3000", "retention.ms": "-1"})
        source.create_topic("dead")
        source.alter_config(TOPIC, {"max.message.bytes": "100000"})
        pair = Forwarding(source, source)
        first = pair.link(to=broker.address, dead_letter_topic="dead", create_config={"max.message.bytes": "3000"})
        pair.append([b"small"] * 10, topic="dead")
        dead = pair.link(drain=True, to=broker.address, topics=["dead"], name="dead")
        dead.run()
        assert dead.error is None
        with Running(first):
            pair.append([b"a", b"x" * 5000, b"b"])
            until(lambda: first.progress.snapshot()["records"] == 3, "the records")
            assert first.progress.snapshot()["dead_letter_records"] == 1
            second = pair.link(to=broker.address, dead_letter_topic="dead")
            with Running(second):
                until(lambda: second.progress.state.value == "running", "the second")
                pair.append([b"c"])
                until(lambda: first.error is not None, "the end of the first")
                until(lambda: second.progress.snapshot()["records"] == 1, "its record")
        assert "another forwarder took this link over" in str(first.error)
        assert "PartitionCount: 2" in broker.topics("--bootstrap-server", broker.address, "--describe", "--topic", TOPIC)
