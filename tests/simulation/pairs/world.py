"""A world of two servers from its beginning to its end: `simulate_pair` makes its history.

The inhabitants are those of every world, and so is the checker: to it a promotion is a loss, after which the promoted server
says what it has. What a promotion may lose is what the source acknowledged after the newest cut.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

import attrs
import trio
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker, FetchPartition
from triolog.server.offline.demote import demote
from triolog.server.storage.disk.paths import ASIDE_MARK
from triolog.server.storage.errors import StorageError
from triolog.tools.mirror import link as triolog_link
from triolog.tools.mirror import source as triolog_source
from triolog.tools.mirror.link import MirrorState

from tests.support.crash_fs import PowerCut

from ..clients.people import Operator
from ..clients.people import _whole_batches as whole_batches
from ..clients.readers import records_in
from ..device.disk import Device
from ..history import Acknowledged, Happened, History, Lost, Survived, Wrong
from ..network import Network, Weather
from ..script import Script, Step
from ..seeded import run_seeded
from ..world import World
from .sides import NETWORK, SOURCE, Reachable, Side, opener_of

LARGE: Final = 2**30
PATIENCE_S: Final = 30.0
LOOK_S: Final = 0.05
WINDOW_MS: Final = 1500.0
"""Beside the lag that the link reports: the time of a long poll, of a round, and of a cut."""
UNREACHABLE: Final = "nobody"


@attrs.define(eq=False)
class PairOperator(Operator):
    """Of both servers."""

    source: Side = attrs.field(kw_only=True)
    mirror: Side = attrs.field(kw_only=True)
    only_old: list[tuple[Side, dict[TopicPartition, set[str]]]] = attrs.field(factory=list)
    """For each promotion the old server, and the records that only it had."""
    is_incomplete: bool = False
    """Whether the last promotion was one without a cut."""
    has_old_cut: bool = False
    """Whether a power cut during the last promotion may have brought an earlier cut back."""

    async def run(self, steps: list[Step]) -> None:
        await self._begin_mirror()
        await super().run(steps)

    async def _begin_mirror(self) -> None:
        self.mirror.is_mirror, self.mirror.lives = True, 0
        await self.mirror.start()

    async def flap(self, *, is_whole: bool) -> None:
        """The link's connections break, or some of them."""
        for wire in list(self.source.links._wires):
            if is_whole or self.rng.random() < 0.5:
                wire.cut()

    async def deafen(self, **changes: Any) -> None:
        """Nothing arrives on the link."""
        self.source.links.change(attrs.evolve(self.source.links.weather, **changes))

    async def end_mirror(self, is_power: bool, after: int) -> None:
        await self.mirror.end(is_power=is_power, after=after)
        await self.mirror.start()

    async def promote(self, ends: str, after: int, demote_after: int, for_ms: int, deaf_ms: int) -> None:
        """The mirror takes the place of its source, which stops in this way and returns as a mirror. `deaf_ms`: before its end
        nothing arrives on the link for so long."""
        source, mirror = self.source, self.mirror
        await self._check_read_only()
        if not await self._has_cut():
            self.world.add(Happened(**self.now(), what="no cut yet"))
            return
        is_whole = ends == "calm" and await self._leave_in_peace()
        if not is_whole and ends == "calm":
            ends = "kill"
        if deaf_ms:
            await self.deafen(is_silent=True)
            await trio.sleep(deaf_ms / 1000)
        lag_ms = self._lag_ms()
        at_ms = self.world.at_ms()
        if ends != "calm":
            await source.end(is_power=ends == "power")
        await self.deafen(is_silent=False)
        synced = await self._promote(after)
        if ends == "calm":
            await source.server.stop()
        source.clients.cut_all()
        self._note_old(is_torn=ends == "power")
        self.source, self.mirror = mirror, source
        mirror.is_mirror = False
        self._switch(mirror)
        is_unknown = lag_ms < 0 or self.is_incomplete or self.has_old_cut
        self._note_promotion(at_ms, None if is_unknown else lag_ms + WINDOW_MS, synced, is_whole=is_whole)
        await trio.sleep(for_ms / 1000)
        self._demote(source, demote_after)
        await self._begin_mirror()

    def _switch(self, side: Side) -> None:
        """Clients go to that server from now on."""
        world = self.world
        assert isinstance(world, PairWorld)
        world.server = self.server = self.losses.server = side.server
        world.reachable.current, world.device = side.clients, side.device

    async def _check_read_only(self) -> None:
        """A mirror refuses a write."""
        where = TopicPartition("plain", 0)
        try:
            await self.mirror.broker.writer.append(where, build_batch([(self.world.now_ms(), None, b"not for a mirror", ())]))
        except RequestError as exc:
            if exc.code not in (ErrorCode.POLICY_VIOLATION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                self._says(f"a mirror refuses a write with {exc!r}")
        else:
            self._says("a mirror has accepted a write")

    async def _has_cut(self) -> bool:
        with trio.move_on_after(PATIENCE_S):
            while not self.world.partitions.keys() <= self.mirror.broker.mirroring.cut_topics:
                await trio.sleep(LOOK_S)
            return True
        return False

    async def _leave_in_peace(self) -> bool:
        """No client reaches the source any more, and the link can copy the rest."""
        world, link = self.world, self.mirror.link
        assert isinstance(world, PairWorld)
        assert link is not None
        world.reachable.current = world.nobody
        self.source.links.change(Weather())
        for wire in list(self.source.clients._wires):
            wire.cut()
        with trio.move_on_after(PATIENCE_S):
            while not (link.state is MirrorState.COPYING and not link.progress().lag_records):
                await trio.sleep(LOOK_S)
            return True
        return False

    def _lag_ms(self) -> float:
        link = self.mirror.link
        return -1.0 if link is None else link.progress().lag_ms

    async def _promote(self, after: int) -> dict[TopicPartition, int]:
        """Promote the mirror, of which the power may be cut meanwhile. Return where its logs end then."""
        mirror, self.is_incomplete, self.has_old_cut = self.mirror, False, False
        if after:
            mirror.device.fs.cut_after(after)
        while True:
            try:
                with trio.fail_after(PATIENCE_S):
                    link = mirror.link
                    assert link is not None
                    await link.promote(accept_incomplete=self.is_incomplete)
                if not mirror.device.fs.is_off:
                    break
                error: BaseException | None = None
            except (PowerCut, trio.TooSlowError, RequestError, OSError, StorageError) as exc:
                if not mirror.device.fs.is_off:
                    if getattr(exc, "code", None) is not ErrorCode.INVALID_REQUEST or self.is_incomplete:
                        raise
                    self.is_incomplete = True  # a power cut has taken the newest cut, and the source is gone
                    continue
                error = exc
            self.world.add(Happened(**self.now(), what=f"a power cut during the promotion: {type(error).__name__}"))
            self.has_old_cut = True
            await mirror.end(is_power=True)
            await mirror.start()
            sources = {hosted.topic.mirror_of for hosted in mirror.broker._manager.topics}
            if len(sources) != 1:
                self._says(f"after a power cut during a promotion the topics mirror {sorted(sources)}")
            if sources == {""}:
                break
        mirror.device.fs.cut_after(None)
        return {where: log.log_end_offset for where, log in self._logs(mirror.broker).items()}

    def _logs(self, broker: Broker) -> dict[TopicPartition, Any]:
        logs = [hosted.actor.log for hosted in broker._manager.topics.hosted()]
        return {log.topic_partition: log for log in logs if log.topic_partition.topic in self.world.partitions}

    def _note_promotion(
        self, at_ms: int, window_ms: float | None, synced: dict[TopicPartition, int], *, is_whole: bool
    ) -> None:
        """What the promoted server has. `is_whole`: nothing may be lost."""
        if is_whole:
            return
        self.world.add(Lost(at_ms=at_ms, who=self.who, window_ms=window_ms, synced={}, oldest_ms={}))
        for where, log in self._logs(self.server.broker).items():  # type: ignore[arg-type]
            records, markers = self.losses._records(log, 0)
            kept = {offset: record for offset, record in records.items() if offset < synced[where]}
            self.world.add(
                Survived(
                    at_ms=self.world.at_ms(),
                    who=self.who,
                    partition=where,
                    records=kept,
                    markers=tuple(each for each in markers if each < synced[where]),
                    end_offset=synced[where],
                )
            )

    def _note_old(self, *, is_torn: bool) -> None:
        """Compare the files of both servers. `is_torn`: a start may take out what nobody was told of."""
        old, new = (_records_of(side.device, self.world.partitions) for side in (self.source, self.mirror))
        only_old = {where: set(records.values()) - set(new[where].values()) for where, records in old.items()}
        if is_torn:
            world = self.world
            assert isinstance(world, PairWorld)
            told = {name for event in world.history.events if isinstance(event, Acknowledged) for name in event.ids}
            only_old = {where: records & told for where, records in only_old.items()}
        self.only_old.append((self.source, only_old))
        for where, records in new.items():
            if strange := {offset: each for offset, each in records.items() if old[where].get(offset) != each}:
                self._says(f"{where}: the promoted server has {strange}, the old one had not")

    def _demote(self, side: Side, after: int) -> None:
        """On the stopped server, of which the power may be cut meanwhile."""
        if after:
            side.device.fs.cut_after(after)
        while True:
            try:
                demote(side.device.fs, list(side.device.directories), SOURCE)
                break
            except PowerCut:
                side.device.cut_power()
        side.device.fs.cut_after(None)
        side.device.end_process()

    async def look_at_mirror(self) -> None:
        """At the end the mirror has what its source has, and the files beside its logs have what only it had."""
        mirror, source = self.mirror, self.source
        source.links.change(Weather())
        link = mirror.link
        assert link is not None
        with trio.move_on_after(PATIENCE_S):
            while not (link.state is MirrorState.COPYING and not link.progress().lag_records and not link.troubles):
                await trio.sleep(LOOK_S)
        for where in self._logs(source.broker):
            theirs, ours = await _bytes_of(source.broker, where), await _bytes_of(mirror.broker, where)
            if theirs != ours:
                self._says(f"{where}: the mirror has {len(ours)} bytes, its source {len(theirs)}; {link.snapshot()}")
        listed = {each.path for each in link.set_aside}
        for side, only_old in self.only_old:
            is_last = side is mirror and mirror.lives == 1
            for where, records in only_old.items():
                found = _aside_of(side.device, where)
                if missing := records - {record for each in found.values() for record in each}:
                    self._says(f"{where}: {sorted(missing)} was only on the old server, and is in no file beside its log")
                unlisted = [path for path, each in found.items() if is_last and records & each and path not in listed]
                if unlisted:
                    self._says(f"{where}: {unlisted} is not listed")

    def _says(self, detail: str) -> None:
        self.world.add(Wrong(**self.now(), kind="mirror", detail=self.device.without_paths(detail)))


def _records_of(device: Device, partitions: dict[str, int]) -> dict[TopicPartition, dict[int, str]]:
    """Return the records in the files of a server by offset. Control batches count too, by their size."""
    found: dict[TopicPartition, dict[int, str]] = {}
    for topic, count in partitions.items():
        for number in range(count):
            where = TopicPartition(topic, number)
            [directory] = device.directories
            folder = f"{directory}/{where}"
            records = found.setdefault(where, {})
            names = device.fs.list_directory(folder) if device.fs.is_directory(folder) else []
            for name in sorted(each for each in names if each.endswith(".log")):
                for header, batch in whole_batches(device.fs.content(f"{folder}/{name}")):
                    if not header.is_control:
                        records |= {record.offset: record.id for record in records_in(batch, 0)}
    return found


def _aside_of(device: Device, where: TopicPartition) -> dict[str, set[str]]:
    """Return the records in the files beside a log, by path. Those of a topic that was replaced are beside its directory."""
    [directory] = device.directories
    folder = f"{directory}/{where}"
    paths = [f"{folder}/{name}" for name in device.fs.list_directory(folder) if ASIDE_MARK in name]
    paths += [
        f"{directory}/{name}"
        for name in device.fs.list_directory(directory)
        if ASIDE_MARK in name and name.startswith(f"{where}.")
    ]
    return {
        path: {
            record.id
            for header, batch in iter_batches(device.fs.content(path))
            if not header.is_control
            for record in records_in(batch, 0)
        }
        for path in paths
    }


async def _bytes_of(broker: Broker, where: TopicPartition) -> bytes:
    start, data = broker.reader.snapshot(where).log_start_offset, b""
    while True:
        [answer] = await broker.reader.fetch([FetchPartition(where, start, LARGE)], max_bytes=LARGE)
        if answer.error is not None or answer.fetched is None or not answer.fetched.records:
            return data if answer.error is None else data + repr(answer.error).encode()
        data += bytes(answer.fetched.records)
        start = [header.next_offset for header, _ in iter_batches(answer.fetched.records)][-1]


@attrs.define(eq=False)
class PairWorld(World):
    """Owner of a run. `server`, `network` and `device` are those of the source."""

    sides: tuple[Side, Side] = attrs.field(kw_only=True)
    nobody: Network = attrs.field(kw_only=True)
    """Where no server can be reached."""
    reachable: Reachable = attrs.field(kw_only=True)
    """The same as `network`."""
    operator: PairOperator | None = None

    def _operator(self) -> Operator:
        source, mirror = self.sides
        self.operator = PairOperator(self, "operator", self._rng("operator"), server=self.server, source=source, mirror=mirror)
        return self.operator

    async def _calm(self, operator: Operator) -> None:
        for side in self.sides:
            side.links.change(Weather())
            side.device.slow_down(0.0005)
        await super()._calm(operator)

    async def _look_at_last(self) -> None:
        assert self.operator is not None
        await self.operator.look_at_mirror()


def simulate_pair(script: Script, history: History | None = None) -> History:
    """The history of a world of two servers, also where it ends early."""
    history = History() if history is None else history
    with tempfile.TemporaryDirectory() as data:
        directories = [f"{data}/{name}" for name in ("a", "b")]
        for directory in directories:
            Path(directory).mkdir()
        history.paths = {directory: f"/{name}" for name, directory in zip(("a", "b"), directories, strict=True)}
        _simulate(script, directories, history)
    return history


def _simulate(script: Script, directories: list[str], history: History) -> None:
    sides: dict[int, Side] = {}

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for name, port, directory in zip("ab", (1, 2), directories, strict=True):
                sides[port] = Side.make(script.seed, name, port, directory, nursery)
            source, mirror = sides[1], sides[2]
            source.other, mirror.other = mirror, source
            partitions = {name: topic["partitions"] for name, topic in script.topics.items()}
            reachable = Reachable(source.clients)
            world = PairWorld(
                script,
                reachable,  # type: ignore[arg-type]
                source.device,
                source.server,
                history,
                partitions,
                sides=(source, mirror),
                nobody=Network(f"{script.seed}/{UNREACHABLE}", nursery),
                reachable=reachable,
            )
            await world.run()
            nursery.cancel_scope.cancel()

    async def listen(*args: Any, **options: Any) -> Any:
        return await NETWORK.get().listen(*args, **options)

    clock = SimpleNamespace(monotonic=trio.current_time)
    with patch.object(triolog_link, "time", clock), patch.object(triolog_source, "_open_stream", opener_of(sides)):
        run_seeded(script.seed, main, lambda: sides[1].device.latency(), open_listeners=listen)
