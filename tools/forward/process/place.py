"""A link's own directory, which one process holds at a time, and requests to the link over the socket in it. Loads nothing of
what forwards.

| name | is |
|---|---|
| `lock` | held (flock) by the process that forwards the link; has its number until that process ends cleanly |
| `control` | a unix socket: one request and one answer, lines of JSON |
| `paused` | there while the link is paused, so that it stays so over a restart |
| `topics.json` | the ids of the topics that were forwarded (see `memory.TopicIds`) |
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import attrs
import trio

from ..errors import LinkStoppedError, SettingsError

LOCK: Final = "lock"
CONTROL: Final = "control"
PAUSED: Final = "paused"
TOPICS: Final = "topics.json"
MAX_SOCKET_PATH: Final = 107 if sys.platform == "linux" else 103
"""sun_path of unix(7), without the byte that ends it. macOS and the BSDs have 104 bytes."""


LOGGER: Final = logging.getLogger(__name__)


def default_state_dir(environment: Mapping[str, str], kind: str = "forward") -> Path:
    """Return the default directory of a kind's links: the environment variable's, such as TRIOLOG_FORWARD_DIR, else below
    systemd's runtime directory of the service, else in the user's own runtime directory, else in a temporary one."""
    if (variable := f"TRIOLOG_{kind.upper()}_DIR") in environment:
        return Path(environment[variable])
    if "RUNTIME_DIRECTORY" in environment:
        return Path(environment["RUNTIME_DIRECTORY"].partition(":")[0]) / kind
    if "XDG_RUNTIME_DIR" in environment:
        return Path(environment["XDG_RUNTIME_DIR"]) / f"triolog-{kind}"
    return Path(tempfile.gettempdir()) / f"triolog-{kind}-{os.getuid()}"


@attrs.define(eq=False, repr=False)
class LinkPlace:
    """Owner: the process that forwards the link, as long as it holds the lock."""

    folder: Path
    _lock: int | None = None

    @classmethod
    def take(cls, state_dir: Path, link: str) -> Self:
        """Raises LinkStoppedError when another process has it, SettingsError for a directory that cannot be used."""
        folder = state_dir / link
        if len(os.fsencode(folder / CONTROL)) > MAX_SOCKET_PATH:
            raise SettingsError(
                f"{folder / CONTROL} is too long for a socket. Choose a directory with a shorter name by --state-dir"
            )
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if folder.stat().st_uid != os.getuid() or state_dir.stat().st_uid not in (0, os.getuid()):
                raise SettingsError(f"{folder} belongs to another user. Choose another directory by --state-dir")
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise SettingsError(f"cannot use {folder}: {exc.strerror or exc}") from exc
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(lock, 32).decode(errors="replace").strip()
            os.close(lock)
            raise LinkStoppedError(f"process {holder} already runs link {link}: {folder}") from None
        if (last := os.read(lock, 32).decode(errors="replace").strip()).isdecimal():
            LOGGER.warning("last process crashed or was killed: link=%s pid=%s", link, last)
        try:
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        except OSError as exc:
            os.close(lock)
            raise SettingsError(
                f"cannot write {folder / LOCK}: {exc.strerror or exc}. Free space, or choose --state-dir"
            ) from exc
        return cls(folder, lock)

    @property
    def control(self) -> Path:
        return self.folder / CONTROL

    @property
    def topics(self) -> Path:
        return self.folder / TOPICS

    @property
    def is_paused(self) -> bool:
        return (self.folder / PAUSED).exists()

    @is_paused.setter
    def is_paused(self, paused: bool) -> None:
        if paused:
            (self.folder / PAUSED).touch()
        else:
            (self.folder / PAUSED).unlink(missing_ok=True)

    def release(self) -> None:
        """Another process may have it."""
        if self._lock is not None:
            with contextlib.suppress(FileNotFoundError):
                self.control.unlink()
            os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = None


def links_in(state_dir: Path) -> list[str]:
    """The links that have or had a process, by name."""
    if not state_dir.is_dir():
        return []
    return sorted(folder.name for folder in state_dir.iterdir() if (folder / LOCK).exists())


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
        raise TimeoutError(f"no response within {timeout_s:g} s") from None
    except trio.BrokenResourceError as exc:
        raise ConnectionError(f"the link has ended: {exc}") from exc
    return _answer(data)


def _check_size(data: bytearray) -> None:
    if len(data) > MAX_ANSWER_BYTES:
        raise ConnectionError(f"the link's response has more than {MAX_ANSWER_BYTES:,} bytes")


def _line(request: dict[str, Any]) -> bytes:
    return json.dumps(request).encode() + b"\n"


def _answer(data: bytearray) -> dict[str, Any]:
    if not data:
        raise ConnectionError("the link ended before it responded")
    try:
        answer = json.loads(data)
    except RecursionError:
        raise ValueError("the link's response nests too deeply") from None
    if not isinstance(answer, dict):
        raise ValueError(f"the link's response is not an object: {bytes(data[:100])!r}")
    return answer
