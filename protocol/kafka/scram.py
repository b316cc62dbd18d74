"""SCRAM-SHA-256 and SCRAM-SHA-512 without sockets: what a server keeps of a password, and the exchange from its side.

    client-first   n,,n=<user>,r=<client nonce>
    server-first   r=<client nonce><server nonce>,s=<salt>,i=<iterations>
    client-final   c=<the header n,, in base64>,r=<both nonces>,p=<proof>
    server-final   v=<signature>

From a credential nobody can log in: it has H(ClientKey), while the proof takes ClientKey. User names and passwords are taken as
UTF-8 as they come, without SASLprep, as Kafka and librdkafka do. No channel binding, no delegation tokens. Source: RFC 5802,
RFC 7677; the text form of a credential is Kafka's (KIP-84, ScramCredentialUtils).

SCRAM-SHA-256 and SCRAM-SHA-512 from the client's side, without sockets: see `scram` for the messages. Source: RFC 5802.
"""

from __future__ import annotations

import base64
import binascii
import enum
import hashlib
import hmac
import math
import re
from collections.abc import Mapping
from typing import Final, Self

import attrs

from ..errors import SaslAuthenticationError
from ..types import Bytes

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384
"""Kafka's bounds of what a credential may have."""
SALT_BYTES: Final = 20
"""Of a salt that is drawn here."""
Shape = tuple[int, int]
"""(iterations, bytes of the salt), which a challenge shows to everybody."""
DEFAULT_SHAPE: Final[Shape] = (MIN_ITERATIONS, SALT_BYTES)
MAX_MESSAGE_BYTES: Final = 64 * 1024
"""Of a token; real ones have about 100 bytes."""

_CLIENT_FIRST: Final = re.compile(
    r"(?P<header>(?:n|y),(?:a=(?P<authzid>[^,]*))?,)(?P<bare>n=(?P<user>[^,]+),r=(?P<nonce>[!-+\--~]+)(?:,[a-zA-Z]=[^,]*)*)"
)
_CLIENT_FINAL: Final = re.compile(
    r"(?P<unsigned>c=(?P<binding>[^,]*),r=(?P<nonce>[!-+\--~]+)(?:,[a-zA-Z]=[^,]*)*),p=(?P<proof>[^,]+)"
)


class ScramMechanism(enum.IntEnum):
    """Kafka's numbers of the mechanisms."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """As SASL has it."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """As hashlib has it."""
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"

    @property
    def key_bytes(self) -> int:
        """Size of keys, proofs and signatures."""
        return 32 if self is ScramMechanism.SCRAM_SHA_256 else 64

    def mac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self.hash_name)

    def hash(self, data: bytes) -> bytes:
        return hashlib.new(self.hash_name, data).digest()


@attrs.frozen
class ScramCredential:
    """The credential that a server stores for a user's password and one mechanism."""

    mechanism: ScramMechanism
    iterations: int
    salt: bytes = attrs.field(repr=False)
    stored_key: bytes = attrs.field(repr=False)
    server_key: bytes = attrs.field(repr=False)

    @classmethod
    def from_salted_password(cls, mechanism: ScramMechanism, iterations: int, salt: bytes, salted_password: bytes) -> Self:
        """From what a client has computed of a password."""
        client_key = mechanism.mac(salted_password, b"Client Key")
        server_key = mechanism.mac(salted_password, b"Server Key")
        return cls(mechanism, iterations, salt, mechanism.hash(client_key), server_key)

    @classmethod
    def from_password(cls, mechanism: ScramMechanism, iterations: int, salt: bytes, password: str) -> Self:
        """Slow on purpose: some ms of CPU, without the interpreter's lock."""
        salted = hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)
        return cls.from_salted_password(mechanism, iterations, salt, salted)

    def as_text(self) -> str:
        """`salt=...,stored_key=...,server_key=...,iterations=...` with base64, as Kafka writes it."""
        salt, stored_key, server_key = (_base64(each) for each in (self.salt, self.stored_key, self.server_key))
        return f"salt={salt},stored_key={stored_key},server_key={server_key},iterations={self.iterations}"

    @classmethod
    def parse(cls, mechanism: ScramMechanism, text: str) -> Self:
        """Read what `as_text` writes. Raises ValueError, which repeats nothing that may be secret."""
        fields = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
        if set(fields) != {"salt", "stored_key", "server_key", "iterations"} or not fields["iterations"].isascii():
            raise ValueError("invalid SCRAM credential: use salt=...,stored_key=...,server_key=...,iterations=...")
        if not fields["iterations"].isdecimal():
            raise ValueError("iterations is not a number")
        credential = cls(
            mechanism,
            int(fields["iterations"]),
            *(base64.b64decode(fields[name], validate=True) for name in ("salt", "stored_key", "server_key")),
        )
        if not {len(credential.stored_key), len(credential.server_key)} == {mechanism.key_bytes} or not credential.salt:
            raise ValueError(f"keys of {mechanism.sasl_name} need {mechanism.key_bytes} bytes and a salt")
        if credential.iterations < MIN_ITERATIONS:
            raise ValueError(f"iterations={credential.iterations}, at least {MIN_ITERATIONS} are needed")
        return credential


