"""What a client sends keeps the others waiting for 2 ms at most, however long it takes to look into: counted in lines of Python
(see `tests.support.turns`), for small requests that mean much work, through every call that looks into records."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
import trio
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.kafka.apis import ApiKey
from triolog.protocol.limits import MAX_HEADERS_PER_RECORD, MIB
from triolog.protocol.native import messages
from triolog.protocol.records.batch import with_timestamp
from triolog.protocol.records.builder import build_batch
from triolog.protocol.schema.primitives import write_unsigned_varint
from triolog.protocol.types import CompressionType, TimestampType, TopicPartition
from triolog.server.listeners.native.calls import native_listener
from triolog.server.storage.indexes.file_records import UNTOLD_HEADERS

from tests.support import kafka_server as support
from tests.support.brokers import LARGE
from tests.support.counts import counts
from tests.support.kafka_server import LOCALHOST, TOPIC, KafkaServer, batch, fetch_partition, kafka_server, produce_request
from tests.support.kafka_stream import KafkaStream
from tests.support.kafka_wire import ask
from tests.support.logs import START_MS
from tests.support.native_stream import NativeStream, native_stream
from tests.support.record_batches import empty_headers, many_blocks, tiny_records, zeros
from tests.support.turns import MOST_LINES, longest_turn

PARTITION: Final = TopicPartition(TOPIC, 0)
GZIP, SNAPPY, LZ4, ZSTD = list(CompressionType)[1:]
RECORDS: Final = 10_000
"""Looked into one by one they are four turns at least."""
LARGE_RECORDS: Final = 4 * MIB
BLOCKS: Final = 40_000
NEVER: Final = START_MS + 10
WIDE: Final = 400


@attrs.frozen
class Served:
    """A server of both protocols, and a connection of each."""

    server: KafkaServer
    kafka: KafkaStream
    native: NativeStream
    native_address: tuple[str, int]

    async def produce(self, records: bytes, *, topic: str = TOPIC) -> int:
        """The error code of a Kafka produce."""
        answer = await self.kafka.call(produce_request(records, topic=topic), 9)
        return answer.responses[0].partition_responses[0].error_code

    async def produce_natively(self, records: Any, *, topic: str = TOPIC) -> int:
        """The error code of a native produce."""
        request = messages.ProduceRequest((messages.ProducePartition(topic, 0, records),))
        error = (await self.native.call(request)).partitions[0].error
        return 0 if error is None else int(error.code)


@asynccontextmanager
async def served(path: Path, **settings: Any) -> AsyncIterator[Served]:
    async with kafka_server(path, auto_create_topics_enable=False, **settings) as server:
        if TOPIC not in server.broker.topics.names():
            await server.broker.topics.create(TOPIC)
        listener = native_listener(server.broker, LOCALHOST, server.admission)
        address = await server.nursery.start(listener.run)
        async with server.connected() as kafka, native_stream(address) as native:
            assert await Served(server, kafka, native, address).produce(batch("warm")) == 0
            yield Served(server, kafka, native, address)


@pytest.fixture
async def attacked(fast_path: Path) -> AsyncIterator[Served]:
    async with served(fast_path) as one:
        yield one


Attack = Callable[[Served], Awaitable[object]]
CODECS: Final = {"gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
PRODUCED: Final[dict[str, Callable[[], bytes]]] = {
    "tiny records": lambda: tiny_records(RECORDS),
    "tiny records with headers": lambda: tiny_records(RECORDS // 10, headers=15),
    "as many headers as are allowed": lambda: empty_headers(MAX_HEADERS_PER_RECORD, ZSTD),
    **{f"zeros in {name}": lambda codec=codec: zeros(LARGE_RECORDS, codec) for name, codec in CODECS.items()},  # type: ignore[misc]
    **{f"empty blocks of {name}": lambda codec=codec: many_blocks(BLOCKS, codec) for name, codec in CODECS.items()},  # type: ignore[misc]
}
COMMIT_NAMES: Final = {"tiny records", "zeros in zstd", "empty blocks of zstd", "Kafka produce", "lookup"}


def zoo(names: Iterable[str] = PRODUCED) -> list[Any]:
    """Names of PRODUCED or ATTACKS; most of them belong to the merge tier."""
    return [pytest.param(name, marks=() if name in COMMIT_NAMES else pytest.mark.merge) for name in names]


@contextmanager
def short_turns() -> Iterator[None]:
    """No turn of the server's within the block is longer than it may be."""
    with longest_turn() as turns:
        yield
    assert turns.count, "nothing was counted"
    assert turns.longest <= MOST_LINES, f"{turns.longest} lines in a turn of {turns.of}, at most {MOST_LINES} wanted"


