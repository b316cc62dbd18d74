from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from random import Random
from typing import Any, Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import ErrorCode, LocalProtocolError, RemoteProtocolError
from triolog.protocol.kafka.apis import APIS, ApiKey
from triolog.protocol.kafka.connection import (
    FETCHED,
    LISTED,
    PRODUCED,
    KafkaConnection,
    PartitionProduced,
    Request,
    TopicProduced,
    answer_buffers,
    encode_answer,
)
from triolog.protocol.kafka.messages import records
from triolog.protocol.kafka.messages.cluster import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from triolog.protocol.kafka.messages.groups import HeartbeatRequest
from triolog.protocol.kafka.messages.security import SaslAuthenticateResponse
from triolog.protocol.kafka.messages.topics import MetadataRequest, MetadataRequestTopic
from triolog.protocol.limits import MAX_REQUEST_BYTES
from triolog.protocol.schema import codec
from triolog.protocol.schema.primitives import COPIED_BYTES
from triolog.protocol.types import Bytes

from tests.support.in_steps import next_request
from tests.support.kafka_oracles import KafkaPython
from tests.support.kafka_values import MESSAGES, Message, random_value

PRODUCE = APIS[ApiKey.PRODUCE]
VERSIONS = range(PRODUCE.lowest_read, PRODUCE.highest + 1)
LIST_OFFSETS = APIS[ApiKey.LIST_OFFSETS]
FETCH = APIS[ApiKey.FETCH]


def request(version: int, correlation_id: int = 7) -> Request:
    return Request(PRODUCE, version, correlation_id, "client", PRODUCE.request(), 100)


def message(topics: list[TopicProduced], throttle_time_ms: int = 0) -> records.ProduceResponse:
    return records.ProduceResponse(
        throttle_time_ms=throttle_time_ms,
        responses=[
            records.ProduceTopicResponse(
                name=name,
                topic_id=topic_id,
                partition_responses=[
                    records.ProducePartitionResponse(
                        index=index,
                        base_offset=base_offset,
                        log_append_time_ms=log_append_time,
                        log_start_offset=log_start_offset,
                        record_errors=[],
                    )
                    for index, base_offset, log_append_time, log_start_offset in partitions
                ],
            )
            for name, topic_id, partitions in topics
        ],
    )


OFFSETS: Final = st.integers(-1, 2**63 - 1)
RESULTS: Final[st.SearchStrategy[PartitionProduced]] = st.tuples(st.integers(0, 2**31 - 1), OFFSETS, OFFSETS, OFFSETS)
TOPICS: Final = st.tuples(st.text(max_size=249), st.binary(min_size=16, max_size=16))


def results() -> st.SearchStrategy[list[TopicProduced]]:
    topic = st.builds(lambda names, partitions: (*names, partitions), TOPICS, st.lists(RESULTS, max_size=3))
    return st.lists(topic, max_size=3)


@given(st.sampled_from(VERSIONS), st.integers(-(2**31), 2**31 - 1), results(), st.integers(0, 2**31 - 1))
def test_it_is_what_the_message_makes(version: int, correlation_id: int, topics: list[TopicProduced], throttle_ms: int) -> None:
    asked = request(version, correlation_id)
    assert PRODUCED.buffers(asked, (throttle_ms, topics)) == answer_buffers(asked, message(topics, throttle_ms))


@pytest.mark.parametrize("count", [0, 1, 126, 127, 128, 1000])
def test_so_it_is_for_any_number_of_partitions(count: int) -> None:
    topics: list[TopicProduced] = [("topic", bytes(16), [(number, number, -1, 0) for number in range(count)])]
    for asked in map(request, VERSIONS):
        buffers = PRODUCED.buffers(asked, (0, topics))
        assert buffers == answer_buffers(asked, message(topics)), asked
        assert len(buffers) == (2 if sum(map(len, buffers)) > COPIED_BYTES else 1), asked


@given(st.sampled_from(VERSIONS), st.integers(-(2**31), 2**31 - 1), TOPICS, RESULTS, st.integers(0, 2**31 - 1))
def test_a_single_append_is_told_as_by_the_message(
    version: int, correlation_id: int, topic: tuple[str, bytes], result: PartitionProduced, throttle_ms: int
) -> None:
    asked = request(version, correlation_id)
    single = PRODUCED.single(asked, (throttle_ms, *topic, *result))
    assert single == answer_buffers(asked, message([(*topic, [result])], throttle_ms))


