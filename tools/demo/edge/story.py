"""The edge demo from the first record to the sum: a week without an uplink, the uplink, a kill, and what has arrived.

An upstream that is not ours is met through the link, but then says itself where it is: so it is the forwarder that is slow, and
the upstream is not killed.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import attrs
import trio

from ....protocol.errors import ErrorCode, RequestError
from ....protocol.types import TopicPartition
from ...client.admin import Admin
from ...client.config import ClientConfig
from ...client.connection import Client, connect
from ...client.consumer import open_consumer
from ...client.producer import SentRecord, open_producer
from ...forward.process.place import CONTROL, ask
from ..flights import Flight, send_flight
from ..processes import Process, serve_arguments
from ..showing import Demo
from .accounts import Account, DeviceAccount, sums
from .devices import DEVICES, READINGS, Arrivals, Devices, missing, open_devices
from .slow_link import SlowLink
from .small_disk import SmallDisk
from .upstream import Arrived, delete_topics, read_upstream
from .week import CANCELLATIONS, DELAYS, DEPARTURES, DUTIES, PARTITIONS, Written, topic_config

PLACES: Final = tuple(TopicPartition(topic, number) for topic, count in PARTITIONS.items() for number in range(count))
STORAGE_ERRORS: Final = frozenset({"KAFKA_STORAGE_ERROR", "UNKNOWN_SERVER_ERROR"})
"""The errors of a server that could not write. Others are on purpose: POLICY_VIOLATION, and RECORD_LIST_TOO_LARGE, after which
a producer sends smaller pieces."""
PUBLISHED: Final = 100
"""Messages of each device before the week, during the kill, while Mosquitto waits for ingest, and while all start again."""
MESSAGES: Final = 4 * PUBLISHED
STORED_S: Final = 30.0
"""Patience with ingest after the restart."""
LINK: Final = "uplink"
LINK_BYTES_PER_SECOND: Final = 1_000_000
"""Of the proxy: 8 Mbit/s."""
DIRECT_BYTES_PER_SECOND: Final = 6_000_000
"""Before compression, where the records cannot be led through the proxy: about the same."""
SETTINGS: Final = {"TRIOLOG_RETENTION_CHECK_INTERVAL_MS": "1000"}
CONFIG: Final = """\
server = "{server}"
state_dir = "{state_dir}"
node = "{node}"

