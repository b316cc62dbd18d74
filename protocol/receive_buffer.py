"""Length-prefixed frames out of a byte stream that arrives in any pieces. Both protocols frame this way.

    field    bytes  meaning
    length   4      unsigned, big-endian: bytes that follow
    payload  length handed out as one memoryview

The length is compared with its limit before anything is kept for it, and memory grows only with bytes that have come: a
frame that claims 64 MiB and stalls costs what it has sent. A frame inside one received piece is a view of that piece;
one that spans pieces is collected once in a bytearray of its own, which then belongs to the frame. So no byte is copied
twice, nothing is ever moved to the front, and nothing is left to shrink after a large frame.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Final

from . import errors, limits
from .types import Bytes

LENGTH_BYTES: Final = 4

_unpack_length = struct.Struct(">I").unpack_from


class ReceiveBuffer:
    """The receiving side of a connection: bytes received and not yet handed out. Owner: the reader of the socket."""

    __slots__ = ("_length", "_partial", "_piece", "_pieces", "_position", "end_received", "max_frame_bytes", "unread_bytes")

    def __init__(self, max_frame_bytes: int = limits.MAX_FRAME_BYTES) -> None:
        self.max_frame_bytes = max_frame_bytes
        """Largest length accepted, of frames that have not begun."""
        self.end_received = False
        """Whether the peer has said that it sends no more."""
        self._pieces: deque[bytes] = deque()  # received, not looked at
        self._piece = b""  # being looked at, from _position on
        self._position = 0
        self._partial = bytearray()  # a length or a payload that began in an earlier piece
        self._length: int | None = None  # of the payload being collected in _partial
        self.unread_bytes = 0
        """Those of frames not handed out, lengths included."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.unread_bytes} bytes unread, frame of {self._length}>"

    @property
    def expected_bytes(self) -> int:
        """Bytes missing until the frame being received is whole; 4 between frames. A hint for the size of a read."""
        return (LENGTH_BYTES if self._length is None else self._length) - len(self._partial)

    @property
    def missing_bytes(self) -> int:
        """The same less what was received and not looked at yet: 0 when the next frame may be whole."""
        looked_at = len(self._partial) + (0 if self._length is None else LENGTH_BYTES)
        return max(0, self.expected_bytes - (self.unread_bytes - looked_at))

    def compact(self) -> None:
        """Keep no more of a piece than what of it is not handed out: before nobody reads for long."""
        if self._position:
            self._piece, self._position = self._piece[self._position :], 0

    def drop(self) -> int:
        """Forget everything, and answer how much it was; nothing is handed out any more."""
        dropped, self.unread_bytes = self.unread_bytes, 0
        self._pieces.clear()
        self._piece, self._position, self._partial, self._length = b"", 0, bytearray(), None
        return dropped

    def receive_data(self, data: Bytes) -> int:
        """Take bytes from the peer and return their number; empty bytes are the end of its stream. `bytes` are kept as they
        are; anything mutable is copied."""
        if self.end_received:
            raise errors.LocalProtocolError(f"{len(data)} bytes were fed after the end of the stream")
        if not data:
            self.end_received = True
            return 0
        piece = data if type(data) is bytes else bytes(data)
        if self._piece or self._pieces:
            self._pieces.append(piece)
        else:
            self._piece, self._position = piece, 0
        size = len(data)
        self.unread_bytes += size
        return size

    def next_frame(self) -> memoryview | None:
        """The payload of the next whole frame, or None when more bytes are needed.

        Raises RemoteProtocolError for a length of 0 or above `max_frame_bytes`; the buffer is of no use after that.
        """
        while True:
            piece = self._piece
            if piece:
                start = self._position + LENGTH_BYTES
                size = len(piece)
                if start <= size and self._length is None and not self._partial:
                    (length,) = _unpack_length(piece, self._position)
                    if not 0 < length <= self.max_frame_bytes:
                        self._check_length(length)
                    stop = start + length
                    if stop < size:
                        self._position = stop
                    elif stop == size:
                        self._piece, self._position = b"", 0
                    if stop <= size:
                        self.unread_bytes -= LENGTH_BYTES + length
                        return memoryview(piece)[start:stop]
                    self._length = length
                    self._position = start
                if (frame := self._collect()) is not None:
                    return frame
            if not self._pieces:
                return None
            self._piece = self._pieces.popleft()
            self._position = 0

    def _check_length(self, length: int) -> int:
        if 0 < length <= self.max_frame_bytes:
            return length
        raise errors.RemoteProtocolError(f"a frame claims {length} bytes, expected 1 to max_frame_bytes={self.max_frame_bytes}")

    def _collect(self) -> memoryview | None:
        """Move what the frame still needs from the current piece; leaves the piece only when it is used up."""
        if self._length is None:
            self._move(LENGTH_BYTES)
            if len(self._partial) < LENGTH_BYTES:
                return None
            self._length = self._check_length(*_unpack_length(self._partial))
            self._partial = bytearray()
        self._move(self._length)
        if len(self._partial) < self._length:
            return None
        frame = memoryview(self._partial)
        self.unread_bytes -= LENGTH_BYTES + self._length
        self._partial = bytearray()
        self._length = None
        return frame

    def _move(self, count: int) -> None:
        stop = min(len(self._piece), self._position + count - len(self._partial))
        if self._position == 0 and stop == len(self._piece):
            self._partial += self._piece
        else:
            self._partial += memoryview(self._piece)[self._position : stop]
        self._leave(stop)

    def _leave(self, position: int) -> None:
        """Go on in the current piece from here; one that is used up is let go, so that only a frame keeps it."""
        if position == len(self._piece):
            self._piece = b""
            self._position = 0
        else:
            self._position = position