@pytest.mark.parametrize("name", zoo())
async def test_a_produce_takes_no_long_turn(attacked: Served, name: str) -> None:
    records = PRODUCED[name]()
    with short_turns():
        assert await attacked.produce(records) == 0
        assert await attacked.produce_natively(records) == 0


@pytest.mark.parametrize(
    "codec", [ZSTD, pytest.param(GZIP, marks=pytest.mark.merge), pytest.param(LZ4, marks=pytest.mark.merge)]
)
async def test_another_codec_takes_no_long_turn(attacked: Served, codec: CompressionType) -> None:
    await attacked.server.broker.topics.create("packed", configs={"compression.type": codec.name.lower()})
    for records in (tiny_records(RECORDS, SNAPPY), zeros(LARGE_RECORDS, SNAPPY)):
        with short_turns():
            assert await attacked.produce(records, topic="packed") == 0


@pytest.mark.parametrize("headers", [pytest.param(0, marks=pytest.mark.merge), 15])
async def test_plain_records_take_no_long_turn_to_read_and_to_pack(attacked: Served, headers: int) -> None:
    count = 8_000 if not headers else 1_000
    records = tuple(messages.PlainRecord(None, b"k", b"v" * (number % 5), (("h", b""),) * headers) for number in range(count))
    assert await attacked.produce_natively(records[:1]) == 0
    with short_turns():
        assert await attacked.produce_natively(records) == 0


async def test_a_frame_of_many_objects_takes_no_long_turn_to_read(attacked: Served) -> None:
    wide = tuple(messages.OffsetsForTimesPartition(TOPIC, 0, -1) for _ in range(10_001))
    with short_turns():
        with pytest.raises(RequestError, match="10001 entries, expected at most 10000"):
            await attacked.native.call(messages.OffsetsForTimesRequest(wide))


def tags(count: int) -> bytes:
    """Unknown tagged fields."""
    return write_unsigned_varint(count) + b"\x7f\x00" * count


def tagged_request(*, header: int, body: int) -> bytes:
    """A Metadata v9 for no topic, with so many unknown tagged fields."""
    head = struct.pack(">hhih", ApiKey.METADATA, 9, 1, -1)
    return head + tags(header) + b"\x01\x00\x00\x00" + tags(body)


async def test_a_kafka_request_of_many_elements_takes_no_long_turn_to_read(attacked: Served) -> None:
    topics = [{"topic": f"{number}", "partitions": [0]} for number in range(12_000)]
    request = ask("DescribeLogDirs", topics=[*topics, {"topic": "", "partitions": [0] * 80_000}])
    with short_turns():
        with pytest.raises(EOFError):  # above the limit, after many elements
            await attacked.kafka.call(request, 4)


@pytest.mark.merge
async def test_the_answer_to_a_kafka_request_of_many_elements_takes_no_long_turn(attacked: Served) -> None:
    request = wide_lookup()
    with short_turns():
        answer = await attacked.kafka.call(request, 6)
        assert len(answer.topics) == len(request.topics)


def wide_lookup() -> Any:
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": NEVER}
    topics = [{"name": f"{number}", "partitions": [partition]} for number in range(13_000)]
    return ask("ListOffsets", replica_id=-1, isolation_level=0, topics=topics)


@pytest.mark.parametrize("tagged", [{"header": 20_000, "body": 0}, {"header": 0, "body": 20_000}], ids=["header", "body"])
async def test_many_unknown_tagged_fields_take_no_long_turn(attacked: Served, tagged: dict[str, int]) -> None:
    frame = tagged_request(**tagged)
    with short_turns():
        await attacked.kafka.send_raw(struct.pack(">i", len(frame)) + frame)
        assert await attacked.kafka.receive_frame()


@pytest.mark.parametrize("name", zoo())
async def test_staging_takes_no_long_turn(attacked: Served, name: str) -> None:
    records = PRODUCED[name]()
    request = messages.StageRequest("application", 0, "task", (messages.StagePartition(TOPIC, 0, records),))
    with short_turns():
        assert (await attacked.native.call(request)).partitions[0].error is None


