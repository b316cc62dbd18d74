from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol import errors
from triolog.protocol.native import messages
from triolog.protocol.native.connection import (
    CONNECTION_CLOSED,
    NEED_DATA,
    PAUSED,
    Event,
    Idle,
    LastError,
    NativeConnection,
    NativeRequest,
    Response,
)
from triolog.protocol.native.state import Role, State

from tests.support.native_messages import MSGPACK_VALUES, REQUESTS, split

HELLO_BODY = messages.HelloRequest("test").to_body()
HELLO_ANSWER = messages.HelloResponse("triolog", "1", 0, "c", messages.API_VERSIONS).to_body()


def packed(value: object) -> bytes:
    payload = msgpack.packb(value)
    return len(payload).to_bytes(4, "big") + payload


def pair(**options: int) -> tuple[NativeConnection, NativeConnection]:
    """A client and a server that have said hello."""
    client, server = NativeConnection(Role.CLIENT), NativeConnection(Role.SERVER, **options)
    say_hello(client, server)
    return client, server


def say_hello(client: NativeConnection, server: NativeConnection) -> None:
    server.receive_data(b"".join(client.send_request(1, "hello", 1, HELLO_BODY)))
    assert isinstance(server.next_event(), NativeRequest)
    client.receive_data(b"".join(server.send_response(1, None, HELLO_ANSWER)))
    assert isinstance(client.next_event(), Response)
    assert (client.state, server.state) == (State.READY, State.READY)
    assert client.in_flight_count == server.in_flight_count == client.in_flight_bytes == server.in_flight_bytes == 0


def events_of(connection: NativeConnection) -> list[Event]:
    events: list[Event] = []
    while not isinstance(event := connection.next_event(), Idle):
        events.append(event)
    return events


def metadata_request(correlation_id: int) -> bytes:
    return packed([correlation_id, "metadata", 1, {}])


def test_refused_hello_may_be_tried_again() -> None:
    client, server = NativeConnection(Role.CLIENT), NativeConnection(Role.SERVER)
    server.receive_data(b"".join(client.send_request(1, "hello", 99, HELLO_BODY)))
    server.next_event()
    client.receive_data(b"".join(server.send_response(1, errors.UnsupportedVersionError("version 99"))))
    response = client.next_event()
    assert isinstance(response, Response)
    assert isinstance(response.error, errors.UnsupportedVersionError)
    say_hello(client, server)


@pytest.mark.parametrize("before", [b"", packed([1, "hello", 1, {}])], ids=["before hello", "before its answer"])
def test_request_before_the_answer_to_hello_is_refused(before: bytes) -> None:
    server = NativeConnection(Role.SERVER)
    server.receive_data(before + metadata_request(2))
    if before:
        server.next_event()
    with pytest.raises(errors.RemoteProtocolError, match=r"a request in state \w+\. (?i:send hello|wait for the response)"):
        server.next_event()
    assert server.state is State.ERROR


def test_second_hello_is_refused() -> None:
    client, server = pair()
    server.receive_data(packed([2, "hello", 1, {}]))
    with pytest.raises(errors.RemoteProtocolError, match="hello only once"):
        server.next_event()
    with pytest.raises(errors.LocalProtocolError, match="hello only once"):
        client.send_request(2, "hello", 1, HELLO_BODY)


def test_answers_match_their_requests_in_any_order() -> None:
    client, server = pair()
    stream = b"".join(
        b"".join(client.send_request(number, api, 1, {"partitions": []}))
        for number, api in ((2, "fetch"), (3, "produce"), (4, "explain"))
    )
    server.receive_data(stream)
    requests = events_of(server)
    assert [request.api for request in requests if isinstance(request, NativeRequest)] == ["fetch", "produce", "explain"]
    for number in (3, 4, 2):
        client.receive_data(b"".join(server.send_response(number, None, {"partitions": []})))
    responses = [event for event in events_of(client) if isinstance(event, Response)]
    assert [(response.correlation_id, response.api) for response in responses] == [(3, "produce"), (4, "explain"), (2, "fetch")]
    assert client.in_flight_count == server.in_flight_count == client.in_flight_bytes == server.in_flight_bytes == 0


