"""The server as a process: broker, listeners, signals. What `triolog serve` runs.

Start: directories are locked and recovered, then the listener accepts, then `started` is called with the real addresses. Stop
(SIGTERM, SIGINT): accept no more, let requests that were taken be answered, drain, flush, checkpoint, mark clean. A second
signal ends the grace of open connections. One that comes during the start gives the start up at once; logs are as after a
kill then, and recovered by the next start. SIGHUP has settings read again, and never ends it.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import attrs
import trio

from .broker import Broker, Report, StartProgress, open_broker_core
from .config import DataPermissions
from .config.broker_config import DEFAULT_NATIVE, Address, BrokerConfig
from .config.broker_settings import HTTP, KAFKA, METRICS, NATIVE, REGISTRY, check_exposure
from .listeners.native.calls import native_listener as native_listener  # loaded with the server, not when it is ready
from .listeners.opening import Addresses, Listeners
from .service.service import Service
from .storage.disk.filesystem import OsFileSystem, replace_file
from .system.clock import ServerClock, system_now_ms

if TYPE_CHECKING:
    from .listeners.http.health import Health

LOGGER: Final = logging.getLogger(__name__)

MB: Final = 1_000_000


async def serve(
    config: BrokerConfig,
    started: Callable[[Addresses], None],
    report: Report | None = None,
    service: Service | None = None,
) -> None:
    """Run a server until a signal stops it. `report` is told how far the start is; by default a start that takes long says so
    in log lines. Raises StorageError or OSError, or a group with one, when it cannot start."""
    begin = time.perf_counter()
    wanted = Addresses(config.native or DEFAULT_NATIVE, config.kafka, http=config.http)
    others = {METRICS: config.metrics, REGISTRY: config.schema_registry, HTTP: config.http}
    exposed = check_exposure(config, {NATIVE: wanted.native, KAFKA: wanted.kafka, **others})
    service = service or Service()
    report = service.starting(report or StartLines())
    with (
        trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals,
        trio.open_signal_receiver(signal.SIGHUP) as hangups,
    ):
        async with _stopped_by(signals) as stop, _told_over_http(config, report) as (health, metrics, report):
            async with open_broker_core(config, clock=_clock(config), report=report) as broker, _registry(broker) as registry:
                service.opened(broker)
                listeners = Listeners(broker)
                async with trio.open_nursery() as outer:
                    async with trio.open_nursery() as serving:
                        addresses = await listeners.start(serving, wanted, advertised=config.kafka_advertised)
                        addresses = attrs.evolve(addresses, metrics=metrics, schema_registry=registry)
                        broker.security.exposed = exposed
                        _log_start(broker, addresses, time.perf_counter() - begin)
                        if health is not None:
                            health.serving(broker, listeners.admission.protocols, more=service.scraped)
                        started(addresses)
                        await service.serving(outer, broker, listeners, addresses, hangups)
                        name = await stop.wait()
                        LOGGER.info("stopping signal=%s connections=%d", name, listeners.connections)
                        service.stopping(broker.config)
                        if health is not None:
                            health.stopping()
                        listeners.stop(broker.config.stop_grace_ms / 1000)
                        outer.start_soon(_end_grace, listeners, signals)
                    outer.cancel_scope.cancel()
            if health is not None:
                health.stopped()
    service.stopped()
    LOGGER.info("stopped")


def _clock(config: BrokerConfig) -> ServerClock:
    return ServerClock(system_now_ms, is_checked=config.clock_check)


@asynccontextmanager
async def _told_over_http(config: BrokerConfig, report: Report) -> AsyncIterator[tuple[Health | None, Address | None, Report]]:
    """Answers for /livez, /readyz and /metrics for the time of the block, where they are answered, and who is to be told how
    far the start is. What HTTP and metrics need is loaded here: most servers have none."""
    if config.metrics is None:
        yield None, None, report
        return
    from .listeners.http.health import telling

    async with telling(config.metrics, config.metrics_token_file) as (health, address):

        def tell(progress: StartProgress) -> None:
            health.progress = progress
            report(progress)

        yield health, address, tell


@asynccontextmanager
async def _registry(broker: Broker) -> AsyncIterator[Address | None]:
    """Serve the schema registry for the time of the block, if there is one. Its packages are loaded here."""
    if broker.config.schema_registry is None:
        yield None
        return
    from .registry.opening import registry_of

    async with registry_of(broker.config.schema_registry, lambda: broker) as address:
        yield address


@attrs.define(eq=False, repr=False)
class _Stop:
    """The first signal. It cancels the start, unless that is over: then `wait` tells of it."""

    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _name: str = ""
    _came: trio.Event = attrs.field(factory=trio.Event)
    _is_awaited: bool = False

    async def watch(self, signals: AsyncIterator[int]) -> None:
        self._name = signal.Signals(await anext(signals)).name
        self._came.set()
        if not self._is_awaited:
            LOGGER.info("start cancelled: signal=%s", self._name)
            self.scope.cancel()

    async def wait(self) -> str:
        """The server has started: wait for the signal, and answer its name."""
        self._is_awaited = True
        await self._came.wait()
        return self._name


@asynccontextmanager
async def _stopped_by(signals: AsyncIterator[int]) -> AsyncIterator[_Stop]:
    """A block that ends when a signal comes while it starts."""
    stop = _Stop()
    failure: Exception | None = None
    async with trio.open_nursery() as watching:
        watching.start_soon(stop.watch, signals)
        with stop.scope:
            try:
                yield stop
            except Exception as exc:  # kept outside of the nursery, which would wrap it in a group
                failure = exc
        watching.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _end_grace(listeners: Listeners, signals: AsyncIterator[int]) -> None:
    name = signal.Signals(await anext(signals)).name
    LOGGER.info("closing open connections: signal=%s connections=%d", name, listeners.connections)
    listeners.stop(0)


LINE_S: Final = 5.0
"""Between two log lines about a start that takes long."""


@attrs.define(eq=False, repr=False)
class StartLines:
    """Says how far a start is, every LINE_S seconds. Nothing about one that is faster."""

    _begin_s: float = attrs.field(factory=time.monotonic)
    _said_s: float = attrs.field(factory=time.monotonic)

    def __call__(self, progress: StartProgress) -> None:
        now_s = time.monotonic()
        if now_s - self._said_s < LINE_S:
            return
        self._said_s = now_s
        rate = progress.scanned_bytes / (now_s - self._begin_s)
        LOGGER.info(
            "recovering logs=%d/%d scanned_mb=%d/%d mb_s=%.1f left_s=%s",
            progress.logs_done,
            progress.logs,
            progress.scanned_bytes // MB,
            progress.scan_bytes // MB,
            rate / MB,
            f"{(progress.scan_bytes - progress.scanned_bytes) / rate:.0f}" if rate else "unknown",
        )


def _log_start(broker: Broker, addresses: Addresses, seconds: float) -> None:
    if broker.security.exposed:
        LOGGER.warning(
            "insecure listeners=%s: clients on other machines may do everything, because insecure = true",
            ",".join(broker.security.exposed),
        )
    LOGGER.info(
        "serving %s data_dirs=%s topics=%d node_id=%d started_ms=%d",
        addresses,
        ",".join(broker.config.data_dirs),
        sum(1 for _ in broker.topics.names()),
        broker.node_id,
        seconds * 1000,
    )


def write_ready_file(path: str, addresses: Addresses) -> None:
    """Put the addresses where whoever started us waits for them; whole or not at all."""
    replace_file(OsFileSystem(DataPermissions.UMASK), path, f"{addresses.as_json()}\n".encode(), durable=False)
