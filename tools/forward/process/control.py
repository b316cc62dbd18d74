"""The control socket of a link: a unix socket in its directory, one line of JSON each way.

| request | answer |
|---|---|
| `{"command": "status"}` | what `Progress.snapshot` has |
| `{"command": "pause"}`, `{"command": "resume"}` | the same, afterwards |
| `{"command": "drain", "timeout_s": 60}` | the same, when nothing is left or the time is up, with `drained` |

An error is `{"error": "..."}`. Who asks uses `asking`.
"""

from __future__ import annotations

import json
import logging
import math
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import trio

from ..link_loop import LinkLoop
from .place import LinkPlace

LOGGER: Final = logging.getLogger(__name__)

MAX_DRAIN_S: Final = 10**9
MAX_REQUEST_BYTES: Final = 4096
REQUEST_S: Final = 10.0
POLL_S: Final = 0.02
BACKLOG: Final = 16

Answering = Callable[[bytes], Awaitable[dict[str, Any]]]
"""From the line of a request to the answer."""


async def serve_control(
    link: LinkLoop, place: LinkPlace, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Answer until cancelled. Only the owner of the directory may ask."""
    await serve_requests(place, partial(_answer, link, place), task_status=task_status)


async def serve_requests(
    place: LinkPlace, answer: Answering, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Answer each line with what `answer` makes of it, until cancelled."""
    path = str(place.control)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        place.control.unlink(missing_ok=True)
        listening.bind(path)
        place.control.chmod(0o600)  # before it listens, whatever the umask and the mode of the directory are
        listening.listen(BACKLOG)
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(listening.dup()))

        async def handle(stream: trio.SocketStream) -> None:
            await _handle(answer, place, stream)

        await trio.serve_listeners(handle, [listener], task_status=_Ready(task_status))


class _Ready(trio.TaskStatus[Any]):
    """Says that it is ready, not with what."""

    def __init__(self, task_status: trio.TaskStatus[None]) -> None:
        self._task_status = task_status

    def started(self, value: Any = None) -> None:
        self._task_status.started()


async def _handle(answering: Answering, place: LinkPlace, stream: trio.SocketStream) -> None:
    """Serve one request. A slow or lost peer affects only itself."""
    async with stream:
        try:
            with trio.fail_after(REQUEST_S):
                line = await _read_line(stream)
            try:
                answer = await answering(line)
            except Exception as exc:  # one who asks, and no link, is to suffer from it
                LOGGER.exception("unhandled exception: command for link %s", place.folder.name)
                answer = {"error": f"unhandled exception: {type(exc).__name__}"}
            with trio.fail_after(REQUEST_S):
                await stream.send_all(json.dumps(answer).encode() + b"\n")
        except (trio.TooSlowError, trio.BrokenResourceError, OSError):
            return


async def _read_line(stream: trio.SocketStream) -> bytes:
    data = b""
    while b"\n" not in data and len(data) < MAX_REQUEST_BYTES:
        some = await stream.receive_some(MAX_REQUEST_BYTES)
        if not some:
            break
        data += some
    return data


async def _answer(link: LinkLoop, place: LinkPlace, line: bytes) -> dict[str, Any]:
    try:
        request = json.loads(line)
        command = request["command"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {"error": "not a request"}
    if command == "pause":
        place.is_paused = True
        link.wishes.pause()
    elif command == "resume":
        place.is_paused = False
        link.wishes.resume()
    elif command == "drain":
        timeout_s = request.get("timeout_s")
        if timeout_s is not None and not (isinstance(timeout_s, int | float) and 0 <= timeout_s <= MAX_DRAIN_S):
            return {"error": f"timeout_s is {timeout_s!r}, expected 0 to {MAX_DRAIN_S} seconds"}
        return await _drain(link, timeout_s or math.inf)
    elif command != "status":
        return {"error": f"there is no command {command!r}"}
    return link.progress.snapshot()


async def _drain(link: LinkLoop, timeout_s: float) -> dict[str, Any]:
    if link.wishes.is_paused:
        return {"error": "the link is paused. Resume it first"}
    link.wishes.drain()
    with trio.move_on_after(timeout_s):
        while link.wishes.drains_since_s is not None and not link.progress.state.is_final:  # noqa: ASYNC110 - in a thread
            await trio.sleep(POLL_S)
    drained = link.wishes.drains_since_s is None and not link.wishes.is_paused
    if not drained:
        link.wishes.drained()
    return {**link.progress.snapshot(), "drained": drained}
