"""Packs and unpacks frames of the native protocol: a length, then exactly one msgpack value. Values have no meaning here.

These raise RemoteProtocolError: bytes after the value, a value cut short, extension types, map keys other than str and
bin, text that is not UTF-8, nesting deeper than msgpack's 1024, and a frame that claims more objects than MAX_OBJECTS.
Record bytes are written as buffers of their own: bytes from a file are never copied into a frame.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final, NoReturn

import msgpack  # type: ignore[import-untyped]

from .. import errors
from ..types import Bytes
from .kinds import Body

MAX_OBJECTS: Final = 256 * 1024
"""msgpack objects in one request. A nil is 1 byte in a frame and an empty array 64 in memory, so without this 64 MiB of
frame would become 4 GiB; 10,000 partitions of a fetch are 90,000 objects."""

FEW_OBJECTS: Final = 1000
"""Read in about 1 ms, with the checks of what they mean. A request of 100 partitions has no more."""

OBJECTS_PER_PAUSE: Final = 512
"""Counted in about 0.3 ms."""
BYTES_PER_PAUSE: Final = 4096
"""The most objects they can be are made in about 0.3 ms."""

UNCOUNTED_FRAME_BYTES: Final = 512
"""Frames up to here are not counted: at the worst, 170 nested arrays that claim 512 entries each, they take 680 KiB for a
moment. Counting takes 0.1 us per object, little beside the checks of the records in a larger frame."""

COPIED_RECORDS_BYTES: Final = 1024
"""Records up to here are copied into the frame: one more buffer of a vectored send costs more than 1 KiB of memcpy."""

PACKER_BYTES: Final = 256 * 1024
"""The buffer in which frames are written. For a larger frame it grows to twice of that, and never shrinks again."""

_pack_length = struct.Struct(">I").pack
_pack = msgpack.Packer(autoreset=True, buf_size=PACKER_BYTES).pack

_FIXED_BYTES: Final = {0xCA: 4, 0xCB: 8} | {0xCC + i: 1 << i for i in range(4)} | {0xD0 + i: 1 << i for i in range(4)}
_FIXED_EXT_BYTES: Final = {0xD4 + i: (1 << i) + 1 for i in range(5)}
_SIZED_BYTES: Final = {  # first byte -> (bytes of the size that follows, bytes beside what the size counts)
    **{0xC4 + i: (1 << i, 0) for i in range(3)},  # bin
    **{0xC7 + i: (1 << i, 1) for i in range(3)},  # ext
    **{0xD9 + i: (1 << i, 0) for i in range(3)},  # str
}
_CONTAINERS: Final = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}  # (bytes of the count, objects per entry)


def unpack_frame(frame: memoryview, max_objects: int | None = MAX_OBJECTS) -> object:
    """The value of a frame's payload. `max_objects` None: the peer is one we chose to believe."""
    if max_objects is not None and len(frame) > UNCOUNTED_FRAME_BYTES:
        check_objects(frame, min(max_objects, len(frame)))  # an object takes a byte: more than that is a lie
    try:
        return msgpack.unpackb(frame, max_ext_len=0, ext_hook=_refuse_ext)
    except (msgpack.UnpackException, ValueError, RecursionError) as exc:
        raise _no_value(frame, exc) from exc


def unpack_frame_steps(frame: memoryview) -> Generator[None, None, object]:
    """Unpack a frame in steps and return the result of `unpack_frame`. One call for all of a large frame would hold the
    interpreter."""
    size = len(frame)
    if size > UNCOUNTED_FRAME_BYTES:
        yield from count_steps(frame, min(MAX_OBJECTS, size))
    unpacker = msgpack.Unpacker(read_size=size, max_buffer_size=size, max_ext_len=0, ext_hook=_refuse_ext)
    try:
        for start in range(0, size, BYTES_PER_PAUSE):
            unpacker.feed(frame[start : start + BYTES_PER_PAUSE])
            try:
                value: object = unpacker.unpack()
            except msgpack.OutOfData:
                yield
                continue
            if unpacker.tell() != size:
                raise msgpack.ExtraData(value, frame[unpacker.tell() :])
            return value
        raise ValueError("Unpack failed: incomplete input")
    except (msgpack.UnpackException, ValueError, RecursionError) as exc:
        raise _no_value(frame, exc) from exc


def _no_value(frame: memoryview, cause: Exception) -> errors.RemoteProtocolError:
    return errors.RemoteProtocolError(
        f"a frame of {len(frame)} bytes is not one msgpack value: {type(cause).__name__}: {cause!s:.200}"
    )


def is_wide(frame: memoryview) -> bool:
    """Return whether a frame claims so many objects that reading it takes long."""
    if len(frame) <= FEW_OBJECTS:
        return False
    try:
        check_objects(frame, FEW_OBJECTS)
    except errors.RemoteProtocolError:
        return True
    return False


