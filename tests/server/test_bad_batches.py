"""Records that must not be stored, over a real socket: that partition's error, nothing of it in the log, the others succeed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import ErrorCode
from triolog.protocol.limits import INT32_MAX, INT64_MAX, MAX_DECOMPRESSED_BYTES, MIB
from triolog.protocol.native import messages
from triolog.protocol.native.connection import LastError
from triolog.protocol.records.batch import end_txn_marker, iter_batches
from triolog.protocol.records.builder import BatchBuilder, build_batch
from triolog.protocol.records.compression import compress
from triolog.protocol.records.varint import encode_varint
from triolog.protocol.types import CompressionType

from tests.support.logs import START_MS, batch
from tests.support.record_batches import damaged, patched, with_records
from tests.support.server_process import ServerProcess
from tests.support.wire_client import WireClient, error_of

GOOD: Final = batch(START_MS, START_MS + 1)
CORRUPT: Final = ErrorCode.CORRUPT_MESSAGE
INVALID: Final = ErrorCode.INVALID_RECORD
CODECS: Final = [codec for codec in CompressionType if codec]
FAR_FUTURE_MS: Final = 4_000_000_000_000


def flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


def with_gap() -> bytes:
    builder = BatchBuilder()
    builder.append_at(0, START_MS, None, b"first")
    builder.append_at(2, START_MS, None, b"third")
    return builder.build()


def records_of(*offset_deltas: int) -> bytes:
    """Records with these offset deltas, which the header does not know of."""
    encoded = b""
    for delta in offset_deltas:
        body = b"\x00" + encode_varint(0) + encode_varint(delta) + b"\x01\x01" + encode_varint(0)
        encoded += encode_varint(len(body)) + body
    return encoded


def bomb(codec: CompressionType) -> bytes:
    """A small batch whose records are more than the limit once they are decompressed."""
    return with_records(compress(codec, bytes(MAX_DECOMPRESSED_BYTES + MIB)), count=1, attributes=int(codec))[0]


def broken_codec(codec: CompressionType) -> bytes:
    return with_records(b"this is not compressed", count=1, attributes=int(codec))[0]


BAD: Final[dict[str, tuple[Callable[[], bytes], ErrorCode]]] = {
    "nothing": (lambda: b"", INVALID),
    "garbage": (lambda: b"\xfe" * 200, CORRUPT),
    "half a header": (lambda: GOOD[:30], CORRUPT),
    "a flipped bit in the records": (lambda: flipped(GOOD, len(GOOD) - 2), CORRUPT),
    "a flipped bit in the header": (lambda: flipped(GOOD, 40), CORRUPT),
    "a flipped bit in the CRC": (lambda: flipped(GOOD, 18), CORRUPT),
    "magic 0": (lambda: patched(GOOD, magic=0), CORRUPT),
    "magic 1": (lambda: patched(GOOD, magic=1), CORRUPT),
    "magic 3": (lambda: patched(GOOD, magic=3), CORRUPT),
    "the last byte missing": (lambda: GOOD[:-1], CORRUPT),
    "a byte too many": (lambda: GOOD + b"\x00", CORRUPT),
    "a length of 0": (lambda: patched(GOOD, batch_length=0), CORRUPT),
    "a negative length": (lambda: patched(GOOD, batch_length=-1), CORRUPT),
    "a length of 2 GiB": (lambda: patched(GOOD, batch_length=INT32_MAX), CORRUPT),
    "a good batch before a corrupt one": (lambda: GOOD + flipped(GOOD, len(GOOD) - 2), CORRUPT),
    "a good batch before a cut one": (lambda: GOOD + GOOD[:-1], CORRUPT),
    "count 0": (lambda: patched(GOOD, records_count=0), INVALID),
    "count -1": (lambda: patched(GOOD, records_count=-1), INVALID),
    "a count above the offsets": (lambda: patched(GOOD, records_count=3), INVALID),
    "offsets above the count": (lambda: patched(GOOD, last_offset_delta=2), INVALID),
    "a count above the records": (lambda: patched(GOOD, records_count=3, last_offset_delta=2), INVALID),
    "a count below the records": (lambda: patched(GOOD, records_count=1, last_offset_delta=0), INVALID),
    "a count of 2^31-1": (lambda: patched(GOOD, records_count=INT32_MAX, last_offset_delta=INT32_MAX - 1), INVALID),
    "a gap between offsets": (with_gap, INVALID),
    "offset deltas 0, 0": (lambda: with_records(records_of(0, 0), count=2)[0], INVALID),
    "offset deltas 1, 0": (lambda: with_records(records_of(1, 0), count=2)[0], INVALID),
    "a base offset of its own": (lambda: patched(GOOD, base_offset=7), INVALID),
    "a control batch": (lambda: patched(GOOD, attributes=0x20), INVALID),
    "a transaction marker": (
        lambda: end_txn_marker(producer_id=1, producer_epoch=0, commit=True, timestamp=START_MS, coordinator_epoch=0),
        INVALID,
    ),
    "an idempotent batch without a sequence": (
        lambda: patched(batch(producer_id=1, producer_epoch=0, base_sequence=0), base_sequence=-1),
        INVALID,
    ),
    "a transactional batch without a producer": (lambda: patched(GOOD, attributes=0x10), INVALID),
    "codec 5": (lambda: patched(GOOD, attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "codec 7": (lambda: patched(GOOD, attributes=7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "a negative timestamp": (lambda: patched(GOOD, base_timestamp=-5), ErrorCode.INVALID_TIMESTAMP),
    "a timestamp years ahead": (lambda: batch(FAR_FUTURE_MS), ErrorCode.INVALID_TIMESTAMP),
    "a second record years ahead": (lambda: batch(START_MS, FAR_FUTURE_MS), ErrorCode.INVALID_TIMESTAMP),
    "a batch above max.message.bytes": (lambda: batch(value=bytes(MIB)), ErrorCode.MESSAGE_TOO_LARGE),
    **{f"a {codec.name} bomb": (partial(bomb, codec), ErrorCode.MESSAGE_TOO_LARGE) for codec in CODECS},
    **{f"broken {codec.name}": (partial(broken_codec, codec), CORRUPT) for codec in CODECS},
}  # fmt: skip


@pytest.fixture
def topic(client: WireClient, topic: str) -> str:
    """Partitions 0 and 2 for what is right, partition 1 with a record for what is wrong."""
    assert client.produce(topic, 1, batch(value=b"before")) == 0
    return topic


def check_only_others_stored(client: WireClient, topic: str, stored: int = 2) -> None:
    assert [client.high_watermark(topic, partition) for partition in range(3)] == [stored, 1, stored]
    (record,), _ = client.read_all(topic, 1)
    assert record.value == b"before"


@pytest.mark.parametrize(("make", "code"), BAD.values(), ids=BAD)
def test_bad_records_are_their_partitions_error_and_the_others_are_stored(
    client: WireClient, topic: str, make: Callable[[], bytes], code: ErrorCode
) -> None:
    before, refused, after = client.produce_all([(topic, 0, GOOD), (topic, 1, make()), (topic, 2, GOOD)])
    assert (before.error, before.base_offset) == (None, 0)
    assert (after.error, after.base_offset) == (None, 0)
    assert refused.error is not None
    assert (refused.error.code, refused.base_offset) == (code, -1)
    assert f"{topic}-1" in refused.error.message
    check_only_others_stored(client, topic)
    assert client.produce(topic, 1, GOOD) == 1


def bad_between_good(topic: str, acks: int) -> messages.ProduceRequest:
    partitions = tuple(messages.ProducePartition(topic, number, data) for number, data in enumerate((GOOD, GOOD[:-1], GOOD)))
    return messages.ProduceRequest(partitions, acks)


def test_bad_records_are_not_stored_with_acks_1(client: WireClient, topic: str) -> None:
    answers = client.call(bad_between_good(topic, 1)).partitions
    assert [entry.error and entry.error.code for entry in answers] == [None, CORRUPT, None]
    for partition in (0, 2):  # behind it in each mailbox: answered when it is stored
        assert client.produce(topic, partition, GOOD) == 2
    check_only_others_stored(client, topic, stored=4)


def test_bad_records_with_acks_0_end_the_connection_and_the_others_are_stored(
    server: ServerProcess, client: WireClient, topic: str
) -> None:
    client.send(bad_between_good(topic, 0), expects_answer=False)
    last = client.receive()
    assert isinstance(last, LastError)
    assert last.error.code is CORRUPT
    assert client.socket.recv(1) == b""
    with WireClient.connect(server.address) as other:
        for partition in (0, 2):
            assert other.produce(topic, partition, GOOD) == 2
        check_only_others_stored(other, topic, stored=4)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        ((), INVALID),
        ((messages.PlainRecord(FAR_FUTURE_MS, None, b"v"),), ErrorCode.INVALID_TIMESTAMP),
        ((messages.PlainRecord(INT64_MAX, None, b"v"),), ErrorCode.INVALID_TIMESTAMP),
        ((messages.PlainRecord(None, None, bytes(2 * MIB)),), ErrorCode.MESSAGE_TOO_LARGE),
    ],
    ids=["none", "years ahead", "at the end of time", "too large"],
)
def test_bad_plain_records_are_their_partitions_error(
    client: WireClient, topic: str, records: tuple[messages.PlainRecord, ...], code: ErrorCode
) -> None:
    good = (messages.PlainRecord(START_MS, None, b"v"),)
    before, refused, after = client.produce_all([(topic, 0, good), (topic, 1, records), (topic, 2, good)])
    assert (before.error, after.error) == (None, None)
    assert refused.error is not None
    assert refused.error.code is code
    check_only_others_stored(client, topic, stored=1)


def test_unknown_topics_and_partitions_are_their_own_errors(client: WireClient, topic: str) -> None:
    asked = [("no-such-topic", 0, GOOD), (topic, 3, GOOD), (topic, INT32_MAX, GOOD), (topic, 0, GOOD)]
    errors = [entry.error for entry in client.produce_all(asked)]
    assert [error and error.code for error in errors] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3 + [None]
    assert errors[0] is not None
    assert "no-such-topic" in errors[0].message
    assert errors[1] is not None
    assert "0 to 2" in errors[1].message


def test_an_append_above_segment_bytes_is_refused(client: WireClient) -> None:
    client.create_topic("small-segments", 1, {"segment.bytes": "1000"})
    error = error_of(client.produce, "small-segments", 0, batch(value=bytes(1000)))
    assert error.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert client.produce("small-segments", 0, batch(value=bytes(100))) == 0


def test_the_limit_of_a_topic_is_the_one_that_counts(client: WireClient) -> None:
    client.create_topic("tiny-batches", 1, {"max.message.bytes": "200"})
    error = error_of(client.produce, "tiny-batches", 0, batch(value=bytes(200)))
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE
    assert "max.message.bytes=200" in error.message
    assert client.produce("tiny-batches", 0, batch(value=bytes(20))) == 0


def test_a_fetch_out_of_range_is_its_partitions_error(client: WireClient, topic: str) -> None:
    client.produce_all([(topic, 0, GOOD), (topic, 2, GOOD)])
    asked = [(topic, 0, 0), (topic, 1, 2), (topic, 2, 2), (topic, 1, INT64_MAX), ("no-such-topic", 0, 0), (topic, 3, 0)]
    questions = tuple(messages.FetchPartition(*question) for question in asked)
    answers = client.call(messages.FetchRequest(questions, max_wait_ms=600_000)).partitions
    out, unknown = ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [answer.error and answer.error.code for answer in answers] == [None, out, None, out, unknown, unknown]
    assert answers[0].records
    assert answers[1].error.message.startswith(f"{topic}-1: offset 2 is not in 0 to 1")


def test_unknown_partitions_are_their_own_errors_in_every_lookup(client: WireClient, topic: str) -> None:
    found, missing = client.offsets_for_times([(topic, 1, START_MS), (topic, 9, START_MS)])
    assert (found.error, found.offset) == (None, 0)
    assert missing.error is not None
    assert missing.error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    asked = (messages.ExplainPartition(topic, 1, offset=0), messages.ExplainPartition("no-such-topic", 0, timestamp=-2))
    explained, unknown = client.call(messages.ExplainRequest(asked)).partitions
    assert explained.walk is not None
    assert unknown.error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("name", "partitions", "config", "code"),
    [
        ("..", 1, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("../../outside", 1, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("white space", 1, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("no-partitions", 0, {}, ErrorCode.INVALID_PARTITIONS),
        ("too-many", 10_001, {}, ErrorCode.INVALID_PARTITIONS),
        ("wrong-key", 1, {"retention.minutes": "5"}, ErrorCode.INVALID_CONFIG),
        ("wrong-value", 1, {"segment.bytes": "a lot"}, ErrorCode.INVALID_CONFIG),
        ("wrong-durability", 1, {"durability": "group:0"}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_topics_that_cannot_be_are_refused_by_name(
    client: WireClient, name: str, partitions: int, config: dict[str, str], code: ErrorCode
) -> None:
    error = error_of(client.create_topic, name, partitions, config)
    assert error.code is code
    assert (next(iter(config)) if config else name) in error.message
    assert error_of(client.partition_metadata, name).code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_bombs_take_no_more_memory_than_twice_what_a_batch_may_become(
    server: ServerProcess, client: WireClient, topic: str
) -> None:
    """Decompressed once and copied once; one after the other, not added up."""
    bombs = [bomb(codec) for codec in CODECS]
    before = server.memory_bytes()
    server.forget_peak_memory()
    for _ in range(3):
        for data in bombs:
            assert error_of(client.produce, topic, 1, data).code is ErrorCode.MESSAGE_TOO_LARGE
    grown = server.memory_bytes("VmHWM") - before
    assert grown < 2 * MAX_DECOMPRESSED_BYTES + 16 * MIB, f"{grown} bytes"


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_below_max_message_bytes_is_refused_at_its_decompressed_size(client: WireClient, codec: CompressionType) -> None:
    name = f"bombs-{codec.name}"
    client.create_topic(name, 1, {"max.message.bytes": str(32 * MIB)})
    error = error_of(client.produce, name, 0, bomb(codec))
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE
    assert str(MAX_DECOMPRESSED_BYTES) in error.message
    assert client.high_watermark(name) == 0


_BATCHES: Final = st.builds(
    lambda count, value, codec: build_batch([(START_MS + n, b"k", value, ()) for n in range(count)], compression_type=codec),
    st.integers(1, 5),
    st.binary(max_size=300),
    st.sampled_from(CompressionType),
)


@given(data=st.data(), original=_BATCHES)
def test_a_damaged_batch_is_refused_or_its_records_can_be_read(
    server: ServerProcess, data: st.DataObject, original: bytes
) -> None:
    sent: Any = data.draw(damaged(original))
    with WireClient.connect(server.address) as client:
        if "damaged" not in {entry.name for entry in client.call(messages.MetadataRequest()).topics}:
            client.create_topic("damaged")
        before = client.high_watermark("damaged")
        (answer,) = client.produce_all([("damaged", 0, sent)])
        if answer.error is not None:
            assert answer.error.code is not ErrorCode.UNKNOWN_SERVER_ERROR
            assert client.high_watermark("damaged") == before
            return
        records, high_watermark = client.read_all("damaged", 0, format=messages.Format.RECORDS)
        stored = sum(header.records_count for header, _ in iter_batches(sent))
        assert (answer.base_offset, high_watermark) == (before, before + stored)
        assert [record.offset for record in records] == list(range(high_watermark))
