"""Disk operations: the only caller of worker threads.

| call | for | how |
|---|---|---|
| `run` | an append's or a flush's operations | one thread hop for all of them; small writes on the spot while that is quick |
| `try_run` | an append's operations | on the spot, if `run` would do them so |
| `drive` | a procedure of the log's owner | one hop per operation; none where there is no device (`FileSystem.is_instant`) |
| `read` | a reader's procedure | on the spot while the bytes are cached (1 us), else a hop (60-200 us) |
| `try_read` | a reader's procedure | on the spot, or not at all |
| `call` | start-up, creation, deletion | one hop for a whole blocking function |
| `call_briefly` | small files of the log directory | one hop; none where there is no device |
| `call_for_watchdog` | one small write in each log directory | one hop, whatever else is under way |
| `compute` | a procedure without files | on the spot as long as it fits a turn; a codec's work on much data in a hop |

An operation runs when it has a place among the threads and its file is open (`open_files`). Work that has begun is never
abandoned. Each log directory has places of its own (`Lanes`): a device that hangs holds up what is on it, and nothing else.

The choice for each write: on the spot, or in a thread.

A write into the page cache takes 10 us, one of 128 KiB 30 to 60; the way to a thread and back takes 150 to 300 us. But where
too much is dirty, or the journal is busy, the kernel delays the writer and with it all clients of the event loop. So the loop
itself writes as long as that is quick. A slow write sends the next writes to threads, for longer each time it happens again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Final, NamedTuple, TypeVar

import attrs
import trio

from ...protocol.errors import RequestError
from ...protocol.limits import KIB, MIB
from ...protocol.records.steps import STEPS_PER_PAUSE
from ...protocol.types import Bytes
from ..loop.turns import Gathering, Turns
from ..storage.disk.diskops import Compute, DiskOp, FileHandle, Map, Procedure, Read, Sync, Write, name_file
from ..storage.disk.filesystem import CachedReadUnsupportedError, FileSystem
from ..storage.errors import FileTooLargeError, SnapshotExpiredError, SyncFailedError
from .backpressure import Rooms
from .open_files import DescriptorBudget, OpenFiles
from .task_errors import TaskErrors

T = TypeVar("T")

WRITERS: Final = 8
"""Appends and flushes at a time. More would only queue in the device; fewer would let one slow file hold up the rest."""
READERS: Final = 16
OTHERS: Final = 4
THREADS: Final = 2 * (WRITERS + READERS)
"""For what is in no log directory, and as many for each."""
FILES_OF_WRITER: Final = 8
"""A segment's log and its indexes, and as many that others use meanwhile."""
FILES_OF_READER: Final = 4
TURN_BYTES: Final = MIB
"""Bytes that a procedure gets from the page cache before others have their turn; a read counts for READ_BYTES more. Among small
batches the headers of 1 MiB take 16 ms, 64 single ones under 1 ms."""
READ_BYTES: Final = 16 * KIB
FILES_BESIDE: Final = 64
"""Descriptors and maps of a disk that is made beside another one."""
STEPS_PER_PROCEDURE: Final = 16
"""What one without files takes beside its pauses: a batch's checksum, its header, its place in the answer."""