@pytest.mark.parametrize("name", ["t", "t" * 125, "t" * 126, "t" * 127, "t" * 128, "t" * 249, "\N{SNOWMAN}"])
def test_a_single_offset_is_told_as_by_the_message(name: str) -> None:
    partition = records.ListOffsetsPartitionResponse(
        partition_index=3, old_style_offsets=[], timestamp=1_700_000_000_000, offset=2**40, leader_epoch=5
    )
    body = records.ListOffsetsResponse(
        throttle_time_ms=9, topics=[records.ListOffsetsTopicResponse(name=name, partitions=[partition])]
    )
    for version in range(1, LIST_OFFSETS.highest + 1):
        asked = Request(LIST_OFFSETS, version, 7, "client", LIST_OFFSETS.request(), 100)
        single = LISTED.single(asked, (9, name, 3, 1_700_000_000_000, 2**40, 5))
        assert single == answer_buffers(asked, body), version


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 16_382, 16_383, 16_384, 2**21])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_records_of_one_partition_are_told_as_by_the_message(size: int, kind: Callable[[bytes], Bytes]) -> None:
    """What is large is not copied."""
    data = kind(bytes(size))
    partition = records.FetchPartitionData(
        partition_index=3,
        high_watermark=12,
        last_stable_offset=11,
        log_start_offset=10,
        aborted_transactions=None,
        records=data,
    )
    topic_id = bytes(range(16))
    topics = [records.FetchableTopicResponse(topic="topic", topic_id=topic_id, partitions=[partition])]
    body = records.FetchResponse(throttle_time_ms=9, session_id=8, responses=topics)
    for version in range(FETCH.lowest, FETCH.highest + 1):
        asked = Request(FETCH, version, 7, "client", FETCH.request(topics=[], forgotten_topics_data=[]), 100)
        single = FETCHED.single(asked, (9, 8, "topic", topic_id, 3, 12, 11, 10, data))
        assert b"".join(single) == b"".join(answer_buffers(asked, body)), version
        assert any(each is data for each in single) == (size >= COPIED_BYTES), version


@pytest.mark.parametrize(("count", "throttle_ms"), [(0, 0), (1, 250), (100, 0)])
def test_offsets_that_were_found_are_told_as_by_the_message(count: int, throttle_ms: int) -> None:
    rows = [(number, 1_700_000_000_000 + number, 2**40 + number, number - 1) for number in range(count)]
    partitions = [
        records.ListOffsetsPartitionResponse(
            partition_index=index, old_style_offsets=[], timestamp=timestamp, offset=offset, leader_epoch=leader_epoch
        )
        for index, timestamp, offset, leader_epoch in rows
    ]
    topics = [records.ListOffsetsTopicResponse(name=name, partitions=partitions) for name in ("first", "second")]
    for version in range(1, LIST_OFFSETS.highest + 1):
        asked = Request(LIST_OFFSETS, version, 7, "client", LIST_OFFSETS.request(), 100)
        assert LISTED.buffers(asked, (throttle_ms, [("first", rows), ("second", rows)])) == answer_buffers(
            asked, records.ListOffsetsResponse(throttle_time_ms=throttle_ms, topics=topics)
        ), version


KAFKA_PYTHON: Final = KafkaPython()
REQUESTS: Final = [message for message in MESSAGES if message.side == "request"]
RESPONSES: Final = [message for message in MESSAGES if message.side == "response"]
CLIENT_IDS: Final = st.one_of(st.none(), st.just(""), st.text(max_size=300))


