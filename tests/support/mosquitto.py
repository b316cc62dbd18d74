"""A real Mosquitto in a directory, with persistence, and a publisher that knows which messages it has an acknowledgement for.

Mosquitto acknowledges a message before it saves it: it keeps sessions and messages in memory, and writes all of them to its
file on SIGUSR1, and at intervals. A kill takes what was not saved, so `save` comes before `kill` where nothing may be lost.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from triolog.server.config.values import Address
from triolog.server.fake.ports import Ports

from tests.support.forwarding import until

PATH: Final = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
PROGRAM: Final = shutil.which("mosquitto", path=PATH)
POLL_S: Final = 0.02


def needs_mosquitto() -> pytest.MarkDecorator:
    """Mark tests that are skipped without the package `mosquitto`."""
    return pytest.mark.skipif(PROGRAM is None, reason="needs mosquitto: apt-get install mosquitto")


@attrs.define(eq=False)
class Mosquitto:
    """A broker's directory, and its process when it runs."""

    folder: Path
    address: Address
    more: str
    """Lines of its configuration."""
    _process: subprocess.Popen[bytes] | None = None

    @property
    def saved(self) -> Path:
        return self.folder / "mosquitto.db"

    def start(self) -> None:
        """Start it, and wait until it listens."""
        assert PROGRAM is not None
        file, log = self.folder / "mosquitto.conf", self.folder / "mosquitto.log"
        file.write_text(
            f"listener {self.address.port} {self.address.host}\npersistence true\nuser root\n"
            f"persistence_location {self.folder}/\nmax_queued_messages 0\nmax_inflight_messages 0\n{self.more}\n"
        )
        with log.open("ab") as output:
            begun = log.stat().st_size
            self._process = subprocess.Popen(
                [PROGRAM, "-c", str(file), "-v"], stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        process = self._process

        def is_up() -> bool:
            assert process.poll() is None, log.read_text()
            return b" running" in log.read_bytes()[begun:]

        until(is_up, "Mosquitto")

    def save(self) -> None:
        """Let it write sessions and messages to its file, and wait for that."""
        before = self._number()
        assert self._process is not None
        self._process.send_signal(signal.SIGUSR1)
        until(lambda: self._number() != before, "the file of Mosquitto")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _number(self) -> tuple[int, int]:
        """Of the file, which is another one after each save."""
        with contextlib.suppress(FileNotFoundError):
            found = self.saved.stat()
            return found.st_ino, found.st_mtime_ns
        return 0, 0


@contextlib.contextmanager
def mosquitto(folder: Path, more: str = "allow_anonymous true\n") -> Iterator[Mosquitto]:
    """A broker that runs, on a port that stays its own."""
    folder.mkdir()
    with contextlib.closing(Ports()) as ports:
        address = ports.keep(Address("127.0.0.1", 0))
        assert address is not None
        made = Mosquitto(folder, address, more)
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
