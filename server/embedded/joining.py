"""Share a directory among processes: `open_or_join`. The process with the lock of `.owner` owns the directory. It runs the
broker, and serves all processes over the socket `.socket` in the directory. When it ends, another process becomes the owner.

*Invariants*
- A process unlinks, binds or listens on `.socket` only while it owns the directory.
- Every process calls over the native protocol, the owner too. So a call does not depend on which process owns the directory.
- A forked process closes its copies of locks and sockets: otherwise the end of its parent would release and show nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import socket
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any, Final, Unpack

import attrs
import trio

from ...protocol.errors import InvalidConfigError, RequestTimedOutError, TopicAlreadyExistsError, TriologError
from ...protocol.native.messages import ACKS_ALL, RequestMessage, ResponseMessage
from ...protocol.records.plain_records import PlainRecord
from ...protocol.types import AppendResult, Bytes
from ...tools.client.config import ClientConfig
from ...tools.client.connection import Client, open_background
from ...tools.client.errors import ClosedError, ConnectionLostError
from ...tools.client.greeted_connection import Connection
from ...tools.client.loops import Tasks
from ..config.values import Address
from ..fake.life import ForkedError, Seed
from ..listeners.connections.sockets import BACKLOG, Admission
from ..listeners.native.calls import native_listener
from ..storage.disk.checkpoints import OWNER_FILE
from ..storage.disk.filesystem import OsFileSystem
from ..storage.errors import LogDirectoryError
from . import opening
from .broker import EmbeddedBroker
from .living import MEMORY
from .options import JoinOptions

LOGGER: Final = logging.getLogger(__name__)

SOCKET_FILE: Final = ".socket"
MAX_SOCKET_PATH_BYTES: Final = 103
"""Of the path of a socket under macOS; Linux allows 107."""
POLL_S: Final = 0.02
"""Pause between attempts to connect while no process serves: a connect that fails takes 20 us."""
RELEASE_S: Final = 1.0
"""The kernel releases the locks of a killed process one after the other, that of `.owner` before that of the log directory."""
CONFIG: Final = ClientConfig(connect_timeout_ms=60_000, reconnect_backoff_ms=10)
"""An attempt to connect waits while another process becomes the owner: the recovery of its logs takes time."""

_JOINED: Final[weakref.WeakSet[JoinedBroker]] = weakref.WeakSet()
_LOCKS: Final[weakref.WeakSet[FileIO]] = weakref.WeakSet()
"""Those of this process."""


@contextmanager
def ownership(directory: str) -> Iterator[bool]:
    """Own a directory for the time of the block. False: another process does. Raises OSError."""
    with FileIO(os.open(f"{directory}/{OWNER_FILE}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)) as lock:
        _LOCKS.add(lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


@attrs.frozen(eq=False, repr=False)
class Reconnecting:
    """Starts the tasks of connections. After the end of a connection it makes the next one at once, so that another process
    becomes the owner even if no call waits."""

    nursery: Tasks
    connected: Callable[[], Awaitable[Connection]]

    def start_soon(self, run: Callable[..., Awaitable[Any]], /, *arguments: Any) -> None:
        self.nursery.start_soon(self._run, run)

    async def _run(self, run: Callable[..., Awaitable[Any]]) -> None:
        await run()
        is_done = False
        while not is_done:
            with contextlib.suppress(ConnectionLostError):
                with contextlib.suppress(ClosedError):
                    await self.connected()
                is_done = True


class JoinedBroker(Client):
    """A directory that several processes share, with the calls of a client, whichever process owns it. Use `open_or_join`."""

    def __init__(self, nursery: Tasks, path: str, opened: Callable[[], AbstractAsyncContextManager[EmbeddedBroker]]) -> None:
        super().__init__(Reconnecting(nursery, self.connected), self._open_stream, CONFIG)
        self._path = path
        self._address = f"{path}/{SOCKET_FILE}"
        self._opened = opened
        self._is_forked = False
        self._stream: trio.SocketStream | None = None
        self._vacant = trio.Event()
        self._closing = trio.Event()
        self._ended = trio.Event()
        self._failure: Exception | None = None
        self._logged = ""
        self._is_starting = self._is_joined = False
        _JOINED.add(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._path}>"

    @property
    def path(self) -> str:
        """The directory with the data."""
        return self._path

    # ---- calls ---------------------------------------------------------------------------------------------------------

    async def connected(self) -> Connection:
        """The connection, made now if there is none. Raises ConnectionLostError, ClosedError, ForkedError."""
        if self._is_forked:
            raise ForkedError(f"{self!r} was opened before this process was forked. Open it again in this process")
        return await super().connected()

    async def call(self, request: RequestMessage) -> ResponseMessage | None:
        """Send any request, and wait for the response. Raises ConnectionLostError or RequestTimedOutError, whose messages say
        whether the request was sent, and the errors that the owner returns."""
        is_sent = False
        try:
            if self._connection is None or self._connection.is_lost:
                await self.connected()
            is_sent = True
            return await super().call(request)
        except (ConnectionLostError, RequestTimedOutError) as exc:
            outcome = "the request may have taken effect" if is_sent else "this attempt sent nothing"
            raise type(exc)(f"{request.api} in {self._path}: {exc.message}; {outcome}") from exc

    async def append(
        self,
        topic: str,
        records: Bytes | Sequence[PlainRecord | bytes],
        *,
        key: bytes | None = None,
        partition: int | None = None,
        acks: int = ACKS_ALL,
        expected_offset: int | None = None,
    ) -> AppendResult:
        """Append to a partition, as `append` of a client. Values are sent again to the next owner, and stored once. If that
        takes too long, the message of the error says that the records may have been written."""
        try:
            return await super().append(
                topic, records, key=key, partition=partition, acks=acks, expected_offset=expected_offset
            )
        except (ConnectionLostError, RequestTimedOutError) as exc:
            if acks != ACKS_ALL or isinstance(records, bytes | bytearray | memoryview):
                raise  # it was sent once
            raise type(exc)(f"{exc.message}. The records for {topic!r} may have been written") from exc

    # ---- ownership -----------------------------------------------------------------------------------------------------

    async def join(self) -> None:
        """Connect to the owner, or become it. Raises the error that keeps this process from serving, ConnectionLostError when
        another process owns the directory and does not answer."""
        give_up_at = trio.current_time() + RELEASE_S
        while not self._is_joined:
            try:
                await self.connected()
                self._is_joined = True
            except ConnectionLostError:
                failure, is_late = self._failure, trio.current_time() >= give_up_at
                if failure is None and not self._is_starting and is_late:
                    raise
                if failure and (is_late or not isinstance(failure, LogDirectoryError)):
                    raise failure from None
                await trio.sleep(POLL_S)  # an owner that is killed resets the connections that it has not accepted

    async def _open_stream(self) -> trio.SocketStream:
        self._failure = None
        while self._failure is None:
            try:
                self._stream = await trio.open_unix_socket(self._address)
                return self._stream
            except OSError:
                self._vacant.set()
                await trio.sleep(POLL_S)
        raise OSError(f"cannot serve {self._path}: {self._failure}")

    async def serve(self) -> None:
        """Serve whenever no other process does, until `close`."""
        try:
            while not self._closing.is_set():
                await self._vacant.wait()
                self._vacant = trio.Event()
                try:
                    with ownership(self._path) as is_owner:
                        if is_owner and not self._closing.is_set():
                            await self._own()
                except (TriologError, OSError) as exc:
                    if self._is_joined and str(exc) != self._logged:
                        LOGGER.error("cannot own a directory that no other process serves: path=%s error=%s", self._path, exc)
                    self._failure, self._logged = exc, str(exc)
                self._is_starting = False
        finally:
            self._ended.set()

    async def _own(self) -> None:
        self._is_starting = True
        async with self._opened() as broker, open_background() as serving:
            core = broker.core
            admission = Admission.of(core.config, broker.life.protocols, quotas=core.security.quotas)
            listener = native_listener(core, Address(self._address, 0), admission)
            listener.open_sockets = _listen
            serving.start_soon(listener.run)
            self._is_starting, self._logged = False, ""
            LOGGER.info("directory owned: path=%s pid=%d", self._path, os.getpid())
            await self._closing.wait()
            _remove(self._address)
            listener.stop(core.config.stop_grace_ms / 1000)

    def close(self) -> None:
        """No further calls; those that wait fail. The owner stops cleanly."""
        super().close()
        self._closing.set()
        self._vacant.set()

    async def aclose(self) -> None:
        """Close, and wait until this process owns nothing."""
        self.close()
        with trio.CancelScope(shield=True):
            await self._ended.wait()

    def after_fork(self) -> None:
        """End this copy in a forked process."""
        self._is_forked, self._connection = True, None
        if self._stream is not None and self._stream.socket.fileno() >= 0:
            os.close(self._stream.socket.detach())


def _remove(path: str) -> None:
    Path(path).unlink(missing_ok=True)


def _bound(path: str) -> socket.socket:
    """Listen on a Unix socket that only processes of this user can connect to. Raises OSError."""
    _remove(path)  # of an owner that was killed
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(path)
        Path(path).chmod(0o600)  # before it listens
        listening.listen(BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


async def _listen(address: Address) -> list[trio.SocketListener]:
    return [trio.SocketListener(trio.socket.from_stdlib_socket(_bound(address.host)))]


def _directory(path: str | os.PathLike[str], settings: Mapping[str, object]) -> str:
    """Make the directory and return its path. Raises InvalidConfigError for a path or settings that processes cannot share."""
    directory = str(Path(path).absolute())
    if os.fspath(path) == MEMORY:
        raise InvalidConfigError(f"open_or_join needs a directory that processes can share, not {MEMORY}")
    if len(os.fsencode(f"{directory}/{SOCKET_FILE}")) > MAX_SOCKET_PATH_BYTES:
        raise InvalidConfigError(
            f"the path {directory} is too long: with /{SOCKET_FILE} a socket allows {MAX_SOCKET_PATH_BYTES} bytes. Use a "
            "shorter path, or a symbolic link to it"
        )
    if "native_security" in settings:
        raise InvalidConfigError("native_security has no meaning in open_or_join: the file system protects its socket")
    OsFileSystem().make_directory(directory)
    return directory


@asynccontextmanager
async def open_or_join(path: str | os.PathLike[str], **options: Unpack[JoinOptions]) -> AsyncIterator[JoinedBroker]:
    """Share a directory with other processes for the time of the block: `async with triolog.open_or_join("data") as log`.

    The first process runs the broker, and the others call it. When its process ends, another one runs it. `path`: the
    directory with the data, which is created if need be. `options`: those of `JoinOptions`, the same ones in every process.
    Raises InvalidConfigError, StorageError, OSError or RequestError when this process cannot start the broker;
    ConnectionLostError when the owner does not answer within a minute.
    """
    directory = _directory(path, options.get("settings") or {})
    topics = Seed.of(options.pop("topics", ()), {}).topics
    async with open_background() as nursery:
        joined = JoinedBroker(nursery, directory, partial(opening.open, directory, **options))
        nursery.start_soon(joined.serve)
        try:
            await joined.join()
            for name in topics.keys() - set(await joined.topics() if topics else ()):
                with contextlib.suppress(TopicAlreadyExistsError):
                    await joined.create_topic(name, topics[name])
            yield joined
        finally:
            await joined.aclose()
            nursery.cancel_scope.cancel()  # an attempt to connect


def _forked() -> None:
    for lock in list(_LOCKS):
        lock.close()
    for each in list(_JOINED):
        each.after_fork()


os.register_at_fork(after_in_child=_forked)