def frame(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def header(key: int, version: int, *, client_id: bytes | None = b"client", correlation_id: int = 7) -> bytes:
    text = b"\xff\xff" if client_id is None else struct.pack(">h", len(client_id)) + client_id
    return struct.pack(">hhi", key, version, correlation_id) + text


def request_bytes(message: Message, body: Any, tags: bytes = b"\0") -> bytes:
    data = b"".join(codec.write(body, message.version, flexible=message.flexible))
    return header(message.api.key, message.version) + (tags if message.flexible else b"") + data


def received(*pieces: bytes, **settings: int) -> list[Request]:
    connection = KafkaConnection(**settings)  # type: ignore[arg-type]
    found = []
    for piece in pieces:
        connection.receive_data(piece)
        while (request := next_request(connection)) is not None:
            found.append(request)
    return found


@given(seed=st.integers(0, 2**32 - 1), client_id=CLIENT_IDS, correlation_id=st.integers(-(2**31), 2**31 - 1))
def test_requests_whose_bodies_kafka_python_writes_are_read(seed: int, client_id: str | None, correlation_id: int) -> None:
    message = Random(seed).choice([each for each in REQUESTS if KAFKA_PYTHON.knows(each)])
    body = random_value(message.cls, message.version, Random(seed))
    name = None if client_id is None else client_id.encode()
    head = header(message.api.key, message.version, client_id=name, correlation_id=correlation_id)
    data = head + b"\0" * message.flexible + KAFKA_PYTHON.encode(message, body)
    assert received(frame(data)) == [Request(message.api, message.version, correlation_id, client_id, body, len(data))]


@pytest.mark.parametrize("client_id", [None, b"", b"c", "grüße".encode(), b"x" * 32767])
def test_the_client_id_has_a_length_of_two_bytes_in_all_versions(client_id: bytes | None) -> None:
    expected = None if client_id is None else client_id.decode()
    for version, tags in ((8, b""), (12, b"\0")):
        data = header(ApiKey.METADATA, version, client_id=client_id) + tags
        data += b"".join(codec.write(MetadataRequest(topics=None), version, flexible=bool(tags)))
        assert [request.client_id for request in received(frame(data))] == [expected]


def test_tagged_fields_of_a_header_are_passed_over() -> None:
    message = Message(APIS[ApiKey.HEARTBEAT], "request", 4)
    body = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    for tags in (b"\0", b"\1\0\3abc", b"\2\0\0\x80\1\1x", b"\x80\0"):
        assert [request.body for request in received(frame(request_bytes(message, body, tags)))] == [body]


@pytest.mark.parametrize("tags", [b"", b"\1", b"\1\0", b"\1\0\5abc", b"\xff\xff\xff\xff\x0f", b"\xff" * 6])
def test_tagged_fields_of_a_header_that_are_not_there_are_refused(tags: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match=r"_Tags v0|more than 5 bytes"):
        received(frame(header(ApiKey.LIST_GROUPS, 3) + tags))


def test_a_header_that_is_cut_anywhere_is_refused() -> None:
    data = header(ApiKey.LIST_GROUPS, 3)
    for stop in range(1, len(data)):
        with pytest.raises(RemoteProtocolError):
            received(frame(data[:stop]))


@pytest.mark.parametrize("length", [-(2**15), -2, 7, 2**15 - 1])
def test_a_client_id_of_a_wrong_length_is_refused(length: int) -> None:
    data = struct.pack(">hhih", ApiKey.LIST_GROUPS, 0, 1, length) + b"client"
    with pytest.raises(RemoteProtocolError, match=f"a client id claims {length} bytes, 6 are left"):
        received(frame(data))


def test_a_client_id_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="a client id is not UTF-8"):
        received(frame(header(ApiKey.LIST_GROUPS, 0, client_id=b"\xff")))


@pytest.mark.parametrize("version", [6, 99, 32767, -1, -32768])
def test_a_version_of_api_versions_that_is_not_spoken_has_no_body_and_is_answered_in_version_0(version: int) -> None:
    for rest in (b"", b"\0", b"\0\5kafka\0", b"\xff" * 40):
        data = header(ApiKey.API_VERSIONS, version) + rest
        (request,) = received(frame(data))
        assert request == Request(APIS[ApiKey.API_VERSIONS], version, 7, "client", None, len(data))
        body = ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)])
        (answer,) = answer_buffers(request, body)
        assert answer == frame(struct.pack(">ihihhh", 7, 35, 1, 18, 0, 4))


