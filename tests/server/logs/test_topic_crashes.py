"""Topics that are made, grown, configured and deleted, cut off before each single operation on the disk: each change is there
whole or not at all, nothing is left of what is not, and the same change can be made again. With altered derived files too, and
then no record is lost and none comes back."""

from __future__ import annotations

import errno
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import attrs
import pytest
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker
from triolog.server.storage.directory.catalogue import StoredTopics
from triolog.server.storage.directory.topics_file import CREATIONS_FILE, TOPICS_FILE
from triolog.server.storage.errors import LogOfflineError

from tests.support.altered_files import alter_one
from tests.support.brokers import actor_of, running_broker, value, values_from
from tests.support.counts import counts, draws
from tests.support.crash_fs import CrashFileSystem

pytestmark = pytest.mark.merge  # cut off before each operation on the disk

CONFIG: Final = {"cleanup.policy": "compact", "retention.ms": "777"}
SETTINGS: Final = {
    "segment.index.bytes": "120",
    "file.delete.delay.ms": "0",
    "segment.bytes": "300",
    "index.interval.bytes": "0",
}
CUTS: Final = counts(20)
"""Power cuts at each moment of a change."""
CUTS_OF_A_START: Final = 20
"""At each moment of a start: with 7, the planted fault `undoing-is-forgotten-before-it-is-on-the-device` is not noticed."""
ALTERED: Final = counts(100, merge=5)
"""Starts with altered derived files, of each change."""
FIRST: Final = TopicPartition("kept", 0)
VALUES: Final = [b"%d" % number for number in range(6)]
DELETED: Final = 1
"""Of them."""


State = dict[str, tuple[int, dict[str, str]]]
"""Partitions and configuration of each topic."""
KEPT: Final[State] = {"kept": (2, {"retention.ms": "5"})}

Change = Callable[[Broker], Awaitable[None]]
Values = Sequence[bytes]


async def create(broker: Broker) -> None:
    await broker.topics.create("made", 2, CONFIG)


async def create_reserved(broker: Broker) -> None:
    await broker.topics.create("made", 2, {"preallocate": "true", "segment.bytes": "5000"})


async def grow(broker: Broker) -> None:
    await broker.topics.create_partitions("kept", 4)


async def alter(broker: Broker) -> None:
    await broker.topics.alter_configs("kept", {"cleanup.policy": "compact"}, ["retention.ms"])


async def delete(broker: Broker) -> None:
    await broker.topics.delete("kept")
    await broker._manager.delete_doomed()


CHANGES: Final[dict[str, tuple[Change, State]]] = {
    "create": (create, {**KEPT, "made": (2, CONFIG)}),
    "create reserved": (create_reserved, {**KEPT, "made": (2, {"preallocate": "true", "segment.bytes": "5000"})}),
    "grow": (grow, {"kept": (4, {"retention.ms": "5"})}),
    "alter": (alter, {"kept": (2, {"cleanup.policy": "compact"})}),
    "delete": (delete, {}),
}


@asynccontextmanager
async def broker_on(fs: CrashFileSystem, *directories: Path) -> AsyncIterator[Broker]:
    """A broker whose files are in `fs`; locks are the kernel's, so the directories are there too."""
    for directory in directories:
        directory.mkdir(exist_ok=True)
    async with running_broker(*directories, fs=fs, durability="fsync", topic=SETTINGS) as broker:
        yield broker


def state_of(broker: Broker) -> State:
    """Of partitions that are all served."""
    found = {}
    for name in broker.topics.names():
        description = broker.topics.describe(name)
        assert all(partition.error is None for partition in description.partitions), description
        found[name] = len(description.partitions), dict(description.config)
    return found


def names_in(fs: CrashFileSystem, *directories: Path) -> list[str]:
    """Partitions that are served, and files of creations."""
    names = [name for directory in directories for name in fs.list_directory(str(directory))]
    return sorted(name for name in names if name == CREATIONS_FILE or name.rpartition("-")[2].isdigit())


def partitions_in(state: State) -> list[str]:
    return sorted(f"{name}-{number}" for name, (count, _) in state.items() for number in range(count))


async def check(
    fs: CrashFileSystem,
    change: Change,
    after: State,
    *directories: Path,
    between: Callable[[], None] = list,
    values: Values = (),
) -> bool:
    """Whether the change has happened; it has or has not, and in the end it can be made. `values` are those of the records, as
    long as their topic is there; `between` is called between two starts."""
    async with broker_on(fs, *directories) as broker:
        await check_records(broker, values)
        state = state_of(broker)
        assert state in (KEPT, after)
        assert names_in(fs, *directories) == partitions_in(state)
        stored = [StoredTopics.read(fs, str(directory)) for directory in directories]
        assert sorted(str(partition) for each in stored for partition in each.partitions) == partitions_in(state)
        if state != after:
            await change(broker)
            assert state_of(broker) == after
    between()
    async with broker_on(fs, *directories) as broker:
        await check_records(broker, values)
        assert state_of(broker) == after
        assert names_in(fs, *directories) == partitions_in(after)
    return state == after


async def check_records(broker: Broker, values: Values) -> None:
    if values and FIRST.topic in broker.topics.names():
        await broker.logs.apply_retention()
        assert await values_from(broker, FIRST, DELETED) == list(values)
        assert actor_of(broker, FIRST).log.log_start_offset == DELETED


