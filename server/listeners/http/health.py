"""`/livez`, `/readyz` and `/metrics` of one server, from before its recovery until after its last answer.

| path | 200 | 503 |
|---|---|---|
| `/livez`, `/healthz` | always, for everybody: the serving loop has just run | never; a server that hangs is silent |
| `/readyz` | it serves, and every log directory is in service | with a line for each reason why not |
| `/metrics` | the metrics of a server that serves | before and after: with the reason |
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import attrs
import trio

from ...broker import Broker, StartProgress
from ...config.broker_config import Address
from ...figures.prometheus import CONTENT_TYPE, Fired, More, no_faults, scrape
from ..connections.counters import ProtocolCounters
from .access import HttpAccess, HttpAnswer, HttpRequest, read_token
from .server import http_listener

METHODS = ("GET", "HEAD")
ALIVE = ("/livez", "/healthz")


@attrs.define(eq=False, repr=False)
class Health:
    """The life-cycle state of a server. Owner: the code that runs the server."""

    access: HttpAccess = attrs.field(factory=HttpAccess)
    progress: StartProgress | None = None
    is_stopping: bool = False
    _look: Callable[[], Broker | None] = lambda: None
    _protocols: Mapping[str, ProtocolCounters] = attrs.field(factory=dict)
    _fired: Fired = no_faults
    _more: More | None = None

    def serving(
        self,
        broker: Broker,
        protocols: Mapping[str, ProtocolCounters],
        fired: Fired = no_faults,
        more: More | None = None,
    ) -> None:
        """The broker serves from now on; `fired` tells of fault rules, `more` what others have counted."""
        self._look, self._protocols, self._fired, self._more = lambda: broker, protocols, fired, more

    def following(self, look: Callable[[], Broker | None], protocols: Mapping[str, ProtocolCounters], fired: Fired) -> None:
        """The broker comes and goes: `look` answers the one that serves."""
        self._look, self._protocols, self._fired = look, protocols, fired

    def stopping(self) -> None:
        """It takes no more requests."""
        self.is_stopping = True

    def stopped(self) -> None:
        """There is no broker any more."""
        self._look = lambda: None

    def reasons(self) -> list[str]:
        """Why the server is not ready, one line each; none when it is."""
        if self.is_stopping:
            return ["the server is stopping"]
        broker = self._look()
        if broker is None:
            return [self._starting()]
        return [
            f"log directory {each.path} is out of service: {each.error}"
            for each in broker.directories.describe()
            if each.error is not None
        ]

    def _starting(self) -> str:
        progress = self.progress
        if progress is None:
            return "the server is starting"
        return (
            f"the server is recovering: {progress.logs_done} of {progress.logs} logs, "
            f"{progress.scanned_bytes} of {progress.scan_bytes} bytes scanned"
        )

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        """Answers a request of the listener."""
        if request.path not in (*ALIVE, "/readyz", "/metrics"):
            return HttpAnswer.text(404, "use /livez, /healthz, /readyz or /metrics")
        if request.method not in METHODS:
            refusal = HttpAnswer.text(405, f"{request.path} is read with GET")
            return refusal._replace(headers=(("allow", ", ".join(METHODS)),))
        if request.path in ALIVE:
            return HttpAnswer.text(200, "alive")
        if (refused := self.access.refusal(request)) is not None:
            return refused
        if request.path == "/readyz":
            reasons = self.reasons()
            return HttpAnswer.text(503, "\n".join(reasons)) if reasons else HttpAnswer.text(200, "ready")
        broker = self._look()
        if broker is None:
            return HttpAnswer.text(503, "the server has stopped" if self.is_stopping else self._starting())
        return HttpAnswer(200, await scrape(broker, self._protocols, self._fired, self._more), CONTENT_TYPE)


@asynccontextmanager
async def telling(address: Address, token_file: str | None = None) -> AsyncIterator[tuple[Health, Address]]:
    """Answers over HTTP for the time of the block: what is to be told how things stand, and where it is listened. Raises
    InvalidConfigError where the file has no token."""
    health = Health(HttpAccess.of(address, None if token_file is None else read_token(token_file)))
    async with trio.open_nursery() as nursery:
        yield health, await nursery.start(http_listener(address, health.answer, changes_nothing=True).run)
        nursery.cancel_scope.cancel()
