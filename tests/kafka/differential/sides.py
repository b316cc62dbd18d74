"""The two brokers, and what has to be waited for until Kafka has done what it has answered."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import attrs
import triolog
from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.messages.records import ProduceRequest
from triolog.server.config.broker_config import Address
from triolog.server.embedded import MEMORY

from tests.kafka.differential.answers import Reading
from tests.kafka.differential.symbols import Names, resolved
from tests.kafka.differential.world import FENCE, STEADY
from tests.support.kafka_admin import NO_ID, SET, TOPIC_TYPE, alter_incrementally, create_topics, describe, new_topic
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_jars import KafkaCalls
from tests.support.kafka_wire import TIMEOUT_S, KafkaWire, ask

DISCONNECTED: Final = {"the connection": "ended by the broker"}
UNANSWERED: Final = {"the answer": "none, as asked for"}
BUSY: Final = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE}
DEADLINE_S: Final = 120.0


@attrs.frozen(eq=False)
class Late:
    """In place of an answer that has not come. None is equal to another: that both brokers wait is no answer either."""

    seconds: float = TIMEOUT_S


@attrs.define(eq=False)
class Side:
    """A connection to one of them. Owner: who opened it."""

    address: tuple[str, int]
    wire: KafkaWire
    reading: Reading
    _fences: int = 0

    @classmethod
    def connect(cls, address: tuple[str, int]) -> Self:
        return cls(address, KafkaWire.connect(address), Reading(Names(), address))

    def close(self) -> None:
        self.wire.close()

    def versions(self) -> dict[int, tuple[int, int]]:
        answer = self.wire.call(ask("ApiVersions", client_software_name="triolog", client_software_version="1"), 3)
        return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}

    def ask(self, body: Any, version: int) -> Any:
        """The plain answer to a request that may have symbols."""
        self.reading.times.begin()
        try:
            answer = self._answer(resolved(body, self.reading.names, self.reading.times), version)
        except (ConnectionError, TimeoutError) as exc:
            self.wire.close()
            self.wire = KafkaWire.connect(self.address)
            return Late() if isinstance(exc, TimeoutError) else DISCONNECTED
        finally:
            self.reading.times.extend()
        return self.reading.plain(answer) if answer is not None else UNANSWERED

    def _answer(self, body: Any, version: int) -> Any:
        if isinstance(body, ProduceRequest) and body.acks == 0:
            self.wire.send(body, version)
            self.wire._asked.pop()
            self.versions()  # answered behind the produce, or not at all
            return None
        deadline = time.monotonic() + DEADLINE_S
        while True:
            answer = self.wire.call(body, version)
            if not _is_busy(answer):
                return answer
            assert time.monotonic() < deadline, f"{answer} for {DEADLINE_S} s"

    def prepare(self) -> None:
        """The topics that stay, and both coordinators with their topics."""
        self.reading.times.begin()
        self.wire.call(create_topics(new_topic(FENCE), new_topic(STEADY, 3)), 7)
        self.settle_metadata()
        for kind in (0, 1):
            find = ask("FindCoordinator", key="", key_type=kind, coordinator_keys=["first"])
            self._wait_for(lambda find=find: self.wire.call(find, 4).coordinators[0].error_code == 0)
        groups = ask("DescribeGroups", groups=["first"], include_authorized_operations=False)
        self._wait_for(lambda: self.wire.call(groups, 5).groups[0].error_code == 0)
        transactions = ask("DescribeTransactions", transactional_ids=["first"])
        unknown = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        self._wait_for(lambda: self.wire.call(transactions, 0).transaction_states[0].error_code == unknown)

    def settle_metadata(self) -> None:
        """Until the broker has applied what its controller has answered. Records of metadata are applied in their order, in
        portions; a value can be seen while its portion is applied: so when the second one can, the portion of the first is
        through, and with it all before."""
        for _ in range(2):
            self._fences += 1
            value = str(10**12 + self._fences)
            self.wire.call(alter_incrementally((TOPIC_TYPE, FENCE, [("retention.ms", SET, value)])), 1)
            self._wait_for(partial(self._has_fence_value, value))

    def settle_topics(self, names: Sequence[str]) -> None:
        asked = [{"topic_id": NO_ID, "name": name} for name in names]
        request = ask("Metadata", topics=asked, allow_auto_topic_creation=False)
        self._wait_for(lambda: not any(topic.error_code for topic in self.wire.call(request, 12).topics))
        self.settle_metadata()

    def settle_transaction(self, transactional_id: str) -> None:
        """Until every partition has its marker."""
        asked = ask("DescribeTransactions", transactional_ids=[transactional_id])
        self._wait_for(lambda: not self.wire.call(asked, 0).transaction_states[0].transaction_state.startswith("Prepare"))

    def ends(self, request: ProduceRequest) -> dict[tuple[str, int], tuple[int, int]]:
        """(error, offset of the next record) of the partitions that a request is for."""
        topics = [
            {
                "name": topic.name,
                "partitions": [{"partition_index": each.index, "timestamp": -1} for each in topic.partition_data],
            }
            for topic in request.topic_data
        ]
        answer = self.wire.call(ask("ListOffsets", replica_id=-1, isolation_level=0, topics=topics), 5)
        return {
            (topic.name, each.partition_index): (each.error_code, each.offset)
            for topic in answer.topics
            for each in topic.partitions
        }

    def settle_ends(self, request: ProduceRequest, ends: dict[tuple[str, int], tuple[int, int]]) -> None:
        """Until what was produced without an acknowledgement is there: here a request behind it may be answered before."""
        self._wait_for(lambda: self.ends(request) == ends)

    def _has_fence_value(self, value: str) -> bool:
        [result] = self.wire.call(describe((TOPIC_TYPE, FENCE), keys=["retention.ms"]), 4).results
        return any(config.value == value for config in result.configs)

    def _wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"not within {DEADLINE_S} s"
        self.reading.times.extend()


def _is_busy(answer: Any) -> bool:
    """Kafka answers some requests with an error while a coordinator is busy with the one before; clients ask again."""
    codes = [getattr(answer, "error_code", 0)]
    for topic in getattr(answer, "results_by_topic_v3_and_below", ()):
        codes += [partition.partition_error_code for partition in topic.results_by_partition]
    for each in getattr(answer, "coordinators", ()):
        codes.append(each.error_code)
    return any(code in BUSY for code in codes)


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
        triolog.blocking.open(MEMORY, kafka=Address("127.0.0.1", 0), lenient=lenient) as broker,
        KafkaBroker(folder / "kafka", classes, calls, settings=settings) as kafka,
    ):
        kafka.format()
        kafka.start()
        with closing(Side.connect(broker.kafka)) as mine, closing(Side.connect(Address.parse(kafka.address))) as theirs:
            yield mine, theirs
        kafka.stop()
