"""TLS on a listener: its context from the configuration, the handshake with its deadline, and a transport that encrypts.

The bytes go through the transport's own fast paths; between them and the session stands an `ssl.SSLObject` over two buffers in
memory, which waits for nothing. It is used whenever something is received or sent, never across an `await`. Certificates are
read when the listener starts, and again when settings are; TLS 1.2 is the lowest version, and nothing is renegotiated.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

import attrs
import trio

from ....protocol.errors import InvalidConfigError
from ....protocol.limits import KIB
from ....protocol.types import ANONYMOUS, Bytes
from ...config.broker_config import BrokerConfig
from ...config.listener_security import ClientAuth
from .transport import Transport

LOGGER: Final = logging.getLogger(__name__)

RECORD_BYTES: Final = 16 * KIB
"""Largest record of TLS."""
HANDSHAKE_BYTES: Final = 64 * KIB
"""A client's side of a handshake, with its certificates; past it the peer is no client."""


@attrs.frozen
class TlsServer:
    """The TLS settings of a listener. `failed` is called for each handshake that fails."""

    context: ssl.SSLContext
    handshake_timeout_s: float
    failed: Callable[[], None] = lambda: None
    files: Mapping[str, bytes] = attrs.field(factory=dict)
    """Digests of what was read, by path."""


VERIFY: Final = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


def server_context(config: BrokerConfig, client_auth: ClientAuth) -> ssl.SSLContext:
    """A listener's side of TLS. Raises InvalidConfigError naming the key or the file and what is wrong with it."""
    if config.ssl_certificate_file is None:
        raise InvalidConfigError(
            "a listener with TLS needs ssl_certificate_file, and ssl_key_file unless that file has the key"
        )
    if client_auth is not ClientAuth.NONE and config.ssl_client_ca_file is None:
        raise InvalidConfigError("checking client certificates needs ssl_client_ca_file, which is not set")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    certificate, key = config.ssl_certificate_file, config.ssl_key_file or config.ssl_certificate_file
    try:
        context.load_cert_chain(certificate, key, password=_no_passphrase)
    except (OSError, ValueError) as exc:
        raise InvalidConfigError(f"cannot use ssl_certificate_file {certificate} with ssl_key_file {key}: {exc}") from exc
    if config.ssl_client_ca_file is not None:
        try:
            context.load_verify_locations(config.ssl_client_ca_file)
        except (OSError, ValueError) as exc:
            raise InvalidConfigError(f"cannot use ssl_client_ca_file {config.ssl_client_ca_file}: {exc}") from exc
    context.verify_mode = VERIFY[client_auth]
    return context


def file_digests(config: BrokerConfig) -> dict[str, bytes]:
    """Return digests that show whether the TLS files have changed. Raises InvalidConfigError."""
    paths = (config.ssl_certificate_file, config.ssl_key_file, config.ssl_client_ca_file)
    try:
        return {path: hashlib.sha256(Path(path).read_bytes()).digest() for path in paths if path is not None}
    except OSError as exc:
        raise InvalidConfigError(f"cannot read a TLS file: {exc}") from exc


def _no_passphrase() -> str:
    """Instead of a question at the terminal."""
    raise ValueError("the key has a passphrase. A server that starts unattended needs a key without one")


