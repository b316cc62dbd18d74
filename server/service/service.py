"""The process around a broker: who supervises it, what it writes into its log, where its settings come from.

On SIGHUP settings are read again, and what may change at run time does. First everything is read and checked, by each part for
itself; then everything changes, between two turns of the event loop. What cannot be read is one ERROR line, and the old
settings stay, all of them. No connection is dropped: keys of connections hold for new ones. What has changed and needs a
restart is named, with both values.

Certificates and users are read again when their files change, without a SIGHUP. The files are looked at every few seconds, and
read once they have not changed between two looks, so that none is read while it is being written. What cannot be read is one
ERROR line, and what was read before stays; where there is no descriptor to read them with they are read as soon as there is. No
connection is dropped: what is new holds for new handshakes and logins.

A supervisor is notified:

| event | lines |
|---|---|
| it starts | `STATUS=recovering n of m logs`; with each one that makes progress, `EXTEND_TIMEOUT_USEC` |
| it serves | `READY=1`, `STATUS=serving ...` |
| it reloads settings | `RELOADING=1`, `MONOTONIC_USEC`; then `READY=1` |
| it stops | `STOPPING=1`, `STATUS=stopping`, `EXTEND_TIMEOUT_USEC` for the longest time that a stop may take |

The server feeds the watchdog at most every half of its time, each time after a turn of the event loop. In that turn every log
directory in service has forced one block to its device. A stalled loop and a hanging device both cause silence. A full device
does not; a directory where that write fails goes out of service, and the server ends with the last one.
"""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from ...protocol.errors import TriologError
from ..broker import Broker, Report, StartProgress
from ..config.broker_config import BrokerConfig
from ..config.broker_settings import Difference, differences, with_live_keys
from ..listeners.opening import Addresses, Listeners
from ..system.allocator import give_back_free_pages
from ..system.supervisor import Supervisor
from .log_lines import LogLines


@attrs.define(eq=False, repr=False)
class Service:
    """Owner: who runs the process. What is not given is not done."""

    supervisor: Supervisor = attrs.field(factory=Supervisor)
    log_lines: LogLines | None = None
    read_settings: Callable[[], BrokerConfig] | None = None
    """Everything as at the start, blocking; see `Reloading`."""
    parts: list[Part] = attrs.field(factory=list)
    """Whoever else has settings that may change while the server runs."""
    beside: list[Callable[[Broker], Callable[[], Awaitable[None]]]] = attrs.field(factory=list)
    """Called with the broker before clients come; the result is a task for as long as it serves."""
    scraped: Callable[[], Awaitable[Iterable[Any]]] | None = None
    """Metrics of Prometheus that someone else has, for `/metrics`."""
    _tasks: list[Callable[[], Awaitable[None]]] = attrs.field(factory=list)

    def starting(self, report: Report) -> Report:
        """Return the reporter of a start's progress, which also notifies the supervisor."""
        return Starting(self.supervisor, report)

    def opened(self, broker: Broker) -> None:
        """The broker is open, and clients cannot reach it yet."""
        self._tasks = [each(broker) for each in self.beside]

    async def serving(
        self, nursery: trio.Nursery, broker: Broker, listeners: Listeners, addresses: Addresses, hangups: AsyncIterator[int]
    ) -> None:
        """The server accepts from now on: what is to be done meanwhile is done by tasks of `nursery`."""
        for task in self._tasks:
            nursery.start_soon(task)
        await self.supervisor.tell_surely("READY=1", status_of(addresses))
        nursery.start_soon(feed_watchdog, self.supervisor, broker)
        nursery.start_soon(give_pages_back, broker)
        of_files: list[Part] = [partial(tls_part, broker, listeners), partial(security_part, broker)]
        nursery.start_soon(WatchedFiles(broker, of_files).run)
        parts = [*of_files, *self.parts]
        if self.log_lines is not None:
            nursery.start_soon(self.log_lines.tell_regularly)
            parts.append(partial(log_lines_part, self.log_lines))
        read = self.read_settings or (lambda: broker.config)
        nursery.start_soon(Reloading(self.supervisor, broker, read, parts).run, hangups)

    def stopping(self, config: BrokerConfig) -> None:
        """It takes no more requests; the watchdog is fed for as long as it answers those that it took."""
        tell_stopping(self.supervisor, config)

    def stopped(self) -> None:
        self.supervisor.close()