def salt_of(mechanism: ScramMechanism, secret: bytes, user: str, size: int = SALT_BYTES) -> bytes:
    """The salt of a user, the same every time, whether the user exists or not."""
    return hashlib.shake_256(hmac.digest(secret, user.encode(), mechanism.hash_name)).digest(size)


def decoy(mechanism: ScramMechanism, secret: bytes, user: str, shapes: Mapping[Shape, int]) -> ScramCredential:
    """Return a credential for a user who does not exist: its salt stays the same, and no proof fits. Without it the challenge
    would reveal which users exist. `shapes` says how many users have each shape, and has at least one entry. Decoys have these
    shapes about as often, so that a rare shape reveals nothing either. A decoy keeps its shape while others come and go, until
    the number of users with a shape passes a power of two. (Weighted rendezvous hashing, with powers of two as weights.)"""
    keys = [hmac.digest(secret, b"%d" % number + user.encode(), mechanism.hash_name) for number in (1, 2)]

    def cost(shape: Shape) -> float:
        drawn = int.from_bytes(hmac.digest(keys[0], b"%d %d" % shape, "sha256")[:8])
        return -math.log((drawn + 1) / 2**64) / (1 << shapes[shape].bit_length())

    iterations, salt_bytes = min(shapes, key=cost)
    return ScramCredential(mechanism, iterations, salt_of(mechanism, secret, user, salt_bytes), *keys)


@attrs.define(eq=False, repr=False)
class ScramServer:
    """The server's side of one exchange: `receive_first`, `challenge`, `receive_final`. Raises
    SaslAuthenticationError; then it is over."""

    mechanism: ScramMechanism
    server_nonce: str
    """Fresh random text without commas."""
    _header: str = ""
    _client_first_bare: str = ""
    _nonce: str = ""
    _server_first: str = ""

    def receive_first(self, message: Bytes) -> str:
        """Read client-first; answers who wants to log in."""
        found = _CLIENT_FIRST.fullmatch(_text(message))
        if found is None:
            raise SaslAuthenticationError("cannot read the client's first SCRAM message: channel binding is not supported")
        user = _decoded_name(found["user"])
        if found["authzid"] and _decoded_name(found["authzid"]) != user:
            raise SaslAuthenticationError("a client cannot act for another user than its login")
        self._header, self._client_first_bare = found["header"], found["bare"]
        self._nonce = found["nonce"] + self.server_nonce
        return user

    def challenge(self, iterations: int, salt: bytes) -> bytes:
        """Return server-first."""
        assert self._nonce, "receive_first comes before"
        self._server_first = f"r={self._nonce},s={_base64(salt)},i={iterations}"
        return self._server_first.encode()

    def receive_final(self, message: Bytes, credential: ScramCredential) -> bytes:
        """Check client-final against the user's credential; answers server-final. The user is logged in when this returns."""
        assert self._server_first, "challenge comes before"
        found = _CLIENT_FINAL.fullmatch(_text(message))
        if found is None:
            raise SaslAuthenticationError("cannot read the client's final SCRAM message")
        if found["nonce"] != self._nonce:
            raise SaslAuthenticationError("the client's final SCRAM message has another nonce than this exchange")
        if _decoded(found["binding"]) != self._header.encode():
            raise SaslAuthenticationError("the client's final SCRAM message has another header than its first one")
        signed = f"{self._client_first_bare},{self._server_first},{found['unsigned']}".encode()
        signature = self.mechanism.mac(credential.stored_key, signed)
        proof = _decoded(found["proof"])
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=False))
        if len(proof) != len(signature) or not hmac.compare_digest(self.mechanism.hash(client_key), credential.stored_key):
            raise SaslAuthenticationError(WRONG_CREDENTIALS.format(self.mechanism.sasl_name))
        return b"v=" + _base64(self.mechanism.mac(credential.server_key, signed)).encode()