def test_error_answer_arrives_as_the_exception_it_was() -> None:
    client, server = pair()
    server.receive_data(b"".join(client.send_request(2, "metadata", 1, {})))
    server.next_event()
    client.receive_data(b"".join(server.send_response(2, errors.InvalidRequestError("what is wrong"))))
    response = client.next_event()
    assert isinstance(response, Response)
    assert isinstance(response.error, errors.InvalidRequestError)
    assert str(response.error) == "INVALID_REQUEST: what is wrong"
    assert response.body is None


def test_server_pauses_at_the_count_limit_and_goes_on_after_an_answer() -> None:
    _, server = pair(max_in_flight=3)
    server.receive_data(b"".join(map(metadata_request, range(2, 8))))
    assert [event.correlation_id for event in events_of(server) if isinstance(event, NativeRequest)] == [2, 3, 4]
    assert server.next_event() is PAUSED
    assert not server.can_receive_more
    server.send_response(3, None, {"topics": []})
    assert server.can_receive_more
    assert [event.correlation_id for event in events_of(server) if isinstance(event, NativeRequest)] == [5]


def test_server_pauses_at_the_byte_limit_but_lets_the_first_request_in() -> None:
    client, server = pair(max_in_flight_bytes=500)
    body = messages.ProduceRequest((messages.ProducePartition("t", 0, bytes(800)),)).to_body()
    first, second = (b"".join(client.send_request(number, "produce", 1, body)) for number in (2, 3))
    server.receive_data(first + second)
    (request,) = events_of(server)
    assert isinstance(request, NativeRequest)
    assert server.in_flight_bytes == request.size_bytes == len(first) - 4
    assert server.next_event() is PAUSED
    server.discard(2)
    assert server.in_flight_bytes == 0
    assert len(events_of(server)) == 1


def test_request_without_an_answer_is_not_in_flight() -> None:
    client, server = pair()
    server.receive_data(b"".join(client.send_request(2, "produce", 1, {"partitions": []}, expects_answer=False)))
    assert client.in_flight_count == 0
    assert isinstance(server.next_event(), NativeRequest)
    assert server.in_flight_count == 1
    server.discard(2)
    assert server.in_flight_count == 0
    client.send_request(2, "produce", 1, {"partitions": []})


@pytest.mark.parametrize(
    ("frame", "complaint"),
    [
        ([1, "metadata", 1], r"a frame holds \[int 1, str 'metadata', int 1\], expected"),
        ({"id": 1}, "a frame holds map of 1, expected"),
        ([1, "metadata", 1, []], "array of 0"),
        ([1, b"metadata", 1, {}], "bin of 8 bytes"),
        ([True, "metadata", 1, {}], "bool True"),
        ([0, "metadata", 1, {}], "correlation id 0, expected 1 to 4294967295"),
        ([2**32, "metadata", 1, {}], "correlation id 4294967296, expected 1 to 4294967295"),
        ([-1, "metadata", 1, {}], "correlation id -1, expected 1"),
        ([1, "metadata", -1, {}], "version -1 of str 'metadata', expected a uint"),
        ([1, "x" * 1000, -1, {}], "version -1 of str of 1000 characters"),
    ],
)
def test_frame_that_is_no_request_is_the_peers_error(frame: object, complaint: str) -> None:
    _, server = pair()
    server.receive_data(packed(frame))
    with pytest.raises(errors.RemoteProtocolError, match=complaint) as caught:
        server.next_event()
    assert caught.value.code is errors.ErrorCode.INVALID_REQUEST
    assert server.state is State.ERROR


def test_correlation_id_in_flight_is_refused() -> None:
    client, server = pair()
    server.receive_data(metadata_request(2) * 2)
    server.next_event()
    with pytest.raises(errors.RemoteProtocolError, match="correlation id 2 is in flight"):
        server.next_event()
    client.send_request(2, "metadata", 1, {})
    with pytest.raises(errors.LocalProtocolError, match="correlation id 2 is in flight"):
        client.send_request(2, "metadata", 1, {})


