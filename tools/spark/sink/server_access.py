"""The options of the connection to the server: addresses, TLS and a login.

`kafka.security.protocol`, `kafka.ssl.*` and `kafka.sasl.*` become the TLS and the login of triolog's listener. A setting that
cannot be translated is refused, never dropped: the connection would be less secure than the job requires. No message repeats a
secret.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

import attrs

from ....protocol.kafka.oauthbearer import OAUTHBEARER
from ...client.config import Address, AddressSource, address_text
from ...client.login import PLAIN, SCRAM, LoginConfig, PasswordFile, TokenFile
from ...client.tls import TlsConfig
from ..option_table.kafka_clients import (
    ENDPOINT_IDENTIFICATION,
    JAAS,
    KEYSTORE,
    KEYSTORE_TYPE,
    LOGIN_HANDLER,
    SASL_MECHANISM,
    SECURITY,
    SECURITY_PROTOCOL,
    TOKEN_URL,
    TRUSTSTORE,
    TRUSTSTORE_TYPE,
)
from ..option_table.option import OptionError
from ..option_table.reading import (
    PASSWORD,
    PASSWORD_FILE,
    PASSWORD_VARIABLE,
    SERVERS,
    SERVERS_ALIAS,
    TLS_CA,
    TLS_CERT,
    TOKEN_FILE,
    USER,
)

ACCESS: Final = (USER, PASSWORD, PASSWORD_FILE, TOKEN_FILE, TLS_CA, TLS_CERT)
"""triolog's own names. Spark keeps an option whose name contains `password` out of plans and event logs."""
KAFKA_ACCESS: Final = tuple(option.name for option in SECURITY)
DEFAULT_PORT: Final = 9095

_PROTOCOLS: Final = {
    "plaintext": (False, False),
    "ssl": (True, False),
    "sasl_plaintext": (False, True),
    "sasl_ssl": (True, True),
}
"""Whether the connection is encrypted, and whether a user logs in."""
_MODULES: Final = {
    "org.apache.kafka.common.security.scram.ScramLoginModule": frozenset(SCRAM),
    "org.apache.kafka.common.security.plain.PlainLoginModule": frozenset({PLAIN}),
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule": frozenset({OAUTHBEARER}),
}
"""Mechanisms of each login module."""
_HANDLERS: Final = tuple(
    f"org.apache.kafka.common.security.oauthbearer.{package}OAuthBearerLoginCallbackHandler" for package in ("", "secured.")
)
"""Kafka's class that reads a token from a file; the second name is that before Kafka 4."""
_EXTENSION: Final = "extension_"
_SETTING: Final = r'\w+\s*=\s*(?:"(?:[^"\\]|\\.)*"|[^\s";]+)'
_JAAS: Final = re.compile(rf"\s*([\w.$]+)\s+required((?:\s+{_SETTING})*)\s*;\s*")
_JAAS_SETTING: Final = re.compile(r'(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s";]+))')


@attrs.frozen
class ServerAccess:
    """The TLS and login part of a client's configuration."""

    tls: TlsConfig | None = None
    login: LoginConfig | None = None


NOBODY: Final = ServerAccess()
"""Without TLS and without a login."""


@attrs.frozen
class Servers:
    """The addresses of one server. `source` is for a client, which requests an address before each attempt to connect."""

    addresses: tuple[Address, ...]

    def __str__(self) -> str:
        return ",".join(map(address_text, self.addresses))

    def source(self) -> AddressSource:
        """Return the addresses one after the other, beginning with the first."""
        return itertools.cycle(self.addresses).__next__


def read_servers(given: Mapping[str, str]) -> Servers:
    """Return the server's addresses, from options whose names are in lower case; OptionError."""
    both = [name for name in (SERVERS, SERVERS_ALIAS) if name in given]
    if not both:
        raise OptionError(f"option {SERVERS} is missing: the address of the server, as in localhost:{DEFAULT_PORT}")
    if len(both) == 2 and given[SERVERS] != given[SERVERS_ALIAS]:
        raise OptionError(f"options {SERVERS} and {SERVERS_ALIAS} name different servers. Give one of them")
    option, text = both[0], given[both[0]]
    parts = [part for entry in text.split(",") if (part := entry.strip())]
    addresses = tuple(dict.fromkeys(_address(option, text, part) for part in parts))
    if not addresses:
        raise OptionError(f"option {option} is {text!r}, expected the address of a server, as in localhost:{DEFAULT_PORT}")
    return Servers(addresses)


