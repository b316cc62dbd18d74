"""Who changes things: an administrator of topics, and the operator of the machine.

What may be lost under a durability other than `fsync` when the power is cut, or a log directory or a sync fails: told to the
history. The server is asked what it knows: up to where each log is on the device, and how old the oldest byte is that is not. A
log that ends before that afterwards has broken the promise, and so has a server that knew of less than was lost.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Any, Final

import attrs
import trio
from triolog.protocol.errors import CorruptRecordError, TriologError
from triolog.protocol.records.batch import (
    ATTRIBUTES_POSITION,
    MAGIC,
    RECORD_BATCH_OVERHEAD,
    BatchHeader,
    check_batch,
    crc32c,
    parse_header,
)
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker, is_internal
from triolog.server.partitions.partition import PartitionActor
from triolog.server.storage.disk.paths import parse_partition_directory
from triolog.server.storage.indexes.file_records import possible_sizes
from triolog.server.storage.log.log import Log
from triolog.tools.client.admin import Admin

from tests.simulation.clients.inhabitant import Inhabitant, Surroundings
from tests.simulation.clients.readers import Native, records_in
from tests.simulation.clocks import CLOCKS
from tests.simulation.device import offline
from tests.simulation.device.disk import Device
from tests.simulation.device.moments import MOMENTS
from tests.simulation.device.rot import (
    Hit,
    cut_end,
    damage_derived,
    damage_in,
    flip_in_batch,
    flip_in_topics,
    forget_topics,
    has_batches,
    put_topics_back,
    raise_start,
    stored_topics,
)
from tests.simulation.history import (
    ClockMoved,
    Cut,
    Damaged,
    Happened,
    Lost,
    StartForgotten,
    Survived,
    Torn,
    Trimmed,
    Trims,
    Wrong,
)
from tests.simulation.lives import LIVING
from tests.simulation.script import Step
from tests.simulation.server import Server

PATIENCE_S: Final = 8.0
"""For a moment."""
SHORT_PATIENCE_S: Final = 2.0
"""For a change of the disk."""
POLL_S: Final = 0.005
PASSING: Final = frozenset({("write", "ENOSPC"), ("sync", "ENOSPC")})
"""What no log goes offline for."""


@attrs.define(eq=False)
class Administrator(Native):
    @property
    def _admin(self) -> Admin:
        return Admin(self.client)

    async def do(self, step: Step) -> None:
        try:
            await super().do(step)
        except TriologError as exc:
            self.world.add(Happened(**self.now(), what=f"{step.what}: {exc!r}"))

    async def trim(self, topic: str, partition: int, share: float) -> None:
        where = TopicPartition(topic, partition)
        end = (await self._admin.offsets_for_times({where: -1}))[where].offset
        before = int(end * share)
        self.world.add(Trims(**self.now(), partition=where, before_offset=before))
        await self._admin.delete_records({where: before})
        self.world.add(Trimmed(**self.now(), partition=where, before_offset=before))

    async def configure(self, topic: str, config: dict[str, str]) -> None:
        await self._admin.alter_config(topic, config)

    async def accept(self, topic: str) -> None:
        """Every gap of a topic: readers skip it from now on."""
        for found in await self._admin.list_gaps(topic):
            for part in found.partitions:
                for gap in part.gaps:
                    await self._admin.accept_gap(TopicPartition(topic, part.partition), gap.start_offset)

    async def abort(self, transactional_id: str) -> None:
        """Abort a transaction that its producer may be about to commit."""
        await self._admin.abort_transaction(transactional_id)

    async def make(self, topic: str) -> None:
        await self._admin.create_topic(topic, 2)

    async def delete(self, topic: str) -> None:
        await self._admin.delete_topics(topic)


@attrs.define(eq=False)
class Operator(Inhabitant):
    """Starts and ends the server's lives, and has everything go wrong."""

    server: Server = attrs.field(kw_only=True)
    losses: Losses = attrs.field(init=False)
    _is_spoilt: bool = False
    """Whether anybody has damaged a derived file."""
    _was_cut: bool = False
    """Whether the power was ever cut."""
    _has_damaged: bool = False
    """Whether anybody has damaged a batch."""

    def __attrs_post_init__(self) -> None:
        self.losses = Losses(self.world, self.server)

    @property
    def device(self) -> Device:
        return self.server.device

    async def do(self, step: Step) -> None:
        self.world.add(Happened(**self.now(), what=f"{step.what} {dict(step.args)}"))
        await super().do(step)

    async def restart(self, for_ms: int, unheard_ms: int = 0) -> None:
        """`unheard_ms`: for so long no answer arrives before the server stops, nor does one afterwards."""
        network = self.server.network
        if unheard_ms:
            network.change(attrs.evolve(network.weather, is_unheard=True))
            await trio.sleep(unheard_ms / 1000)
        await self._stop()
        if unheard_ms:
            network.cut_all()
            network.change(attrs.evolve(network.weather, is_unheard=False))
        await self._begin(for_ms)

    async def kill(self, for_ms: int, after: int, when: str = "now", again: int = 0) -> None:
        await self._end_life(after, when, power=False)
        await self._begin(for_ms, again)

    async def power(self, for_ms: int, after: int, when: str = "now", again: int = 0, left: str = "") -> None:
        await self._end_life(after, when, power=True, left=left)
        await self._begin(for_ms, again)

    async def crash(self, before: int, left: str, life_ms: int) -> None:
        """End a life of `life_ms` in front of one of its changes of the disk, the first for `before` 0. `left`: all that was
        written (`all`, as when a process is killed), or see `Device.cut_power`."""
        disk, first = self.device.fs, self.device.fs.changes
        power, patience_s = left != "all", life_ms / 1000
        await self._end_life(before, "now", power=power, left=left if power else "", patience_s=patience_s)
        is_over = disk.off_at is None or disk.changes - first != before
        self.world.add(Cut(**self.now(), changes=disk.changes - first, operation="" if is_over else disk.cut_operation))
        await self._begin(0)

    async def _end_life(self, after: int, when: str, *, power: bool, left: str = "", patience_s: float | None = None) -> None:
        """`when`: a moment of the disk, or while a log is being compacted (`child`)."""
        until = trio.current_time() + PATIENCE_S
        while when == "child" and not self.server.children and trio.current_time() < until:
            await trio.sleep(POLL_S)
        before, moment = self.device.fs, when if when in MOMENTS else ""
        if patience_s is None:
            patience_s = PATIENCE_S if moment else SHORT_PATIENCE_S
        await self.server.kill(power=power, after=after, moment=moment, left=left, patience_s=patience_s)
        if power:
            self._was_cut = True
            self.losses.note(self.who, self.device.time() if before.off_at is None else before.off_at)
            self.device.slowest_s = self.device.latency_s

    async def _stop(self) -> None:
        self._check_service()
        await self.server.stop()

    async def _end(self, end: str) -> None:
        await (self._stop() if end == "stop" else self.server.kill(power=False))

    async def _begin(self, for_ms: int, again: int = 0, mend: Callable[[], None] = lambda: None) -> None:
        """`again`: before which of its changes of the disk the start is cut off itself, by a power cut. `mend`: what somebody
        does about a server that does not start."""
        self.losses.note_failed_syncs(self.who)
        await trio.sleep(for_ms / 1000)
        self.device.failures.clear()
        if again:
            self.device.fs.cut_after(again)
        while not await self.server.start():
            if self.device.fs.is_off:
                self.world.add(Happened(**self.now(), what="a power cut during the start"))
                self._was_cut = True
                self.losses.note(self.who, self.device.time(), is_starting=True)
                self.device.cut_power()
                continue
            self.world.add(Happened(**self.now(), what=f"does not start: {self.server.refusals[-1]}"))
            mend()
            await trio.sleep(0.5)
        self.device.fs.cut_after(None)
        self.losses.look(self.who)

    async def child(self) -> None:
        """Somebody ends the processes that the server has started."""
        for child in self.server.children:
            child.is_killed = True

    def _check_service(self) -> None:
        """A failed directory is out of service and no other is; and what only lacked room for a moment has cost nothing."""
        broken, broker = self.device.fs.broken, self.server.broker
        if broker is None or not self.device.failures <= PASSING:
            return
        for described in broker.directories.describe():
            if described.path == broken and self.device.is_long_broken():
                is_wrong = described.error is None
            else:
                is_wrong = described.path != broken and described.error is not None
            if is_wrong:
                self._wrong(f"{described.path}: {described.error}; {broken} has failed")
        for where, refusal in self.losses.offline(broker):
            if broken is None and not self.device.fs.has_forgotten:
                self._wrong(f"{where}: {refusal}")

    def _wrong(self, said: str) -> None:
        self.world.add(Wrong(**self.now(), kind="out of service", detail=self.device.without_paths(said)))

    async def rot(
        self, topic: str, partition: int, share: float, byte: float, bit: int, end: str, for_ms: int, again: int = 0
    ) -> None:
        """A bit of a batch is another one when the server comes back."""
        where = TopicPartition(topic, partition)
        await self._end(end)
        hit: Hit | None = None
        for directory in self.device.directories:
            if not self._is_broken(directory) and self.device.fs.is_directory(f"{directory}/{where}"):
                hit = flip_in_batch(self.device.fs, directory, where, share, byte, bit, power_may_go=bool(again))
        if hit is not None:
            self._has_damaged = True
            said = {"first_offset": hit.header.base_offset, "next_offset": hit.header.next_offset}
            self.world.add(Damaged(**self.now(), partition=where, **said))
        await self._begin(for_ms, again)
        if hit is not None and hit.is_scanned and end == "kill" and (left := damage_in(self.device.fs, hit.path)):
            self.world.add(Wrong(**self.now(), kind="served damage", detail=f"{where}: a start has left {left}"))

    async def spoil(self, directory: int, kind: str, share: float, how: str, end: str, for_ms: int) -> None:
        """A file that the server can make anew is gone, or another one."""
        await self._end(end)
        path = self.device.directories[directory]
        if not self._is_broken(path):
            self._is_spoilt = True
            spoilt = damage_derived(self.device.fs, path, kind, share, how)
            self.world.add(Happened(**self.now(), what=f"{how}: {self.device.without_paths(str(spoilt))}"))
            if (kind, how) == ("evidence", "lose") and spoilt is not None:
                folder = PurePath(spoilt).parent.name
                self.world.add(StartForgotten(**self.now(), partition=parse_partition_directory(folder)))
        await self._begin(for_ms)

    async def shorten(self, topic: str, partition: int, batches: int, for_ms: int) -> None:
        """Between a stop and a start a log loses its end."""
        where = TopicPartition(topic, partition)
        await self._stop()
        for directory in self.device.directories:
            if not self._is_broken(directory) and self.device.fs.is_directory(f"{directory}/{where}"):
                lost = cut_end(self.device.fs, directory, where, batches)
                if lost is not None:
                    self._has_damaged = True
                    said = {"first_offset": lost.start, "next_offset": lost.stop}
                    self.world.add(Damaged(**self.now(), partition=where, **said))
        await self._begin(for_ms)

    async def misprint(self, directory: int, share: float, bit: int, for_ms: int) -> None:
        """A bit of the file with the topics is another one: the server has the topics that there were, or does not start until
        somebody has put the file back."""
        await self._stop()
        fs, path = self.device.fs, self.device.directories[directory]
        if fs.broken is not None:
            await self._begin(for_ms)
            return
        before = stored_topics(fs, self.device.directories)
        whole = flip_in_topics(fs, path, share, bit)
        await self._begin(for_ms, mend=lambda: put_topics_back(fs, path, whole))
        broker = self.server.broker
        assert broker is not None
        topics = [hosted.topic for hosted in broker._manager.topics]
        found = {topic.name: (topic.partitions, topic.configs) for topic in topics}
        if any(found.get(name) != before.get(name) for name in self.world.partitions):
            self.world.add(Wrong(**self.now(), kind="misprint", detail=f"the topics were {before}, and are {found}"))

    async def verify(self, for_ms: int) -> None:
        """`triolog verify` finds no damage after a clean stop, if no device and no person has done any. A power cut may leave a
        producer snapshot that is unreadable. No start reads it, because it is not above the log's start."""
        is_good = not self.device.failures and not self._is_spoilt and not self.device.fs.owes_pages()
        await self._end_for_tool("stop")
        damages = [each for path in self._whole_directories() for each in offline.verified(self.device.fs, path)]
        found = [str(each) for each in damages if not (self._was_cut and each.check == "snapshot")]
        if found and is_good and not self._is_damaged():
            self._tool_failed("verify", f"damage in a directory that nobody damaged: {found}")
        await self._begin(for_ms)

    async def repair(self, end: str, for_ms: int) -> None:
        """`triolog repair` leaves no damage, and a second run does nothing."""
        await self._end_for_tool(end)
        for path in self._whole_directories():
            first, second = (offline.repair(self.device.fs, path, self.device.now_ms) for _ in range(2))
            if first.left or second.actions:
                self._tool_failed("repair", f"left {first.left}, and did again {second.actions}")
        self.losses.note_repair()
        await self._begin(for_ms)

    async def reindex(self, end: str, for_ms: int) -> None:
        """`triolog reindex` changes no record. It leaves segments alone whose log is damaged."""
        await self._end_for_tool(end)
        failures = [each for path in self._whole_directories() for each in offline.reindex(self.device.fs, path)]
        if failures and end == "stop" and not self.device.fs.owes_pages() and not self._is_damaged():
            self._tool_failed("reindex", str(failures))
        await self._begin(for_ms)

    async def compact(self, end: str, topic: str, include_active: bool, for_ms: int) -> None:
        """`triolog compact` takes records of the topic that later ones replace."""
        await self._end_for_tool(end)
        for path in self._whole_directories():
            try:
                offline.compact(self.device.fs, path, topic, self.device.now_ms, include_active=include_active)
            except TriologError as exc:
                if not self._is_damaged():
                    self._tool_failed("compact", repr(exc))
        await self._begin(for_ms)

    async def restore(self, end: str, for_ms: int) -> None:
        """A backup takes the place of the directories. It has everything that was acknowledged."""
        await self._end_for_tool(end)
        if self.device.fs.broken is None:
            offline.restore_backup(self.device.fs, self.device.directories)
        await self._begin(for_ms)

    async def adopt(self, for_ms: int) -> None:
        """The next start finds partitions and no list of topics, as in a directory of a stopped Kafka. It is given their
        configurations, and everything else is as before."""
        await self._end_for_tool("stop")
        server, fs = self.server, self.device.fs
        if fs.broken is None:
            before = {name: each for name, each in stored_topics(fs, self.device.directories).items() if not is_internal(name)}
            forget_topics(fs, self.device.directories)
            limits = server.limits
            server.limits = {**limits, "adopted_topics": {name: configs for name, (_, configs) in before.items()}}
            await self._begin(for_ms)
            server.limits = limits
            broker = server.broker
            assert broker is not None
            topics = [hosted.topic for hosted in broker._manager.topics if not is_internal(hosted.topic.name)]
            found = {topic.name: (topic.partitions, topic.configs) for topic in topics}
            ids = {name: broker.topics.id_of(name) for name in self.world.topic_ids}
            if found != before or ids != self.world.topic_ids:
                self.world.add(Wrong(**self.now(), kind="adoption", detail=f"the topics were {before}, and are {found}, {ids}"))
        else:
            await self._begin(for_ms)

    async def _end_for_tool(self, end: str) -> None:
        """The device does for the command what it is told to."""
        await self._end(end)
        self.device.fs.forget_failures()

    def _whole_directories(self) -> list[str]:
        return [path for path in self.device.directories if not self._is_broken(path)]

    def _is_damaged(self) -> bool:
        """Whether anybody has damaged a batch, or a failed device may have."""
        return self._has_damaged or self.device.fs.has_forgotten

    def _tool_failed(self, tool: str, said: str) -> None:
        self.world.add(Wrong(**self.now(), kind=tool, detail=self.device.without_paths(said)))

    async def overstart(self, topic: str, partition: int, by: int, for_ms: int) -> None:
        """After a kill the checkpoint says that a log starts after its end. Readers lose all that it had, and people do not."""
        where = TopicPartition(topic, partition)
        await self._end("kill")
        kept: list[bytes] = []
        fs = self.device.fs
        for directory in self.device.directories:
            if not self._is_broken(directory) and fs.is_directory(f"{directory}/{where}"):
                start, batches = raise_start(fs, directory, where, by)
                self.world.add(Trims(**self.now(), partition=where, before_offset=start))
                self._has_damaged = True
                self.world.add(Damaged(**self.now(), partition=where, first_offset=0, next_offset=start))
                kept += batches
        await self._begin(for_ms)
        folders = [f"{directory}/{where}" for directory in self.device.directories if not self._is_broken(directory)]
        if not has_batches(self.device.fs, folders, kept):
            self.world.add(Wrong(**self.now(), kind="thrown away", detail=f"{where}: no file has what was in it"))

    def _is_broken(self, directory: str) -> bool:
        return self.device.fs.broken == directory

    async def fail_directory(self, directory: int) -> None:
        """Nothing works there any more. The other directories serve: two that have each served alone can hold two topics of one
        name, and then a start refuses both, because only an operator can choose."""
        broker = self.server.broker
        serving = [] if broker is None else broker._manager.log_directories.live
        if self.device.fs.broken is None and len(serving) in {0, len(self.device.directories)}:
            path = self.device.directories[directory]
            self.losses.note(self.who, self.device.time(), directory=f"{path}/")
            self.device.fail_directory(path)

    async def replug(self, for_ms: int) -> None:
        """Another cable, and a start."""
        await self._stop()
        self.device.fs.replug_directory(self.rng)
        await self._begin(for_ms)

    async def clock(self, ms: int) -> None:
        self.device.clock_ms += ms
        self.world.add(ClockMoved(**self.now(), ms=ms))

    async def set_clock(self, to: str) -> None:
        """The clock shows what it would show if it had shown that time in the beginning."""
        await self.clock(CLOCKS[to] - self.device.clock_ms)

    async def slow(self, ms: float) -> None:
        self.device.slow_down(ms / 1000)

    async def weather(self, **changes: Any) -> None:
        changes = {("latency_s" if name == "latency_ms" else name): value for name, value in changes.items()}
        if "latency_s" in changes:
            changes["latency_s"] /= 1000
        network = self.server.network
        network.change(attrs.evolve(network.weather, **changes))

    silence = weather

    async def cut(self) -> None:
        self.server.network.cut_some(self.rng)

    async def fail(self, operation: str, error: str, skip: int) -> None:
        self.device.failures.add((operation, error))
        self.device.fs.fail_next(operation, getattr(errno, error), skip=skip)


