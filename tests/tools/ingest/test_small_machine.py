"""A gateway in a cgroup: Mosquitto, a server with 20 topics, ingest from MQTT and from files, and forward."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Final

import pytest
import triolog
from triolog.protocol.limits import MIB
from triolog.protocol.types import Isolation, TopicPartition
from triolog.tools.client.blocking.client import BlockingClient
from triolog.tools.client.blocking.consumer import BlockingConsumer
from triolog.tools.forward.process.place import CONTROL, ask

from tests.support.forwarding import ANY_PORT, FOR_EVER, until
from tests.support.memory_cgroup import memory_cgroup
from tests.support.mosquitto import Mosquitto, Publisher, mosquitto, needs_mosquitto
from tests.support.server_process import ServerFolder, memory_bytes

pytest.importorskip("paho.mqtt.client", reason="ingest needs paho-mqtt")
pytest.importorskip("confluent_kafka", reason="forward needs confluent-kafka")
pytestmark = [pytest.mark.long, needs_mosquitto()]

DEVICES: Final = 19
"""Each with a topic; the lines of files are in the 20th."""
LINES: Final = "lines"
TOPICS: Final = (*(f"sensor-{number}" for number in range(DEVICES)), LINES)
ROUNDS: Final = 20
MESSAGES: Final = 50
"""Of each device in a round."""
LINES_A_ROUND: Final = 2_000
PADDING: Final = b"x" * 90
PATIENCE_S: Final = 300.0
CONFIG: Final = """\
durability = "fsync"

[ingest_process]
state_dir = "{folder}/ingest"

[[ingest]]
name = "plant"
broker = "{broker}"

[[ingest.map]]
filter = "sensors/+"
topic = "sensor-{{2}}"

[[ingest]]
name = "logs"
topic = "{lines}"
files = ["{folder}/*.log"]
"""
FORWARD: Final = """
[forward_process]
node = "gateway"
state_dir = "{folder}/forward"

[[forward]]
name = "uplink"
to = "{upstream}"
topic_pattern = "sensor-.*|lines"
"""


def values(server: tuple[str, int], topic: str) -> list[bytes | None]:
    """Return those of committed records."""
    with (
        BlockingClient(server) as client,
        BlockingConsumer(client, follow=False, isolation=Isolation.READ_COMMITTED) as consumer,
    ):
        consumer.assign({TopicPartition(topic, 0): 0})
        return [record.value for _, record in consumer.records()]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("limit_bytes", "forwards"),
    [pytest.param(128 * MIB, False, id="ingest in 128 MiB"), pytest.param(160 * MIB, True, id="ingest and forward in 160 MiB")],
)
def test_a_gateway_with_twenty_topics_keeps_to_its_memory(tmp_path: Path, limit_bytes: int, forwards: bool) -> None:
    for name in ("server", "gateway"):
        (tmp_path / name).mkdir()
    folder, config = tmp_path / "gateway", tmp_path / "triolog.toml"
    with contextlib.ExitStack() as stack:
        upstream = stack.enter_context(triolog.blocking.open(kafka=ANY_PORT, native=ANY_PORT, config=FOR_EVER))
        cgroup = stack.enter_context(memory_cgroup(limit_bytes))
        if cgroup.path is None:
            pytest.skip("needs root, and the memory controller of control groups")
        stack.callback(until, lambda: not cgroup.processes(), "the end of the links")
        broker = stack.enter_context(mosquitto(tmp_path / "mosquitto"))
        cgroup.add(broker.pid)
        text = CONFIG.format(folder=folder, broker=broker.address, lines=LINES)
        if forwards:
            text += FORWARD.format(folder=folder, upstream=upstream.bootstrap_servers)
        config.write_text(text)
        servers = stack.enter_context(ServerFolder(tmp_path / "server"))
        server = servers.spawn("--config", str(config))
        cgroup.add(server.pid)
        there = upstream.native if forwards else server.address
        assert there is not None
        where = (there.host, there.port)
        links = [("ingest", "plant"), ("ingest", "logs"), *([("forward", "uplink")] if forwards else [])]

        def status(kind: str, link: str) -> dict[str, Any]:
            with contextlib.suppress(OSError, ValueError):
                return ask(str(folder / kind / link / CONTROL), {"command": "status"}, PATIENCE_S)
            return {"state": "absent", "records": 0}

        until(lambda: all(status(*each)["state"] == "running" for each in links), "the links", PATIENCE_S)
        sent = publish(broker, folder / "app.log")
        until(lambda: status("ingest", "plant")["records"] >= DEVICES * MESSAGES * ROUNDS, "the messages", PATIENCE_S)
        until(lambda: status("ingest", "logs")["records"] >= len(sent[LINES]), "the lines", PATIENCE_S)
        if forwards:
            count = sum(map(len, sent.values()))
            until(lambda: status("forward", "uplink")["records"] >= count, "the last record upstream", PATIENCE_S)
        found = {topic: values(where, topic) for topic in TOPICS}
        assert found[LINES] == sent[LINES], "each line once and in order"
        assert all(set(found[topic]) == set(sent[topic]) for topic in TOPICS), "each message at least once"
        processes = {pid: name_of(pid) for pid in cgroup.processes()}
        lines = [f"{len(TOPICS)} topics, {sum(map(len, sent.values())):,} records acknowledged, all there"]
        for pid, name in sorted(processes.items()):
            own, peak = (memory_bytes(pid, field) / MIB for field in ("RssAnon", "VmHWM"))
            lines.append(f"  {name:<10}{own:6.1f} MiB of its own, {peak:.1f} MiB resident at most")
        most, killed = cgroup.peak_bytes() / MIB, cgroup.killed()
        lines.append(f"  control group ({cgroup.kind}, {limit_bytes // MIB} MiB): {most:.1f} MiB with files, {killed} killed")
        print("\n".join(lines))  # noqa: T201 - docs/edge.md has it
        assert sorted(processes.values()) == sorted({"mosquitto", "serve", *(kind for kind, _ in links)})
        assert killed == 0


def name_of(pid: int) -> str:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    return next((each for each in words if each in ("serve", "forward", "ingest")), Path(words[0]).name)


def publish(broker: Mosquitto, file: Path) -> dict[str, list[bytes]]:
    """Let devices publish and a program write lines; return the acknowledged messages and the lines by topic."""
    devices = {topic: Publisher(broker, topic.replace("-", "s/"), 1) for topic in TOPICS if topic != LINES}
    lines: list[bytes] = []
    for turn in range(ROUNDS):
        new = [b"%d %d %s" % (turn, number, PADDING) for number in range(LINES_A_ROUND)]
        with file.open("ab") as stream:
            stream.write(b"".join(line + b"\n" for line in new))
        lines += new
        for device in devices.values():
            device.publish([b"%d %d %s" % (turn, number, PADDING) for number in range(MESSAGES)])
    for device in devices.values():
        device.close()
    return {topic: device.acknowledged for topic, device in devices.items()} | {LINES: lines}