def check_objects(frame: memoryview, max_objects: int) -> None:
    """Refuse a frame whose arrays and maps claim more than `max_objects` in all, before any of them is allocated.

    Only hops over headers; what is wrong otherwise is left to msgpack to say.
    """
    for _ in count_steps(frame, max_objects):
        pass


def count_steps(frame: memoryview, max_objects: int) -> Generator[None, None, None]:
    """`check_objects` in steps."""
    position = 0
    seen = 0
    outstanding = 1
    stop = len(frame)
    pause_at = OBJECTS_PER_PAUSE
    while outstanding and position < stop:
        if seen == pause_at:
            pause_at += OBJECTS_PER_PAUSE
            yield
        first = frame[position]
        position += 1
        seen += 1
        outstanding -= 1
        if first <= 0x7F or first >= 0xE0:
            continue
        if first <= 0x8F:
            outstanding += 2 * (first & 0x0F)
        elif first <= 0x9F:
            outstanding += first & 0x0F
        elif first <= 0xBF:
            position += first & 0x1F
        elif first in _CONTAINERS:
            size, per_entry = _CONTAINERS[first]
            outstanding += per_entry * int.from_bytes(frame[position : position + size], "big")
            position += size
        elif first in _SIZED_BYTES:
            size, beside = _SIZED_BYTES[first]
            position += size + beside + int.from_bytes(frame[position : position + size], "big")
        else:
            position += _FIXED_BYTES.get(first) or _FIXED_EXT_BYTES.get(first, 0)
        if seen + outstanding > max_objects:
            raise errors.RemoteProtocolError(
                f"a frame of {len(frame)} bytes claims {seen + outstanding} msgpack objects, expected at most {max_objects}"
            )


def pack_frame(envelope: Sequence[object], body: Body | None) -> list[Bytes]:
    """A frame whose value is the array of the envelope's parts and the body, as buffers to be sent in this order.

    Records under the last key `records` of an entry of the body's last key `partitions` become buffers of their own, as
    they came, from COPIED_RECORDS_BYTES on. Raises LocalProtocolError for what msgpack cannot say.
    """
    global _pack
    try:
        pieces = _pack_around_records(envelope, body) if body and _has_buffers(body) else [_pack((*envelope, body))]
    except (TypeError, ValueError, OverflowError) as exc:
        raise errors.LocalProtocolError(f"cannot be packed: {type(exc).__name__}: {exc}") from exc
    size = sum(map(len, pieces))
    if len(pieces[0]) > PACKER_BYTES:
        _pack = msgpack.Packer(autoreset=True, buf_size=PACKER_BYTES).pack
    if size > 0xFFFF_FFFF:
        raise errors.LocalProtocolError(f"a frame of {size} bytes does not fit its 32 bit length")
    pieces[0] = _pack_length(size) + pieces[0]
    return pieces


def _has_buffers(body: Body) -> bool:
    entries = body.get("partitions")
    return isinstance(entries, list) and any(_is_buffer(entry.get("records")) for entry in entries)


def _is_buffer(records: object) -> bool:
    return isinstance(records, bytes | bytearray | memoryview) and len(records) > COPIED_RECORDS_BYTES


def _pack_around_records(envelope: Sequence[object], body: Mapping[str, Any]) -> list[Bytes]:
    packer = msgpack.Packer(autoreset=False)
    packer.pack_array_header(len(envelope) + 1)
    for part in envelope:
        packer.pack(part)
    packer.pack_map_header(len(body))
    for key, value in body.items():
        packer.pack(key)
        if key != "partitions":
            packer.pack(value)
    *_, last_key = body
    assert last_key == "partitions", f"partitions has to be the last key of a body with records, found {last_key}"
    packer.pack_array_header(len(body["partitions"]))
    pieces: list[Bytes] = []
    for entry in body["partitions"]:
        records = entry.get("records")
        if not _is_buffer(records):
            packer.pack(entry)
            continue
        packer.pack_map_header(len(entry))
        for key, value in entry.items():
            packer.pack(key)
            if key != "records":
                packer.pack(value)
        *_, last_key = entry
        assert last_key == "records", f"records has to be the last key of its map, found {last_key}"
        pieces += (packer.bytes() + _bin_header(len(records)), records)
        packer.reset()
    if tail := packer.bytes():
        pieces.append(tail)
    return pieces


def _bin_header(size: int) -> bytes:
    if size <= 0xFFFF:
        return b"\xc5" + size.to_bytes(2, "big")
    return b"\xc6" + size.to_bytes(4, "big")


def _refuse_ext(code: int, data: bytes) -> NoReturn:
    raise ValueError(f"extension type {code} of {len(data)} bytes, expected none")
