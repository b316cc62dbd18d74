"""MirrorMaker 2 of Kafka 4.3 between triolog and Apache Kafka, in both directions, over a process that is killed."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from triolog.tools.bench.kafka.jars import PeerMissingError, kafka_jars

from tests.applications.processes import SINGLE, JavaProcess, RestartedServer
from tests.applications.topics import Read, Reader, Sent, feed, make_topics, wait_topic
from tests.support.forked_servers import ServerForker
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_jars import KafkaCalls, KafkaUnavailableError, class_path, unavailable

RECORDS: Final = 1_000
MAIN: Final = "org.apache.kafka.connect.mirror.MirrorMaker"
CONFIG: Final = {
    "clusters": "triolog, kafka",
    "triolog->kafka.enabled": "true",
    "kafka->triolog.enabled": "true",
    "triolog->kafka.topics": "orders",
    "kafka->triolog.topics": "bills",
    "replication.factor": "1",
    "offset-syncs.topic.replication.factor": "1",
    "checkpoints.topic.replication.factor": "1",
    "heartbeats.topic.replication.factor": "1",
    **SINGLE,
    "tasks.max": "1",
    "refresh.topics.interval.seconds": "1",
}

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


@pytest.fixture(scope="module")
def kafka_classes() -> str:
    try:
        return class_path()
    except (KafkaUnavailableError, PeerMissingError) as exc:
        unavailable(str(exc))


def numbered(name: str, start: int, stop: int) -> list[Sent]:
    return [Sent(f"key-{number % 10}", f"{name}-{number}") for number in range(start, stop)]


def read_until(address: str, topic: str, last: str, mirror: JavaProcess) -> list[Read]:
    """What is in the topic, which may have to be made yet, as soon as it has the value `last`."""
    wait_topic(address, topic, mirror.check_running)
    with Reader.of(address, topic) as reader:
        return reader.wait_for(lambda records: any(each.value == last for each in records), mirror.check_running)


def test_records_arrive_in_order(tmp_path: Path, applications: str, server_forker: ServerForker, kafka_classes: str) -> None:
    """What was copied and not noted down when the process was killed is copied again."""
    halves = (0, RECORDS // 2), (RECORDS // 2, RECORDS)
    with ExitStack() as stack:
        server = stack.enter_context(RestartedServer.running(tmp_path / "server", server_forker))
        calls = stack.enter_context(KafkaCalls.start(kafka_classes))
        kafka = stack.enter_context(KafkaBroker(tmp_path / "kafka", kafka_jars(), calls))
        kafka.format()
        kafka.start()
        make_topics(server.address, "orders")
        make_topics(kafka.address, "bills")
        config = {**CONFIG, "triolog.bootstrap.servers": server.address, "kafka.bootstrap.servers": kafka.address}
        folder = tmp_path / "mirror"
        folder.mkdir()
        (folder / "mm2.properties").write_text("".join(f"{key} = {value}\n" for key, value in config.items()))
        for at, (start, stop) in enumerate(halves):
            feed(server.address, "orders", numbered("order", start, stop))
            feed(kafka.address, "bills", numbered("bill", start, stop))
            with JavaProcess.spawn(folder, applications, MAIN, "mm2.properties") as mirror:
                for source, target, topic, name in (
                    ("triolog", kafka.address, "triolog.orders", "order"),
                    ("kafka", server.address, "kafka.bills", "bill"),
                ):
                    read = read_until(target, topic, f"{name}-{stop - 1}", mirror)
                    assert list(dict.fromkeys(read)) == [(sent.key, sent.value) for sent in numbered(name, 0, stop)], source
            if at == 0:
                server.kill()
                server.start()
