"""The options of a write with `format("triolog")`: names of Spark's Kafka sink where it has one, ours where it has none.

Names are compared without case, as Spark hands them over in lower case. Every message names the option, what it is and what
is allowed. Reading's options are in `options`.
"""

from __future__ import annotations

import difflib
import enum
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from typing import Any, Final

import attrs

from ....protocol.limits import INT32_MAX, INT64_MAX, KIB, MAX_FRAME_BYTES, MAX_TRANSACTIONAL_ID_CHARS, MIB
from ....protocol.types import CompressionType
from ...client.login import LoginConfig, PasswordFile
from ...client.tls import TlsConfig

SERVERS: Final = "kafka.bootstrap.servers"
SERVERS_ALIAS: Final = "triolog.servers"
COMPRESSION: Final = "kafka.compression.type"
ACKS: Final = "kafka.acks"
DELIVERY_TIMEOUT: Final = "kafka.delivery.timeout.ms"
REQUEST_TIMEOUT: Final = "kafka.request.timeout.ms"

USER: Final = "triolog.user"
PASSWORD: Final = "triolog.password"
PASSWORD_FILE: Final = "triolog.passwordFile"
PASSWORD_VARIABLE: Final = "TRIOLOG_PASSWORD"
TLS_CA: Final = "triolog.tlsCa"
TLS_CERT: Final = "triolog.tlsCert"
ACCESS: Final = (USER, PASSWORD, PASSWORD_FILE, TLS_CA, TLS_CERT)
"""How a server is reached, and as whom. Spark itself keeps what has `password` in its name out of plans and event logs."""

DEFAULT_PORT: Final = 9095
_ACKS: Final = {"all": -1, "-1": -1, "1": 1, "0": 0}
_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname", "failondataloss"})
"""Options that Spark hands to a sink though they are not for it; `failOnDataLoss`, so that one map serves source and sink."""
_OF_READING: Final = "it selects topics to read. To write, set the option topic. A view for reading accepts no INSERT"
REFUSED: Final = {
    "assign": _OF_READING,
    "subscribe": _OF_READING,
    "subscribepattern": _OF_READING,
    "path": "the option topic selects the target. Call save() or start() without a path",
}
"""Options that are refused with a reason of their own."""
BOOLEANS: Final = {"true": True, "false": False}
Read = Callable[[str, str], Any]
"""Reads the text of the option of this name; OptionError."""


class OptionError(ValueError):
    """An option of a read or write that is unknown, wrong, missing, or contradicts another one."""


@attrs.frozen
class ServerAccess:
    """The TLS and login part of a client's configuration."""

    tls: TlsConfig | None = None
    login: LoginConfig | None = None


NOBODY: Final = ServerAccess()
"""Without TLS and without a login."""


class DeliveryGuarantee(enum.Enum):
    """The number of records that a row becomes when a failure interrupts the write: one, or at least one."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


@attrs.frozen(kw_only=True)
class WriteOptions:
    """The options of one write, checked.

    `topic` beats the column of that name. `txn_app_id` stands for the query's id, or names a batch job: with `txn_version` a
    batch write that is run again writes nothing. `delivery_timeout_ms` is how long what fails is tried again,
    `request_timeout_ms` how long one answer may take. A record batch has up to `batch_records` records and `batch_bytes`
    bytes, which must not be above the topic's `max.message.bytes`; a record that is larger gets a batch of its own.
    """

    address: tuple[str, int]
    access: ServerAccess = NOBODY
    topic: str | None = None
    compression: CompressionType = CompressionType.NONE
    acks: int = -1
    delivery_guarantee: DeliveryGuarantee = DeliveryGuarantee.EXACTLY_ONCE
    txn_app_id: str | None = None
    txn_version: int | None = None
    delivery_timeout_ms: int = 120_000
    request_timeout_ms: int = 30_000
    batch_bytes: int = MIB
    batch_records: int = 1000

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> WriteOptions:
        """Read Spark's options; OptionError. Unknown `kafka.*` options are ignored with one warning, any others refused."""
        given = {name.lower(): str(value).strip() for name, value in options.items()}
        refuse_unknown(given, "a write", _NAMES, REFUSED, ignored="kafka.", silent=_SPARKS_OWN)
        values: dict[str, Any] = {"address": read_address(given), "access": read_access(given)}
        values |= simple_values(given, _FIELDS)
        if (headers := given.get("includeheaders")) is not None:
            read_choice("includeHeaders", headers, BOOLEANS)
        found = cls(**values)
        found._check_together()
        return found

    @property
    def is_exactly_once(self) -> bool:
        """Return whether rows are staged and committed, not produced."""
        return self.delivery_guarantee is DeliveryGuarantee.EXACTLY_ONCE

    def _check_together(self) -> None:
        if self.txn_version is not None and self.txn_app_id is None:
            raise OptionError("option txnVersion needs txnAppId: a version belongs to an application")
        if self.is_exactly_once and self.acks != -1:
            raise OptionError(
                f"option {ACKS} is {self.acks}, but deliveryGuarantee exactly-once needs all. Leave it out, or set "
                "deliveryGuarantee to at-least-once"
            )
        if not self.is_exactly_once and self.txn_app_id is not None:
            raise OptionError("option txnAppId has no meaning with deliveryGuarantee at-least-once. Leave one of them out")