[[forward]]
name = "{link}"
to = "{to}"
topics = {topics}
priority = {priority}
target = "{{node}}.{{topic}}"
compression = "zstd"
transaction_max_bytes = 1_048_576
max_bytes_per_second = {max_bytes_per_second}
create_config = {{ "retention.ms" = "-1" }}
"""
LOOK_S: Final = 0.05
ASK_S: Final = 10.0
FORWARD_TIMEOUT_S: Final = 240.0
SIGKILL_STATUS: Final = -9


async def run_edge_story(
    demo: Demo, week: Sequence[Written], disk: SmallDisk, work_dir: Path, to: str | None, seed: int
) -> None:
    """Run all chapters."""
    async with _open_stage(disk, work_dir, to) as stage:
        demo.chapter("A gateway without an uplink")
        demo.say(f"triolog serve is process {stage.source.pid}, durability fsync; its disk: {disk.what}")
        demo.say(f"space for {disk.room_bytes / 1e6:.1f} MB; {len(week):,} flights of a year arrive within a week")
        for topic, duty in DUTIES.items():
            demo.say(f"{topic:<13} {sum(each.topic == topic for each in week):>7,}  {duty}")
        if stage.devices is None:
            demo.say(f"without devices that speak MQTT: {missing()}")
        else:
            demo.say(
                f"{READINGS:<13} {DEVICES * MESSAGES:>7,}  from {DEVICES} devices: "
                "MQTT with QoS 1, Mosquitto, triolog ingest mqtt"
            )
        demo.say(f"upstream: {to or 'triolog serve'}, unreachable for now; triolog forward keeps trying")
        productions = await _write(demo, stage, week, disk)
        await _forward(demo, stage, Random(seed).uniform(0.35, 0.65))
        await _add_up(demo, stage, productions)
        if to is not None:
            await trio.to_thread.run_sync(delete_topics, to, [f"{stage.node}.{topic}" for topic in stage.topics])


# ---- the stage ---------------------------------------------------------------------------------------------------------------


@attrs.define(eq=False, repr=False)
class _Stage:
    """The processes, all of them ours, and the link between them. Owner: the task that opened it."""

    node: str
    processes: Mapping[str, Process]
    link: SlowLink
    read_at: str
    """The address at which the upstream is read."""
    config_file: Path
    max_bytes_per_second: int
    devices: Devices | None
    """None where Mosquitto or paho-mqtt is not installed."""
    total: int = 0
    """Records of the backlog, once it is known."""

    @property
    def source(self) -> Process:
        return self.processes["server"]

    @property
    def topics(self) -> list[str]:
        """Return the topics that are forwarded."""
        return [*PARTITIONS, *([READINGS] if self.devices else ())]

    @property
    def _state_dir(self) -> Path:
        return self.config_file.parent / "links"

    @property
    def forwarder(self) -> Process:
        return self.processes["forwarder"]

    def connect(self) -> Any:
        """Connect a client to the source."""
        return connect(self.source.address, config=ClientConfig(client_id="edge-demo"))

    async def start_forwarder(self, *options: str) -> None:
        host, port = self.source.address
        text = CONFIG.format(
            server=f"{host}:{port}",
            state_dir=self._state_dir,
            node=self.node,
            link=LINK,
            to=self.link.address,
            topics=self.topics,
            priority=[CANCELLATIONS, DELAYS, *self.topics[len(PARTITIONS) :]],
            max_bytes_per_second=self.max_bytes_per_second,
        )
        self.config_file.write_text(text)
        self.forwarder.arguments = ("forward", "--config", str(self.config_file), *options)
        await trio.to_thread.run_sync(self.forwarder.start)

    async def ask_forwarder(self, command: str) -> dict[str, Any] | None:
        """Return the link's response; None while the forwarder does not respond."""
        path = str(self._state_dir / LINK / CONTROL)
        try:
            return await trio.to_thread.run_sync(partial(ask, path, {"command": command}, ASK_S))
        except OSError:
            return None

    async def forwarded(self) -> int:
        """Return how many records are upstream; 0 while that is not known."""
        status = await self.ask_forwarder("status")
        if status is None or status["state"] not in ("running", "draining"):
            return 0
        left: int = status["backlog_records"]
        self.total = self.total or left + status["records"]
        return self.total - left


@asynccontextmanager
async def _open_stage(disk: SmallDisk, work_dir: Path, to: str | None) -> AsyncIterator[_Stage]:
    """Yield running servers and a forwarder that does not run yet. Leaving the block kills the processes that still run."""
    folders = {name: work_dir / name for name in ("server", "upstream", "forwarder")}
    for folder in folders.values():
        folder.mkdir()
    link = SlowLink(lambda: _address(to or processes["upstream"].kafka))
    settings = {**SETTINGS, **disk.settings}
    processes = {"server": Process("the server", folders["server"], serve_arguments(disk.folder / "data"), settings)}
    async with trio.open_nursery() as nursery:
        await nursery.start(link.run)
        if to is None:
            arguments = serve_arguments(folders["upstream"] / "data", "--kafka", "127.0.0.1:0")
            advertised = {"TRIOLOG_KAFKA_ADVERTISED": link.address}
            processes["upstream"] = Process("the upstream", folders["upstream"], arguments, advertised)
        processes = {"forwarder": Process("the forwarder", folders["forwarder"], ()), **processes}
        with ExitStack() as stack:
            for process in processes.values():
                stack.enter_context(process)
            devices = None if missing() else stack.enter_context(open_devices(work_dir))
            await _start_servers(processes)
            config_file, rate = folders["forwarder"] / "forward.toml", 0 if to is None else DIRECT_BYTES_PER_SECOND
            node = f"edge-demo-{secrets.token_hex(4)}"
            yield _Stage(node, processes, link, to or link.address, config_file, rate, devices)
        nursery.cancel_scope.cancel()