def promising(records: bytes) -> bytes:
    """The batch with a largest timestamp that none of its records has, so that each lookup goes through all of them."""
    return bytes(with_timestamp(records, TimestampType.CREATE_TIME, NEVER))


@pytest.mark.merge
@pytest.mark.parametrize("name", zoo())
async def test_a_lookup_by_time_takes_no_long_turn(fast_path: Path, name: str) -> None:
    """Into batches that were there before: what they have was never limited."""
    made = promising(empty_headers(40 * RECORDS, ZSTD) if name == "as many headers as are allowed" else PRODUCED[name]())
    async with served(fast_path, topic={"record.validation": "header"}) as attacked:
        assert await attacked.produce(made) == 0
        assert await attacked.produce(batch("x", timestamp=NEVER)) == 0
        partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": NEVER}
        request = ask("ListOffsets", replica_id=-1, topics=[{"name": TOPIC, "partitions": [partition]}])
        native = messages.OffsetsForTimesRequest((messages.OffsetsForTimesPartition(TOPIC, 0, NEVER),))
        explain = messages.ExplainRequest((messages.ExplainPartition(TOPIC, 0, timestamp=NEVER),))
        with short_turns():
            found = await attacked.kafka.call(request, 6)
            assert found.topics[0].partitions[0].timestamp == NEVER
            assert (await attacked.native.call(native)).partitions[0].timestamp == NEVER
            assert (await attacked.native.call(explain)).partitions[0].error is None


