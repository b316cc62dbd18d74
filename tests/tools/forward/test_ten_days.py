"""Ten days of a server's clock on a file system of 64 MiB, with `triolog forward` in the first two and the last three of them.

The server is one for tests, whose clock is moved by an hour at a time; its retention takes what is older than a day.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from triolog.protocol.limits import MIB
from triolog.protocol.native.messages import NewTopic
from triolog.protocol.types import Isolation, Record, TopicPartition
from triolog.tools.client.blocking.admin import BlockingAdmin
from triolog.tools.client.blocking.client import BlockingClient
from triolog.tools.client.blocking.consumer import BlockingConsumer
from triolog.tools.client.blocking.producer import BlockingProducer
from triolog.tools.forward.process.place import CONTROL, ask

from tests.support.forwarding import LINK, NODE
from tests.support.server_process import Address, ServerFolder, ServerProcess
from tests.support.small_devices import mounted_device
from tests.tools.cli.forward.test_command import running

pytestmark = [pytest.mark.merge, pytest.mark.timeout(300)]

DEVICE_BYTES: Final = 64 * MIB
HOUR_S: Final = 3600
DAYS: Final = 10
DARK_HOURS: Final = range(2 * 24, 7 * 24)
SYNC_HOURS: Final = 24
PATIENCE_S: Final = 60.0
BLOCK: Final = bytes(range(251)) * 36
SHARES: Final = {"telemetry": 90, "alarms": 10}
"""Records an hour, of 9 KB."""
GROUP: Final = f"triolog-forward.{NODE}.{LINK}"
CONFIG: Final = {
    "segment.bytes": str(MIB),
    "retention.ms": str(24 * HOUR_S * 1000),
    "file.delete.delay.ms": "0",
    "retention.hold.groups": GROUP,
    "disk.full.policy": "drop-oldest",
}
UPSTREAM_CONFIG: Final = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**62)}


@attrs.define(eq=False)
class Forwarder:
    """A process, when it runs."""

    folder: Path
    source: Address
    upstream: str
    _running: ExitStack = attrs.field(factory=ExitStack)
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        where = ("--server", f"{self.source.host}:{self.source.port}", "--to", self.upstream, "--link", LINK, "--node", NODE)
        what = ("--topics", ",".join(SHARES), "--priority", "alarms", "--state-dir", str(self.folder), "--max-delay-ms", "20")
        self._process = self._running.enter_context(running(self.folder, *where, *what))

    def drain(self) -> dict[str, Any]:
        """Nothing is left, and the source knows."""
        answer = ask(str(self.folder / LINK / CONTROL), {"command": "drain", "timeout_s": PATIENCE_S}, PATIENCE_S * 2)
        assert answer.get("drained"), (answer, self.said())
        return answer

    def stop(self) -> None:
        with self._running:
            self._process.terminate()
            assert self._process.wait(PATIENCE_S) == 0, self.said()

    def said(self) -> str:
        return (self.folder / "stderr").read_text()[-4000:]


def an_hour_passes(server: ServerProcess) -> int:
    """With everything that is due then; answers the server's time."""
    now_ms = 0
    host, _, port = json.loads(server.ready_file.read_text())["control"].rpartition(":")
    connection = HTTPConnection(host, int(port), timeout=PATIENCE_S)
    with closing(connection):
        for path, told in (("/clock/advance", {"seconds": HOUR_S}), ("/retention", {})):
            connection.request("POST", path, json.dumps(told), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            now_ms = json.loads(answer.read()).get("now_ms", now_ms)
    return now_ms


def upstream_records(client: BlockingClient, topic: str) -> Iterator[Record]:
    with BlockingConsumer(client, follow=False, isolation=Isolation.READ_COMMITTED) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        for batch in consumer:
            yield from batch.records()


def found_upstream(client: BlockingClient, topic: str) -> tuple[list[int], list[int]]:
    """The numbers of records, whose bytes are as they were sent, and the offsets that the upstream was told are lost."""
    numbers, told = [], list[int]()
    for record in upstream_records(client, topic):
        number = int(record.key or b"")
        assert record.value == value_of(number)
        numbers.append(number)
        for name, said in record.headers:
            assert name == "triolog.gap"
            first, last = map(int, (said or b"").split(b"-"))
            told += range(first, last + 1)
    return numbers, told


def value_of(number: int) -> bytes:
    return b"%d" % number + BLOCK[number % 251 :]


def dropped_of(found: Mapping[str, Any]) -> dict[str, int]:
    return {topic: sum(each["records"] for each in found["dropped"] if each["topic"] == topic) for topic in SHARES}


def send(producer: BlockingProducer, counts: dict[str, int], now_ms: int) -> None:
    """What an hour brings, by the server's clock. Each record's number is its offset."""
    for topic, share in SHARES.items():
        for number in range(counts[topic], counts[topic] + share):
            producer.send(topic, value_of(number), key=b"%d" % number, partition=0, timestamp_ms=now_ms)
        counts[topic] += share
    producer.flush(PATIENCE_S)


def create(client: BlockingClient, topics: Sequence[NewTopic]) -> None:
    BlockingAdmin(client).create_topics(topics)


def test_ten_days_with_a_forwarder_in_half_of_them_add_up(tmp_path: Path) -> None:
    """Everything was forwarded once, or counted as dropped and told; nothing of what matters more was dropped; and no producer
    was ever refused or met a full device."""
    for name in ("source", "upstream"):
        (tmp_path / name).mkdir()
    with (
        mounted_device(tmp_path, "ext4", DEVICE_BYTES) as device,
        ServerFolder(tmp_path / "source", data_dirs=(str(device / "data"),)) as sources,
        ServerFolder(tmp_path / "upstream") as upstreams,
    ):
        source = sources.start("--control", "127.0.0.1:0")
        upstream = upstreams.start("--kafka", "127.0.0.1:0", "--durability", "os")
        kafka = json.loads(upstream.ready_file.read_text())["kafka"]
        counts = dict.fromkeys(SHARES, 0)
        (tmp_path / "links").mkdir()
        link = Forwarder(tmp_path / "links", source.address, kafka)
        with BlockingClient(source.address) as client, BlockingClient(upstream.address) as there, link._running:
            priorities = {"telemetry": "0", "alarms": "10"}
            create(client, [NewTopic(topic, 1, {**CONFIG, "disk.full.priority": priorities[topic]}) for topic in SHARES])
            create(there, [NewTopic(topic, 1, UPSTREAM_CONFIG) for topic in SHARES])
            with BlockingProducer(client) as producer:
                link.start()
                now_ms = an_hour_passes(source)
                for hour in range(DAYS * 24):
                    if hour == DARK_HOURS.start:
                        link.drain()
                        link.stop()
                    elif hour == DARK_HOURS.stop:
                        source.wait_room(device, BlockingAdmin(client).statistics()["directories"][0]["reserve_bytes"])
                        dark = BlockingAdmin(client).statistics()
                        link.start()
                        link.drain()
                    send(producer, counts, now_ms)
                    if hour not in DARK_HOURS and hour % SYNC_HOURS == 0:
                        link.drain()
                    now_ms = an_hour_passes(source)
            told_by_link = link.drain()
            found = BlockingAdmin(client).statistics()
            link.stop()

            dropped = dropped_of(found)
            assert dropped["telemetry"] > 0
            assert dropped == {**dropped_of(dark), "alarms": 0}, "dropped was what found no room while nobody forwarded"
            assert told_by_link["lost_records"] == dropped["telemetry"]
            for topic, written in counts.items():
                numbers, told = found_upstream(there, topic)
                assert sorted(set(numbers)) == numbers, "in order, and each once"
                assert sorted([*numbers, *told]) == list(range(written))
                assert len(told) == dropped[topic]
            stored = {each["topic"]: each["records"] for each in found["topics"]}
            for topic, share in SHARES.items():
                assert 23 * share <= stored[topic] < 3 * 24 * share, "retention took what was forwarded and is older than a day"
            assert found["protocols"]["native"]["apis"]["produce"]["errors"] == {}
            assert not any(each["is_refusing"] for each in found["directories"])
        assert "No space left" not in source.stderr()
        assert "were dropped, which not all of retention.hold.groups" in source.stderr()
        assert source.stop() == 0
