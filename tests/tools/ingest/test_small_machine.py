"""A gateway in a cgroup of 128 MiB: Mosquitto, a server with 20 topics, ingest from MQTT and from files, and forward."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs
import pytest
import triolog
from triolog.protocol.limits import MIB
from triolog.tools.client.blocking.client import BlockingClient
from triolog.tools.forward.process.place import CONTROL, ask

from tests.support.forwarding import ANY_PORT, FOR_EVER, until
from tests.support.mosquitto import Publisher, mosquitto, needs_mosquitto
from tests.support.server_process import ServerFolder, memory_bytes

pytest.importorskip("paho.mqtt.client", reason="ingest needs paho-mqtt")
pytest.importorskip("confluent_kafka", reason="forward needs confluent-kafka")
pytestmark = [pytest.mark.long, needs_mosquitto()]

CONTROLLER: Final = Path("/sys/fs/cgroup/memory")
"""Of version 1. systemd-run starts the same commands under version 2 (docs/edge.md)."""
LIMIT_BYTES: Final = 128 * MIB
DEVICES: Final = 19
"""Each with a topic; the lines of files are in the 20th."""
LINES: Final = "lines"
ROUNDS: Final = 20
MESSAGES: Final = 50
"""Of each device in a round."""
LINES_A_ROUND: Final = 2_000
PATIENCE_S: Final = 300.0
CONFIG: Final = """\
durability = "fsync"

[forward_process]
node = "gateway"
state_dir = "{folder}/forward"

[[forward]]
name = "uplink"
to = "{upstream}"
topics = {topics}

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


@attrs.frozen
class MemoryGroup:
    """A cgroup with a limit."""

    folder: Path

    @contextlib.contextmanager
    def joined(self) -> Iterator[None]:
        """Let processes that start in the block be born in the group."""
        [own] = [line.split(":")[2] for line in Path("/proc/self/cgroup").read_text().splitlines() if ":memory:" in line]
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))
        try:
            yield
        finally:
            Path(f"{CONTROLLER}{own}", "cgroup.procs").write_text(str(os.getpid()))

    def count(self, name: str) -> int:
        return int((self.folder / name).read_text())

    def field(self, name: str, key: str) -> int:
        return int(dict(line.split() for line in (self.folder / name).read_text().splitlines())[key])

    def processes(self) -> dict[int, str]:
        """Return the name of each process."""
        found = {}
        for pid in (self.folder / "cgroup.procs").read_text().split():
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            found[int(pid)] = next((each for each in words if each in ("serve", "forward", "ingest")), Path(words[0]).name)
        return found


@contextlib.contextmanager
def memory_group() -> Iterator[MemoryGroup]:
    """Skips where this process may not create one."""
    folder = CONTROLLER / f"triolog-test-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / "memory.limit_in_bytes").write_text(str(LIMIT_BYTES))
    except OSError as exc:
        pytest.skip(f"needs root and the memory controller of cgroup v1: {exc}")
    try:
        with contextlib.suppress(OSError):  # a kernel without accounting of swap
            (folder / "memory.memsw.limit_in_bytes").write_text(str(LIMIT_BYTES))
        yield MemoryGroup(folder)
    finally:
        until(lambda: not (folder / "cgroup.procs").read_text(), "the end of the processes")
        folder.rmdir()


@pytest.mark.timeout(1800)
def test_twenty_topics_forward_and_ingest_share_128_mib(tmp_path: Path) -> None:
    for name in ("server", "gateway"):
        (tmp_path / name).mkdir()
    topics = [*(f"sensor-{number}" for number in range(DEVICES)), LINES]
    folder, config = tmp_path / "gateway", tmp_path / "triolog.toml"
    with contextlib.ExitStack() as stack:
        upstream = stack.enter_context(triolog.blocking.open(kafka=ANY_PORT, config=FOR_EVER))
        group = stack.enter_context(memory_group())
        with group.joined():
            broker = stack.enter_context(mosquitto(tmp_path / "mosquitto"))
        places = {"upstream": upstream.bootstrap_servers, "broker": broker.address, "folder": folder}
        config.write_text(CONFIG.format(topics=topics, lines=LINES, **places))
        servers = stack.enter_context(ServerFolder(tmp_path / "server"))
        with group.joined():
            server = servers.spawn("--config", str(config))
        with BlockingClient(tuple(server.address)) as client:
            for topic in topics:
                client.create_topic(topic, 1)

        def records(kind: str, link: str) -> int:
            with contextlib.suppress(OSError):
                return int(ask(str(folder / kind / link / CONTROL), {"command": "status"}, PATIENCE_S)["records"])
            return -1

        until(lambda: min(records("forward", "uplink"), records("ingest", "plant")) >= 0, "the links", PATIENCE_S)
        devices = [Publisher(broker, f"sensors/{number}", 1) for number in range(DEVICES)]
        lines: list[bytes] = []
        for turn in range(ROUNDS):
            new = [b"%d %d %s" % (turn, number, b"x" * 90) for number in range(LINES_A_ROUND)]
            with (folder / "app.log").open("ab") as file:
                file.write(b"".join(line + b"\n" for line in new))
            lines += new
            for device in devices:
                device.publish([b"%d-%d %s" % (turn, number, b"x" * 90) for number in range(MESSAGES)])
        for device in devices:
            device.close()
        wanted = [*(len(device.acknowledged) for device in devices), len(lines)]

        def arrived() -> list[list[bytes | None]]:
            return [[record.value for record in upstream.log(topic).fetch()] for topic in topics]

        until(lambda: records("forward", "uplink") >= sum(wanted), "the last record", PATIENCE_S)
        until(lambda: all(len(found) >= count for found, count in zip(arrived(), wanted, strict=True)), "it", PATIENCE_S)
        *found, found_lines = arrived()
        assert found_lines == lines, "each line once and in order"
        for device, values in zip(devices, found, strict=True):
            assert set(values) == set(device.acknowledged), "each message at least once"
        assert min(records("forward", "uplink"), records("ingest", "plant"), records("ingest", "logs")) >= 0
        count = sum(map(len, found)) + len(found_lines)
        report = [f"{len(topics)} topics; acknowledged records: {sum(wanted):,}; records upstream: {count:,}"]
        for pid, name in group.processes().items():
            own, peak = (memory_bytes(pid, field) / MIB for field in ("RssAnon", "VmHWM"))
            report.append(f"  {name:<10}{own:6.1f} MiB without files; peak with shared libraries{peak:6.1f} MiB")
        report.append(f"  {'together':<10}{group.field('memory.stat', 'total_rss') / MIB:6.1f} MiB without files")
        report.append(
            f"  memory.max_usage_in_bytes {group.count('memory.max_usage_in_bytes') / MIB:.1f} MiB, with cached files"
        )
        for name, value in (
            ("memory.failcnt", group.count("memory.failcnt")),
            ("oom_kill", group.field("memory.oom_control", "oom_kill")),
        ):
            report.append(f"  {name} {value}")
        print("\n".join(report))  # noqa: T201 - docs/edge.md has it
        assert sorted(group.processes().values()) == ["forward", "ingest", "mosquitto", "serve"]
        assert group.field("memory.oom_control", "oom_kill") == 0
        assert group.count("memory.max_usage_in_bytes") <= LIMIT_BYTES