async def _start_servers(processes: Mapping[str, Process]) -> None:
    async with trio.open_nursery() as nursery:
        for name, process in processes.items():
            if name != "forwarder":
                nursery.start_soon(trio.to_thread.run_sync, process.start)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


# ---- chapters ----------------------------------------------------------------------------------------------------------------


@attrs.define
class Production:
    """Of one partition."""

    flights: list[Flight] = attrs.field(factory=list)
    """What was acknowledged, by offset."""
    refused: int = 0
    misplaced: int = 0

    def settle(self, flight: Flight, record: SentRecord) -> None:
        """Count a record that is done. Raises what it failed with, unless its topic was to refuse it."""
        try:
            offset = record.value().offset
        except RequestError as exc:
            if exc.code is not ErrorCode.POLICY_VIOLATION:
                raise
            self.refused += 1
            return
        self.misplaced += offset != len(self.flights)
        self.flights.append(flight)


async def _write(demo: Demo, stage: _Stage, week: Sequence[Written], disk: SmallDisk) -> dict[TopicPartition, Production]:
    """Write the week, with the uplink down."""
    async with stage.connect() as client:
        admin = Admin(client)
        for topic, count in PARTITIONS.items():
            await admin.create_topic(topic, count, topic_config(topic, f"triolog-forward.{stage.node}.{LINK}"))
        if stage.devices is not None:
            await admin.create_topic(READINGS, 1, topic_config(DELAYS, f"triolog-forward.{stage.node}.{LINK}"))
            await trio.to_thread.run_sync(stage.devices.start_ingest, stage.source.address)
            await trio.to_thread.run_sync(stage.devices.publish, PUBLISHED)
        await stage.start_forwarder()
        begin = time.perf_counter()
        productions = await _send(client, week)
        seconds = time.perf_counter() - begin
        found = await admin.statistics()
    written = sum(len(each.flights) for each in productions.values())
    refused = sum(each.refused for each in productions.values())
    stored = sum(topic["records"] for topic in found["topics"] if topic["topic"] in PARTITIONS)
    dropped = sum(each["records"] for each in found["dropped"])
    demo.say(
        f"{written:,} records acknowledged and {refused:,} refused in {seconds:.1f} s; {stored:,} are "
        f"stored, {dropped:,} were dropped; the forwarder was refused {stage.link.turned_away} times"
    )
    size = sum(len(flight.key or b"") + len(flight.value) for each in productions.values() for flight in each.flights)
    demo.figures |= {"disk": disk.what, "room_bytes": disk.room_bytes, "written_bytes": size, "write_s": seconds}
    demo.figures |= {"dropped_before_link": dropped, "refused_connections": stage.link.turned_away}
    how = f"{size / 1e6:.1f} MB of keys and values, space for {disk.room_bytes / 1e6:.1f} MB"
    demo.check("more was written than the disk can hold", size > disk.room_bytes > 0, how)
    errors = found["protocols"]["native"]["apis"].get("produce", {}).get("errors", {})
    said = ", ".join(f"{name} {count}" for name, count in errors.items()) or "none"
    demo.check("no producer met a full disk", not STORAGE_ERRORS & errors.keys(), f"refusals by the server: {said}")
    return productions


async def _send(client: Client, week: Sequence[Written]) -> dict[TopicPartition, Production]:
    async with open_producer(client) as producer:
        sent = [await send_flight(producer, *written, number) for number, written in enumerate(week)]
        await producer.flush()
    productions = {place: Production() for place in PLACES}
    for (topic, flight), record in zip(week, sent, strict=True):
        productions[TopicPartition(topic, flight.partition)].settle(flight, record)
    return productions


