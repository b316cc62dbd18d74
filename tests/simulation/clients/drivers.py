"""Drivers that stage records and commit them version by version, as Spark's do. They are killed, and go on where the server
says that they were; two of them have one application, because the one before may not be gone."""

from __future__ import annotations

from typing import Any, Final

import attrs
import trio
from triolog.protocol.errors import TriologError
from triolog.protocol.native.messages import StagedPartition
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.tools.client.admin import Admin

from ..groups.events import CommitsStage, LastCommit, StageCommitted, Staged
from ..history import Send, Sent
from .readers import Native

APPLICATION: Final = "driver"
TRIES: Final = 6
PAUSE_S: Final = 0.3

Named = dict[TopicPartition, list[str]]


@attrs.define(eq=False)
class Driver(Native):
    _attempts: int = 0
    _sent: int = 0

    async def batch(self, parts: list[tuple[str, int, int]], tasks: int, end: str) -> None:
        try:
            version = await self._next_version()
            self._attempts += 1
            attempt = f"{self.who}.{self._attempts}"
            named: Named = {}
            staged: dict[str, tuple[StagedPartition, ...]] = {}
            for number in range(tasks):
                task = f"{attempt}.{number}"
                if self.rng.random() < 0.2:
                    await self._task(version, attempt, f"{task}.failed", parts)
                staged[task], ids = await self._task(version, attempt, task, parts)
                for where, each in ids.items():
                    named.setdefault(where, []).extend(each)
            if end == "abort":
                await Admin(self.client).abort_stage(APPLICATION, version, None if self.rng.random() < 0.2 else list(staged))
        except TriologError:
            return
        if end not in ("abort", "die before"):
            await self._commit(version, attempt, staged, named, tries=1 if end == "die" else TRIES)

    async def _next_version(self) -> int:
        begun_ms = self.world.at_ms()
        last = await Admin(self.client).last_commit(APPLICATION)
        version = -1 if last is None else last
        self.world.add(LastCommit(**self.now(), application=APPLICATION, version=version, begun_ms=begun_ms))
        return version + 1

    async def _task(
        self, version: int, attempt: str, task: str, parts: list[tuple[str, int, int]]
    ) -> tuple[tuple[StagedPartition, ...], Named]:
        """Stage what a task has, one call for each part; what the server keeps of it, and the ids by partition."""
        kept: dict[TopicPartition, StagedPartition] = {}
        ids: Named = {}
        for topic, number, count in parts:
            where = TopicPartition(topic, number)
            records = [Sent(f"{self.who}:{self._sent + each} of {task}", self.a_timestamp()) for each in range(count)]
            self._sent += count
            of_part = [record.id for record in records]
            self.world.add(Staged(**self.now(), application=APPLICATION, version=version, attempt=attempt, ids=tuple(of_part)))
            self.world.add(Send(**self.now(), partition=where, producer=task, records=tuple(records)))
            data = build_batch([(record.timestamp, None, record.id.encode(), ()) for record in records])
            [kept[where]] = await Admin(self.client).stage(APPLICATION, version, task, {where: data})
            ids.setdefault(where, []).extend(of_part)
        return tuple(kept.values()), ids

    async def _commit(self, version: int, attempt: str, staged: Any, named: Named, *, tries: int) -> None:
        of_version = {"application": APPLICATION, "version": version, "attempt": attempt}
        ids = tuple((where, tuple(each)) for where, each in named.items())
        self.world.add(CommitsStage(**self.now(), **of_version, ids=ids))
        for _ in range(tries):
            try:
                answer = await Admin(self.client).commit_stage(APPLICATION, version, staged)
            except TriologError:
                await trio.sleep(PAUSE_S)
                continue
            places = tuple(
                (TopicPartition(each.topic, each.partition), each.base_offset, each.end_offset) for each in answer.partitions
            )
            self.world.add(StageCommitted(**self.now(), **of_version, is_mine=answer.committed, places=places))
            return

    async def ask(self) -> None:
        await self._next_version()