def test_last_error_ends_the_connection_on_both_sides() -> None:
    client, server = pair()
    client.send_request(2, "metadata", 1, {})
    server.receive_data(b"\xff\xff\xff\xff")
    with pytest.raises(errors.RemoteProtocolError) as caught:
        server.next_event()
    client.receive_data(b"".join(server.send_fatal_error(caught.value)))
    assert server.send_fatal_error(caught.value) == []
    event = client.next_event()
    assert isinstance(event, LastError)
    assert isinstance(event.error, errors.InvalidRequestError)
    assert "claims 4294967295 bytes" in event.error.message
    for connection in (client, server):
        assert connection.state is State.ERROR
        with pytest.raises(errors.LocalProtocolError, match="has failed"):
            connection.next_event()
    with pytest.raises(errors.LocalProtocolError, match="in state ERROR"):
        client.send_request(3, "metadata", 1, {})


def test_answer_after_the_last_error_is_our_error() -> None:
    _, server = pair()
    server.receive_data(metadata_request(2))
    server.next_event()
    server.send_fatal_error(errors.RequestError("shutting down"))
    with pytest.raises(errors.LocalProtocolError, match="in state ERROR"):
        server.send_response(2, None, {})


@pytest.mark.parametrize(
    ("frame", "complaint"),
    [
        ([2, None], "expected"),
        ([2, None, []], "expected"),
        (["2", None, {}], "str '2'"),
        ([3, None, {}], "correlation id 3, which is not in flight"),
        ([0, None, {}], "correlation id 0, which is not in flight"),
        ([2, None, None], "neither"),
        ([2, [1, "OFFSET_OUT_OF_RANGE", "m"], {}], "both"),
        ([2, "bad", None], "error is str 'bad', expected nil or"),
    ],
)
def test_frame_that_is_no_answer_is_the_servers_error(frame: object, complaint: str) -> None:
    client, _ = pair()
    client.send_request(2, "metadata", 1, {})
    client.receive_data(packed(frame))
    with pytest.raises(errors.RemoteProtocolError, match=complaint):
        client.next_event()
    assert client.state is State.ERROR


def test_half_closed_client_still_gets_its_answers() -> None:
    client, server = pair()
    server.receive_data(b"".join(client.send_request(2, "metadata", 1, {})))
    server.receive_data(b"")
    assert isinstance(server.next_event(), NativeRequest)
    assert server.next_event() is CONNECTION_CLOSED
    assert server.next_event() is CONNECTION_CLOSED
    client.receive_data(b"".join(server.send_response(2, None, {"topics": []})))
    assert isinstance(client.next_event(), Response)


def test_nothing_is_requested_or_received_after_the_end() -> None:
    client, _ = pair()
    client.receive_data(b"")
    assert client.next_event() is CONNECTION_CLOSED
    with pytest.raises(errors.LocalProtocolError, match="a request in state CLOSED"):
        client.send_request(2, "metadata", 1, {})
    _, server = pair()
    server.receive_data(b"")
    with pytest.raises(errors.LocalProtocolError, match="after the end of the stream"):
        server.receive_data(b"x")


def test_end_inside_a_frame_is_the_peers_error() -> None:
    _, server = pair()
    server.receive_data(metadata_request(2)[:-5])
    assert server.next_event() is NEED_DATA
    server.receive_data(b"")
    with pytest.raises(errors.RemoteProtocolError, match="ended inside a frame: 5 bytes of it are missing"):
        server.next_event()


