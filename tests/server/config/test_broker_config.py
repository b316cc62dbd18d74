"""Addresses to listen on."""

from __future__ import annotations

import pytest
from triolog.server.config.broker_config import Address


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9095", "127.0.0.1", 9095),
        ("[::1]:0", "::1", 0),
        ("localhost:65535", "localhost", 65535),
        ("::1:80", "::1", 80),
    ],
)
def test_an_address_is_read_and_written(text: str, host: str, port: int) -> None:
    address = Address.parse(text)
    assert (address.host, address.port) == (host, port)
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize("text", ["", "localhost", ":80", "[]:80", "host:", "host:x", "host:-1", "host:65536", "host:٣"])
def test_what_is_no_address_is_refused_with_what_was_found(text: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT") as raised:
        Address.parse(text)
    assert repr(text) in str(raised.value)
