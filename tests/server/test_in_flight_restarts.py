"""Clients of Kafka's protocol with five requests in flight each, on a server that is stopped, or killed, and started again.
Whatever they have heard, they send the five again, in order, as librdkafka does: each is answered, those that were answered
before with the same offset, and every record is stored once, in the order it was sent. `kill_runs` has its runs."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Final

import attrs
import pytest
from triolog.protocol.kafka.messages.records import ProducePartition, ProduceRequest, ProduceTopic
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.tools.client.blocking import BlockingClient, BlockingProducer, BlockingRecord

from tests.support import kill_runs
from tests.support.counts import counts
from tests.support.forked_servers import ServerForker
from tests.support.kafka_wire import KafkaWire
from tests.support.logs import open_driven
from tests.support.server_process import DEADLINE_S, ServerFolder, ServerProcess
from tests.support.wire_client import WireClient

TOPIC: Final = "in-flight"
PRODUCERS: Final = range(3)
IN_FLIGHT: Final = 5
STOPS: Final = 4
VERSION: Final = 9
STORAGE_ERROR: Final = 56


@attrs.define(eq=False)
class Run:
    """One seeded run on one directory. `answered`: the base offset that a producer's request was answered with."""

    folder: ServerFolder
    rng: random.Random
    sent: int = 0
    """Requests of each producer."""
    answered: dict[tuple[int, int], int] = attrs.field(factory=dict)

    def play(self) -> None:
        server = self.start()
        with WireClient.connect(server.address) as client:
            client.create_topic(TOPIC, config={"segment.bytes": str(self.rng.choice((600, 2_000, 1 << 20)))})
        for _ in range(STOPS):
            self.send_five_and_stop(server)
            server = self.start()
            self.send_them_again(server)
        assert server.stop() == 0
        self.check()

    def start(self) -> ServerProcess:
        durability = self.rng.choice(("os", "fsync", "group:5"))
        return self.folder.start("--kafka", "127.0.0.1:0", "--durability", durability)

    def send_five_and_stop(self, server: ServerProcess) -> None:
        """A stop comes while answers are on their way, or when all were heard."""
        self.sent += IN_FLIGHT
        wires = [self.connect(server) for _ in PRODUCERS]
        try:
            requests = self.send(wires)
            heard = self.rng.choice((0, self.rng.randrange(len(requests)), len(requests)))
            for wire, producer, number in requests[:heard]:
                self.hear(wire, producer, number, may_be_stopping=False)
            if self.rng.random() < 0.6:
                server.terminate()
                for wire, producer, number in requests[heard:]:
                    try:
                        self.hear(wire, producer, number, may_be_stopping=True)
                    except ConnectionError:
                        continue
                for wire in wires:
                    wire.close()
                assert server.wait_exit() == 0
            else:
                server.kill()
        finally:
            for wire in wires:
                wire.close()

    def send_them_again(self, server: ServerProcess) -> None:
        wires = [self.connect(server) for _ in PRODUCERS]
        try:
            for wire, producer, number in self.send(wires):
                self.hear(wire, producer, number, may_be_stopping=False)
        finally:
            for wire in wires:
                wire.close()

    def connect(self, server: ServerProcess) -> KafkaWire:
        return KafkaWire.connect(server.address_of("kafka"))

    def send(self, wires: list[KafkaWire]) -> list[tuple[KafkaWire, int, int]]:
        """The last five requests of each producer, each in order, the producers in any."""
        left = {producer: list(range(self.sent - IN_FLIGHT, self.sent)) for producer in PRODUCERS}
        requests = []
        while left:
            producer = self.rng.choice(list(left))
            number = left[producer].pop(0)
            wires[producer].send(request(producer, number), VERSION)
            requests.append((wires[producer], producer, number))
            if not left[producer]:
                del left[producer]
        return requests

    def hear(self, wire: KafkaWire, producer: int, number: int, *, may_be_stopping: bool) -> None:
        [topic] = wire.receive().responses
        [answer] = topic.partition_responses
        if may_be_stopping and answer.error_code == STORAGE_ERROR:
            return
        assert answer.error_code == 0, f"request {number} of producer {producer}: error {answer.error_code}"
        known = self.answered.setdefault((producer, number), answer.base_offset)
        assert known == answer.base_offset, f"request {number} of producer {producer}"

    def check(self) -> None:
        partition = TopicPartition(TOPIC, 0)
        log = open_driven(self.folder.data_dir / str(partition), topic_partition=partition)
        stored = [(record.value, record.offset) for record in log.records()]
        for producer in PRODUCERS:
            mine = [(value, offset) for value, offset in stored if value is not None and value.startswith(b"%d:" % producer)]
            expected = [
                (b"%d:%d:%d" % (producer, number, each), self.answered[producer, number] + each)
                for number in range(self.sent)
                for each in range(2)
            ]
            assert mine == expected


def request(producer: int, number: int) -> ProduceRequest:
    """One batch of two records."""
    records = build_batch(
        [(1_000 + number, None, b"%d:%d:%d" % (producer, number, each), ()) for each in range(2)],
        producer_id=1_000 + producer,
        producer_epoch=0,
        base_sequence=2 * number,
    )
    data = [ProduceTopic(name=TOPIC, partition_data=[ProducePartition(index=0, records=records)])]
    return ProduceRequest(transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=data)


@pytest.mark.parametrize("run", kill_runs.runs(counts(20)))
def test_five_requests_in_flight_are_known_again_after_any_stop(run: int, tmp_path: Path, server_forker: ServerForker) -> None:
    with kill_runs.choices(run) as rng, ServerFolder(tmp_path, command=server_forker) as folder:
        Run(folder, rng).play()
        assert "Traceback" not in folder.wrote()


def test_producers_go_on_over_kills_and_restarts_and_every_record_is_there_once(server_folder: ServerFolder) -> None:
    """Two of them roll each other's segments, so of what was on its way a snapshot may tell the newest batch alone."""
    environment = {"TRIOLOG_CHECKPOINT_INTERVAL_MS": "100"}
    server = server_folder.spawn(extra_environment=environment).wait_ready()
    with WireClient.connect(server.address) as client:
        client.create_topic(TOPIC, 1, {"segment.bytes": "8192"})
    sent: list[tuple[bytes, BlockingRecord]] = []
    with contextlib.ExitStack() as stack:
        producers = []
        for _ in range(2):
            client_of_its_own = stack.enter_context(BlockingClient(lambda: server.address))
            producers.append(stack.enter_context(BlockingProducer(client_of_its_own, linger_ms=0, batch_bytes=1000)))
        for kill in range(3):
            for number in range(kill * 300, kill * 300 + 300):
                for each, producer in enumerate(producers):
                    value = b"%d:%d" % (each, number)
                    sent.append((value, producer.send(TOPIC, value, key=value, partition=0)))
            server.kill()
            server = server_folder.spawn(extra_environment=environment).wait_ready()
        for producer in producers:
            producer.flush(DEADLINE_S)
        offsets = {value: record.result(DEADLINE_S).offset for value, record in sent}
    with WireClient.connect(server.address) as client:
        records, _ = client.read_all(TOPIC, 0)
    assert {record.value: record.offset for record in records} == offsets
    assert len(records) == len(sent)
    for each in range(2):
        own = [record.value for record in records if record.value is not None and record.value.startswith(b"%d:" % each)]
        assert own == [b"%d:%d" % (each, number) for number in range(900)]
