"""The process around a broker: who supervises it, what it writes into its log, where its settings come from."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from typing import Any

import attrs
import trio

from ..broker import Broker, Report
from ..config.broker_config import BrokerConfig
from ..listeners.opening import Addresses, Listeners
from ..system.supervisor import Supervisor
from .log_lines import LogLines
from .reloading import Part, Reloading, WatchedFiles, log_lines_part, security_part, tls_part
from .supervised import Starting, feed_watchdog, status_of, tell_stopping


@attrs.define(eq=False, repr=False)
class Service:
    """Owner: who runs the process. What is not given is not done."""

    supervisor: Supervisor = attrs.field(factory=Supervisor)
    log_lines: LogLines | None = None
    read_settings: Callable[[], BrokerConfig] | None = None
    """Everything as at the start, blocking; see `Reloading`."""
    parts: list[Part] = attrs.field(factory=list)
    """Whoever else has settings that may change while the server runs."""
    scraped: Callable[[], Awaitable[Iterable[Any]]] | None = None
    """Metrics of Prometheus that someone else has, for `/metrics`."""

    def starting(self, report: Report) -> Report:
        """Return the reporter of a start's progress, which also notifies the supervisor."""
        return Starting(self.supervisor, report)

    async def serving(
        self, nursery: trio.Nursery, broker: Broker, listeners: Listeners, addresses: Addresses, hangups: AsyncIterator[int]
    ) -> None:
        """The server accepts from now on: what is to be done meanwhile is done by tasks of `nursery`."""
        await self.supervisor.tell_surely("READY=1", status_of(addresses))
        nursery.start_soon(feed_watchdog, self.supervisor, broker)
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
