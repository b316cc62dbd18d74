"""Messages of QoS 1 from Mosquitto into a server with `fsync`, and by Mosquitto's own bridge into another Mosquitto."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from ....protocol.extras import how_to_install
from ....server.config.values import Address
from ...demo.mosquitto import PATH, Mosquitto
from ...demo.processes import Process
from ...forward.process.place import CONTROL, ask
from ..measuring.bench import Bench
from ..measuring.child import LoadFailedError, run_load
from ..measuring.report import Line, RowResult, absent, at_least
from ..measuring.server import Server, cpu_s, serving

MESSAGES: Final = 30_000
PAYLOAD: Final = b"x" * 100
TARGET: Final = at_least(5000, "messages/s")
TITLE: Final = "MQTT, messages of 100 B, QoS 1"
INGEST: Final = "triolog ingest, fsync"
BRIDGE: Final = "Mosquitto's bridge into another Mosquitto, without a sync"
HOST: Final = "127.0.0.1"
NAME: Final = "bench"
PATIENCE_S: Final = 120.0
POLL_S: Final = 0.02


def mqtt_ingest(bench: Bench) -> RowResult:
    """Let Mosquitto keep the messages for a subscriber that is away; then time their arrival, without the first third."""
    bench = bench.with_rounds(3)
    missing = [each for each in ("mosquitto", "mosquitto_sub") if shutil.which(each, path=PATH) is None]
    if missing or importlib.util.find_spec("paho") is None:
        reason = f"needs {' and '.join(missing)}" if missing else how_to_install("mqtt")
        return RowResult(TITLE, [absent(INGEST, reason, TARGET), absent(BRIDGE, reason)])
    count = bench.scale.count(MESSAGES, least=300)
    with bench.workspace() as directory, serving(directory, durability="fsync") as server:
        measures: dict[str, Callable[[], Any]] = {
            INGEST: partial(_ingest, directory, server, count),
            BRIDGE: partial(_bridge, directory, count),
        }
        samples = bench.interleave(measures)
    rates, times = zip(*samples[INGEST], strict=True)
    return RowResult(
        TITLE,
        [
            Line(INGEST, "messages/s", rates, TARGET),
            Line("processor time of ingest for each message", "us", times),
            Line(BRIDGE, "messages/s", samples[BRIDGE]),
        ],
    )


def _ingest(directory: str, server: Server, count: int) -> tuple[float, float]:
    """Return messages a second, and microseconds of processor time for each."""
    folder = Path(directory, "ingest")
    folder.mkdir(exist_ok=True)
    state = folder / NAME / CONTROL
    with _mosquitto(folder) as broker:
        arguments = (
            *("ingest", "mqtt", "--broker", str(broker.address), "--name", NAME, "--map", "#=bench", "--log-level", "warning"),
            *("--server", "{}:{}".format(*server.address), "--state-dir", str(folder)),
        )
        with Process("triolog ingest", folder, arguments) as ingest:
            ingest.start()
            _until(lambda: ask(str(state), {"command": "status"}, PATIENCE_S)["state"] == "running", "the subscription")
            ingest.stop()
            run_load(publish, port=broker.address.port, count=count)
            ingest.start()
            return _rate(lambda: int(ask(str(state), {"command": "status"}, PATIENCE_S)["records"]), count, ingest.pid)


def _bridge(directory: str, count: int) -> float:
    """`mosquitto_sub` at the second broker prints the time of each message. The first one starts last, with its messages."""
    first, second = Path(directory, "first"), Path(directory, "second")
    for folder in (first, second):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    port = _free_port()
    bridge = f"connection up\naddress {HOST}:{port}\ntopic # in 1\ncleansession false\nrestart_timeout 1\n"
    with _mosquitto(first, port=port) as there, _mosquitto(second, bridge):
        _until(lambda: b"Received SUBSCRIBE from" in there.log.read_bytes(), "the subscription of the bridge")
    with _mosquitto(first, port=port):
        run_load(publish, port=port, count=count)
    with _mosquitto(second, bridge) as here:
        reading = ("-t", "bench/#", "-C", str(count), "-F", "%U", "-W", f"{PATIENCE_S:.0f}")
        command = ["mosquitto_sub", "-p", str(here.address.port), *reading]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PATH": PATH}) as reader:
            _until(lambda: b"Received SUBSCRIBE from" in here.log.read_bytes(), "the subscription of the reader")
            with _mosquitto(first, port=port):
                times = [float(line) for line in reader.communicate(timeout=PATIENCE_S)[0].split()]
    if len(times) < count:
        raise LoadFailedError(f"{len(times)} of {count} messages came over the bridge")
    begun = count // 3
    return (count - 1 - begun) / (times[-1] - times[begun])


def publish(*, port: int, count: int) -> dict[str, Any]:
    """Publish, and wait for every acknowledgement."""
    from paho.mqtt import client as paho

    client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    client.max_inflight_messages_set(1000)
    client.connect(HOST, port)
    client.loop_start()
    for info in [client.publish("bench/1", PAYLOAD, 1) for _ in range(count)]:
        info.wait_for_publish(PATIENCE_S)
    client.disconnect()
    client.loop_stop()
    return {}


@contextlib.contextmanager
def _mosquitto(folder: Path, more: str = "", port: int = 0) -> Iterator[Mosquitto]:
    """Run Mosquitto on a folder; it saves its messages at the end."""
    broker = Mosquitto(folder, Address(HOST, port or _free_port()), f"allow_anonymous true\n{more}")
    try:
        broker.start()
        yield broker
        broker.save()
    finally:
        broker.kill()


def _rate(stored: Callable[[], int], count: int, pid: int) -> tuple[float, float]:
    """Measure the messages after the first third, or all where they arrived at once."""
    begun, begun_s, begun_cpu_s = 0, time.perf_counter(), cpu_s(pid)
    _until(lambda: stored() >= count // 3, "a third of the messages")
    if (arrived := stored()) < count:
        begun, begun_s, begun_cpu_s = arrived, time.perf_counter(), cpu_s(pid)
    _until(lambda: stored() >= count, "the last message")
    measured = count - begun
    return measured / (time.perf_counter() - begun_s), (cpu_s(pid) - begun_cpu_s) / measured * 1e6


def _until(is_done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_done():
        if time.monotonic() > deadline:
            raise LoadFailedError(f"{what}: not within {PATIENCE_S:g} s")
        time.sleep(POLL_S)


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