WRONG_CREDENTIALS: Final = "Authentication failed during authentication due to invalid credentials with SASL mechanism {}"
"""Kafka's words, whatever was wrong."""


def _text(message: Bytes) -> str:
    try:
        return str(message, "utf-8")
    except UnicodeDecodeError:
        raise SaslAuthenticationError("a SCRAM message is not UTF-8") from None


def _decoded_name(name: str) -> str:
    """`=2C` is a comma, `=3D` an equals sign; no other one may stand there."""
    if re.search(r"=(?!2C|3D)", name):
        raise SaslAuthenticationError("a user name in a SCRAM message has an equals sign that is not =2C or =3D")
    return name.replace("=2C", ",").replace("=3D", "=")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text.encode(), validate=True)
    except (binascii.Error, UnicodeEncodeError, ValueError):
        raise SaslAuthenticationError("a SCRAM message has a field that is not base64") from None


MOST_ITERATIONS: Final = 1_000_000
"""A server that asks for more keeps the client's processor busy, half a second for each million."""
HEADER: Final = "n,,"
"""No channel binding, and no other user to act for."""

_SERVER_FIRST: Final = re.compile(r"r=(?P<nonce>[!-+\--~]+),s=(?P<salt>[^,]+),i=(?P<iterations>[1-9][0-9]{0,8})(?:,.*)?")


@attrs.define(eq=False, repr=False)
class ScramClient:
    """The client's side of one login: `first`, `final`, `check`. Raises SaslAuthenticationError; then it is over."""

    mechanism: ScramMechanism
    user: str
    password: str = attrs.field(repr=False)
    nonce: str
    """Fresh random text without commas."""
    _bare: str = ""
    _signed: bytes = b""
    _server_key: bytes = attrs.field(default=b"", repr=False)

    def first(self) -> bytes:
        """client-first."""
        name = self.user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={self.nonce}"
        return f"{HEADER}{self._bare}".encode()

    def final(self, server_first: Bytes) -> bytes:
        """client-final. Takes some ms of CPU."""
        try:
            text = str(server_first, "utf-8")
            found = _SERVER_FIRST.fullmatch(text)
            salt = base64.b64decode(found["salt"], validate=True) if found else b""
        except (UnicodeDecodeError, binascii.Error):
            found = None
        if found is None or not found["nonce"].startswith(self.nonce) or len(found["nonce"]) == len(self.nonce):
            raise SaslAuthenticationError("cannot read the server's first SCRAM message, or it has another nonce")
        iterations = int(found["iterations"])
        if not MIN_ITERATIONS <= iterations <= MOST_ITERATIONS:
            raise SaslAuthenticationError(
                f"the server requires {iterations} iterations, expected {MIN_ITERATIONS} to {MOST_ITERATIONS}"
            )
        mechanism = self.mechanism
        salted = hashlib.pbkdf2_hmac(mechanism.hash_name, self.password.encode(), salt, iterations)
        client_key = mechanism.mac(salted, b"Client Key")
        self._server_key = mechanism.mac(salted, b"Server Key")
        unsigned = f"c={base64.b64encode(HEADER.encode()).decode()},r={found['nonce']}"
        self._signed = f"{self._bare},{text},{unsigned}".encode()
        signature = mechanism.mac(mechanism.hash(client_key), self._signed)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        return f"{unsigned},p={base64.b64encode(proof).decode()}".encode()

    def check(self, server_final: Bytes) -> None:
        """Check that the server knows the password, too. Raises SaslAuthenticationError: an impostor does not."""
        expected = b"v=" + base64.b64encode(self.mechanism.mac(self._server_key, self._signed))
        if not hmac.compare_digest(bytes(server_final), expected):
            raise SaslAuthenticationError("the server's signature is wrong: it does not know the user's password")
