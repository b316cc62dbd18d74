"""Records that must not be stored, over a real socket: that partition's error, nothing of it in the log, the others succeed.

What is wrong with records is in the tests of storage (`storage/log/test_append.py`); here is a bit of everything.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import ErrorCode
from triolog.protocol.limits import INT32_MAX, INT64_MAX, MAX_DECOMPRESSED_BYTES, MIB
from triolog.protocol.native import messages
from triolog.protocol.records.batch import end_txn_marker, iter_batches
from triolog.protocol.records.builder import build_batch
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
TIMESTAMP: Final = ErrorCode.INVALID_TIMESTAMP
LARGE: Final = ErrorCode.MESSAGE_TOO_LARGE
UNKNOWN: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
CODECS: Final = [codec for codec in CompressionType if codec]
FAR_FUTURE_MS: Final = 4_000_000_000_000


def flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


def records_of(*offset_deltas: int) -> bytes:
    """A batch of records with these offset deltas, which the header does not know of."""
    encoded = b""
    for delta in offset_deltas:
        body = b"\x00" + encode_varint(0) + encode_varint(delta) + b"\x01\x01" + encode_varint(0)
        encoded += encode_varint(len(body)) + body
    return with_records(encoded, count=len(offset_deltas))[0]


@cache
def bomb(codec: CompressionType) -> bytes:
    """A small batch whose records are more than the limit once they are decompressed."""
    return with_records(compress(codec, bytes(MAX_DECOMPRESSED_BYTES + MIB)), count=1, attributes=int(codec))[0]


def broken_codec(codec: CompressionType) -> bytes:
    return with_records(b"this is not compressed", count=1, attributes=int(codec))[0]


def plain(timestamp: int | None, value: bytes = b"v") -> tuple[messages.PlainRecord]:
    return (messages.PlainRecord(timestamp, None, value),)


BAD: Final[dict[str, tuple[Callable[[], Any], ErrorCode]]] = {
    "nothing": (lambda: b"", INVALID),
    "garbage": (lambda: b"\xfe" * 200, CORRUPT),
    "a flipped bit in the header": (lambda: flipped(GOOD, 40), CORRUPT),
    **{f"magic {magic}": (partial(patched, GOOD, magic=magic), CORRUPT) for magic in (0, 1, 3)},
    "the last byte missing": (lambda: GOOD[:-1], CORRUPT),
    "a byte too many": (lambda: GOOD + b"\x00", CORRUPT),
    "a length of 0": (lambda: patched(GOOD, batch_length=0), CORRUPT),
    "a negative length": (lambda: patched(GOOD, batch_length=-1), CORRUPT),
    "a length of 2 GiB": (lambda: patched(GOOD, batch_length=INT32_MAX), CORRUPT),
    "a good batch before a corrupt one": (lambda: GOOD + flipped(GOOD, len(GOOD) - 2), CORRUPT),
    "a good batch before a cut one": (lambda: GOOD + GOOD[:-1], CORRUPT),
    "count -1": (lambda: patched(GOOD, records_count=-1), INVALID),
    "a count of 2^31-1": (lambda: patched(GOOD, records_count=INT32_MAX, last_offset_delta=INT32_MAX - 1), INVALID),
    "offset deltas 0, 0": (lambda: records_of(0, 0), INVALID),
    "offset deltas 1, 0": (lambda: records_of(1, 0), INVALID),
    "a transaction marker": (
        lambda: end_txn_marker(producer_id=1, producer_epoch=0, commit=True, timestamp=START_MS, coordinator_epoch=0),
        INVALID,
    ),
    "an idempotent batch without a sequence": (
        lambda: patched(batch(producer_id=1, producer_epoch=0, base_sequence=0), base_sequence=-1),
        INVALID,
    ),
    "codec 7": (lambda: patched(GOOD, attributes=7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "a negative timestamp": (lambda: patched(GOOD, base_timestamp=-5), TIMESTAMP),
    "a second record years ahead": (lambda: batch(START_MS, FAR_FUTURE_MS), TIMESTAMP),
    "a batch above max.message.bytes": (lambda: batch(value=bytes(MIB)), LARGE),
    **{f"a {codec.name} bomb": (partial(bomb, codec), LARGE) for codec in CODECS},
    **{f"broken {codec.name}": (partial(broken_codec, codec), CORRUPT) for codec in CODECS},
    "no plain records": (tuple, INVALID),
    "a plain record years ahead": (lambda: plain(FAR_FUTURE_MS), TIMESTAMP),
    "a plain record at the end of time": (lambda: plain(INT64_MAX), TIMESTAMP),
    "a plain record that is too large": (lambda: plain(None, bytes(2 * MIB)), LARGE),
}  # fmt: skip


def test_bad_records_are_their_partitions_error_and_the_others_are_stored(client: WireClient, topic: str) -> None:
    for acks in (-1, 1):
        for number, (name, (make, code)) in enumerate(BAD.items()):
            entries = ((topic, 0, GOOD), (topic, 1, make()), (topic, 2, GOOD))
            request = messages.ProduceRequest(tuple(messages.ProducePartition(*entry) for entry in entries), acks)
            before, refused, after = client.call(request).partitions
            assert (before.error, after.error) == (None, None), name
            if acks == -1:
                assert before.base_offset == after.base_offset == 2 * number, name
            assert refused.error is not None, name
            assert (refused.error.code, refused.base_offset) == (code, -1), name
            assert f"{topic}-1" in refused.error.message, name
    assert client.produce(topic, 1, batch(value=b"good")) == 0
    (record,), _ = client.read_all(topic, 1)
    assert record.value == b"good"
    assert [client.produce(topic, partition, GOOD) for partition in (0, 2)] == [4 * len(BAD)] * 2


def test_unknown_topics_and_partitions_are_their_own_errors_in_every_call(client: WireClient, topic: str) -> None:
    asked = [("no-such-topic", 0), (topic, 3), (topic, INT32_MAX), (topic, 0)]
    produced = client.produce_all([(*partition, GOOD) for partition in asked])
    found = client.offsets_for_times([(*partition, START_MS) for partition in asked])
    explained = client.call(messages.ExplainRequest(tuple(messages.ExplainPartition(*each, offset=0) for each in asked)))
    for answers in (produced, found, explained.partitions):
        assert [entry.error and entry.error.code for entry in answers] == [UNKNOWN, UNKNOWN, UNKNOWN, None]
        assert "no-such-topic" in answers[0].error.message
        assert "0 to 2" in answers[1].error.message


def test_a_fetch_out_of_range_is_its_partitions_error(client: WireClient, topic: str) -> None:
    client.produce_all([(topic, 0, GOOD), (topic, 2, GOOD)])
    asked = [(topic, 0, 0), (topic, 1, 1), (topic, 2, 2), (topic, 1, INT64_MAX), ("no-such-topic", 0, 0), (topic, 3, 0)]
    questions = tuple(messages.FetchPartition(*question) for question in asked)
    answers = client.call(messages.FetchRequest(questions, max_wait_ms=600_000)).partitions
    out = ErrorCode.OFFSET_OUT_OF_RANGE
    assert [answer.error and answer.error.code for answer in answers] == [None, out, None, out, UNKNOWN, UNKNOWN]
    assert answers[0].records
    assert answers[1].error.message.startswith(f"{topic}-1: offset 1 is not in 0 to 0")


def test_topics_that_cannot_be_are_refused_by_name(client: WireClient) -> None:
    for name, partitions, config, code in (
        ("../../outside", 1, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("too-many", 10_001, {}, ErrorCode.INVALID_PARTITIONS),
        ("wrong-key", 1, {"retention.minutes": "5"}, ErrorCode.INVALID_CONFIG),
        ("wrong-durability", 1, {"durability": "group:0"}, ErrorCode.INVALID_CONFIG),
    ):
        error = error_of(client.create_topic, name, partitions, config)
        assert error.code is code, name
        assert (next(iter(config)) if config else name) in error.message
        assert error_of(client.partition_metadata, name).code is UNKNOWN


def test_bombs_take_at_most_twice_what_a_batch_may_become(server: ServerProcess, client: WireClient, topic: str) -> None:
    """Decompressed once and copied once; one after the other, not added up. The topic takes larger batches than others."""
    client.create_topic(f"{topic}-large", 1, {"max.message.bytes": str(32 * MIB)})
    bombs = [bomb(codec) for codec in CODECS]
    before = server.memory_bytes()
    server.forget_peak_memory()
    for _ in range(3):
        for data in bombs:
            error = error_of(client.produce, f"{topic}-large", 0, data)
            assert error.code is LARGE
            assert str(MAX_DECOMPRESSED_BYTES) in error.message
    grown = server.memory_bytes("VmHWM") - before
    assert grown < 2 * MAX_DECOMPRESSED_BYTES + 16 * MIB, f"{grown} bytes"


_BATCHES: Final = st.builds(
    lambda count, value, codec: build_batch([(START_MS + n, b"k", value, ()) for n in range(count)], compression_type=codec),
    st.integers(1, 5),
    st.binary(max_size=300),
    st.sampled_from(CompressionType),
)


@given(data=st.data(), original=_BATCHES)
def test_a_damaged_batch_is_refused_or_can_be_read(server: ServerProcess, data: st.DataObject, original: bytes) -> None:
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