async def test_many_lookups_take_no_long_turn(attacked: Served) -> None:
    """Each of which goes over as many batches and records as it may without a pause."""
    for _ in range(UNTOLD_HEADERS - 2):
        assert await attacked.produce(batch("x")) == 0
    assert await attacked.produce(build_batch([(START_MS + (n // 63), None, b"", ()) for n in range(64)])) == 0
    asked = messages.OffsetsForTimesPartition(TOPIC, 0, START_MS + 1)
    native = messages.OffsetsForTimesRequest((asked,) * 1000)
    with short_turns():
        found = (await attacked.native.call(native)).partitions
        assert {partition.offset for partition in found} == {UNTOLD_HEADERS - 1 + 63}


async def test_the_largest_timestamp_of_a_cut_batch_takes_no_long_turn(attacked: Served) -> None:
    broker = attacked.server.broker
    assert await attacked.produce(tiny_records(RECORDS)) == 0
    await broker.logs.delete_records(PARTITION, 5)
    native = messages.OffsetsForTimesRequest((messages.OffsetsForTimesPartition(TOPIC, 0, -3),))
    with short_turns():
        assert (await attacked.native.call(native)).partitions[0].timestamp == START_MS + 2


@pytest.mark.merge
async def test_reading_plain_records_takes_no_long_turn(fast_path: Path) -> None:
    async with served(fast_path, topic={"record.validation": "header"}) as attacked:
        assert await attacked.produce(tiny_records(RECORDS)) == 0
        assert await attacked.produce(empty_headers(RECORDS)) == 0
        found: list[Any] = []
        with short_turns():
            offset = 0
            while offset < RECORDS + 1:
                partition = messages.FetchPartition(TOPIC, 0, offset, LARGE)
                request = messages.FetchRequest((partition,), max_bytes=LARGE, format=messages.Format.RECORDS)
                answer = (await attacked.native.call(request)).partitions[0]
                found.extend(answer.records)
                offset = answer.next_offset
        assert len(found) == RECORDS + 2
        assert len(found[-1].headers) == RECORDS


@pytest.mark.parametrize("check", ["true", pytest.param("false", marks=pytest.mark.merge)])
async def test_a_fetch_of_many_batches_takes_no_long_turn(fast_path: Path, check: str) -> None:
    async with served(fast_path, topic={"fetch.check.crcs": check}) as attacked:
        one = build_batch([(START_MS, None, b"x", ())])
        for _ in range(4):
            assert await attacked.produce_natively(one * 1000) == 0
        with short_turns():
            answer = await attacked.kafka.call(support.fetch_request(fetch_partition(0), max_bytes=LARGE), 12)
            assert len(answer.responses[0].partitions[0].records) == 4000 * len(one) + len(batch("warm"))


async def test_many_batches_in_one_append_take_no_long_turn(attacked: Served) -> None:
    with short_turns():
        assert await attacked.produce_natively(batch("x") * 1000) == 0
        assert await attacked.produce_natively(batch("x") * 20_000) == ErrorCode.INVALID_RECORD


@pytest.mark.merge
async def test_many_small_batches_in_one_request_take_no_long_turn(attacked: Served) -> None:
    await attacked.server.broker.topics.create("wide", WIDE)
    request = produce_request(None, topic="wide")
    [only] = request.topic_data[0].partition_data
    records = batch("x")
    request.topic_data[0].partition_data = [attrs.evolve(only, index=number, records=records) for number in range(WIDE)]
    with short_turns():
        answer = await attacked.kafka.call(request, 9)
        assert not any(part.error_code for part in answer.responses[0].partition_responses)


@pytest.mark.parametrize(
    ("records", "code", "says"),
    [
        (lambda: empty_headers(counts(33_000_000), ZSTD), ErrorCode.INVALID_RECORD, "above max_headers_per_record=10000"),
        (lambda: empty_headers(10_001), ErrorCode.INVALID_RECORD, "has 10001 headers, above max_headers_per_record=10000"),
        (lambda: tiny_records(2001), ErrorCode.MESSAGE_TOO_LARGE, "has 2001 records, above max_records_per_batch=2000"),
        (lambda: tiny_records(1000, ZSTD, headers=8), ErrorCode.MESSAGE_TOO_LARGE, "more than 4000 records and headers"),
        (lambda: tiny_records(20, headers=900), ErrorCode.MESSAGE_TOO_LARGE, "more than 4000 records and headers"),
    ],
    ids=["33 million headers", "a header too many", "a record too many", "few headers each", "many headers each"],
)
async def test_refusals_take_short_turns(fast_path: Path, records: Callable[[], bytes], code: ErrorCode, says: str) -> None:
    made = records()
    async with served(fast_path, max_records_per_batch=2000) as attacked:
        with short_turns():
            answer = await attacked.kafka.call(produce_request(made), 9)
            refused = answer.responses[0].partition_responses[0]
            assert refused.error_code == code
            assert says in refused.error_message
            request = messages.ProduceRequest((messages.ProducePartition(TOPIC, 0, made),))
            error = (await attacked.native.call(request)).partitions[0].error
            assert error is not None
            assert error.code == code
            assert says in error.message


async def test_plain_records_with_too_many_headers_are_refused_before_they_are_packed(attacked: Served) -> None:
    record = messages.PlainRecord(None, b"k", b"v", (("h", b""),) * 10_001)
    with pytest.raises(RequestError, match="has 10001 headers, above max_headers_per_record"):
        await attacked.server.broker.writer.check(PARTITION, (record,))


ATTACKS: Final[dict[str, Attack]] = {
    "Kafka produce": lambda each: each.produce(tiny_records(50_000)),
    "native produce": lambda each: each.produce_natively(tiny_records(50_000)),
    "zeros": lambda each: each.produce(zeros(64 * MIB - 100, GZIP)),
    "lookup": lambda each: each.native.call(
        messages.OffsetsForTimesRequest((messages.OffsetsForTimesPartition(TOPIC, 0, NEVER),) * 4)
    ),
}


@pytest.mark.merge
@pytest.mark.parametrize("name", zoo(ATTACKS))
async def test_others_are_answered_while_a_large_request_is_looked_into(fast_path: Path, name: str) -> None:
    answers = {"kafka": 0, "native": 0}
    async with served(fast_path, topic={"record.validation": "header"}) as before_attack:
        assert await before_attack.produce(promising(tiny_records(50_000))) == 0
    async with served(fast_path) as attacked:
        async with attacked.server.connected() as kafka, native_stream(attacked.native_address) as native:
            established = attrs.evolve(attacked, kafka=kafka, native=native)

            async def ask(protocol: str, call: Callable[[], Awaitable[int]]) -> None:
                while True:
                    assert await call() == 0
                    answers[protocol] += 1

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, "kafka", lambda: established.produce(batch("x")))
                nursery.start_soon(ask, "native", lambda: established.produce_natively(batch("x")))
                while min(answers.values()) < 3:
                    await trio.lowlevel.checkpoint()
                before = dict(answers)
                await ATTACKS[name](attacked)
                after = dict(answers)
                nursery.cancel_scope.cancel()
    assert all(after[each] - before[each] >= 10 for each in answers), f"{before} before and {after} after the attack"