LOGGER: Final = logging.getLogger(__name__)
GIVE_BACK_S: Final = 300.0


async def give_pages_back(broker: Broker) -> None:
    """Free pages, every `GIVE_BACK_S`, until cancelled."""

    async def step() -> None:
        await trio.sleep(GIVE_BACK_S)
        await trio.to_thread.run_sync(give_back_free_pages)

    await broker.disk.errors.repeat("free-pages", step)


@attrs.frozen
class Change:
    """The effect of new settings on one part of the server."""

    said: tuple[str, ...] = ()
    """A line for each thing that changes, without secrets."""
    apply: Callable[[], None] = lambda: None
    """Does not fail and does not wait."""


Part = Callable[[BrokerConfig], Awaitable[Change]]
"""Reads and checks what belongs to a part of the server. Raises TriologError or OSError, and has changed nothing then."""


@attrs.define(eq=False, repr=False)
class Reloading:
    """Owner: the process's service. `run` is its task."""

    _supervisor: Supervisor
    _broker: Broker
    _read: Callable[[], BrokerConfig]
    """Everything as at the start, blocking. Raises TriologError or OSError."""
    _parts: list[Part]

    async def run(self, hangups: AsyncIterator[int]) -> None:
        async for _ in hangups:
            await tell_reloading(self._supervisor)
            try:
                await self._reload()
            except (TriologError, OSError) as exc:
                LOGGER.error("SIGHUP: no setting changed: %s", getattr(exc, "message", exc))
            except Exception as exc:
                LOGGER.error("SIGHUP: no setting changed: %r", exc, exc_info=exc)
            await tell_reloaded(self._supervisor)

    async def _reload(self) -> None:
        old, read = self._broker.config, await self._broker.disk.call(self._read)
        new = with_live_keys(old, read)
        changes = [await part(new) for part in self._parts]
        found = differences(self._broker.broker_configs.started_with, read)
        is_heard = LOGGER.isEnabledFor(logging.INFO)
        if is_heard:
            _say(found, changes)
        self._broker.configure(new)
        apply_changes(self._broker, found, changes)
        if not is_heard:  # unless `log_level` is among them
            _say(found, changes)


def apply_changes(broker: Broker, found: Sequence[Difference], changes: Sequence[Change]) -> list[str]:
    """Make what was read true, and have it noted; answers a line for each thing that changes."""
    for change in changes:
        change.apply()
    said = _changed(found, changes)
    if said and (audit := broker.security.audit) is not None:
        audit.note("configuration", changed=said)
    return said


def _changed(found: Sequence[Difference], changes: Sequence[Change]) -> list[str]:
    return [str(each) for each in found if each.is_live] + [line for change in changes for line in change.said]


def _say(found: Sequence[Difference], changes: Sequence[Change]) -> None:
    said = _changed(found, changes)
    LOGGER.info("SIGHUP: settings read again, %d changed", len(said))
    for line in said:
        LOGGER.info("SIGHUP: changed: %s", line)
    for each in found:
        if not each.is_live:
            LOGGER.warning("SIGHUP: needs a restart: %s", each)


# ---- the parts that every server has ---------------------------------------------------------------------------------------


async def log_lines_part(lines: LogLines, config: BrokerConfig) -> Change:
    await trio.lowlevel.checkpoint()
    return Change((), partial(lines.set, config))


async def tls_part(broker: Broker, listeners: Listeners, config: BrokerConfig) -> Change:
    """Certificates for new handshakes."""
    return Change(*await broker.disk.call(listeners.read_tls, config))


async def security_part(broker: Broker, config: BrokerConfig) -> Change:
    """Users for new logins, and super users for whatever is asked next."""
    return Change(*await broker.security.read_again(config))


LOOK_S: Final = 5.0
NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})

Looks = dict[str, tuple[int, int, int] | None]
"""By path what tells a file from another one; None: it is not there."""