SLACK_MS: Final = 50.0
HOPS: Final = 8
"""Turns that a flush may wait for threads: the sync that runs, its own, and what the directory's files take beside it."""


@attrs.define(eq=False)
class Losses:
    """Owner: the operator."""

    world: Surroundings
    server: Server
    _pending: set[TopicPartition] = attrs.field(factory=set)
    """Of which nobody knows yet what is left."""
    _synced: dict[TopicPartition, int] = attrs.field(factory=dict)
    """What the last loss cannot have taken."""
    _is_torn: bool = False
    """Whether it has taken nothing that anybody was told of, and maybe something before what it has left."""

    def note(self, who: str, at: float, *, is_starting: bool = False, directory: str = "") -> None:
        """What was not synced then may be lost, at the next start: in a log directory, or all. `is_starting`: nobody has synced
        for a while."""
        broker = self.server.latest
        if not self.server.loses or broker is None:
            self._is_torn = True
            return
        actors = {where: each for where, each in self._actors(broker).items() if each.log.directory.startswith(directory)}
        self._synced |= {where: actor.log.recovery_point for where, actor in actors.items()}
        # A topic whose deletion has begun: a start may find it again, with less in it.
        going = [where for where in self.world.lives.partitions if where not in actors and not directory]
        since_ms = (trio.current_time() - at) * 1000
        self.world.add(
            Lost(
                at_ms=int(at * 1000),
                who=who,
                window_ms=None if is_starting else self._window_ms(),
                synced=dict(self._synced),
                oldest_ms={where: max(0.0, actor.statistics().unsynced_ms - since_ms) for where, actor in actors.items()},
                partitions=(*actors, *going),
            )
        )
        self._pending.update(actors, going)

    def note_repair(self) -> None:
        """A repair records gaps where a torn write was: nobody was told of records there."""
        self._is_torn = True

    def note_failed_syncs(self, who: str) -> None:
        """When a life has ended: what the device did not take may be lost to the next one, which reads the files anew."""
        broker, device = self.server.latest, self.server.device
        has_failed = any(operation == "sync" for operation, _ in device.failures)
        if has_failed and broker is not None and (device.fs.owes_pages() or any(self.offline(broker))):
            self.note(who, device.time())

    def look(self, who: str) -> None:
        """After a start: where the logs end that are served."""
        broker = self.server.broker
        if broker is None:
            return
        if self._is_torn:
            self._is_torn = False
            for where, actor in self._actors(broker).items():
                if gaps := _ranges(actor.log):
                    self.world.add(Torn(at_ms=self.world.at_ms(), who=who, partition=where, gaps=gaps))
        for where, actor in self._actors(broker).items():
            if where in self._pending and actor.log.refusal is None:
                self._pending.discard(where)
                found, markers = self._records(actor.log, self._synced.get(where, 0))
                self.world.add(
                    Survived(
                        at_ms=self.world.at_ms(),
                        who=who,
                        partition=where,
                        records=found,
                        markers=markers,
                        gaps=_ranges(actor.log),
                        end_offset=actor.log.log_end_offset,
                    )
                )

    def offline(self, broker: Broker) -> Iterator[tuple[TopicPartition, object]]:
        for where, actor in self._actors(broker).items():
            if actor.log.offline is not None:
                yield where, actor.log.offline

    def _records(self, log: Log, offset: int) -> tuple[dict[int, str], tuple[int, ...]]:
        """By offset, and where markers are. Read from the files: the coordinators have written already, and no client has."""
        found: dict[int, str] = {}
        markers: list[int] = []
        first = log.segments.floor(offset) or log.segments.first
        for segment in log.segments.values(first.base_offset, log.log_end_offset + 1):
            content = self.server.device.fs.content(segment.log.path)[: segment.size]
            for header, batch in _whole_batches(content):
                if header.is_control and header.base_offset >= offset:
                    markers.append(header.base_offset)
                found |= {record.offset: record.id for record in records_in(batch, offset)}
        return found, tuple(markers)

    def _window_ms(self) -> float | None:
        durability, device = self.server.durability, self.server.device
        if durability == "os" or device.failures:
            return None
        return float(durability.partition(":")[2]) + HOPS * 2000 * device.slowest_s + SLACK_MS

    def _actors(self, broker: Broker) -> dict[TopicPartition, PartitionActor]:
        """By the name that the history has for the partition."""
        actors = [hosted.actor for hosted in broker._manager.topics.hosted()]
        found = {each.topic_partition: each for each in actors if each.topic_partition.topic in self.world.partitions}
        return found | {
            TopicPartition(self.world.lives.name(broker.topics.id_of(LIVING)), each.topic_partition.partition): each
            for each in actors
            if each.topic_partition.topic == LIVING
        }


def _whole_batches(content: bytes) -> Iterator[tuple[BatchHeader, bytes]]:
    """But for what rots in a log that nobody has looked through. Where the length or the magic of a batch is damaged, those
    behind it are found by its CRC."""
    position = 0
    while position <= len(content) - RECORD_BATCH_OVERHEAD:
        header = parse_header(content, position)
        sizes = [size for size in possible_sizes(header) if RECORD_BATCH_OVERHEAD <= size <= len(content) - position]
        by_crc = (size for size in sizes if crc32c(content[position:][ATTRIBUTES_POSITION:size]) == header.crc)
        size = next(by_crc, max(header.size_bytes, RECORD_BATCH_OVERHEAD))
        batch = content[position : position + size]
        with contextlib.suppress(CorruptRecordError):
            check_batch(memoryview(batch), header)
            if header.magic == MAGIC:
                yield header, batch
        position += size


def _ranges(log: Log) -> tuple[range, ...]:
    return tuple(range(gap.start_offset, gap.end_offset) for gap in log.gaps)
