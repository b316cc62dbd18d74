"""Encrypted connections and logins: rows of the compatibility table. What was sent came from who is let in."""

from __future__ import annotations

from tests.clients.driver import EARLIEST
from tests.clients.features import Broker, Cell, feature, messages


@feature("SASL SCRAM-SHA-512", broker=Broker.SASL, mechanism="SCRAM-SHA-512")
@feature("SASL SCRAM-SHA-256", broker=Broker.SASL, mechanism="SCRAM-SHA-256")
@feature("SASL PLAIN", broker=Broker.SASL, mechanism="PLAIN")
@feature("TLS with the client's certificate", broker=Broker.MUTUAL_TLS)
@feature("TLS", broker=Broker.TLS)
def a_client_gets_in(cell: Cell) -> None:
    """Administration, producing and reading, which are connections of their own."""
    topic = cell.topic()
    with cell.driver.producer() as producer:
        assert producer.send(topic, messages("a", "b")) == [0, 1]
    assert [each.value for each in cell.driver.read(topic, 2, starts={0: EARLIEST})] == [b"a", b"b"]