def _address(option: str, text: str, part: str) -> Address:
    host, separator, port = part.rpartition(":")
    if not separator or not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise OptionError(
            f"option {option} is {text!r}, expected the address of a server, as in localhost:{DEFAULT_PORT}, "
            "or several with commas between them"
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


def read_access(given: Mapping[str, str]) -> ServerAccess:
    """Return TLS and login; without a password the environment has it. OptionError, which repeats no secret."""
    kafkas = [name for name in KAFKA_ACCESS if name in given]
    ours = [name for name in ACCESS if name.lower() in given]
    if kafkas and ours:
        raise OptionError(f"options {kafkas[0]} and {ours[0]} both set TLS or a login. Use only one kind of options")
    return _kafkas_access(given) if kafkas else _own_access(given)


def _own_access(given: Mapping[str, str]) -> ServerAccess:
    user, password, file = (given.get(name.lower()) for name in (USER, PASSWORD, PASSWORD_FILE))
    ca, certificate = given.get(TLS_CA.lower()), given.get(TLS_CERT.lower())
    tls = None if ca is None and certificate is None else TlsConfig(ca_file=ca, certificate_file=certificate)
    if (token_file := given.get(TOKEN_FILE.lower())) is not None:
        if user is not None or password is not None or file is not None:
            raise OptionError(f"option {TOKEN_FILE} and a user or a password are both given. Use only one login")
        if not token_file:
            raise OptionError(f"option {TOKEN_FILE} is empty, expected the path of a file")
        return ServerAccess(tls, LoginConfig(token=TokenFile(token_file)))
    if user is None:
        if password is not None or file is not None:
            raise OptionError(f"option {USER} is missing, but a password is given")
        return ServerAccess(tls)
    if password is not None and file is not None:
        raise OptionError(f"options {PASSWORD} and {PASSWORD_FILE} are both given. Leave one of them out")
    found = PasswordFile(file) if file else password or os.environ.get(PASSWORD_VARIABLE)
    if not user or not found:
        raise OptionError(f"option {USER} needs a name, and {PASSWORD_FILE}, {PASSWORD} or the variable {PASSWORD_VARIABLE}")
    return ServerAccess(tls, LoginConfig(user=user, password=found))


def _kafkas_access(given: Mapping[str, str]) -> ServerAccess:
    protocol = given.get(SECURITY_PROTOCOL, "PLAINTEXT")
    if protocol.lower() not in _PROTOCOLS:
        expected = ", ".join(name.upper() for name in _PROTOCOLS)
        raise OptionError(f"option {SECURITY_PROTOCOL} is {protocol!r}, expected one of {expected}")
    is_encrypted, has_login = _PROTOCOLS[protocol.lower()]
    _check_needed(given, "kafka.ssl.", is_encrypted, "SSL or SASL_SSL")
    _check_needed(given, "kafka.sasl.", has_login, "SASL_PLAINTEXT or SASL_SSL")
    return ServerAccess(_tls(given) if is_encrypted else None, _login(given) if has_login else None)


def _check_needed(given: Mapping[str, str], prefix: str, is_needed: bool, protocols: str) -> None:
    if not is_needed and (useless := [name for name in KAFKA_ACCESS if name in given and name.startswith(prefix)]):
        raise OptionError(
            f"option {useless[0]} has no effect unless {SECURITY_PROTOCOL} is {protocols}. Set that, or leave it out"
        )


def _tls(given: Mapping[str, str]) -> TlsConfig:
    identification = given.get(ENDPOINT_IDENTIFICATION, "https")
    if identification not in ("https", ""):
        raise OptionError(
            f"option {ENDPOINT_IDENTIFICATION} is {identification!r}, expected https, or nothing to skip the check"
        )
    return TlsConfig(
        ca_file=_pem(given, TRUSTSTORE, TRUSTSTORE_TYPE),
        certificate_file=_pem(given, KEYSTORE, KEYSTORE_TYPE),
        check_hostname=bool(identification),
    )


def _pem(given: Mapping[str, str], location: str, kind: str) -> str | None:
    """Return the PEM file of a store. OptionError for any other format."""
    path, format_ = given.get(location), given.get(kind, "JKS")
    if path is None and kind not in given:
        return None
    if format_.upper() != "PEM":
        raise OptionError(
            f"option {kind if kind in given else location} is refused: a store in the format {format_} cannot be read here. "
            f"Export it as PEM (keytool -exportcert -rfc, or openssl pkcs12), and set {kind} to PEM"
        )
    if not path:
        raise OptionError(f"option {location} is missing: the PEM file whose type {kind} sets")
    return path


def _login(given: Mapping[str, str]) -> LoginConfig:
    mechanism = given.get(SASL_MECHANISM, "GSSAPI")
    allowed = (*SCRAM, PLAIN, OAUTHBEARER)
    if mechanism not in allowed:
        where = f"is {mechanism!r}" if SASL_MECHANISM in given else "is missing, which means GSSAPI to Kafka's clients"
        raise OptionError(f"option {SASL_MECHANISM} {where}; expected one of {', '.join(allowed)}")
    if mechanism != OAUTHBEARER and (useless := [name for name in (TOKEN_URL, LOGIN_HANDLER) if name in given]):
        raise OptionError(f"option {useless[0]} has no effect unless {SASL_MECHANISM} is {OAUTHBEARER}. Leave it out")
    if JAAS not in given:
        missing = "the login module" if mechanism == OAUTHBEARER else "the user and the password"
        raise OptionError(f"option {JAAS} is missing: {missing} for {mechanism}")
    found = _JAAS.fullmatch(given[JAAS])
    if found is None:
        raise OptionError(f'option {JAAS} cannot be read, expected MODULE required NAME="..." ...;')
    module, settings = found[1], _settings(found[2])
    if mechanism not in _MODULES.get(module, frozenset()):
        raise OptionError(f"option {JAAS} names the module {module}, which does not log in with {mechanism}")
    return _bearer(given, settings) if mechanism == OAUTHBEARER else _user(settings, mechanism)


def _user(settings: Mapping[str, str], mechanism: str) -> LoginConfig:
    if surplus := sorted(settings.keys() - {"username", "password"}):
        raise OptionError(f"option {JAAS} has the setting {surplus[0]}, expected username and password only")
    if not settings.get("username") or not settings.get("password"):
        raise OptionError(f"option {JAAS} needs username and password")
    return LoginConfig(user=settings["username"], password=settings["password"], mechanism=mechanism)


def _bearer(given: Mapping[str, str], settings: Mapping[str, str]) -> LoginConfig:
    """Return the login with the token in a file. As with Kafka's clients, `SASL_PLAINTEXT` sends it without TLS."""
    handler = given.get(LOGIN_HANDLER)
    if handler is not None and handler not in _HANDLERS:
        raise OptionError(f"option {LOGIN_HANDLER} is {handler}, and classes of Java do not run here; expected {_HANDLERS[0]}")
    if surplus := sorted(name for name in settings if not name.startswith(_EXTENSION)):
        raise OptionError(
            f"option {JAAS} has the setting {surplus[0]}, expected {_EXTENSION}NAME only: {TOKEN_URL} has the token"
        )
    url = urlsplit(given.get(TOKEN_URL, ""))
    path = unquote(url.path)
    if url.scheme != "file" or url.netloc not in ("", "localhost") or not path.startswith("/"):
        where = f"has the scheme {url.scheme!r}" if TOKEN_URL in given else "is missing"
        raise OptionError(
            f"option {TOKEN_URL} {where}; expected file:///PATH: this client requests no token from an issuer. Let another "
            "program keep a token in that file"
        )
    extensions = {name.removeprefix(_EXTENSION): value for name, value in settings.items()}
    return LoginConfig(token=TokenFile(path), extensions=extensions, mechanism=OAUTHBEARER)


def _settings(text: str) -> dict[str, str]:
    return {name: re.sub(r"\\(.)", r"\1", quoted) if quoted else plain for name, quoted, plain in _JAAS_SETTING.findall(text)}
