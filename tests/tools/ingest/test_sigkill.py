"""SIGKILL of ingest, Mosquitto and the server in any order: every acknowledged message is in the topic.

A run is a seed: the messages of a publisher, and kills while they are on their way. Mosquitto has saved what it acknowledged
before it is killed (see `tests.support.mosquitto`). In runs of QoS 2 in which it was not killed, every message is there once.

`TRIOLOG_TEST_INGEST_SEED=...` repeats one run: all choices, though not the moment.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from triolog.protocol.types import TopicPartition
from triolog.server.config.values import Address
from triolog.server.fake.ports import Ports
from triolog.tools.client.blocking.client import BlockingClient
from triolog.tools.client.blocking.consumer import BlockingConsumer
from triolog.tools.forward.process.place import CONTROL, ask

from tests.support.counts import seeds
from tests.support.forked_servers import ForkedProcess, ServerForker
from tests.support.forwarding import until
from tests.support.mosquitto import Mosquitto, Publisher, mosquitto, needs_mosquitto
from tests.support.server_process import ServerFolder, ServerProcess, environment

pytest.importorskip("paho.mqtt.client", reason="ingest needs paho-mqtt")
pytestmark = [pytest.mark.merge, needs_mosquitto()]

SEED: Final = os.environ.get("TRIOLOG_TEST_INGEST_SEED")
SEEDS: Final = [int(SEED)] if SEED else list(seeds(100, merge=5, commit=1))
VICTIMS: Final = ("ingest", "mosquitto", "server")
NAME: Final = "plant"
TOPIC: Final = "readings"
PATIENCE_S: Final = 120.0


@attrs.define(eq=False)
class Chain:
    """Mosquitto, ingest and a server, each a process that can be killed and comes back."""

    folder: Path
    broker: Mosquitto
    forker: ServerForker
    servers: ServerFolder
    native: Address
    qos: int
    _server: ServerProcess | None = None
    _ingest: ForkedProcess | None = None

    def start_server(self) -> None:
        self._server = self.servers.start("--native", str(self.native), "--durability", "fsync")

    def kill_server(self) -> None:
        assert self._server is not None
        self._server.kill()

    def start_ingest(self) -> None:
        arguments = (
            *("--server", str(self.native), "--broker", str(self.broker.address), "--name", NAME, "--qos", str(self.qos)),
            *("--map", f"devices/+={TOPIC}", "--key", "{2}", "--state-dir", str(self.folder)),
        )
        output = self.folder / "ingest.log"
        output.touch()
        self._ingest = self.forker.fork(
            ["ingest", "mqtt", *arguments], cwd=self.folder, environment=environment(), output=output
        )

    def kill_ingest(self) -> None:
        if self._ingest is not None:
            self._ingest.kill()
            self._ingest.wait()

    @property
    def ingest_pid(self) -> int:
        assert self._ingest is not None
        return self._ingest.pid

    def status(self) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            return ask(str(self.folder / NAME / CONTROL), {"command": "status"}, PATIENCE_S)
        return {"state": "not running"}

    def stored(self) -> Counter[bytes]:
        """What a reader of committed records finds."""
        with (
            BlockingClient((self.native.host, self.native.port)) as client,
            BlockingConsumer(client, follow=False, isolation="read_committed") as consumer,
        ):
            if TOPIC not in client.topics():
                return Counter()
            consumer.assign({TopicPartition(TOPIC, 0): 0})
            return Counter(bytes(record.value or b"") for _, record in consumer.records())


@contextlib.contextmanager
def chain(folder: Path, forker: ServerForker, qos: int) -> Iterator[Chain]:
    (folder / "server").mkdir()
    with (
        contextlib.closing(Ports()) as ports,
        mosquitto(folder / "mosquitto") as broker,
        ServerFolder(folder / "server", command=forker) as servers,
    ):
        native = ports.keep(Address("127.0.0.1", 0))
        assert native is not None
        made = Chain(folder, broker, forker, servers, native, qos)
        made.start_server()
        made.start_ingest()
        try:
            until(lambda: made.status()["state"] == "running", "the session", PATIENCE_S)
            yield made
        except BaseException as exc:
            exc.add_note((folder / "ingest.log").read_text()[-5000:])
            raise
        finally:
            made.kill_ingest()


def kill_and_restart(made: Chain, publisher: Publisher, victims: list[str], rng: random.Random) -> None:
    ways = {
        "ingest": (made.kill_ingest, made.start_ingest),
        "mosquitto": (made.broker.kill, made.broker.start),
        "server": (made.kill_server, made.start_server),
    }
    if "mosquitto" in victims:
        made.broker.save()
        publisher.close()
    for name in victims:
        ways[name][0]()
    for name in rng.sample(victims, len(victims)):
        ways[name][1]()


@pytest.mark.parametrize("seed", SEEDS)
def test_every_acknowledged_message_is_stored_whatever_is_killed(
    tmp_path: Path, ingest_forker: ServerForker, seed: int
) -> None:
    rng = random.Random(seed)
    qos = rng.choice((1, 2))
    killed: set[str] = set()
    with chain(tmp_path, ingest_forker, qos) as made:
        publisher = Publisher(made.broker, "devices/7", qos)
        for turn in range(rng.choice((2, 3, 4))):
            publisher.publish([f"{seed}-{turn}-{number}".encode() for number in range(rng.randrange(1, 400))])
            victims = rng.sample(VICTIMS, rng.choice((1, 1, 1, 2, 3)))
            killed.update(victims)
            kill_and_restart(made, publisher, victims, rng)
        publisher.publish([b"%d-last" % seed])
        publisher.close()
        model = set(publisher.acknowledged)
        until(lambda: model <= made.stored().keys(), f"{len(model)} messages", PATIENCE_S)
        found = made.stored()
        assert found.keys() == model, "nothing but what was published"
        if qos == 2 and "mosquitto" not in killed:
            assert set(found.values()) == {1}
            assert made.status()["delivery"] == "exactly-once"
