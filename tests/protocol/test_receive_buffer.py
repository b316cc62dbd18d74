from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import RemoteProtocolError
from triolog.protocol.receive_buffer import ReceiveBuffer

from tests.support.native_messages import split

PAYLOADS = st.lists(st.binary(min_size=1, max_size=300), max_size=8)


def framed(*payloads: bytes) -> bytes:
    return b"".join(len(payload).to_bytes(4, "big") + payload for payload in payloads)


def frames_of(buffer: ReceiveBuffer) -> list[bytes]:
    frames = []
    while (frame := buffer.next_frame()) is not None:
        frames.append(bytes(frame))
    return frames


@given(payloads=PAYLOADS, data=st.data(), drain=st.booleans())
def test_frames_do_not_depend_on_how_the_stream_is_split(payloads: list[bytes], data: st.DataObject, drain: bool) -> None:
    """What is held are the bytes that came less those that were handed out."""
    buffer = ReceiveBuffer()
    frames: list[bytes] = []
    came = 0
    for piece in data.draw(split(framed(*payloads) + b"\0\0\0\x09half")):
        buffer.receive_data(piece)
        came += len(piece)
        frames += frames_of(buffer) if drain else []
        assert buffer.unread_bytes == came - len(framed(*frames))
    assert frames + frames_of(buffer) == payloads


@pytest.mark.parametrize("length", [0, 101, 2**32 - 1])
@pytest.mark.parametrize("pieces", [1, 4])
def test_length_out_of_range_is_refused_before_its_payload_comes(length: int, pieces: int) -> None:
    buffer = ReceiveBuffer(max_frame_bytes=100)
    prefix = length.to_bytes(4, "big")
    step = 4 // pieces
    for start in range(0, 4, step):
        assert buffer.next_frame() is None
        buffer.receive_data(prefix[start : start + step])
    with pytest.raises(RemoteProtocolError, match=rf"claims {length} bytes, expected 1 to max_frame_bytes=100"):
        buffer.next_frame()


def test_stalled_large_frame_costs_what_it_has_sent() -> None:
    buffer = ReceiveBuffer()
    tracemalloc.start()
    try:
        buffer.receive_data((64 << 20).to_bytes(4, "big") + b"x" * 1000)
        assert buffer.next_frame() is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16_384
    assert buffer.expected_bytes == (64 << 20) - 1000


def test_nothing_is_kept_of_a_large_frame_that_was_dropped() -> None:
    buffer = ReceiveBuffer()
    tracemalloc.start()
    try:
        buffer.receive_data((4 << 20).to_bytes(4, "big"))
        for _ in range(64):
            buffer.receive_data(bytes(64 << 10))
            frame = buffer.next_frame()
        assert frame is not None
        del frame
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 16_384 + (64 << 10)


def test_frame_inside_one_piece_is_not_copied() -> None:
    piece = framed(b"first", b"second")
    buffer = ReceiveBuffer()
    buffer.receive_data(piece)
    assert all(frame is not None and frame.obj is piece for frame in (buffer.next_frame(), buffer.next_frame()))


def test_frame_outlives_what_is_fed_later() -> None:
    buffer = ReceiveBuffer()
    buffer.receive_data(framed(b"first")[:6])
    assert buffer.next_frame() is None
    buffer.receive_data(framed(b"first")[6:] + framed(b"second"))
    first = buffer.next_frame()
    assert frames_of(buffer) == [b"second"]
    assert first == b"first"


def test_mutable_input_is_copied() -> None:
    buffer = ReceiveBuffer()
    piece = bytearray(framed(b"first"))
    buffer.receive_data(piece)
    piece[:] = bytes(len(piece))
    assert frames_of(buffer) == [b"first"]
