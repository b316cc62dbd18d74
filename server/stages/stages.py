"""Staged record batches: who has staged how much, in which files, and until when they are kept.

Writes to one file happen in the order in which they were announced, each in a thread; a file that refused a write takes no
more, because a batch would be missing in it. Nothing here decides whether what is staged is ever appended: see `stage_commits`.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Sequence
from typing import Final

import attrs
import trio

from ...protocol.errors import ErrorCode, InvalidRecordError, InvalidRequestError, InvalidTopicError, RequestError
from ...protocol.types import Bytes, TopicPartition
from ..logs.log_manager import LogManager
from ..storage.disk.paths import STAGE_DIRECTORY, is_internal
from ..storage.errors import LogOfflineError
from ..storage.log.prepare import prepare_steps
from ..system.client_memory import Account
from ..system.clock import NowMs
from .stage_files import StagedBytes, append_staged, file_name, find_staged, stage_name, task_prefix, unlink_staged

LOGGER: Final = logging.getLogger(__name__)

SMALLEST_FILE_BYTES: Final = 4096
"""What a file counts for at least: it takes a name and a block of the device."""
FILE_BYTES: Final = 1_000
"""Memory of a staged file: its path and its place here."""
NOTHING: Final = StagedBytes(0, 0)


@attrs.define(eq=False, repr=False)
class StagedFile:
    """A file of staged batches. Owner: Stages."""

    path: str
    staged: StagedBytes | None
    """What is in it; None when nobody has looked since the start."""
    announced_bytes: int
    """With what is about to be written."""
    last_write: trio.Event | None = None
    """Set when the write announced last is over."""
    refusal: RequestError | None = None
    is_doubtful: bool = False
    """Whether a sync of it may have failed: in this process, or in the one before. It is written again before the next."""


@attrs.define(eq=False, repr=False)
class Stage:
    """The files of one version of one application, by name."""

    name: str
    files: dict[str, StagedFile] = attrs.field(factory=dict)
    touched: float = attrs.field(factory=trio.current_time)


@attrs.define(eq=False, repr=False)
class StageWrite:
    """Batches that were checked and announced. They have to be written, or given up: later writes wait for them."""

    topic_partition: TopicPartition
    file: StagedFile
    batches: Sequence[Bytes]
    before: trio.Event | None
    done: trio.Event = attrs.field(factory=trio.Event)


@attrs.define(eq=False, repr=False)
class Stages:
    """See the module. Called from any task of the trio thread; `load` comes first."""

    _manager: LogManager
    _now_ms: NowMs
    held: set[str] = attrs.field(factory=set)
    """Names of stages whose commit is decided or being decided: they are not taken for leftovers."""
    _stages: dict[str, Stage] = attrs.field(factory=dict)
    _going: dict[str, trio.Event] = attrs.field(factory=dict)
    """Paths that are being deleted: who wants to write there waits."""
    _bytes: int = 0

    @property
    def staged_bytes(self) -> int:
        """Return the staged bytes that count against `max_staged_bytes`."""
        return self._bytes

    async def load(self) -> None:
        """Take in what the last run has left. What a directory does not show is passed over: a commit that needs it says so."""
        disk = self._manager.disk
        for directory in self._manager.log_directories.live:
            try:
                found = await disk.call_briefly(lambda path: list(find_staged(disk.fs, path)), directory.path)
            except OSError as exc:
                LOGGER.error("cannot list staged files in %s: %s", directory.path, exc)
                continue
            for name, path, size in found:
                stage = self._stages.setdefault(name, Stage(name))
                stage.files[path.rpartition("/")[2]] = StagedFile(path, None, size, is_doubtful=True)
                self._bytes += max(size, SMALLEST_FILE_BYTES)
                self._charge(stage)

    @property
    def _account(self) -> Account:
        return self._manager.client_memory.account("staged tasks")

    def _charge(self, stage: Stage) -> None:
        if stage.files:
            self._account.put(stage.name, FILE_BYTES * len(stage.files))
        else:
            self._account.drop(stage.name)

    def names(self) -> list[str]:
        """Every stage that has files."""
        return list(self._stages)

    def find(self, name: str, task: str, topic_partition: TopicPartition, topic_id: uuid.UUID | None) -> StagedFile | None:
        """The file of what a task has staged for a partition of the topic with that id, in whichever log directory it lies."""
        stage = self._stages.get(name)
        return None if stage is None else stage.files.get(file_name(task, topic_partition, topic_id))

    def file_name(self, task: str, topic_partition: TopicPartition) -> str:
        """The file of what a task stages for the topic that has the name now. Raises UnknownTopicOrPartitionError."""
        return file_name(task, topic_partition, self._manager.topics.get(topic_partition.topic).topic.topic_id)

    async def announce(
        self, application: str, version: int, task: str, topic_partition: TopicPartition, records: Bytes
    ) -> StageWrite:
        """Check record batches as an append does, and give them their place in the file. Raises RequestError.

        The order in which calls return is the order in the file. The answer has to be given to `write` or `give_up`.
        """
        batches = await self._check(topic_partition, records)
        size = sum(map(len, batches))
        name, file = stage_name(application, version), self.file_name(task, topic_partition)
        stage = self._stages.get(name)
        staged = None if stage is None else stage.files.get(file)
        if staged is not None and staged.refusal is not None:
            raise staged.refusal.as_answer()
        if staged is None and not batches:
            return StageWrite(topic_partition, StagedFile("", NOTHING, 0), (), None)  # asks how much there is: nothing
        before = 0 if staged is None else max(staged.announced_bytes, SMALLEST_FILE_BYTES)
        after = max((0 if staged is None else staged.announced_bytes) + size, SMALLEST_FILE_BYTES)
        limit = self._manager.config.max_staged_bytes
        if self._bytes - before + after > limit:
            raise RequestError(
                f"{topic_partition}: all applications together staged {self._bytes} bytes, {size} more would exceed "
                f"max_staged_bytes={limit}. Commit or abort staged records, or raise the limit",
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
            )
        if staged is None:
            self._account.check(name, FILE_BYTES, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        if stage is None:
            stage = self._stages[name] = Stage(name)
        if staged is None:
            directory = self._manager.topics.partition(topic_partition).directory.path
            path = f"{directory}/{STAGE_DIRECTORY}/{name}/{file}"
            staged = stage.files[file] = StagedFile(path, NOTHING, 0, self._going.get(path))
        self._charge(stage)
        stage.touched = trio.current_time()
        self._bytes += after - before
        staged.announced_bytes += size
        write = StageWrite(topic_partition, staged, batches, staged.last_write)
        staged.last_write = write.done
        return write

    async def _check(self, topic_partition: TopicPartition, records: Bytes) -> list[Bytes]:
        if is_internal(topic_partition.topic):
            raise InvalidTopicError(f"{topic_partition.topic} belongs to the server. It can be read, but not written")
        actor = self._manager.topics.writable(topic_partition)
        if not records:
            return []
        now_ms = self._now_ms()
        prepared = await self._manager.disk.compute(
            prepare_steps(
                records,
                topic_partition,
                self._manager.accepted_by(actor.config),
                now_ms=now_ms,
                limits=self._manager.batch_limits,
            )
        )
        for header, _ in prepared.batches:
            if header.has_producer_id or header.is_transactional:
                raise InvalidRecordError(
                    f"{topic_partition}: a batch to stage has producer {header.producer_id}. It must have none, the "
                    "commit adds one"
                )
        if self._manager.clock.is_trusted:
            self._manager.topics.note_age(topic_partition, prepared.max_timestamp, now_ms)
        return [batch for _, batch in prepared.batches]

    async def write(self, write: StageWrite) -> StagedBytes:
        """Write what was announced and answer what the file holds then. Raises RequestError. Cancelled before its turn came:
        the file takes no more."""
        file, disk = write.file, self._manager.disk
        is_written = False
        try:
            if write.before is not None:
                await write.before.wait()
            if file.refusal is not None:
                raise file.refusal.as_answer()
            with trio.CancelScope(shield=True):
                staged = await disk.call(append_staged, disk.fs, file.path, file.staged, write.batches, at=file.path)
            file.staged, is_written = staged, True
            return staged
        except OSError as exc:
            raise self._refuse(file, f"{write.topic_partition}: staging in {file.path} failed: {exc}") from exc
        finally:
            if is_written:
                write.done.set()
            else:
                await self.give_up(write)

    async def give_up(self, write: StageWrite) -> None:
        """Instead of `write`, whoever is cancelled: the file takes no more, and those behind need not wait."""
        self._refuse(write.file, f"{write.topic_partition}: earlier records for {write.file.path} were not written")
        if write.before is not None:
            with trio.CancelScope(shield=True):  # done means that nothing before is under way either
                await write.before.wait()
        write.done.set()

    def _refuse(self, file: StagedFile, why: str) -> RequestError:
        if file.refusal is None:
            file.refusal = LogOfflineError(
                f"{why}. Nothing more can be staged there: abort the task and start it again as another"
            )
        return file.refusal.as_answer()

    def adopt(self, name: str, path: str) -> None:
        """Take in a file that is going to be written by somebody else, also above the limit: it goes with the others."""
        stage = self._stages.setdefault(name, Stage(name))
        stage.files[path.rpartition("/")[2]] = StagedFile(path, None, 0)
        self._charge(stage)
        self._bytes += SMALLEST_FILE_BYTES

    async def drop(self, application: str, version: int, tasks: Iterable[str] | None = None) -> None:
        """Delete what these tasks (None: all) have staged for a version. What the disk refuses is logged, and tried again when
        it is due as a leftover."""
        prefixes = None if tasks is None else {task_prefix(task) for task in tasks}
        await self._drop(stage_name(application, version), prefixes)

    async def _drop(self, name: str, prefixes: set[str] | None) -> None:
        stage = self._stages.get(name)
        if stage is None:
            return
        chosen = [file for file in stage.files if prefixes is None or f"{file.partition('.')[0]}." in prefixes]
        files = [stage.files.pop(file) for file in chosen]
        self._charge(stage)
        if not stage.files:
            del self._stages[name]
        going = trio.Event()
        for file in files:
            self._going[file.path] = going
            self._refuse(file, f"the records staged in {file.path} were deleted")
        disk = self._manager.disk
        with trio.CancelScope(shield=True):
            try:
                for file in files:
                    if file.last_write is not None:
                        await file.last_write.wait()
                await disk.call(unlink_staged, disk.fs, [file.path for file in files])
            except OSError as exc:
                LOGGER.error("cannot delete staged files in %s, trying again: %s", name, exc)
                kept = self._stages.setdefault(name, Stage(name))
                for file in files:
                    if kept.files.setdefault(file.path.rpartition("/")[2], file) is not file:
                        self._uncount(file)  # what is staged there meanwhile is written over it
                self._charge(kept)
            else:
                for file in files:
                    self._uncount(file)
            finally:
                for file in files:
                    if self._going.get(file.path) is going:  # else a later one deletes what was staged there meanwhile
                        del self._going[file.path]
                going.set()

    def _uncount(self, file: StagedFile) -> None:
        self._bytes -= max(file.announced_bytes, SMALLEST_FILE_BYTES)

    async def expire(self) -> int:
        """Delete stages that nobody has touched for `stage_retention_ms`, in trio's time, and answer how many."""
        latest = trio.current_time() - self._manager.config.stage_retention_ms / 1000
        count = 0
        for stage in list(self._stages.values()):
            if stage.touched <= latest and stage.name not in self.held and self._stages.get(stage.name) is stage:
                LOGGER.warning("deleting staged files in %s: unused for stage_retention_ms", stage.name)
                with self._manager.disk.errors.isolate("stage-expiry", stage.name):
                    await self._drop(stage.name, None)
                    count += 1
        return count

    async def forget(self, name: str) -> None:
        """Delete all of a stage by its name."""
        await self._drop(name, None)

    def check_complete(self, name: str, task: str, topic_partition: TopicPartition) -> StagedFile:
        """The file that a commit names. Raises InvalidRequestError when there is none, or it has missed a write, and
        UnknownTopicOrPartitionError."""
        topic_id = self._manager.topics.get(topic_partition.topic).topic.topic_id
        file = self.find(name, task, topic_partition, topic_id)
        if file is None:
            raise InvalidRequestError(
                f"{topic_partition}: task {task!r} has nothing staged, or not any more. Stage it again under another "
                "task, or call last_commit to see the committed state"
            )
        if file.refusal is not None:
            raise InvalidRequestError(f"{topic_partition}: task {task!r} cannot be committed: {file.refusal.message}")
        return file
