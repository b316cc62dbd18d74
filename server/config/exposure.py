"""Exposure: listeners that peers on other machines can reach without identifying themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...protocol.errors import InvalidConfigError
from .address import Address
from .address import is_loopback as is_loopback
from .broker_config import BrokerConfig
from .listener_security import ClientAuth, ListenerSecurity

NATIVE: Final = "native"
KAFKA: Final = "kafka"
METRICS: Final = "metrics"
"""Names of listeners, as keys of the configuration have them."""
_REMEDIES: Final = {
    NATIVE: "native_security and native_ssl_client_auth have clients say who they are",
    KAFKA: "kafka_security and kafka_ssl_client_auth have clients say who they are",
    METRICS: "metrics_token_file has a token asked for",
}


def exposed(config: BrokerConfig, addresses: Mapping[str, Address | None]) -> tuple[str, ...]:
    """Return the names of those listeners that every peer that reaches the machine may use."""
    asks = {
        NATIVE: _asks_who_it_is(config.native_security, config.native_ssl_client_auth),
        KAFKA: _asks_who_it_is(config.kafka_security, config.kafka_ssl_client_auth),
        METRICS: config.metrics_token_file is not None,
    }
    found = {name: address for name, address in addresses.items() if address is not None and not asks[name]}
    return tuple(name for name, address in found.items() if not is_loopback(address.host))


def _asks_who_it_is(security: ListenerSecurity, client_auth: ClientAuth) -> bool:
    return security.has_sasl or (security.has_tls and client_auth is ClientAuth.REQUIRED)


def check_exposure(config: BrokerConfig, addresses: Mapping[str, Address | None]) -> tuple[str, ...]:
    """The same. Raises InvalidConfigError where it is not wanted."""
    found = exposed(config, addresses)
    if found and not config.insecure:
        listeners = ", ".join(f"{name} {addresses[name]}" for name in found)
        raise InvalidConfigError(
            f"{listeners}: other machines reach that, and everybody may do everything there. Listen on 127.0.0.1, or: "
            f"{'; '.join(_REMEDIES[name] for name in found)}; --insecure (insecure = true) has it so"
        )
    return found