def test_local_misuse_changes_nothing() -> None:
    client, server = pair(max_frame_bytes=2000)
    server.receive_data(b"".join(client.send_request(2, "metadata", 1, {})))
    server.next_event()
    for error, body in ((None, None), (errors.RequestError("m"), {}), (None, {"x": object()}), (None, {"x": bytes(2000)})):
        with pytest.raises(errors.LocalProtocolError):
            server.send_response(2, error, body)
    with pytest.raises(errors.LocalProtocolError, match="correlation id 3, which is not in flight"):
        server.send_response(3, None, {})
    with pytest.raises(errors.LocalProtocolError, match="called on a SERVER connection, expected CLIENT"):
        server.send_request(3, "metadata", 1, {})
    with pytest.raises(errors.LocalProtocolError, match="called on a CLIENT connection, expected SERVER"):
        client.send_response(2, None, {})
    assert server.in_flight_count == 1
    assert server.state is State.READY
    server.send_response(2, None, {"topics": []})


def test_client_keeps_to_the_limits_it_was_told() -> None:
    client, _ = pair()
    client.adopt_limits(max_frame_bytes=100, max_in_flight=2)
    with pytest.raises(errors.LocalProtocolError, match=r"a frame of \d+ bytes, expected at most 100"):
        client.send_request(2, "metadata", 1, {"topics": ["t" * 100]})
    assert client.can_send_request
    client.send_request(2, "metadata", 1, {})
    client.send_request(3, "metadata", 1, {})
    assert not client.can_send_request
    with pytest.raises(errors.LocalProtocolError, match="2 requests in flight, the server allows 2"):
        client.send_request(4, "metadata", 1, {})


RECORDS = memoryview(bytearray(b"r" * 100_000))


@pytest.mark.parametrize(
    "message",
    [
        messages.ProduceRequest((messages.ProducePartition("t", 0, RECORDS),)),
        messages.StageRequest("a", 0, "t", (messages.StagePartition("t", 0, RECORDS),)),
        messages.FetchResponse((messages.FetchPartitionResponse("t", 0, records=RECORDS),)),
    ],
    ids=lambda message: type(message).__name__,
)
def test_large_records_are_not_copied(
    message: messages.ProduceRequest | messages.StageRequest | messages.FetchResponse,
) -> None:
    client, server = pair()
    body = {} if isinstance(message, messages.FetchResponse) else message.to_body()
    pieces = client.send_request(2, message.api, 1, body)
    server.receive_data(b"".join(pieces))
    received = server.next_event()
    assert isinstance(received, NativeRequest)
    if isinstance(message, messages.FetchResponse):
        pieces = server.send_response(2, None, message.to_body())
        client.receive_data(b"".join(pieces))
        received = client.next_event()
        assert isinstance(received, Response)
    assert pieces[1] is RECORDS
    assert type(message).from_body(received.body or {}) == message


def outcome(pieces: list[bytes], limit: int) -> list[Any]:
    """What a server makes of a stream: its events, then the words of the error that ended it, if one did."""
    server = NativeConnection(Role.SERVER, max_in_flight=limit)
    events: list[Any] = []
    try:
        for piece in [*pieces, b""]:
            server.receive_data(piece)
            while (event := server.next_event()) not in (NEED_DATA, CONNECTION_CLOSED):
                if isinstance(event, NativeRequest):
                    events.append(event)
                    body = HELLO_ANSWER if event.api == "hello" else {}
                    server.send_response(event.correlation_id, None, body)
    except errors.RemoteProtocolError as exc:
        events.append(str(exc))
    return events


def requests() -> st.SearchStrategy[bytes]:
    return st.sampled_from([api for api in REQUESTS if api != "hello"]).flatmap(
        lambda api: st.tuples(st.integers(1, 2**32 - 1), REQUESTS[api]).map(
            lambda drawn: packed([drawn[0], api, 1, drawn[1].to_body()])
        )
    )


FRAMES = requests() | MSGPACK_VALUES.map(packed) | st.binary(max_size=20)


@given(frames=st.lists(FRAMES, max_size=5), limit=st.integers(1, 3), data=st.data())
def test_events_do_not_depend_on_how_the_stream_is_split(frames: list[bytes], limit: int, data: st.DataObject) -> None:
    stream = packed([1, "hello", 1, HELLO_BODY]) + b"".join(frames)
    assert outcome(data.draw(split(stream)), limit) == outcome([stream], limit)
