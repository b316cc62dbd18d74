"""Frames of the native protocol: requests before and after hello, and answers to each call.

The first byte says whose connection gets the frame; for an answer the second one says which call was asked. What a server reads
is a message, RemoteProtocolError or an answerable error; what it reads in steps is the same; a message is written as bytes that
are read as the same message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as hypothesis_seed
from triolog.protocol.errors import RemoteProtocolError, RequestError
from triolog.protocol.native import frames, messages
from triolog.protocol.native.connection import NativeConnection, NativeRequest, Response
from triolog.protocol.native.state import Role

from tests.fuzzing.target import BrokenInvariantError, Target, require
from tests.support.in_steps import finished
from tests.support.native_messages import REQUESTS, RESPONSES

NEW: Final = 0
READY: Final = 1
ANSWER: Final = 2
SEEDS_PER_CALL: Final = 6
CALLS: Final = tuple(messages.REQUESTS)
_CORRELATION_ID: Final = 7
_HELLO_ID: Final = 1


def feed(data: bytes) -> bool:
    if not data:
        return False
    kind, frame = data[0] % 3, data[1:]
    if kind == ANSWER:
        return bool(frame) and _feed_answer(CALLS[frame[0] % len(CALLS)], frame[1:])
    connection = NativeConnection(Role.SERVER)
    if kind == READY:
        _say_hello(connection)
    try:
        connection.receive_data(len(frame).to_bytes(4, "big") + frame)
        request = connection.next_event()
    except RemoteProtocolError as exc:
        _check_steps(frame, str(exc))
        return False
    require(isinstance(request, NativeRequest), f"a whole frame gave {request}: {data.hex()}")
    assert isinstance(request, NativeRequest)
    _check_steps(frame, None)
    return _feed_body(request, frame)


def _say_hello(connection: NativeConnection) -> None:
    connection.receive_data(b"".join(frames.pack_frame((_HELLO_ID, "hello", 1), {"client_id": "fuzz"})))
    connection.next_event()
    connection.send_response(_HELLO_ID, None, {})


def _check_steps(frame: bytes, refusal: str | None) -> None:
    """What is read in steps is what is read at once."""
    try:
        value: Any = frames.unpack_frame(memoryview(frame))
    except RemoteProtocolError:
        value = BrokenInvariantError
        require(refusal is not None, f"a frame that is no value was a request: {frame.hex()}")
    try:
        again: Any = finished(frames.unpack_frame_steps(memoryview(frame)))
    except RemoteProtocolError:
        again = BrokenInvariantError
    require(repr(value) == repr(again), f"in steps a frame is {again!r}, at once {value!r}: {frame.hex()}")


def _feed_body(request: NativeRequest, frame: bytes) -> bool:
    api, version = request.api, request.version
    _, _, _, other = frames.unpack_frame(memoryview(frame))  # type: ignore[misc]
    message, refusal = _message(lambda: messages.decode_request(api, version, request.body))
    again, other_refusal = _message(lambda: finished(messages.decode_steps(api, version, other)))
    require(
        (repr(message), refusal is None) == (repr(again), other_refusal is None),
        f"in steps a body is {again!r} {other_refusal}, at once {message!r} {refusal}: {frame.hex()}",
    )
    if message is None:
        return False
    _check_repeatable(api, message.to_body(), lambda body: messages.decode_request(api, version, body), message, frame)
    return True


def _message(read: Any) -> tuple[Any, str | None]:
    """(the message, None) or (None, what is wrong with it)."""
    try:
        return read(), None
    except RequestError as exc:
        return None, f"{type(exc).__name__}: {exc}"


def _feed_answer(api: str, frame: bytes) -> bool:
    connection = NativeConnection(Role.CLIENT)
    connection.send_request(_HELLO_ID, "hello", 1, {})
    if api != "hello":
        connection.receive_data(b"".join(frames.pack_frame((_HELLO_ID, None), {})))
        connection.next_event()
        connection.send_request(_CORRELATION_ID, api, 1, {})
    connection.receive_data(len(frame).to_bytes(4, "big") + frame)
    try:
        answer = connection.next_event()
        if not isinstance(answer, Response) or answer.body is None:
            return False
        message = messages.decode_response(api, 1, answer.body)
    except RemoteProtocolError:
        return False
    _check_repeatable(api, message.to_body(), lambda body: messages.decode_response(api, 1, body), message, frame)
    return True


def _check_repeatable(api: str, body: Any, read: Any, message: Any, frame: bytes) -> None:
    try:
        data = b"".join(frames.pack_frame((1, api, 1), body))
        again = read(frames.unpack_frame(memoryview(data)[4:], None)[3])  # type: ignore[index]
        data_again = b"".join(frames.pack_frame((1, api, 1), again.to_body()))
    except Exception as exc:
        raise BrokenInvariantError(f"{message!r} cannot be written and read: {exc!r}: {frame.hex()}") from exc
    require(data == data_again, f"{message!r} is written and read as {again!r}: {frame.hex()}")


def seeds() -> Iterator[bytes]:
    for number, api in enumerate(CALLS):
        for message in _drawn(REQUESTS[api]):
            kind = NEW if api == "hello" else READY
            yield bytes([kind]) + _frame((_CORRELATION_ID, api, 1), message)
        for message in _drawn(RESPONSES[api]):
            correlation_id = _HELLO_ID if api == "hello" else _CORRELATION_ID
            yield bytes([ANSWER, number]) + _frame((correlation_id, None), message)


def _frame(envelope: tuple[object, ...], message: Any) -> bytes:
    return b"".join(frames.pack_frame(envelope, message.to_body()))[4:]


def _drawn(strategy: Any) -> list[Any]:
    """The same ones each time."""
    found: list[Any] = []

    @hypothesis_seed(0)
    @settings(
        max_examples=SEEDS_PER_CALL,
        database=None,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def draw(message: Any) -> None:
        found.append(message)

    draw()
    return found


TARGET: Final = Target(
    name="native-frames",
    feed=feed,
    seeds=seeds,
    modules=("triolog.protocol.native",),
    max_bytes=4096,
)