def refuse_unknown(
    given: Mapping[str, str],
    what: str,
    names: Sequence[str],
    reasons: Mapping[str, str] | None = None,
    *,
    ignored: str | tuple[str, ...] = (),
    silent: Set[str] = frozenset(),
) -> None:
    """OptionError for an option that nobody knows or that has a reason to be refused; one warning names the ignored ones."""
    for name in given:
        if reasons is not None and name in reasons:
            raise OptionError(f"option {name} is refused: {reasons[name]}")
    known = {name.lower(): name for name in names}
    unknown = sorted(name for name in given if name not in known and name not in silent)
    passed = [name for name in unknown if name.startswith(ignored)]
    if refused := [name for name in unknown if name not in passed]:
        near = difflib.get_close_matches(refused[0], known, n=1)
        hint = f"Did you mean {known[near[0]]}?" if near else f"{what.capitalize()} takes {', '.join(names)}"
        raise OptionError(f"unknown option {refused[0]}. {hint}")
    if passed:
        warnings.warn(f"ignored, as triolog has no use for them: {', '.join(passed)}", stacklevel=4)


def simple_values(given: Mapping[str, str], fields: Iterable[tuple[str, str, Read]]) -> dict[str, Any]:
    """Fields of which each is decided by one option alone: option, field, how it is read. OptionError."""
    return {field: read(option, text) for option, field, read in fields if (text := given.get(option.lower())) is not None}


def read_address(given: Mapping[str, str]) -> tuple[str, int]:
    """The server, out of options whose names are in lower case; OptionError."""
    both = [name for name in (SERVERS, SERVERS_ALIAS) if name in given]
    if not both:
        raise OptionError(f"option {SERVERS} is missing: the address of the server, as in localhost:{DEFAULT_PORT}")
    if len(both) == 2 and given[SERVERS] != given[SERVERS_ALIAS]:
        raise OptionError(f"options {SERVERS} and {SERVERS_ALIAS} name different servers. Give one of them")
    text = given[both[0]]
    host, separator, port = text.rpartition(":")
    if not separator or not host or "," in host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise OptionError(f"option {both[0]} is {text!r}, expected the address of one server, as in localhost:{DEFAULT_PORT}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def read_access(given: Mapping[str, str]) -> ServerAccess:
    """The same for how the server is reached; without a password the environment has it. OptionError, which repeats none."""
    user, password, file = (given.get(name.lower()) for name in (USER, PASSWORD, PASSWORD_FILE))
    ca, certificate = given.get(TLS_CA.lower()), given.get(TLS_CERT.lower())
    tls = None if ca is None and certificate is None else TlsConfig(ca_file=ca, certificate_file=certificate)
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


def read_choice(option: str, text: str, allowed: Mapping[str, Any]) -> Any:
    """Return the value of the text, whatever its case; OptionError that lists the allowed texts."""
    try:
        return allowed[text.lower()]
    except KeyError:
        raise OptionError(f"option {option} is {text!r}, expected one of {', '.join(allowed)}") from None


def read_number(option: str, text: str, least: int, most: int) -> int:
    """A whole number in these bounds, both inclusive; OptionError."""
    if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
        raise OptionError(f"option {option} is {text!r}, expected a number from {least} to {most}")
    return int(text)


def number(least: int, most: int) -> Read:
    """Reads a number in these bounds."""
    return partial(read_number, least=least, most=most)


def choice(allowed: Mapping[str, Any]) -> Read:
    """Reads one of these."""
    return partial(read_choice, allowed=allowed)


def words(most: int) -> Read:
    """Reads text of at least one character and at most so many."""

    def read(option: str, text: str) -> str:
        if not 0 < len(text) <= most:
            raise OptionError(f"option {option} has {len(text)} characters, expected 1 to {most}")
        return text

    return read


def _topic(option: str, text: str) -> str:
    if not text:
        raise OptionError(f"option {option} is empty, expected the name of a topic")
    return text


_FIELDS: Final = (
    ("topic", "topic", _topic),
    (COMPRESSION, "compression", choice({kind.name.lower(): kind for kind in CompressionType})),
    ("deliveryGuarantee", "delivery_guarantee", choice({kind.value: kind for kind in DeliveryGuarantee})),
    (ACKS, "acks", choice(_ACKS)),
    (DELIVERY_TIMEOUT, "delivery_timeout_ms", number(1, INT32_MAX)),
    (REQUEST_TIMEOUT, "request_timeout_ms", number(1, INT32_MAX)),
    ("batchBytes", "batch_bytes", number(KIB, MAX_FRAME_BYTES // 2)),
    ("batchRecords", "batch_records", number(1, 1_000_000)),
    ("txnVersion", "txn_version", number(0, INT64_MAX)),
    ("txnAppId", "txn_app_id", words(MAX_TRANSACTIONAL_ID_CHARS)),
)
_NAMES: Final = (SERVERS, SERVERS_ALIAS, *ACCESS, "includeHeaders", *(option for option, _, _ in _FIELDS))
