"""Whom a client quota is for, what it may limit, and which values it may have. Source: KIP-13, KIP-124, KIP-546, KIP-612;
Kafka's QuotaConfig and ClientQuotaControlManager.

An entity names a user, a client id, or both, each by name or as the default; or an address, or the default of all addresses.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterable
from typing import Final

from ...protocol.errors import InvalidRequestError
from ...protocol.limits import INT32_MAX, INT64_MAX

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

WHOLE_NUMBERS: Final = {
    PRODUCER_BYTE_RATE: INT64_MAX,
    CONSUMER_BYTE_RATE: INT64_MAX,
    CONNECTION_CREATION_RATE: INT32_MAX,
}
"""Keys whose values have no fractions, and the largest one."""
KEYS_OF_CLIENTS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
KEYS_OF_ADDRESSES: Final = (CONNECTION_CREATION_RATE,)
FRACTION: Final = 1e-6
"""What is nearer to a whole number is one."""

QuotaEntity = tuple[tuple[str, str | None], ...]
"""(type, name) in the order of the types; None is the default."""


def checked_entity(named: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """An entity that can have quotas; of a type that is named twice the last name counts, as in Kafka. Raises
    InvalidRequestError."""
    names = dict(named)
    if not names:
        raise InvalidRequestError("Invalid empty client quota entity")
    for kind, name in names.items():
        if kind not in ENTITY_TYPES:
            raise InvalidRequestError(f"Unhandled client quota entity type: {kind}; there are {', '.join(ENTITY_TYPES)}")
        if name == "":
            raise InvalidRequestError(f"Empty {kind} not supported")
    if IP in names:
        if len(names) > 1:
            raise InvalidRequestError("Invalid quota entity combination: an address is not combined with a user or client id")
        if (address := names[IP]) is not None and plain_address(address) is None:
            raise InvalidRequestError(f"{address} is not an IP address; names of hosts are not looked up")
    return tuple(sorted(names.items()))


def plain_address(text: str) -> str | None:
    """An address in the one way in which all that are equal are written; None for what is none."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None


def check_quota(entity: QuotaEntity, key: str, value: float) -> None:
    """Check that an entity may have this quota. Raises InvalidRequestError."""
    keys = KEYS_OF_ADDRESSES if entity[0][0] == IP else KEYS_OF_CLIENTS
    if key not in keys:
        raise InvalidRequestError(f"Invalid configuration key {key}; there are {', '.join(keys)}")
    if math.isnan(value):
        raise InvalidRequestError(f"Quota {key} is no number")
    if value <= 0:
        raise InvalidRequestError(f"Quota {key} must be greater than 0")
    if (largest := WHOLE_NUMBERS.get(key)) is None:
        return
    if value > largest:
        raise InvalidRequestError(f"Proposed value for {key} is too large, {largest} is the largest")
    if abs(value - round(value)) > FRACTION:
        raise InvalidRequestError(f"{key} cannot be a fractional value.")