async def _forward(demo: Demo, stage: _Stage, share: float) -> None:
    """Bring the link up; kill everything when `share` of the backlog is upstream, and continue from there."""
    demo.chapter(f"The link is back, with {LINK_BYTES_PER_SECOND * 8 / 1e6:.0f} Mbit/s")
    begin = time.perf_counter()
    with trio.move_on_after(FORWARD_TIMEOUT_S) as patience:
        stage.link.is_up, stage.link.bytes_per_second = True, LINK_BYTES_PER_SECOND
        await stage.ask_forwarder("resume")
        while (forwarded := await stage.forwarded()) < share * stage.total or not stage.total:  # noqa: ASYNC110
            await trio.sleep(LOOK_S)
        at_s = time.perf_counter() - begin
        statuses = await _kill(stage)
        killed = time.perf_counter()
        await _start_servers(stage.processes)
        if stage.devices is not None:
            await _restart_devices(stage, stage.devices)
        await stage.start_forwarder("--drain")
        restart_ms = (time.perf_counter() - killed) * 1000
        demo.say(
            f"SIGKILL of {', '.join(statuses)} after {at_s:.1f} s, with {forwarded:,} records upstream; "
            f"all there again within {restart_ms:.0f} ms"
        )
        assert stage.forwarder.process is not None
        while stage.forwarder.process.poll() is None:  # noqa: ASYNC110
            await trio.sleep(LOOK_S)
        if status := stage.forwarder.wait():
            raise stage.forwarder.failed(f"ended with {status}")
    if patience.cancelled_caught:
        raise stage.forwarder.failed(f"had not sent everything within {FORWARD_TIMEOUT_S:.0f} s")
    seconds, carried = time.perf_counter() - begin, stage.link.carried_bytes
    demo.say(f"nothing is left after {seconds:.1f} s, the kill included; the link carried {carried / 1e6:.1f} MB")
    demo.figures |= {"forward_s": seconds, "link_bytes": carried, "killed_after_s": at_s}
    demo.figures |= {"forwarded_at_kill": forwarded, "restart_ms": restart_ms}
    said = ", ".join(f"{name} {status}" for name, status in statuses.items())
    demo.check(
        "everything was killed in the middle of forwarding",
        set(statuses.values()) == {SIGKILL_STATUS} and 0 < forwarded < stage.total,
        f"exit status of {said}, with {forwarded:,} of {stage.total:,} upstream",
    )


async def _kill(stage: _Stage) -> dict[str, int | None]:
    """Kill everything but the devices; return the exit statuses.

    The devices publish during the kill, and after it as long as Mosquitto runs: so ingest dies in the middle of its work, and
    Mosquitto has messages for it. Then the devices pause, and Mosquitto saves. It acknowledges messages before that, and a kill
    would take them.
    """
    devices, processes = stage.devices, dict(stage.processes)
    statuses: dict[str, int | None] = {}
    async with trio.open_nursery() as nursery:
        if devices is not None:
            processes["ingest"] = devices.ingest
            least = len(devices.acknowledged) + PUBLISHED
            nursery.start_soon(trio.to_thread.run_sync, devices.publish, PUBLISHED)
            await trio.to_thread.run_sync(devices.wait_for_acknowledgements, least)
        for process in processes.values():
            process.kill()
        for name, process in processes.items():
            statuses[name] = await trio.to_thread.run_sync(process.wait)
    if devices is not None:
        await trio.to_thread.run_sync(devices.publish, PUBLISHED)
        await trio.to_thread.run_sync(devices.broker.save)
        statuses["mosquitto"] = devices.broker.kill()
    return statuses


