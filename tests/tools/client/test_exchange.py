from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from triolog.tools.client.exchange import JOINED_BYTES, following, joined, remove_sent

PIECES = st.lists(st.integers(0, 3 * JOINED_BYTES).map(lambda size: bytes([size % 251]) * size), max_size=6)


@given(pieces=PIECES)
def test_joined_buffers_are_the_same_bytes(pieces: list[bytes]) -> None:
    assert b"".join(joined(pieces)) == b"".join(pieces)
    large = [piece for piece in pieces if len(piece) > JOINED_BYTES]
    kept = [buffer for buffer in joined(pieces) if len(buffer) > JOINED_BYTES]
    assert all(buffer is piece for buffer, piece in zip(kept, large, strict=True)), "large ones are never copied"


@given(pieces=PIECES, cuts=st.lists(st.integers(1, JOINED_BYTES), min_size=1, max_size=5))
def test_what_short_sends_leave_is_the_rest(pieces: list[bytes], cuts: list[int]) -> None:
    whole = b"".join(pieces)
    buffers = list(pieces)
    sent = b""
    for cut in cuts:
        left = b"".join(buffers)
        sent += left[:cut]
        remove_sent(buffers, min(cut, len(left)))
    assert sent + b"".join(buffers) == whole


def test_correlation_ids_start_again_above_zero() -> None:
    assert following(1) == 2
    assert following(2**32 - 1) == 1
