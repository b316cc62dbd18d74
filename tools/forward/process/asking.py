"""Asking a link that another process has, by the socket in its directory: see `control`. Loads nothing of what forwards."""

from __future__ import annotations

import json
import socket
from typing import Any, Final

import trio

PIECE_BYTES: Final = 1 << 16
MAX_ANSWER_BYTES: Final = 64 * 2**20
"""A link tells some 150 bytes of each partition."""


def ask(path: str, request: dict[str, Any], timeout_s: float | None) -> dict[str, Any]:
    """Ask a link, blocking. Raises OSError when nobody answers."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
        stream.settimeout(timeout_s)
        stream.connect(path)
        stream.sendall(_line(request))
        data = bytearray()
        while some := stream.recv(PIECE_BYTES):
            data += some
            _check_size(data)
    return _answer(data)


async def ask_in_trio(path: str, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    """The same in a task. Raises OSError when nobody answers in time."""
    try:
        with trio.fail_after(timeout_s):
            async with await trio.open_unix_socket(path) as stream:
                await stream.send_all(_line(request))
                data = bytearray()
                async for some in stream:
                    data += some
                    _check_size(data)
    except trio.TooSlowError:
        raise TimeoutError(f"no answer within {timeout_s:g} s") from None
    except trio.BrokenResourceError as exc:
        raise ConnectionError(f"the link has ended: {exc}") from exc
    return _answer(data)


def _check_size(data: bytearray) -> None:
    if len(data) > MAX_ANSWER_BYTES:
        raise ConnectionError(f"the link's answer has more than {MAX_ANSWER_BYTES:,} bytes")


def _line(request: dict[str, Any]) -> bytes:
    return json.dumps(request).encode() + b"\n"


def _answer(data: bytearray) -> dict[str, Any]:
    if not data:
        raise ConnectionError("the link ended before it answered")
    try:
        answer = json.loads(data)
    except RecursionError:
        raise ValueError("the link's answer nests too deeply") from None
    if not isinstance(answer, dict):
        raise ValueError(f"the link's answer is no object: {bytes(data[:100])!r}")
    return answer
