"""The demo's Mosquitto for tests, and a publisher that knows which messages it has an acknowledgement for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from triolog.server.config.values import Address
from triolog.server.fake.ports import Ports
from triolog.tools.demo.mosquitto import PATH, PROGRAM, Mosquitto

from tests.support.forwarding import until

POLL_S: Final = 0.02
__all__ = ["PATH", "Mosquitto", "Publisher", "mosquitto", "needs_mosquitto"]


def needs_mosquitto() -> pytest.MarkDecorator:
    """Mark tests that are skipped without the package `mosquitto`."""
    return pytest.mark.skipif(PROGRAM is None, reason="needs mosquitto: apt-get install mosquitto")


@contextlib.contextmanager
def mosquitto(folder: Path, more: str = "allow_anonymous true\n") -> Iterator[Mosquitto]:
    """A broker that runs, on a port that stays its own."""
    folder.mkdir()
    with contextlib.closing(Ports()) as ports:
        address = ports.keep(Address("127.0.0.1", 0))
        assert address is not None
        made = Mosquitto(folder, address, f"max_inflight_messages 0\n{more}")
        try:
            made.start()
            yield made
        finally:
            made.kill()


class Publisher:
    """Publishes with QoS 1 or 2, without a thread. `acknowledged` has the payloads with a PUBACK or PUBCOMP."""

    def __init__(self, broker: Mosquitto, topic: str, qos: int) -> None:
        self.acknowledged: list[bytes] = []
        self._broker = broker
        self._topic = topic
        self._qos = qos
        self._client: Any = None
        self._sent: dict[int, bytes] = {}

    def publish(self, payloads: list[bytes], *, retain: bool = False) -> None:
        """Publish some, and wait until each is acknowledged. What a lost connection leaves open is published again."""
        left = list(payloads)
        while left:
            if self._client is None:
                self._connect()
            for payload in left:
                self._sent[self._client.publish(self._topic, payload, self._qos, retain).mid] = payload
            while self._sent and self._client.loop(POLL_S) == 0:
                pass
            left = list(self._sent.values())
            if left:
                self.close()

    def close(self) -> None:
        if self._client is not None:
            self._client.on_publish = None
            self._client.disconnect()
            self._client._reset_sockets()
        self._client = None
        self._sent.clear()

    def _connect(self) -> None:
        from paho.mqtt import client as paho

        client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
        client.max_inflight_messages_set(1000)

        def published(client: Any, data: Any, packet_id: int, reason: Any, properties: Any) -> None:
            if (payload := self._sent.pop(packet_id, None)) is not None and not reason.is_failure:
                self.acknowledged.append(payload)

        client.on_publish = published
        client.connect(self._broker.address.host, self._broker.address.port, clean_start=True)
        self._client = client
        until(lambda: client.loop(POLL_S) == 0 and client.is_connected(), "the publisher's connection")
