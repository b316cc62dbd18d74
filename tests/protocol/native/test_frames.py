from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any, Final

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import LocalProtocolError, RemoteProtocolError
from triolog.protocol.native import frames

from tests.support.in_steps import finished
from tests.support.native_messages import MSGPACK_VALUES


def unpacked_in_steps(frame: memoryview) -> object:
    return finished(frames.unpack_frame_steps(frame))


def said(read: Callable[[memoryview], object], frame: bytes) -> object:
    """What is read, or how it is refused."""
    try:
        return read(memoryview(frame))
    except RemoteProtocolError as exc:
        return str(exc)


@given(value=st.lists(MSGPACK_VALUES, max_size=3), cut=st.floats(0, 1), extra=st.binary(max_size=3))
def test_reading_in_steps_finds_and_refuses_the_same(value: object, cut: float, extra: bytes) -> None:
    whole = msgpack.packb(value)
    for frame in (whole, whole[: int(len(whole) * cut)], whole + extra):
        assert said(unpacked_in_steps, frame) == said(frames.unpack_frame, frame)


def test_a_large_frame_is_read_in_many_steps() -> None:
    value = [1, "produce", 1, {"records": [[None, b"k", b"v" * (number % 300)] for number in range(20_000)]}]
    frame = memoryview(msgpack.packb(value))
    steps = sum(1 for _ in frames.unpack_frame_steps(frame))
    assert steps >= 60_000 // frames.OBJECTS_PER_PAUSE + len(frame) // frames.BYTES_PER_PAUSE
    assert unpacked_in_steps(frame) == value


def test_what_is_wrong_far_behind_is_refused_in_steps_as_at_once() -> None:
    whole = msgpack.packb([b"x" * 3000] * 10)
    for frame in (
        whole[:-1],
        whole + b"\xc0",
        whole[:-3003] + b"\xc1" + whole[-3002:],
        whole[:-3003] + msgpack.packb(msgpack.ExtType(5, b"x" * 2997)),
        b"\x91" * 5000 + b"\xc0",
        b"\xdd\x04\x00\x00\x00" * 1000,
    ):
        refused = said(frames.unpack_frame, frame)
        assert isinstance(refused, str)
        assert said(unpacked_in_steps, frame) == refused


def unpacked(pieces: list[Any]) -> object:
    stream = b"".join(pieces)
    assert int.from_bytes(stream[:4], "big") == len(stream) - 4
    return frames.unpack_frame(memoryview(stream)[4:])


@given(value=MSGPACK_VALUES, extra=st.binary(min_size=1, max_size=5))
def test_bytes_after_the_value_are_refused(value: object, extra: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="not one msgpack value"):
        frames.unpack_frame(memoryview(msgpack.packb(value) + extra))


@pytest.mark.parametrize(
    ("frame", "complaint"),
    [
        (msgpack.packb(msgpack.ExtType(5, b"abc")), "max_ext_len"),
        (b"\xc7\x00\x05", "extension type 5 of 0 bytes"),
        (msgpack.packb(msgpack.Timestamp(1, 2)), "max_ext_len"),
        (b"\x81\x01\x02", "int"),
        (b"\xa2\xff\xfe", "utf-8"),
        (b"\x91" * 5000 + b"\xc0", "not one msgpack value"),
        (b"\xc1", "FormatError"),
        (b"", "incomplete"),
    ],
    ids=["ext", "empty ext", "timestamp", "int key", "not utf-8", "deep", "never used", "nothing"],
)
def test_what_the_protocol_does_not_use_is_refused(frame: bytes, complaint: str) -> None:
    with pytest.raises(RemoteProtocolError, match=complaint):
        frames.unpack_frame(memoryview(frame))


UNCOUNTED: Final = frames.UNCOUNTED_FRAME_BYTES
NESTED: Final = b"\xdc" + UNCOUNTED.to_bytes(2, "big")


@pytest.mark.parametrize(
    ("frame", "complaint", "peak_bytes"),
    [
        (b"\xdd\x04\x00\x00\x00" * 1000 + bytes(UNCOUNTED), "claims 67108865 msgpack objects, expected at most 5512", 65_536),
        ((NESTED * UNCOUNTED)[:UNCOUNTED], "not one msgpack value", UNCOUNTED**2 // len(NESTED) * 8 + 65_536),
    ],
    ids=["counted", "too small to be counted"],
)
def test_claims_of_more_than_is_sent_take_no_memory(frame: bytes, complaint: str, peak_bytes: int) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError, match=complaint):
            frames.unpack_frame(memoryview(frame))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= peak_bytes < 1 << 20


def test_largest_honest_fetch_fits_the_object_limit() -> None:
    entry = {"topic": "t" * 249, "partition": 2**31 - 1, "offset": 2**63 - 1, "max_bytes": 2**31 - 1}
    frames.unpack_frame(memoryview(msgpack.packb([1, "fetch", 1, {"partitions": [entry] * 10_000}])))


@given(value=st.lists(MSGPACK_VALUES, max_size=3))
def test_object_count_is_exact(value: list[object]) -> None:
    frame = memoryview(msgpack.packb(value))
    frames.check_objects(frame, objects_in(value))
    with pytest.raises(RemoteProtocolError, match=f"expected at most {objects_in(value) - 1}"):
        frames.check_objects(frame, objects_in(value) - 1)


def objects_in(value: object) -> int:
    if isinstance(value, list):
        return 1 + sum(map(objects_in, value))
    if isinstance(value, dict):
        return 1 + len(value) + sum(map(objects_in, value.values()))
    return 1


@given(
    sizes=st.lists(st.none() | st.sampled_from([0, 1, 255, 256, 1024, 1025, 65_535, 65_536, 70_000]), min_size=1, max_size=5),
    other=MSGPACK_VALUES,
)
def test_records_as_buffers_make_the_same_frame_as_records_inside(sizes: list[int | None], other: object) -> None:
    def body(make: Any) -> dict[str, Any]:
        return {"other": other, "partitions": [{"topic": "t", "records": [] if size is None else make(size)} for size in sizes]}

    pieces = frames.pack_frame((7, None), body(lambda size: memoryview(bytearray(size))))
    plain = msgpack.packb([7, None, body(bytes)])
    assert b"".join(pieces) == len(plain).to_bytes(4, "big") + plain
    assert unpacked(pieces) == [7, None, body(bytes)]


def test_small_records_are_copied_into_one_buffer() -> None:
    pieces = frames.pack_frame((7, None), {"partitions": [{"topic": "t", "records": bytes(100)}]})
    assert len(pieces) == 1


def test_a_large_frame_leaves_no_memory_behind() -> None:
    """The largest answer of a server's life stayed with it, twice over: a packer never gives its buffer back."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        frames.pack_frame([1, None], {"names": ["x" * 100] * 40_000})
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept - before <= 2 * frames.PACKER_BYTES


@pytest.mark.parametrize("body", [{"partitions": object()}, {"key": 2**64}, {"key": "\ud800"}])
def test_what_msgpack_cannot_say_is_our_error(body: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError, match="cannot be packed"):
        frames.pack_frame((1, None), body)