@asynccontextmanager
async def kept_topic(fs: CrashFileSystem, *directories: Path) -> AsyncIterator[Broker]:
    """A broker with the topic of KEPT, on directories whose own names are on the device."""
    for path in directories:
        fs.make_directory(str(path))
        for parent in path.parents:
            fs.sync_directory(str(parent))
    async with broker_on(fs, *directories) as broker:
        await broker.topics.create("kept", 2, {"retention.ms": "5"})
        yield broker


def paths_in(folder: Path, directories: int) -> list[Path]:
    return [folder / f"data-{number}" for number in range(directories)]


@attrs.define(eq=False)
class Outcomes:
    """What became of the change in each distinct content of the disk."""

    change: Change
    after: State
    directories: list[Path]
    _known: dict[frozenset[tuple[str, bytes]], bool] = attrs.field(factory=dict)

    async def of(self, left: CrashFileSystem) -> bool:
        tree = frozenset(left.tree().items())
        if tree not in self._known:
            self._known[tree] = await check(left, self.change, self.after, *self.directories)
        return self._known[tree]

    async def of_all(self, moments: list[CrashFileSystem], cuts: int = CUTS) -> list[bool]:
        """Killed at each moment; power cuts there are looked at too."""
        killed = []
        for number, moment in enumerate(moments):
            rng = random.Random(number)
            for _ in range(cuts):
                await self.of(moment.copy().crash(rng))
            killed.append(await self.of(moment.copy()))
        return killed


@pytest.mark.parametrize("directories", [1, 2])
@pytest.mark.parametrize("name", CHANGES)
async def test_a_change_cut_off_is_whole_or_absent_and_can_be_made_again(tmp_path: Path, name: str, directories: int) -> None:
    change, after = CHANGES[name]
    paths = paths_in(tmp_path, directories)
    fs = CrashFileSystem()
    async with kept_topic(fs, *paths) as broker:
        moments = fs.moments()
        await change(broker)
        moments = [*moments, fs.copy()]
    killed = await Outcomes(change, after, paths).of_all(moments)
    assert killed == sorted(killed)
    assert killed[-1]
    assert not killed[0]


@pytest.mark.parametrize("directories", [1, 2])
@pytest.mark.parametrize("name", CHANGES)
async def test_with_altered_files_a_change_is_whole_or_absent_and_records_stay(
    tmp_path: Path, name: str, directories: int
) -> None:
    """Killed, or without power, at any moment of the change. One file gets another content before each of two starts."""
    change, after = CHANGES[name]
    paths = paths_in(tmp_path, directories)
    fs = CrashFileSystem()
    async with kept_topic(fs, *paths) as broker:
        for text in VALUES:
            await broker.writer.append(FIRST, value(text.decode()))
        await broker.logs.delete_records(FIRST, DELETED)
        fs.sync_all()  # the second place of the log start offset is not durable at once, and the first one may be altered
        moments = fs.moments()
        await change(broker)
        moments = [*moments, fs.copy()]
    rng = draws(f"{name} {directories}")
    for moment in rng.choices(moments, k=ALTERED):
        left = moment.copy() if rng.random() < 0.5 else moment.copy().crash(rng)
        altered: list[str] = []

        def alter(left: CrashFileSystem = left, altered: list[str] = altered) -> None:
            altered.append(alter_one(left, str(rng.choice(paths)), rng))

        alter()
        try:
            await check(left, change, after, *paths, between=alter, values=VALUES[DELETED:])
        except BaseException as exc:
            exc.add_note(f"altered: {altered}")
            raise


@pytest.mark.parametrize("name", ["create", "create reserved", "grow", "delete"])
async def test_a_start_that_undoes_or_completes_a_change_and_is_cut_off_itself_is_done_again(tmp_path: Path, name: str) -> None:
    change, after = CHANGES[name]
    fs = CrashFileSystem()
    async with kept_topic(fs, tmp_path) as broker:
        moments = fs.moments()
        await change(broker)
        topics = str(tmp_path / TOPICS_FILE)
        before = moments[0].content(topics)
        half = [moment for moment in moments if moment.content(topics) == before][-1].copy()
    moments = half.moments()
    async with broker_on(half, tmp_path):
        moments = list(moments)
    outcomes = set(await Outcomes(change, after, [tmp_path]).of_all(moments, CUTS_OF_A_START))
    assert outcomes == {name == "delete"}


@pytest.mark.parametrize("directories", [1, 2])
@pytest.mark.parametrize("operation", ["open", "write", "sync", "rename", "make_directory", "sync_directory", "unlink"])
@pytest.mark.parametrize("name", ["create", "grow", "alter"])
async def test_a_change_that_is_refused_is_whole_or_absent(tmp_path: Path, name: str, operation: str, directories: int) -> None:
    """Also where what was begun cannot be taken back at once: the operation fails twice."""
    change, after = CHANGES[name]
    paths = paths_in(tmp_path, directories)
    outcomes = Outcomes(change, after, paths)
    for skip in itertools.count():
        fs = CrashFileSystem()
        async with kept_topic(fs, *paths) as broker:
            fs.fail_next(operation, errno.ENOSPC, skip=skip)
            fs.fail_next(operation, errno.ENOSPC)
            is_answered = True
            try:
                await change(broker)
            except LogOfflineError:
                is_answered = False
            has_failed = not fs.forget_failures()
            assert state_of(broker) == (after if is_answered else KEPT)
            left = fs.copy()
            if not is_answered:
                await change(broker)
                assert state_of(broker) == after
        happened = await outcomes.of_all([left])
        assert happened == [True] or not is_answered
        if not has_failed:
            break
