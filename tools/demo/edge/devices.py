"""Devices that publish readings with QoS 1 to a Mosquitto, and the `triolog ingest` that stores them as records of a topic.

The devices survive the kill: they connect again, and publish again what has no acknowledgement.
"""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final

import attrs

from ....protocol.extras import how_to_install
from ....protocol.types import Record
from ....server.config.values import Address
from ....server.fake.ports import Ports
from ...forward.process.place import CONTROL, ask
from ..mosquitto import PROGRAM, Mosquitto, wait_until
from ..processes import Process, ProcessFailedError

READINGS: Final = "readings"
"""The topic of their records."""
DEVICES: Final = 3
HOST: Final = "127.0.0.1"
NAME: Final = "devices"
ASK_S: Final = 10.0
RECONNECT_S: Final = 1


def missing() -> str | None:
    """Return the reason why this machine cannot have them; None when it can."""
    if PROGRAM is None:
        return "Mosquitto is not installed: apt-get install mosquitto"
    if importlib.util.find_spec("paho") is None:
        return f"paho-mqtt is not installed: {how_to_install('mqtt')}"
    return None


@attrs.define(eq=False, repr=False)
class Devices:
    """Devices, their broker, and ingest. All methods block. One thread at a time publishes."""

    broker: Mosquitto
    ingest: Process
    published: list[bytes] = attrs.field(factory=list)
    acknowledged: list[bytes] = attrs.field(factory=list)
    """Payloads for which Mosquitto has sent PUBACK."""
    _clients: list[tuple[Any, set[int]]] = attrs.field(factory=list)
    """Clients of MQTT, each with the packet ids that Mosquitto has acknowledged. They publish too few to use an id again."""

    def start_ingest(self, server: tuple[str, int]) -> None:
        """Start ingest, and wait until it has its session at the broker. Raises ProcessFailedError."""
        state_dir = self.ingest.folder
        self.ingest.arguments = (
            *("ingest", "mqtt", "--broker", str(self.broker.address), "--name", NAME, "--map", f"sensors/+={READINGS}"),
            *("--key", "{2}", "--server", "{}:{}".format(*server), "--state-dir", str(state_dir)),
        )
        self.ingest.start()
        path = str(state_dir / NAME / CONTROL)
        wait_until(lambda: ask(path, {"command": "status"}, ASK_S)["state"] == "running", "the subscription of ingest")

    def publish(self, count: int) -> None:
        """Publish `count` readings of each device, and wait until each is acknowledged. Raises ProcessFailedError."""
        for _ in range(DEVICES - len(self._clients)):
            self._clients.append(self._connect())
        unacknowledged: list[tuple[bytes, set[int], int]] = []
        for _ in range(count):
            for device, (client, done) in enumerate(self._clients):
                number = len(self.published)
                payload = json.dumps({"device": device, "number": number, "at": time.time_ns() // 1_000_000}).encode()
                self.published.append(payload)
                unacknowledged.append((payload, done, client.publish(f"sensors/{device}", payload, qos=1).mid))
        wait_until(lambda: all(mid in done for _, done, mid in unacknowledged), "an acknowledgement by Mosquitto")
        self.acknowledged += [payload for payload, *_ in unacknowledged]

    def wait_for_acknowledgements(self, least: int) -> None:
        """Wait, while another thread publishes, until `least` messages in all are acknowledged. Raises ProcessFailedError."""
        wait_until(lambda: sum(len(done) for _, done in self._clients) >= least, "an acknowledgement by Mosquitto")

    def close(self) -> None:
        for client, _ in self._clients:
            client.disconnect()
            client.loop_stop()

    def _connect(self) -> tuple[Any, set[int]]:
        from paho.mqtt import client as paho

        client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv311)
        acknowledged: set[int] = set()
        client.on_publish = lambda client, data, mid, reason, properties: acknowledged.add(mid)
        client.reconnect_delay_set(RECONNECT_S, RECONNECT_S)
        try:
            client.connect(self.broker.address.host, self.broker.address.port)
        except OSError as exc:
            raise ProcessFailedError(f"a device cannot connect to Mosquitto at {self.broker.address}: {exc}") from exc
        client.loop_start()
        return client, acknowledged


@contextmanager
def open_devices(work_dir: Path) -> Iterator[Devices]:
    """Yield devices with a Mosquitto that runs, and an ingest that does not run yet. Leaving the block ends all of them."""
    folders = [work_dir / name for name in ("mosquitto", "ingest")]
    for folder in folders:
        folder.mkdir()
    with ExitStack() as stack:
        address = stack.enter_context(closing(Ports())).keep(Address(HOST, 0))
        assert address is not None
        broker = Mosquitto(folders[0], address)
        stack.callback(broker.kill)
        ingest = stack.enter_context(Process("ingest", folders[1], ()))
        broker.start()
        yield stack.enter_context(closing(Devices(broker, ingest)))


@attrs.define(eq=False, repr=False)
class Arrivals:
    """The values of readings in a log, in the order of their offsets. Owned by the thread that reads."""

    values: list[bytes] = attrs.field(factory=list)

    def add(self, record: Record) -> None:
        """Take the next record."""
        self.values.append(record.value or b"")