@pytest.mark.parametrize("key", [-1, 4, 7, 73, 32767, -32768])
def test_an_unknown_key_is_refused(key: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"api key {key} is not served here") as caught:
        received(frame(header(key, 0)))
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_versions_that_are_not_served_are_refused() -> None:
    for api in APIS.values():
        for version in {-1, api.lowest_read - 1, api.highest + 1, 32767} if api.key is not ApiKey.API_VERSIONS else ():
            said = rf"{api.name} v{version} is not served here, only v{api.lowest_read} to"
            with pytest.raises(RemoteProtocolError, match=said) as caught:
                received(frame(header(api.key, version) + bytes(100)))
            assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_only_the_given_apis_are_served() -> None:
    apis = {ApiKey.METADATA: attrs.evolve(APIS[ApiKey.METADATA], highest=8)}
    connection = KafkaConnection(apis)
    data = header(ApiKey.METADATA, 8) + b"".join(codec.write(MetadataRequest(topics=None), 8, flexible=False))
    connection.receive_data(frame(data))
    assert next_request(connection) is not None
    for other in (header(ApiKey.METADATA, 9), header(ApiKey.LIST_GROUPS, 0), header(ApiKey.API_VERSIONS, 0)):
        connection = KafkaConnection(apis)
        connection.receive_data(frame(other + bytes(9)))
        with pytest.raises(RemoteProtocolError, match="not served here"):
            next_request(connection)


def test_a_body_that_ends_too_early_is_refused_and_names_its_message() -> None:
    message = Message(APIS[ApiKey.METADATA], "request", 12)
    data = request_bytes(message, MetadataRequest(topics=[MetadataRequestTopic(name="t")]))
    for stop in range(16, len(data)):
        with pytest.raises(RemoteProtocolError, match=r"MetadataRequest v12|_Tags"):
            received(frame(data[:stop]))


@given(seed=st.integers(0, 2**32 - 1), cuts=st.lists(st.floats(0, 1), max_size=12))
def test_frames_may_be_split_anywhere(seed: int, cuts: list[float]) -> None:
    random = Random(seed)
    messages = [random.choice(REQUESTS) for _ in range(4)]
    bodies = [random_value(message.cls, message.version, random) for message in messages]
    data = b"".join(frame(request_bytes(message, body)) for message, body in zip(messages, bodies, strict=True))
    places = [0, *sorted(int(cut * len(data)) for cut in cuts), len(data)]
    pieces = [data[start:stop] for start, stop in itertools.pairwise(places) if start < stop]
    found = received(*pieces)
    assert [(request.api, request.version, request.body) for request in found] == [
        (message.api, message.version, body) for message, body in zip(messages, bodies, strict=True)
    ]


def test_bytes_one_by_one_are_a_request_when_the_last_has_come() -> None:
    data = frame(header(ApiKey.LIST_GROUPS, 0))
    connection = KafkaConnection()
    for byte in data[:-1]:
        connection.receive_data(bytes([byte]))
        assert next_request(connection) is None
    assert connection.unread_bytes == len(data) - 1
    connection.receive_data(data[-1:])
    request = next_request(connection)
    assert request is not None
    assert (request.api.key, request.size_bytes) == (ApiKey.LIST_GROUPS, len(data) - 4)
    assert connection.unread_bytes == 0


def test_records_of_a_request_in_one_piece_are_a_view_of_it() -> None:
    message = Message(APIS[ApiKey.PRODUCE], "request", 9)
    partition = records.ProducePartition(index=0, records=b"r" * 1000)
    body = records.ProduceRequest(
        acks=-1, timeout_ms=1, topic_data=[records.ProduceTopic(name="t", partition_data=[partition])]
    )
    data = frame(request_bytes(message, body))
    (request,) = received(data)
    assert request.body.topic_data[0].partition_data[0].records.obj is data


@pytest.mark.parametrize("length", [0, -1, -(2**31), 101, 2**31 - 1])
def test_a_frame_of_no_or_more_bytes_than_the_limit_is_refused_before_it_comes(length: int) -> None:
    connection = KafkaConnection(max_request_bytes=100)
    connection.receive_data(struct.pack(">i", length))
    with pytest.raises(RemoteProtocolError, match="max_frame_bytes=100"):
        next_request(connection)


def test_a_frame_as_large_as_the_limit_is_read() -> None:
    data = header(ApiKey.LIST_GROUPS, 0) + bytes(84)
    assert len(received(frame(data), max_request_bytes=len(data))) == 1
    assert MAX_REQUEST_BYTES == 104857600  # Kafka: socket.request.max.bytes