@attrs.define(eq=False, repr=False)
class TlsTransport(Transport):
    """A transport that receives and sends plain bytes over an encrypted socket. `handshake` comes first."""

    encrypts: ClassVar[bool] = True
    _incoming: ssl.MemoryBIO = attrs.field(factory=ssl.MemoryBIO)
    _outgoing: ssl.MemoryBIO = attrs.field(factory=ssl.MemoryBIO)
    _tls: ssl.SSLObject = attrs.field(init=False)

    @classmethod
    def over(cls, plain: Transport, context: ssl.SSLContext) -> TlsTransport:
        """Encrypts what goes through a connection on which nothing was received or sent yet."""
        transport = cls(
            plain.stream,
            plain.peer,
            plain.counters,
            plain.answers,
            plain.gathering,
            plain.reactor,
            is_pressed=plain.is_pressed,
            most_received_bytes=plain.most_received_bytes,
            became_known=plain.became_known,
            became_idle=plain.became_idle,
        )
        transport._tls = context.wrap_bio(transport._incoming, transport._outgoing, server_side=True)
        return transport

    async def handshake(self, timeout_s: float) -> str | None:
        """Agree on keys; answers why that was not possible, None when it was. The peer is told, too."""
        with trio.move_on_after(timeout_s):
            try:
                return await self._shake_hands()
            except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as exc:
                return f"the connection broke: {exc!r}"
        return f"not done within {timeout_s:g} s"

    async def _shake_hands(self) -> str | None:
        received = 0
        while True:
            why = None
            try:
                self._tls.do_handshake()
                is_done = True
            except ssl.SSLWantReadError:
                is_done = False
            except ssl.SSLError as exc:
                is_done, why = True, _words(exc)
            if self._outgoing.pending:
                await self.stream.send_all(self._outgoing.read())
            if is_done:
                return why
            if received == HANDSHAKE_BYTES:
                return f"more than {HANDSHAKE_BYTES} bytes of it"
            # The last of it, and what a client sends at once after it, may come as one.
            data = await self.stream.receive_some(HANDSHAKE_BYTES - received)
            self.counters.received_bytes += len(data)
            received += len(data)
            if not data:
                return f"the peer ended it after {received} bytes"
            self._incoming.write(data)

    @property
    def principal(self) -> str:
        """The certificate's distinguished name, as Kafka's default rule has it; nobody without a certificate."""
        certificate = self._tls.getpeercert()
        return ANONYMOUS if not certificate else f"User:{distinguished_name(certificate)}"

    def read_available(self) -> bytes | None:
        """Return the received bytes as one piece; see `Transport.read_available`. Raises OSError (ssl.SSLError) for bytes that
        are not TLS."""
        while True:
            plain = self._decrypt()
            if self._outgoing.pending:
                self.send([b""])  # what TLS itself answers goes out with the next piece, or alone
            if plain is not None:
                return plain
            data = super().read_available()
            if not data:
                return data  # its end comes without a farewell from many clients: requests have lengths, nothing is cut off
            self._incoming.write(data)

    def _decrypt(self) -> bytes | None:
        """Everything that has come whole, empty at the peer's farewell; None when more bytes are needed."""
        pieces: list[bytes] = []
        while True:
            try:
                piece = self._tls.read(RECORD_BYTES)
            except ssl.SSLWantReadError:
                return b"".join(pieces) if pieces else None
            except ssl.SSLZeroReturnError:
                piece = b""
            if not piece:
                return b"".join(pieces)
            pieces.append(piece)

    def encrypted(self, pieces: list[Bytes]) -> list[Bytes]:
        """Pieces as they go over the wire, with what TLS itself has to say."""
        try:
            for piece in pieces:
                view = memoryview(piece)
                while view:
                    view = view[self._tls.write(view) :]
        except ssl.SSLError as exc:  # the peer has broken TLS, which who receives is told
            raise trio.BrokenResourceError(str(exc)) from exc
        return [self._outgoing.read()]

    def farewell(self) -> Bytes:
        """The last bytes: a peer that gets them knows that nothing was cut off."""
        with contextlib.suppress(ssl.SSLError):  # it has not said its own farewell, which nobody waits for
            self._tls.unwrap()
        return self._outgoing.read()


def _words(error: ssl.SSLError) -> str:
    verify_message = getattr(error, "verify_message", None)
    reason = (error.reason or str(error)).replace("_", " ").lower()
    return f"{reason}: {verify_message}" if verify_message else reason


SHORT_NAMES: Final = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
"""Of RFC 2253; others stand under OpenSSL's names, where Java writes their numbers."""


def distinguished_name(certificate: Mapping[str, Any]) -> str:
    """The subject of a certificate as RFC 2253 writes it, most specific part first."""
    return ",".join("+".join(_attribute(*pair) for pair in part) for part in reversed(certificate.get("subject", ())))


def _attribute(name: str, value: str) -> str:
    escaped = "".join(f"\\{character}" if character in ',+"\\<>;' else character for character in value)
    if escaped[:1] in ("#", " "):
        escaped = f"\\{escaped}"
    if len(escaped) > 1 and escaped.endswith(" "):
        escaped = f"{escaped[:-1]}\\ "
    return f"{SHORT_NAMES.get(name, name)}={escaped}"
