"""Commits of staged record batches, one version of an application after the other, kept in `__stage_commits`.

1. What the writers have staged is checked and forced to the device, and so are the partitions' logs, whose ends are noted.
2. One record, synced whatever the durability, says what is to be appended where, and under which producer: from here on the
   commit stands, and it is never undone.
3. The batches are appended with that producer and consecutive sequences, and forced to the device.
4. A second record says that it is done and at which offsets; then the staged files are deleted, and the commit is answered.

Whatever ends this between 2 and 4 (a crash, a stop, a partition that refuses), it goes on behind the records of that producer
that are in a partition at or behind the offset noted for it: at the start before anybody is served, else every RETRY_S.

An application has one producer id, each of its commits an epoch of its own: so a partition remembers one producer for each
application, however many commits there are, and what another commit has appended is not taken for this one's.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, NamedTuple

import attrs
import trio

from ...protocol.coordinator.stage_commits import StageCommitPartition, StageCommitState, StageCommitValue
from ...protocol.errors import ErrorCode, RequestError
from ...protocol.limits import INT16_MAX
from ..logs.log_manager import LogManager
from ..storage.errors import AppendFailedError, LogOfflineError
from ..system.clock import NowMs
from ..transactions.transactional_ids import ProducerIds
from .stage_appends import StageProducer, finish_partition
from .stage_commit_log import Application, Files, StageChecks, StageCommitLog, StagedShare
from .stage_files import stage_name, version_of
from .stages import Stages

LOGGER: Final = logging.getLogger(__name__)

RETRY_S: Final = 10.0
"""How long a commit that a partition refused waits: the partition is offline or its device full, so nothing changes soon."""
APPENDERS: Final = 8
"""Partitions that all commits together append to at a time, with up to 8 MiB in memory for each."""


class Committed(NamedTuple):
    """The committed version: whether this call committed it, and the offsets of its records."""

    by_this_call: bool
    partitions: tuple[StageCommitPartition, ...]


@attrs.define(eq=False, repr=False)
class StageCommits:
    """See the module. Called from any task of the trio thread; `load` comes first."""

    _manager: LogManager
    _now_ms: NowMs
    _producer_ids: ProducerIds
    stages: Stages
    log: StageCommitLog
    _appending: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(APPENDERS))

    @classmethod
    def of(cls, manager: LogManager, now_ms: NowMs, producer_ids: ProducerIds) -> StageCommits:
        return cls(manager, now_ms, producer_ids, Stages(manager, now_ms), StageCommitLog.of(manager, now_ms))

    async def load(self) -> None:
        """Read the log and what is staged, and delete what a crash left behind a commit."""
        await self.stages.load()
        await self.load_log()
        await self._forget_leftovers()

    async def load_log(self) -> None:
        """Read what was committed."""
        await self.log.load()
        for name, owner in self.log.applications.items():
            assert owner.value is not None
            self._producer_ids.saw(owner.value.producer_id)
            if not owner.value.is_done:
                self.stages.held.add(stage_name(name, owner.value.version))

    async def _forget_leftovers(self) -> None:
        """Delete what is staged for versions that are committed."""
        last = {stage_name(name, 0).partition("-")[0]: owner.value for name, owner in self.log.applications.items()}
        for name in self.stages.names():
            value, version = last.get(name.partition("-")[0]), version_of(name)
            if value is not None and version is not None and version <= value.version and name not in self.stages.held:
                await self.stages.forget(name)

    def last_version(self, application: str) -> int | None:
        """The version that was committed last, or is decided; None when there was none. Raises RequestError."""
        self.log.check_readable()
        owner = self.log.applications.get(application)
        return None if owner is None or owner.value is None else owner.value.version

    async def commit(self, application: str, version: int, shares: Sequence[StagedShare]) -> Committed:
        """Append what is named to its partitions, once; a version that is not above the last one changes nothing.

        Raises RequestError. Cancelled once it is decided: it is carried out all the same, and asking again tells how.
        """
        self.log.check_readable()
        await self.log.ensure()
        async with self.log.turn(application) as owner:
            before = owner.value
            if before is not None and not before.is_done:
                await self._finish(owner)
                before = owner.value
            if before is not None and version <= before.version:
                await self.stages.drop(application, version)
                return Committed(False, before.partitions if version == before.version else ())
            with trio.CancelScope(shield=True):
                await self._decide(owner, version, shares)
            await self._finish(owner, is_new=True)
            assert owner.value is not None
            return Committed(True, owner.value.partitions)

    async def abort(self, application: str, version: int, tasks: Sequence[str] | None = None) -> None:
        """Delete what these tasks (None: all) have staged, unless its commit is decided. Raises RequestError."""
        self.log.check_readable()
        async with self.log.turn(application):
            if stage_name(application, version) not in self.stages.held:
                await self.stages.drop(application, version, tasks)

    async def finish_overdue(self) -> None:
        """Carry out what is decided and was cut off. What fails is logged and tried again later."""
        async with trio.open_nursery() as nursery:
            self.begin_overdue(nursery)

    def begin_overdue(self, nursery: trio.Nursery) -> None:
        """`finish_overdue`, beside each other in `nursery`: an application waits for its own partitions."""
        for name in list(self.log.decided):
            owner = self.log.applications.get(name)
            if owner is not None and name not in self.log.turns and owner.retry_at <= trio.current_time():
                nursery.start_soon(self._finish_overdue, name, owner)

    async def _finish_overdue(self, name: str, owner: Application) -> None:
        async with self.log.turn(name):
            with self._manager.disk.errors.isolate("stage-commits", name):
                try:
                    await self._finish(owner)
                except RequestError as exc:
                    owner.retry_at = trio.current_time() + RETRY_S
                    LOGGER.error("%s", exc)
                except Exception:
                    owner.retry_at = trio.current_time() + RETRY_S
                    raise

    async def expire_stages(self) -> int:
        """Delete what nobody has touched for `stage_retention_ms` and answer how many stages; none while it is not known which
        of them are decided."""
        return await self.stages.expire() if self.log.is_readable else 0

    async def expire(self) -> int:
        """Forget applications without a commit for `stage_commit_expiration_ms`, and answer how many. What fails is logged and
        tried again the next time."""
        latest = self._now_ms() - self._manager.config.stage_commit_expiration_ms
        count = 0
        for name, owner in list(self.log.applications.items()):
            with self._manager.disk.errors.isolate("stage-commit-expiry", name):
                try:
                    count += await self._expire(owner, latest)
                except RequestError as exc:
                    LOGGER.warning("could not delete the expired commit of application %r, trying again: %s", name, exc)
        return count

    async def _expire(self, owner: Application, latest: int) -> bool:
        value = owner.value
        if value is None or not value.is_done or owner.name in self.log.turns:
            return False
        if self._manager.undated.date(value.update_ms) > latest:
            return False
        async with self.log.turn(owner.name):
            if owner.value is not value:
                return False
            with trio.CancelScope(shield=True):
                await self.log.store(owner, None)
            return True

    async def _decide(self, owner: Application, version: int, shares: Sequence[StagedShare]) -> None:
        """Check everything, then store the record: what it names is on the device.

        When the log of commits fails while it takes the record, a restart may find it there: what it names is kept until then.
        A second record for the version would take its place.
        """
        name = stage_name(owner.name, version)
        may_be_decided = name in self.stages.held
        self.stages.held.add(name)
        try:
            checks = StageChecks(self._manager, self.stages, name)
            value = await self._planned(owner, version, checks, await checks.check(shares))
            owner.finished.clear()
            try:
                await self.log.store(owner, value)
            except RequestError as exc:
                may_be_decided |= owner.value is value or _leaves_doubt(exc)
                raise
        except RequestError:
            if not may_be_decided:
                self.stages.held.discard(name)
            raise

    async def _planned(self, owner: Application, version: int, checks: StageChecks, files: Files) -> StageCommitValue:
        producer = await self._next_producer(owner.value)
        partitions = await checks.note_ends(files, producer)
        if partitions is None:
            producer = StageProducer(await self._producer_ids.next(), 0)
            partitions = await checks.note_ends(files, producer)
            assert partitions is not None, f"{producer} is new"
        return StageCommitValue(
            version=version,
            state=StageCommitState.DECIDED if partitions else StageCommitState.DONE,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            update_ms=self._now_ms(),
            partitions=partitions,
        )

    async def _next_producer(self, last: StageCommitValue | None) -> StageProducer:
        if last is None or last.producer_epoch == INT16_MAX:
            return StageProducer(await self._producer_ids.next(), 0)
        return StageProducer(last.producer_id, last.producer_epoch + 1)

    async def _finish(self, owner: Application, *, is_new: bool = False) -> None:
        """Bring a decided commit to its end. Raises RequestError: it stays decided, and is tried again.

        `is_new`: nothing of it can be in a partition yet.
        """
        value = owner.value
        assert value is not None
        while not value.is_done:
            failures = await self._append_all(owner, value, is_new=is_new)
            if failures:
                owner.retry_at = trio.current_time() + RETRY_S
                raise LogOfflineError(
                    f"version {value.version} of application {owner.name!r} is decided, but {len(failures)} of its "
                    f"{len(value.partitions)} partitions do not have all records yet: {failures[0].message}. The server "
                    f"tries again every {RETRY_S:g} s. Repeat the request"
                )
            partitions = tuple(owner.finished[each.topic_partition] for each in value.partitions)
            value, is_new = attrs.evolve(value, update_ms=self._now_ms(), partitions=partitions), True
            if any(each.files for each in partitions):
                value = attrs.evolve(value, producer_id=await self._producer_ids.next(), producer_epoch=0)
            else:
                value = attrs.evolve(value, state=StageCommitState.DONE)
            with trio.CancelScope(shield=True):
                await self.log.store(owner, value)
            owner.finished.clear()
        self.stages.held.discard(stage_name(owner.name, value.version))
        await self.stages.drop(owner.name, value.version)

    async def _append_all(self, owner: Application, value: StageCommitValue, *, is_new: bool) -> list[RequestError]:
        remaining = iter([each for each in value.partitions if each.topic_partition not in owner.finished])
        failures: list[RequestError] = []
        name = stage_name(owner.name, value.version)

        async def work() -> None:
            for each in remaining:
                try:
                    async with self._appending:
                        owner.finished[each.topic_partition] = await finish_partition(
                            self._manager, self.stages, value, each, name=name, is_new=is_new
                        )
                except RequestError as exc:
                    failures.append(exc.as_answer())

        async with trio.open_nursery() as workers:
            for _ in range(min(APPENDERS, len(value.partitions))):
                workers.start_soon(work)
        return failures


def _leaves_doubt(error: RequestError) -> bool:
    """Return whether a restart may find the record whose append failed with this error."""
    return error.code is ErrorCode.KAFKA_STORAGE_ERROR and not isinstance(error, AppendFailedError)
