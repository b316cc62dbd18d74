"""The options of a write with `format("triolog")`: names of Spark's Kafka sink where it has one, ours where it has none.

Names are compared without case, as Spark hands them over in lower case. Every message names the option, what it is and what
is allowed. Reading's options are in `options`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

import attrs

from ....protocol.limits import INT32_MAX, INT64_MAX, KIB, MAX_FRAME_BYTES, MAX_TRANSACTIONAL_ID_CHARS, MIB
from ....protocol.types import CompressionType
from ..option_table.option import OptionError
from ..option_table.reading import REQUEST_TIMEOUT
from ..option_table.writing import ACKS, COMPRESSION, DELIVERY_TIMEOUT, IDEMPOTENCE, WRITING
from .server_access import NOBODY, ServerAccess, Servers, read_access, read_servers

_ACKS: Final = {"all": -1, "-1": -1, "1": 1, "0": 0}

BOOLEANS: Final = {"true": True, "false": False}
Read = Callable[[str, str], Any]
"""Reads the text of the option of this name; OptionError."""


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

    servers: Servers
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
        """Read Spark's options; OptionError. `option_table.writing` says which are accepted."""
        given = {name.lower(): str(value).strip() for name, value in options.items()}
        WRITING.check(given)
        values: dict[str, Any] = {"servers": read_servers(given), "access": read_access(given)}
        values |= simple_values(given, _FIELDS)
        if (headers := given.get("includeheaders")) is not None:
            read_choice("includeHeaders", headers, BOOLEANS)
        found = cls(**values)
        is_idempotent = read_choice(IDEMPOTENCE, given.get(IDEMPOTENCE, "false"), BOOLEANS)
        found._check_together(is_idempotent)
        return found

    @property
    def is_exactly_once(self) -> bool:
        """Return whether rows are staged and committed, not produced."""
        return self.delivery_guarantee is DeliveryGuarantee.EXACTLY_ONCE

    def _check_together(self, is_idempotent: bool) -> None:
        if self.txn_version is not None and self.txn_app_id is None:
            raise OptionError("option txnVersion needs txnAppId: a version belongs to an application")
        if self.is_exactly_once and self.acks != -1:
            raise OptionError(
                f"option {ACKS} is {self.acks}, but deliveryGuarantee exactly-once needs all. Leave it out, or set "
                "deliveryGuarantee to at-least-once"
            )
        if not self.is_exactly_once and is_idempotent:
            raise OptionError(
                f"option {IDEMPOTENCE} is true, but with deliveryGuarantee at-least-once a task that runs again writes "
                "its rows again. Leave one of them out"
            )
        if not self.is_exactly_once and self.txn_app_id is not None:
            raise OptionError("option txnAppId has no meaning with deliveryGuarantee at-least-once. Leave one of them out")


def simple_values(given: Mapping[str, str], fields: Iterable[tuple[str, str, Read]]) -> dict[str, Any]:
    """Fields of which each is decided by one option alone: option, field, how it is read. OptionError."""
    return {field: read(option, text) for option, field, read in fields if (text := given.get(option.lower())) is not None}


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
