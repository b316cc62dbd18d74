"""Who changes things: an administrator of topics, and the operator of the machine."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import PurePath
from typing import Any, Final

import attrs
import trio
from triolog.protocol.errors import TriologError
from triolog.protocol.types import TopicPartition
from triolog.server.storage.disk.paths import parse_partition_directory
from triolog.tools.client.admin import Admin

from ..device.disk import Device
from ..device.losses import Losses
from ..device.rot import Hit, cut_end, damage_derived, damage_in, flip_in_batch, flip_in_topics, put_topics_back, stored_topics
from ..history import ClockMoved, Damaged, Happened, StartForgotten, Trimmed, Trims, Wrong
from ..script import Step
from ..server import Server
from .inhabitant import Inhabitant
from .readers import Native

PATIENCE_S: Final = 8.0
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

    async def make(self, topic: str) -> None:
        await self._admin.create_topic(topic, 2)

    async def delete(self, topic: str) -> None:
        await self._admin.delete_topics(topic)


@attrs.define(eq=False)
class Operator(Inhabitant):
    """Starts and ends the server's lives, and has everything go wrong."""

    server: Server = attrs.field(kw_only=True)
    losses: Losses = attrs.field(init=False)

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
        await self._wait_for(when)
        await self.server.kill(power=False, after=after)
        await self._begin(for_ms, again)

    async def power(self, for_ms: int, after: int, when: str = "now", again: int = 0) -> None:
        await self._wait_for(when)
        await self._cut_power(after)
        await self._begin(for_ms, again)

    async def _wait_for(self, when: str) -> None:
        """Until a log is being compacted (`child`), or what a driver has staged is being committed (`stage`), for a while."""
        until = trio.current_time() + PATIENCE_S
        awaited = {"child": self.server.children, "stage": self.world.committing}
        while when in awaited and not awaited[when] and trio.current_time() < until:
            await trio.sleep(POLL_S)

    async def _cut_power(self, after: int) -> None:
        before = self.device.fs
        await self.server.kill(power=True, after=after)
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

    def _is_broken(self, directory: str) -> bool:
        return self.device.fs.broken == directory

    async def fail_directory(self, directory: int) -> None:
        """Nothing works there any more."""
        if self.device.fs.broken is None:
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