DURATION_BOUNDS_S: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper bounds of the classes, inclusive; above the last one there is one more. From what a request in the page cache takes
(0.1 ms) to what clients give up after."""


@attrs.define(eq=False, repr=False)
class Durations:
    """A histogram of durations with fixed classes: cheap enough to be counted always, exact enough for p50 and p99. Owner: the
    code that measures."""

    seconds: float = 0.0
    counts: list[int] = attrs.field(factory=lambda: [0] * (len(DURATION_BOUNDS_S) + 1))

    def add(self, seconds: float) -> None:
        """Count another duration, in seconds."""
        self.seconds += seconds
        self.counts[bisect_left(DURATION_BOUNDS_S, seconds)] += 1

    @property
    def count(self) -> int:
        return sum(self.counts)

    def copy(self) -> Durations:
        """As it is now."""
        return Durations(self.seconds, list(self.counts))


class _Done(NamedTuple):
    answer: Any


class WouldWaitError(Exception):
    """A procedure cannot go on without a thread, or others have to have their turn before it does `operation`."""

    def __init__(self, operation: DiskOp | None) -> None:
        super().__init__(operation)
        self.operation = operation


class OperationFailedError(Exception):
    """An operation of `run` failed; those before it were done, those behind it were not. `__cause__` is the OSError."""

    def __init__(self, operation: DiskOp, cause: OSError) -> None:
        super().__init__(f"{type(operation).__name__}: {cause}")
        self.operation = operation
        self.cause = cause


@attrs.define
class DiskStatistics:
    """Counters since the start, and how many files and maps are open."""

    hops: int = 0
    writes_at_once: int = 0
    """Groups of writes that took no hop."""
    cached_reads: int = 0
    cold_reads: int = 0
    descriptors: int = 0
    syncs: Durations = attrs.field(factory=Durations)
    """How long files of logs took to be forced to the device."""
    failed_syncs: int = 0


@attrs.define(eq=False, repr=False)
class Lanes:
    """Places among the threads, of one log directory or of what is in none."""

    writers: trio.CapacityLimiter
    readers: trio.CapacityLimiter
    others: trio.CapacityLimiter
    writing: int = 0
    """How many write or sync at the moment. A limiter would have to be asked."""

    @classmethod
    def of(cls, budget: DescriptorBudget) -> Lanes:
        writers, readers = budget.at_a_time(WRITERS, FILES_OF_WRITER), budget.at_a_time(READERS, FILES_OF_READER)
        return cls(trio.CapacityLimiter(writers), trio.CapacityLimiter(readers), trio.CapacityLimiter(OTHERS))


@attrs.define(eq=False, repr=False)
class Disk:
    """Thread limiters, and counters. Owner: the trio thread."""

    fs: FileSystem
    budget: DescriptorBudget = attrs.field(factory=DescriptorBudget)
    turns: Turns = attrs.field(factory=Turns)
    gathering: Gathering = attrs.field(default=attrs.Factory(lambda disk: Gathering(disk.turns), takes_self=True))
    """What waits for the end of a turn, to be written together."""
    at_once: WritesAtOnce = attrs.field(default=attrs.Factory(lambda disk: WritesAtOnce(disk.turns), takes_self=True))
    """How quick small writes were."""
    rooms: Rooms = attrs.field(factory=Rooms)
    """What the log directories' devices have room for."""
    errors: TaskErrors = attrs.field(factory=TaskErrors)
    """What background tasks did not expect."""
    files: OpenFiles = attrs.field(init=False)
    """Those that are open."""
    _rest: Lanes = attrs.field(default=attrs.Factory(lambda disk: Lanes.of(disk.budget), takes_self=True))
    """Of what is in no log directory."""
    _lanes: dict[str, Lanes] = attrs.field(factory=dict)
    """By log directory."""
    _only: Lanes | None = None
    """Of the log directory, where there is one."""
    _threads: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(THREADS))
    _counts: DiskStatistics = attrs.field(factory=DiskStatistics)

    def __attrs_post_init__(self) -> None:
        self.files = OpenFiles(self.fs, self.budget, self._hop, self.errors)

    def add_directory(self, path: str) -> None:
        """A log directory, which gets places of its own."""
        self._lanes[path] = Lanes.of(self.budget)
        self._only = self._lanes[path] if len(self._lanes) == 1 else None
        self._threads.total_tokens += THREADS

    def _lanes_at(self, path: str) -> Lanes:
        """Those of the log directory in which this is, or which this is."""
        for directory, lanes in self._lanes.items():
            if path.startswith(directory) and path[len(directory) : len(directory) + 1] in ("", "/"):
                return lanes
        return self._rest

    def beside(self, fs: FileSystem) -> Disk:
        """Another one for files of `fs`, with the same threads and a few descriptors of its own. Its owner closes it first."""
        disk = Disk(fs, DescriptorBudget(min(FILES_BESIDE, self.budget.limit)), self.turns, self.gathering)
        disk.rooms = self.rooms
        disk.errors = disk.files.errors = self.errors
        disk._rest, disk._lanes, disk._only, disk._threads = self._rest, self._lanes, self._only, self._threads
        return disk

    def statistics(self) -> DiskStatistics:
        """As they are now."""
        return attrs.evolve(self._counts, descriptors=self.budget.held, syncs=self._counts.syncs.copy())

    async def run(self, operations: Sequence[DiskOp], files: Sequence[FileHandle], *, syncs: bool = False) -> None:
        """Run operations in one hop, or on the spot, `files` open and leased meanwhile. `syncs`: one of them is a sync, so they
        need the hop. Raises OperationFailedError."""
        if not syncs and self.try_run(operations, files):
            return
        lanes = self._lanes_at(files[0].path) if files else self._rest
        async with lanes.writers:
            lanes.writing += 1
            try:
                with self.files.leased(files):
                    for file in files:
                        if file.fd is None:
                            await self.files.open(file)
                    await self._run_in_thread(operations)
            finally:
                lanes.writing -= 1

    async def _run_in_thread(self, operations: Sequence[DiskOp]) -> None:
        self._counts.hops += 1
        sync_times: list[float] = []
        try:
            await trio.to_thread.run_sync(_run_all, self.fs, operations, sync_times, limiter=self._threads)
        except OperationFailedError as exc:
            self._counts.failed_syncs += isinstance(exc.cause, SyncFailedError)
            raise
        finally:
            for seconds in sync_times:
                self._counts.syncs.add(seconds)

    def try_run(self, operations: Sequence[DiskOp], files: Sequence[FileHandle]) -> bool:
        """Run operations on the spot; False, and nothing is done, where that could take long. Raises OperationFailedError."""
        lanes = self._only
        if lanes is None:
            lanes = self._lanes_at(files[0].path) if files else self._rest
        if lanes.writing:  # which could hold up this too
            return False
        for file in files:
            if file.fd is None:
                return False
        if not self.at_once.suits(self.fs, operations):
            return False
        for file in files:
            file.used = True
        self._counts.writes_at_once += 1
        writes: Any = operations  # as `suits` has found
        try:
            for operation in writes:  # what `Write.run` does, without its call
                self.fs.write(operation.file.fd, operation.buffers, operation.position)
        except OSError as exc:
            name_file(exc, operation)
            raise OperationFailedError(operation, exc) from exc
        finally:
            self.at_once.done()
        return True

    async def drive(self, procedure: Procedure[T], at: str = "") -> T:
        """Run a procedure of the log's owner, every operation in a thread. OSErrors are the procedure's to see first. `at`: the
        log's directory."""
        lanes = self._lanes_at(at)
        async with lanes.writers:
            lanes.writing += 1
            try:
                return await self._advance(procedure, self._run_one)
            finally:
                lanes.writing -= 1

    async def call(self, function: Callable[..., T], *args: Any, at: str = "") -> T:
        """Run a blocking function that touches files of nobody who is running. `at`: the log directory, or a path in it, where
        it is about one."""
        self._counts.hops += 1
        return await trio.to_thread.run_sync(function, *args, limiter=self._lanes_at(at).others)

    async def call_briefly(self, function: Callable[..., T], *args: Any, at: str = "") -> T:
        """`call` for a function of a few operations on small files, which runs on the spot where there is no device."""
        if self.fs.is_instant:
            result = function(*args)
            await trio.lowlevel.cancel_shielded_checkpoint()
            return result
        return await self.call(function, *args, at=at)

    async def call_for_watchdog(self, function: Callable[[], T]) -> T:
        """`call` that waits for the device alone, and for no place among the threads."""
        return await trio.to_thread.run_sync(function, limiter=trio.CapacityLimiter(1))

    async def compute(self, procedure: Procedure[T]) -> T:
        """Run a procedure that needs no file."""
        if self.turns.spend(STEPS_PER_PROCEDURE):
            await trio.lowlevel.checkpoint()
        return await self._advance(procedure, self._run_one)

    async def read(self, procedure: Procedure[T]) -> T:
        """Run a reader's procedure. Never waits for an append."""
        return await self._advance(procedure, self._read_cold)

    def try_read(self, procedure: Procedure[T]) -> T:
        """Run a reader's procedure of which nothing has to be waited for. Raises WouldWaitError where something has."""
        answer: Any = None
        error: BaseException | None = None
        cached = 0
        while True:
            try:
                operation = procedure.send(answer) if error is None else procedure.throw(error)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            answer = error = None
            if operation.__class__ is not Read:
                if operation is None and not self.turns.spend(STEPS_PER_PAUSE):
                    continue
                raise WouldWaitError(operation)
            if cached > TURN_BYTES:
                raise WouldWaitError(operation)
            try:
                answer = self.cached_bytes(*operation)
            except OSError as exc:
                name_file(exc, operation)
                error = exc
                continue
            if answer is None:
                raise WouldWaitError(operation)
            cached += len(answer) + READ_BYTES

    def is_cached(self, operation: Read) -> bool:
        """Return whether the read would finish without waiting for the device."""
        return self.cached_bytes(*operation) is not None

    def cached_bytes(self, file: FileHandle, position: int, size: int) -> Bytes | None:
        """Return the result of a `Read`, or None where the read would wait for the device. Raises OSError."""
        file.used = True
        if file.fd is None or not file.cached_reads:
            return None
        try:
            data = self.fs.read_cached(file.fd, size, position)
        except CachedReadUnsupportedError:
            file.cached_reads = False
            return None
        if data is not None:
            self._counts.cached_reads += 1
        return data

    async def _advance(self, procedure: Procedure[T], run: Callable[[DiskOp], Any]) -> T:
        try:
            return self.try_read(procedure)
        except WouldWaitError as exc:
            operation = exc.operation
        return await self._go_on(procedure, operation, run)

    async def _go_on(self, procedure: Procedure[T], operation: DiskOp | None, run: Callable[[DiskOp], Any]) -> T:
        """From `operation` on, at which the procedure would have waited."""
        cached = TURN_BYTES  # others had no turn since the procedure began
        while True:
            answer: Any = None
            error: BaseException | None = None
            if operation is None or operation.__class__ is Compute:
                worked = await self._work(procedure, operation)
                if isinstance(worked, _Done):
                    return worked.answer  # type: ignore[no-any-return]
                operation = worked
            try:
                if operation.__class__ is Read:
                    answer = self.cached_bytes(*operation)
                if answer is None:
                    answer = await run(operation)
                else:
                    cached += len(answer) + READ_BYTES
                    if cached > TURN_BYTES:
                        cached = 0
                        await trio.lowlevel.checkpoint()
            except (OSError, SnapshotExpiredError, FileTooLargeError) as exc:
                name_file(exc, operation)
                error = exc
            try:
                operation = procedure.send(answer) if error is None else procedure.throw(error)
                while operation is None and not self.turns.spend(STEPS_PER_PAUSE):
                    operation = next(procedure)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]

    async def _work(self, procedure: Procedure[T], operation: DiskOp | None) -> DiskOp | _Done:
        """Do what needs the processor for long, up to the next operation of another kind or the end."""
        async with self.turns.large_work:
            while operation is None or isinstance(operation, Compute):
                answer: Any = None
                error: BaseException | None = None
                if operation is None:
                    await trio.lowlevel.checkpoint()
                else:
                    self._counts.hops += 1
                    try:
                        answer = await trio.to_thread.run_sync(operation.run, self.fs, limiter=self._threads)
                    except RequestError as exc:
                        error = exc
                try:
                    operation = procedure.send(answer) if error is None else procedure.throw(error)
                except StopIteration as stop:
                    return _Done(stop.value)
            return operation

    async def _read_cold(self, operation: DiskOp) -> Any:
        self._counts.cold_reads += 1
        file = getattr(operation, "file", None)
        lanes = self._lanes_at(file.path) if isinstance(file, FileHandle) else self._rest
        async with lanes.readers:
            return await self._run_one(operation)

    async def _run_one(self, operation: DiskOp) -> Any:
        file = getattr(operation, "file", None)
        if not isinstance(file, FileHandle):
            return await (self.files.map(operation) if isinstance(operation, Map) else self._hop(operation.run, self.fs))
        with self.files.leased([file]):
            if file.fd is None:
                await self.files.open(file)
            return await self._hop(operation.run, self.fs)

    async def _hop(self, function: Callable[..., T], *args: Any) -> T:
        """Do something small in a thread, or on the spot where nothing could hold it up."""
        if self.fs.is_instant:
            return function(*args)
        self._counts.hops += 1
        return await trio.to_thread.run_sync(function, *args, limiter=self._threads)


