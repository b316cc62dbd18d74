"""All listeners of a broker: they share what connections may hold, start together and stop together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs
import trio

from ...protocol.kafka.apis import APIS, Api
from ..broker import Broker
from ..config.broker_config import Address, BrokerConfig
from ..config.broker_settings import HTTP, KAFKA, NATIVE, check_exposure
from ..config.listener_security import ClientAuth, ListenerSecurity
from .addresses import Addresses as Addresses
from .connections.counters import ProtocolCounters
from .connections.sockets import Admission, Listener, OpenSockets, open_sockets
from .connections.tls import TlsServer, file_digests, server_context

if TYPE_CHECKING:
    from .kafka.calls import Watch
    from .kafka.door import KafkaDoor


@attrs.define(eq=False, repr=False)
class Listeners:
    """Owner: who runs the broker."""

    broker: Broker
    watch: Watch | None = None
    """Looks on, in tests."""
    apis: dict[int, Api] | None = None
    """What is spoken on Kafka's listener; None: everything there is."""
    protocols: dict[str, ProtocolCounters] = attrs.field(factory=dict)
    """Where connections count."""
    open_sockets: OpenSockets = open_sockets
    admission: Admission = attrs.field(init=False)
    kafka_door: KafkaDoor | None = None
    """What connections of Kafka clients share, once the listener is started."""
    _listeners: list[Listener] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.admission = Admission.of(self.broker.config, self.protocols, quotas=self.broker.security.quotas)

    @property
    def connections(self) -> int:
        return sum(listener.connections for listener in self._listeners)

    async def start(self, nursery: trio.Nursery, wanted: Addresses, *, advertised: Address | None = None) -> Addresses:
        """Listen where it is wanted, in tasks of `nursery`; answers the addresses that are really listened on. Raises OSError
        for one that is taken."""
        admission = self.admission
        native = kafka = http = None
        config = self.broker.config
        self.broker.security.exposed = check_exposure(config, {NATIVE: wanted.native, KAFKA: wanted.kafka, HTTP: wanted.http})
        if wanted.native is not None:
            from .native.calls import native_listener

            tls = self._tls(config.native_security, config.native_ssl_client_auth)
            native = await self._start(nursery, native_listener(self.broker, wanted.native, admission), tls)
        if wanted.kafka is not None:
            from .kafka.calls import listener_of
            from .kafka.door import KafkaDoor

            self.kafka_door = KafkaDoor(self.broker, advertised, apis=APIS if self.apis is None else self.apis)
            listener = listener_of(self.kafka_door, wanted.kafka, admission, self.watch)
            kafka = await self._start(nursery, listener, self.kafka_tls())
        if wanted.http is not None:
            from .http.produce import produce_listener  # h11 is not loaded without it

            tls = self._tls(config.http_security, ClientAuth.NONE)
            http = await self._start(nursery, produce_listener(self.broker, wanted.http, admission), tls)
        return Addresses(native, kafka, http=http)

    def kafka_tls(self) -> TlsServer | None:
        """Return the TLS settings of Kafka's connections; None if they are not encrypted. Raises InvalidConfigError."""
        config = self.broker.config
        return self._tls(config.kafka_security, config.kafka_ssl_client_auth)

    def read_tls(self, config: BrokerConfig) -> tuple[tuple[str, ...], Callable[[], None]]:
        """Read the files of TLS again, blocking: what is to be said of that, and what gives it to handshakes that begin then.
        Raises InvalidConfigError."""
        security = {KAFKA: config.kafka_security, NATIVE: config.native_security, HTTP: config.http_security}
        client_auth = {
            KAFKA: config.kafka_ssl_client_auth,
            NATIVE: config.native_ssl_client_auth,
            HTTP: ClientAuth.NONE,
        }
        read = {name: self._tls(security[name], client_auth[name], config) for name in security}
        before = {path: digest for each in self._listeners if each.tls for path, digest in each.tls.files.items()}
        now = {path: digest for tls in read.values() if tls for path, digest in tls.files.items()}
        said = tuple(f"the content of {path}" for path in sorted(now) if before.get(path, now[path]) != now[path])

        def apply() -> None:
            for listener in self._listeners:
                listener.tls = read[listener.protocol]

        return said, apply

    def _tls(self, security: ListenerSecurity, client_auth: ClientAuth, config: BrokerConfig | None = None) -> TlsServer | None:
        """Raises InvalidConfigError."""
        if not security.has_tls:
            return None
        statistics = self.broker.security.statistics

        def count() -> None:
            statistics.failed_handshakes += 1

        config = config or self.broker.config
        timeout_s = config.ssl_handshake_timeout_ms / 1000
        digests = file_digests(config)  # before: a file that changes meanwhile differs at the next look, too
        return TlsServer(server_context(config, client_auth), timeout_s, count, digests)

    async def _start(self, nursery: trio.Nursery, listener: Listener, tls: TlsServer | None) -> Address:
        listener.tls, listener.open_sockets = tls, self.open_sockets
        address: Address = await nursery.start(listener.run)
        self._listeners.append(listener)
        return address

    def stop(self, grace_s: float) -> None:
        """Accept no more and take no more requests; connections have `grace_s` to get answers to what was taken."""
        for listener in self._listeners:
            listener.stop(grace_s)