async def _restart_devices(stage: _Stage, devices: Devices) -> None:
    """Start Mosquitto again while devices publish, then ingest, and wait until the acknowledged messages are stored here."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, devices.publish, PUBLISHED)
        await trio.to_thread.run_sync(devices.broker.start)
        await trio.to_thread.run_sync(devices.start_ingest, stage.source.address)
    unstored = set(devices.acknowledged)
    with trio.move_on_after(STORED_S):  # the account says what is missing
        async with stage.connect() as client, open_consumer(client) as consumer:
            await consumer.assign(READINGS)
            async for batch in consumer:
                unstored -= {record.value for record in batch.records()}
                if not unstored:
                    break


async def _add_up(demo: Demo, stage: _Stage, productions: Mapping[TopicPartition, Production]) -> None:
    """Read everything upstream and compare it with what was acknowledged, and with what the server says it dropped."""
    async with stage.connect() as client:
        found = await Admin(client).statistics()
    dropped = {TopicPartition(each["topic"], each["partition"]): each["records"] for each in found["dropped"]}
    arrived = {place: Arrived({flight.row: flight for flight in each.flights}) for place, each in productions.items()}
    stage.link.bytes_per_second = 0
    readings = Arrivals()
    upstream: dict[TopicPartition, Arrived | Arrivals] = {
        TopicPartition(f"{stage.node}.{place.topic}", place.partition): each for place, each in arrived.items()
    }
    if stage.devices is not None:
        upstream[TopicPartition(f"{stage.node}.{READINGS}", 0)] = readings
    await trio.to_thread.run_sync(read_upstream, stage.read_at, upstream)
    accounts = [
        Account(
            place=place,
            written=[flight.row for flight in productions[place].flights],
            refused=productions[place].refused,
            misplaced=productions[place].misplaced,
            arrived=arrived[place].rows,
            told=arrived[place].gaps,
            dropped=dropped.get(place, 0),
        )
        for place in PLACES
    ]
    demo.chapter("Everything upstream, compared with the acknowledged records")
    device_account = None
    if (devices := stage.devices) is not None:
        device_account = DeviceAccount(published=devices.published, acknowledged=devices.acknowledged, arrived=readings.values)
    judge(demo, accounts, [each for found in arrived.values() for each in found.differing], device_account)


def judge(demo: Demo, accounts: Sequence[Account], differing: Sequence[str], devices: DeviceAccount | None = None) -> None:
    """Print the table of the topics, and check what is claimed of it."""
    topics = {topic: sums([each for each in accounts if each.place.topic == topic]) for topic in PARTITIONS}
    heads = ("topic", "written", "refused", "forwarded", "dropped", "reported upstream", "duplicates", "adds up")
    lines = topics if devices is None else {**topics, READINGS: devices.sums()}
    cells = (
        (topic, *(f"{line[each]:,}" for each in line if each != "adds_up"), "yes" if line["adds_up"] else "NO")
        for topic, line in lines.items()
    )
    demo.table(heads, cells)
    demo.figures |= {"topics": topics, "devices": None if devices is None else devices.sums()}
    written, forwarded, lost = (sum(line[what] for line in topics.values()) for what in ("written", "forwarded", "dropped"))
    wrong = [each for account in accounts for each in account.wrong]
    claim = "every acknowledged record is upstream once, or was counted as dropped and reported"
    demo.check(claim, bool(written) and not wrong, "; ".join(wrong) or f"{written:,} = {forwarded:,} + {lost:,}")
    mixed = [str(account.place) for account in accounts if not account.is_ordered]
    demo.check("each partition arrived in its order", not mixed, ", ".join(mixed) or f"{len(accounts)} partitions")
    detail = "; ".join([f"{len(differing):,} of {sum(len(each.arrived) for each in accounts):,} differ", *differing[:1]])
    demo.check("every record arrived as it was written", bool(forwarded) and not differing, detail)
    demo.check(
        "less important records gave way, important ones are complete, and only the expected ones were refused",
        topics[DEPARTURES]["dropped"] > 0
        and not topics[DELAYS]["dropped"]
        and not topics[CANCELLATIONS]["dropped"]
        and [topic for topic, line in topics.items() if line["refused"]] == [CANCELLATIONS],
        ", ".join(f"{topic} {line['dropped']:,} dropped {line['refused']:,} refused" for topic, line in topics.items()),
    )
    if devices is not None:
        how = f"{len(devices.acknowledged):,} acknowledged, {devices.duplicates:,} duplicates by QoS 1"
        claim = "every message that Mosquitto acknowledged to a device is upstream at least once"
        demo.check(claim, not devices.wrong, "; ".join(devices.wrong) or how)