def test_a_bare_token_is_a_frame_without_a_header() -> None:
    connection = KafkaConnection()
    connection.takes_tokens = True
    connection.receive_data(frame(b"\0user\0secret")[:9])
    assert next_request(connection) is None
    connection.receive_data(frame(b"\0user\0secret")[9:])
    request = next_request(connection)
    assert request is not None
    assert request.api.key is ApiKey.SASL_AUTHENTICATE
    assert request.body.auth_bytes == b"\0user\0secret"
    answer = SaslAuthenticateResponse(error_message=None, auth_bytes=b"more", session_lifetime_ms=0)
    assert b"".join(answer_buffers(request, answer)) == b"\0\0\0\x04more"
    refused = SaslAuthenticateResponse(error_code=58, error_message="no", auth_bytes=b"", session_lifetime_ms=0)
    assert answer_buffers(request, refused) == []


def test_the_limit_of_requests_can_change_between_two() -> None:
    connection = KafkaConnection(max_request_bytes=100)
    connection.max_frame_bytes = 10
    connection.receive_data(struct.pack(">i", 11))
    with pytest.raises(RemoteProtocolError, match="max_frame_bytes=10"):
        next_request(connection)
    assert connection.max_frame_bytes == 10


def test_the_end_of_the_stream_is_told_and_nothing_may_follow_it() -> None:
    connection = KafkaConnection()
    assert not connection.end_received
    connection.receive_data(b"")
    assert connection.end_received
    assert next_request(connection) is None
    with pytest.raises(LocalProtocolError, match="3 bytes were fed after the end"):
        connection.receive_data(b"abc")


@given(seed=st.integers(0, 2**32 - 1), correlation_id=st.integers(-(2**31), 2**31 - 1))
def test_kafka_python_reads_the_bodies_of_answers(seed: int, correlation_id: int) -> None:
    """Header version 1 for flexible messages, else 0; always 0 for ApiVersions, whose client may not know flexible ones."""
    message = Random(seed).choice([each for each in RESPONSES if KAFKA_PYTHON.knows(each)])
    body = random_value(message.cls, message.version, Random(seed))
    data = b"".join(encode_answer(message.api, message.version, correlation_id, body))
    tags = b"\0" if message.flexible and message.api.key is not ApiKey.API_VERSIONS else b""
    head = struct.pack(">ii", len(data) - 4, correlation_id) + tags
    assert data.startswith(head)
    assert KAFKA_PYTHON.decode(message, data[len(head) :]) == body


def test_answers_of_api_versions_have_the_header_without_tagged_fields() -> None:
    for version in range(5):
        request = Request(APIS[ApiKey.API_VERSIONS], version, 5, None, ApiVersionsRequest(), 1)
        (data,) = answer_buffers(request, ApiVersionsResponse())
        (body,) = codec.write(ApiVersionsResponse(), version, flexible=version >= 3)
        assert bytes(data[4:]) == b"\0\0\0\5" + body, version


def test_large_records_of_an_answer_are_buffers_of_their_own() -> None:
    large = memoryview(bytes(COPIED_BYTES))
    partition = records.FetchPartitionData(partition_index=0, high_watermark=1, aborted_transactions=None, records=large)
    answer = records.FetchResponse(
        session_id=0, responses=[records.FetchableTopicResponse(topic="t", partitions=[partition] * 2)]
    )
    request = Request(APIS[ApiKey.FETCH], 12, 9, None, None, 1)._replace(body=answer)
    head, first, between, second, tail = answer_buffers(request, answer)
    assert first is large
    assert second is large
    data = b"".join((head, first, between, second, tail))
    assert struct.unpack_from(">iib", data) == (len(data) - 4, 9, 0)
    assert codec.read(records.FetchResponse, 12, memoryview(data), 9, flexible=True) == (answer, len(data))


def test_an_answer_without_large_records_is_one_buffer() -> None:
    for message in RESPONSES:
        body = random_value(message.cls, message.version, Random(1))
        if not any(size in repr(body) for size in ("topic_data", "records=b")):
            assert len(encode_answer(message.api, message.version, 1, body)) == 1, message
