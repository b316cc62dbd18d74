"""Row 18: Kafka's messages read and written, beside two libraries that do the same."""

from __future__ import annotations

import io
import struct
import time
import warnings
from collections.abc import Callable
from typing import Any, Final

import attrs

from ....protocol.kafka.apis import APIS, ApiKey
from ....protocol.kafka.connection import read_header
from ....protocol.kafka.messages.records import (
    FetchableTopicResponse,
    FetchPartitionData,
    FetchResponse,
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
)
from ....protocol.kafka.messages.topics import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ....protocol.limits import KIB, MIB
from ....protocol.schema import codec
from ..measuring.bench import Bench
from ..measuring.measure import Line, RowResult, Target, absent, at_most, ratio

SECONDS: Final = 0.2
"""Of each sample."""
LOOPS: Final = 100
"""Of a sample; the fastest counts, since what disturbs only ever adds."""

NO_ID: Final = bytes(16)

Act = Callable[[], object]


@attrs.frozen
class Task:
    """A message to read or to write. The target is what a prototype took on a quiet machine."""

    name: str
    key: ApiKey
    version: int
    value: Any
    is_read: bool
    target: Target

    @property
    def data(self) -> bytes:
        return b"".join(codec.write(self.value, self.version, flexible=True))


def kafka_codec(bench: Bench) -> RowResult:
    """Values are made beforehand; what is timed is one call."""
    lines = []
    for task in _tasks():
        acts, reasons = {"triolog": _ours(task)}, {}
        for name, prepare in {"kio": _kio, "kafka-python": _kafka_python}.items():
            try:
                if not bench.with_peers:
                    raise ImportError("peers are left out")
                acts[name] = prepare(task)
            except ImportError as exc:
                reasons[name] = str(exc)
        lines += _lines(bench, task.name, task.target, acts, reasons)
    header = struct.pack(">hhih", ApiKey.METADATA, 12, 7, 6) + b"client" + bytes(20)
    view = memoryview(header)
    lines += _lines(bench, "read a header", at_most(0.5, "us"), {"triolog": lambda: read_header(view)}, {})
    return RowResult(18, "Kafka's messages, one call", lines)


def _lines(bench: Bench, what: str, target: Target, acts: dict[str, Act], reasons: dict[str, str]) -> list[Line]:
    seconds = bench.scale.seconds(SECONDS, least=0.002)
    samples = bench.interleave({f"{name}, {what}": _timer(act, seconds) for name, act in acts.items()})
    ours, *others = samples.values()
    lines = [Line(what, "us", ours, target)]
    for name, theirs in zip(list(acts)[1:], others, strict=True):
        lines += [Line(f"{what}: {name}", "us", theirs), ratio(f"{what}: triolog / {name}", ours, theirs)]
    return lines + [absent(f"{what}: {name}", reason) for name, reason in reasons.items()]


def _timer(act: Act, seconds: float) -> Callable[[], float]:
    def sample() -> float:
        act()
        once = max(_loop(act, 1), 1e-7)
        count = max(1, int(seconds / LOOPS / once))
        return min(_loop(act, count) for _ in range(LOOPS)) / count * 1e6

    return sample


def _loop(act: Act, count: int) -> float:
    started = time.perf_counter()
    for _ in range(count):
        act()
    return time.perf_counter() - started


# ---- the messages ------------------------------------------------------------------------------------------------------------


def _tasks() -> list[Task]:
    return [
        Task("read Produce v9, 16 KiB", ApiKey.PRODUCE, 9, _produce(1, 16 * KIB), True, at_most(1.7, "us")),
        Task("read Produce v9, 100 x 1 KiB", ApiKey.PRODUCE, 9, _produce(100, KIB), True, at_most(53, "us")),
        Task("write Fetch v12, 1 MiB", ApiKey.FETCH, 12, _fetch(MIB), False, at_most(1.2, "us")),
        Task("write Metadata v12, 100 topics x 1", ApiKey.METADATA, 12, _metadata(100, 1), False, at_most(65, "us")),
        Task("write Metadata v12, 100 topics x 3", ApiKey.METADATA, 12, _metadata(100, 3), False, at_most(131, "us")),
    ]


def _produce(partitions: int, size_bytes: int) -> ProduceRequest:
    data = [ProducePartition(index=index, records=bytes(size_bytes)) for index in range(partitions)]
    topic = ProduceTopic(name="measured", topic_id=NO_ID, partition_data=data)
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def _fetch(size_bytes: int) -> FetchResponse:
    partition = FetchPartitionData(
        partition_index=0, high_watermark=1000, aborted_transactions=None, records=memoryview(bytes(size_bytes))
    )
    topic = FetchableTopicResponse(topic="measured", topic_id=NO_ID, partitions=[partition])
    return FetchResponse(session_id=0, responses=[topic])


def _metadata(topics: int, partitions: int) -> MetadataResponse:
    brokers = [MetadataResponseBroker(node_id=node, host=f"broker-{node}", port=9092) for node in range(3)]
    return MetadataResponse(
        brokers=brokers, cluster_id="c" * 22, topics=[_topic(number, partitions) for number in range(topics)]
    )


def _topic(number: int, partitions: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=f"topic-{number}",
        topic_id=number.to_bytes(16),
        is_internal=False,
        partitions=[_partition(index) for index in range(partitions)],
    )


def _partition(index: int) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        partition_index=index, leader_id=0, leader_epoch=5, replica_nodes=[0], isr_nodes=[0], offline_replicas=[]
    )


# ---- who reads and writes them -----------------------------------------------------------------------------------------------


def _ours(task: Task) -> Act:
    view, cls, version, value = memoryview(task.data), type(task.value), task.version, task.value
    if task.is_read:
        return lambda: codec.read(cls, version, view, flexible=True)
    return lambda: codec.write(value, version, flexible=True)


def _kio(task: Task) -> Act:
    from kio.index import load_request_schema, load_response_schema
    from kio.serial import entity_reader, entity_writer

    load: Callable[[int, int], Any] = load_request_schema if task.is_read else load_response_schema
    schema, data = load(task.key, task.version), task.data
    read, write = entity_reader(schema), entity_writer(schema)
    if task.is_read:
        return lambda: read(data, 0)
    value, _ = read(data, 0)

    def written() -> int:
        with io.BytesIO() as buffer:
            write(buffer, value)
            return buffer.tell()

    return written


def _kafka_python(task: Task) -> Act:
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        from kafka.protocol import consumer, metadata, producer

    side = "Request" if task.is_read else "Response"
    name = APIS[task.key].name + side
    cls = next(getattr(module, name) for module in (producer, consumer, metadata) if hasattr(module, name))
    view, version = memoryview(task.data), task.version
    if task.is_read:
        return lambda: cls.decode(view, version=version)
    value = cls.decode(view, version=version)
    value._header = None  # what was read lacks it, and is not written without
    return lambda: value.encode(version=version)
