"""Which listeners other machines reach, and what has to be said for that."""

from __future__ import annotations

from typing import Any

import pytest
from triolog.protocol.errors import InvalidConfigError
from triolog.server.config.broker_config import Address, BrokerConfig
from triolog.server.config.broker_settings import check_exposure, exposed, is_loopback
from triolog.server.config.listener_security import ClientAuth, ListenerSecurity

EVERYWHERE = Address("0.0.0.0", 9095)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost", "LOCALHOST.", "::ffff:127.0.0.1"])
def test_what_only_this_machine_reaches(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "fe80::1", "gateway", "localhost.b", "::ffff:10.0.0.1", ""])
def test_what_others_reach(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ({}, ("native", "kafka", "metrics")),
        ({"native_security": ListenerSecurity.SASL_PLAINTEXT}, ("kafka", "metrics")),
        ({"kafka_security": ListenerSecurity.SSL}, ("native", "kafka", "metrics")),
        (
            {"kafka_security": ListenerSecurity.SSL, "kafka_ssl_client_auth": ClientAuth.REQUESTED},
            ("native", "kafka", "metrics"),
        ),
        ({"kafka_security": ListenerSecurity.SSL, "kafka_ssl_client_auth": ClientAuth.REQUIRED}, ("native", "metrics")),
        ({"kafka_ssl_client_auth": ClientAuth.REQUIRED}, ("native", "kafka", "metrics")),
        ({"metrics_token_file": "token"}, ("native", "kafka")),
    ],
)
def test_listeners_that_ask_nobody_who_he_is(keys: dict[str, Any], found: tuple[str, ...]) -> None:
    config = BrokerConfig(data_dirs=("d",), **keys)
    assert exposed(config, dict.fromkeys(("native", "kafka", "metrics"), EVERYWHERE)) == found
    assert exposed(config, dict.fromkeys(("native", "kafka", "metrics"), Address("127.0.0.1", 1))) == ()


def test_it_has_to_be_wanted() -> None:
    addresses = {"native": Address("127.0.0.1", 1), "kafka": EVERYWHERE, "metrics": None}
    with pytest.raises(
        InvalidConfigError, match=r"kafka 0\.0\.0\.0:9095: other machines reach that.*kafka_security.*--insecure"
    ):
        check_exposure(BrokerConfig(data_dirs=("d",)), addresses)
    assert check_exposure(BrokerConfig(data_dirs=("d",), insecure=True), addresses) == ("kafka",)