def _run_all(fs: FileSystem, operations: Sequence[DiskOp], sync_times: list[float]) -> None:
    """Adds to `sync_times` how many seconds each sync took."""
    for operation in operations:
        try:
            if operation.__class__ is Sync:
                started_s = perf_counter()
                operation.run(fs)
                sync_times.append(perf_counter() - started_s)
            else:
                operation.run(fs)
        except OSError as exc:
            name_file(exc, operation)
            raise OperationFailedError(operation, exc) from exc


MAX_BYTES: Final = MIB
"""More than that is worth a thread: it is copied while others are served."""
SMALL_BYTES: Final = 16 * KIB
"""Larger writes count in the turn."""
BYTES_PER_STEP: Final = 2 * KIB
"""Of larger ones: 0.4 us for each KiB on a busy machine."""
SLOW_S: Final = 0.005
"""As long as a switch to another process takes; below that nobody notices."""
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 60.0


@attrs.define(eq=False, repr=False)
class WritesAtOnce:
    """Memory of how quick writes were. Owner: the disk."""

    turns: Turns = attrs.field(factory=Turns)
    """How much is done in a turn."""
    clock: Callable[[], float] = perf_counter
    _begun_s: float = 0.0
    """When somebody asked last whether to write."""
    _not_before_s: float = float("-inf")
    _pause_s: float = FIRST_PAUSE_S

    def suits(self, fs: FileSystem, operations: Sequence[DiskOp]) -> bool:
        """Return whether these are writes that fit the turn, the file system never keeps writers waiting, and the last writes
        were quick. If so, the caller writes and then calls `done`."""
        self._begun_s = self.clock()
        if self._begun_s < self._not_before_s or not fs.writes_at_once:
            return False
        size = 0
        for operation in operations:
            if operation.__class__ is not Write:
                return False
            size += sum(map(len, operation.buffers))
        return size <= SMALL_BYTES or (size <= MAX_BYTES and self.turns.fit(size // BYTES_PER_STEP))

    def done(self) -> None:
        """The writes are over, and took as long as it is since `suits`."""
        now_s = self.clock()
        if now_s - self._begun_s < SLOW_S:
            return
        was_quick_for_s = now_s - self._not_before_s
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S) if was_quick_for_s < self._pause_s else FIRST_PAUSE_S
        self._not_before_s = now_s + self._pause_s