@attrs.define(eq=False, repr=False)
class WatchedFiles:
    """Owner: the process's service. `run` is its task."""

    broker: Broker
    parts: Sequence[Part]
    """Those that read such files."""
    look_s: float = LOOK_S

    async def run(self) -> None:
        """Look until cancelled. What was changed since the start has read it is found by reading once."""
        call = self.broker.disk.call
        read: Looks | None = None
        last = await call(_looks, self.broker.config)

        async def step() -> None:
            nonlocal last, read
            await trio.sleep(self.look_s)
            found = await call(_looks, self.broker.config)
            if found != read and found == last and await self._read():
                read = found
            last = found

        await self.broker.disk.errors.repeat("watched-files", step)

    async def _read(self) -> bool:
        """False: there was no descriptor to read them with, and they are to be read at the next look."""
        try:
            changes = [await part(self.broker.config) for part in self.parts]
        except (TriologError, OSError) as exc:
            if {_errno(exc), _errno(exc.__cause__)} & NO_DESCRIPTOR:
                return False
            LOGGER.error("changed files of users or certificates not loaded: %s", getattr(exc, "message", exc))
            return True
        except Exception as exc:
            LOGGER.error("changed files of users or certificates not loaded: %r", exc, exc_info=exc)
            return True
        said = apply_changes(self.broker, (), changes)
        for line in said:
            LOGGER.info("file changed, read again: %s", line)
        return True


def _errno(exc: BaseException | None) -> int | None:
    return exc.errno if isinstance(exc, OSError) else None


def _looks(config: BrokerConfig) -> Looks:
    named = (config.ssl_certificate_file, config.ssl_key_file, config.ssl_client_ca_file, config.sasl_users_file)
    return {path: _look(path) for path in named if path is not None}


def _look(path: str) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


EXTENSION_S: Final = 60
"""What a start that has come further may take until it comes further again."""
LEAST_S: Final = 1.0
"""Between two lines about a start."""
MORE_FOR_A_STOP_S: Final = 30
"""Beside its grace and its drain: checkpoints and the last syncs."""


@attrs.define(eq=False, repr=False)
class Starting:
    """Tells the supervisor how far a start is, and goes on to whoever else wants to know."""

    _supervisor: Supervisor
    _report: Report
    _said: StartProgress | None = None
    _said_s: float = float("-inf")

    def __call__(self, progress: StartProgress) -> None:
        self._report(progress)
        now_s = time.monotonic()
        if progress == self._said or now_s < self._said_s + LEAST_S:
            return
        status = f"STATUS=recovering {progress.logs_done} of {progress.logs} logs"
        if self._supervisor.tell(status, f"EXTEND_TIMEOUT_USEC={EXTENSION_S * 1_000_000}"):
            self._said, self._said_s = progress, now_s


def status_of(addresses: Addresses) -> str:
    """A line for people."""
    return f"STATUS=serving {addresses}"


async def tell_reloading(supervisor: Supervisor) -> None:
    """Settings are read again; `tell_reloaded` has to follow."""
    await supervisor.tell_surely("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")


async def tell_reloaded(supervisor: Supervisor) -> None:
    await supervisor.tell_surely("READY=1")


def tell_stopping(supervisor: Supervisor, config: BrokerConfig) -> None:
    seconds = (config.stop_grace_ms + config.stop_timeout_ms) // 1000 + MORE_FOR_A_STOP_S
    supervisor.tell("STOPPING=1", "STATUS=stopping", f"EXTEND_TIMEOUT_USEC={seconds * 1_000_000}")


async def feed_watchdog(supervisor: Supervisor, broker: Broker) -> None:
    """Feed it for as long as it may be, until cancelled. Raises LogDirectoryError."""
    watchdog_s = supervisor.watchdog_s
    if watchdog_s is None:
        return

    async def step() -> None:
        begun = trio.current_time()
        await broker.directories.feed_watchdog()
        await supervisor.tell_surely("WATCHDOG=1")
        await trio.sleep_until(begun + watchdog_s / 2)

    await broker.disk.errors.repeat("watchdog", step)
