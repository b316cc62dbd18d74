"""Ports that are kept while nobody listens on them."""

from __future__ import annotations

import socket

import pytest
from triolog.server.config.broker_config import Address
from triolog.server.fake.ports import Ports


def listening(address: Address) -> socket.socket:
    """As trio's listeners are made."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address.host, address.port))
    listener.listen()
    return listener


def test_a_kept_port_refuses_connections_and_can_be_listened_on_again_and_again() -> None:
    ports = Ports()
    address = ports.keep(Address("127.0.0.1", 0))
    assert address is not None
    assert address.port
    for _ in range(3):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((address.host, address.port))
        with listening(address), socket.create_connection((address.host, address.port)):
            """Somebody is there."""
    ports.close()


def test_the_system_gives_a_kept_port_to_nobody_else() -> None:
    ports = Ports()
    kept = [ports.keep(Address("127.0.0.1", 0)) for _ in range(200)]
    assert len({address.port for address in kept if address is not None}) == 200
    ports.close()


@pytest.mark.parametrize("address", [None, Address("localhost", 0)])
def test_what_is_no_address_of_one_interface_is_left_as_it_is(address: Address | None) -> None:
    ports = Ports()
    assert ports.keep(address) == address
    ports.close()


def test_a_port_that_is_taken_is_left_to_whoever_listens_there() -> None:
    ports = Ports()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = Address("127.0.0.1", taken.getsockname()[1])
        assert ports.keep(address) == address
    ports.close()
