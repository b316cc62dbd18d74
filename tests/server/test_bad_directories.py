"""Files of a data directory that were cut, zeroed, flipped, deleted, swapped or made unreadable, under a whole broker.

The broker starts, or refuses to with one error that names the file. Every other partition is as it was and takes appends. What
is asked of the damaged one is answered right or with a named error; what is missing was said; nothing that is answered changes
with the next restart. `storage/test_damage.py` has the same for one log, byte by byte.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import attrs
import pytest
import trio
from triolog.protocol.errors import RequestError
from triolog.protocol.limits import INT64_MAX
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker
from triolog.server.loop.procedures import perform
from triolog.server.storage.errors import StorageError

from tests.support.broker_image import (
    EVERY,
    FLIGHTS,
    GROUP,
    OFFSETS,
    SERVED,
    SETTINGS,
    TABLE,
    TRANSACTIONAL_ID,
    TRANSACTIONS,
    Image,
    Truth,
    aborted_from,
    fetch_one,
    make_images,
)
from tests.support.brokers import running_broker
from tests.support.counts import counts, draws
from tests.support.gate_fs import GateFileSystem
from tests.support.logs import START_MS

DIRECTORY_FILES: Final = [
    "topics.json",
    "meta.properties",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "producer-id-block",
    ".kafka_cleanshutdown",
    ".lock",
]
SMALL_FILES: Final = ["leader-epoch-checkpoint", "partition.metadata", "quarantine-checkpoint"]
SEGMENT_SUFFIXES: Final = [".log", ".index", ".timeindex", ".txnindex", ".snapshot"]
SAMPLES: Final = 6
"""Lengths, and bits, of each file."""
CASES: Final = 10
"""Damages of each test, in the long tier."""


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> tuple[Image, Image]:
    return trio.run(make_images, tmp_path_factory.mktemp("images"))


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "triolog")


@attrs.frozen
class Damage:
    """What is done to one file; `donor` is the file that took its place."""

    name: str
    apply: Callable[[Path], object]
    donor: Path | None = None
    number: int = 0
    """What opening the file raises."""


def _truncated(size: int) -> Damage:
    return Damage(f"cut to {size}", lambda path: path.write_bytes(path.read_bytes()[:size]))


def _zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def _flipped(bit: int) -> Damage:
    def apply(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)

    return Damage(f"bit {bit} flipped", apply)


def _replaced(donor: Path) -> Damage:
    content = donor.read_bytes()
    return Damage(f"replaced by {donor.parent.name}/{donor.name}", lambda path: path.write_bytes(content), donor)


def _made_directory(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def damages_of(path: Path, donors: list[Path], rng: random.Random) -> Iterator[Damage]:
    """Each kind once; of cuts and flips a few."""
    size = path.stat().st_size if path.exists() else 0
    yield from (_truncated(each) for each in rng.sample(range(size), min(size, SAMPLES)))
    yield from (_flipped(each) for each in rng.sample(range(8 * size), min(8 * size, SAMPLES)))
    yield Damage("a directory", _made_directory)
    yield Damage("unreadable", lambda _: None, number=errno.EACCES)
    if size:
        yield Damage("deleted", Path.unlink)
        yield Damage("zeros", _zeroed)
    yield from (_replaced(donor) for donor in donors if donor.exists())


def require(condition: object, message: str) -> None:
    """An assertion about an error that is being handled."""
    assert condition, message


@attrs.define(eq=False)
class Case:
    """One damaged directory."""

    image: Image
    path: Path
    file: str
    """Of the directory, relative."""
    damage: Damage
    said: list[logging.LogRecord]
    partition: TopicPartition | None
    """Whose file it is, None for a file of the directory itself."""
    foreign: dict[int, bytes | None] = attrs.field(factory=dict)
    """Values by offset of the log that took the place of the partition's."""
    unpromised_from: int = INT64_MAX
    """Where the damaged log ends after a kill: what lay behind was a torn append to it, and its offsets are given out again."""

    async def check(self) -> bool:
        """Whether the broker started; twice, if it did."""
        before: dict[TopicPartition, dict[int, bytes | None]] = {}
        for attempt in range(2):
            fs = GateFileSystem()
            fs.lets_write_at_once = True
            if self.damage.number:
                for operation in ("open", "read", "read_cached"):
                    fs.fail(operation, self.file, number=self.damage.number, times=None)
            try:
                async with running_broker(self.path, fs=fs, topic=SETTINGS, cleaner_backoff_ms=10) as broker:
                    for partition in EVERY:
                        readable = await self.check_partition(broker, partition)
                        for offset, content in before.get(partition, {}).items():
                            assert readable.get(offset, content) == content, f"{partition}: {offset} changed"
                            assert offset in readable or self.damage.number, (
                                f"{partition}: offset {offset} is gone after a restart"
                            )
                        before[partition] = readable
                    await self.check_groups(broker)
                    await self.check_ids(broker)
                    for partition in SERVED:
                        await self.append(broker, partition, before)
            except (StorageError, OSError) as exc:
                require(Path(self.file).name in str(exc), f"the error does not name the file: {exc}")
                require(not attempt, f"the second start is refused: {exc}")
                return False
        return True

    def is_damaged(self, partition: TopicPartition) -> bool:
        return partition == self.partition

    def is_believed(self, partition: TopicPartition, *suffixes: str) -> bool:
        """Whether the file is an index of a segment that is not scanned: it is believed unless it contradicts itself or the end
        of its log. `triolog verify` looks at all of it."""
        is_scanned = not self.image.is_clean and partition != FLIGHTS[0]
        return self.is_damaged(partition) and not is_scanned and self.file.endswith(suffixes)

    def was_said(self, *texts: str) -> bool:
        return any(all(text in record.getMessage() for text in texts) for record in self.said)

    async def check_partition(self, broker: Broker, partition: TopicPartition) -> dict[int, bytes | None]:
        """Every offset, the aborted ones, and times. Answers the values that can be read."""
        truth = self.image.truths[partition]
        self.note_end(broker, partition)
        readable: dict[int, bytes | None] = {}
        timestamps: dict[int, int] = {}
        errors: dict[int, RequestError] = {}
        for offset in range(truth.log_end_offset):
            answer = await fetch_one(broker, partition, offset)
            if isinstance(answer, RequestError):
                errors[offset] = answer
                assert str(answer), f"{partition}: an answer without words at {offset}"
                continue
            for record in answer:
                if record.offset < truth.log_end_offset:
                    readable[record.offset] = record.value
                    timestamps[record.offset] = record.timestamp
        for offset, content in readable.items():
            known = truth.records.get(offset)
            resurrected = offset < truth.log_start_offset and self.file == "log-start-offset-checkpoint"
            genuine = known is not None and known.value == content
            reused = self.is_damaged(partition) and offset >= self.unpromised_from
            assert genuine or resurrected or reused or self.foreign.get(offset, b"?") == content, (
                f"{partition}: {offset} is {content!r}"
            )
        missing = [offset for offset in truth.records if offset not in readable]
        if missing and not self.is_damaged(partition):
            assert self.may_hide(partition, missing), f"{partition} is damaged too: {missing} {errors}"
        end = self.unpromised_from if self.is_damaged(partition) else INT64_MAX
        silent = [offset for offset in missing if offset not in errors and offset < end]
        if silent:
            assert self.was_said(str(partition)) or self.was_said(Path(self.file).name), (
                f"{partition}: {silent} are gone silently"
            )
        if not errors or min(errors) > truth.log_start_offset or partition != self.partition:
            await self.check_views(broker, partition, truth, readable, timestamps)
        return readable

    def note_end(self, broker: Broker, partition: TopicPartition) -> None:
        if self.is_damaged(partition) and not self.image.is_clean and self.unpromised_from == INT64_MAX:
            with contextlib.suppress(RequestError):
                self.unpromised_from = broker.reader.snapshot(partition).log_end_offset

    def may_hide(self, partition: TopicPartition, missing: list[int]) -> bool:
        """Whether a file of the directory itself may do this to a partition, as long as it says so."""
        return self.partition is None and (
            self.was_said(str(partition)) or self.was_said(partition.topic) or self.file.endswith("log-start-offset-checkpoint")
        )

    async def check_views(
        self,
        broker: Broker,
        partition: TopicPartition,
        truth: Truth,
        readable: dict[int, bytes | None],
        timestamps: dict[int, int],
    ) -> None:
        if not readable or (self.foreign and self.is_damaged(partition)):
            return
        try:
            aborted = await aborted_from(broker, partition, min(readable))
            if not self.is_believed(partition, ".txnindex", ".log"):
                ended = {offset for offset in readable if offset + 1 in readable or not self.is_damaged(partition)}
                # A marker follows the record of each transaction: where damage took it the producer's next one decides.
                assert aborted & ended & set(truth.records) == truth.aborted & ended, f"{partition}: aborted"
        except RequestError:
            assert self.is_damaged(partition)
        for timestamp in [*(START_MS + 1000 * number for number in (0, 4, 9, 15)), START_MS + 10**9]:
            [found] = await perform(broker.reader.offsets_for_times([(partition, timestamp)]))
            if isinstance(found, RequestError):
                assert self.is_damaged(partition), f"{partition}: {found}"
                continue
            expected = min((offset for offset, each in timestamps.items() if each >= timestamp), default=-1)
            if self.is_believed(partition, ".index", ".timeindex", ".log"):
                continue
            if found.offset < truth.log_end_offset and (expected != -1 or found.offset != -1):
                assert found.offset == expected, f"{partition}: time {timestamp} is at {found.offset}, not {expected}"

    async def check_groups(self, broker: Broker) -> None:
        try:
            committed = {partition: offset for partition, offset, _ in await broker.offsets.fetch(GROUP)}
        except RequestError as exc:
            require(self.is_damaged(OFFSETS) or self.partition is None, f"committed offsets: {exc}")
            return
        if committed != self.image.committed:
            assert self.is_damaged(OFFSETS), f"committed offsets are {committed}"
            assert self.was_said(str(OFFSETS)), f"committed offsets went back silently to {committed}"

    async def check_ids(self, broker: Broker) -> None:
        """A producer id is never given out twice."""
        used = {entry for partition in EVERY for entry in self.producers(broker, partition)}
        try:
            producer_id, _ = await broker.producers.init(None, 0)
        except RequestError as exc:
            require("producer-id-block" in str(exc), str(exc))
        else:
            assert producer_id not in used
        try:
            await broker.producers.init(TRANSACTIONAL_ID, 1000)
        except RequestError as exc:
            require(self.partition is None or self.is_damaged(TRANSACTIONS) or str(self.partition) in str(exc), str(exc))

    def producers(self, broker: Broker, partition: TopicPartition) -> list[int]:
        try:
            return list(broker._manager.topics.actor(partition).log.producers.entries)
        except RequestError:
            return []

    async def append(
        self, broker: Broker, partition: TopicPartition, readable: dict[TopicPartition, dict[int, bytes | None]]
    ) -> None:
        text = f"appended to {partition}"
        try:
            result = await broker.writer.append(partition, [(START_MS + 10**6, b"key", text.encode(), ())])
        except RequestError as exc:
            require(self.is_damaged(partition) or self.may_hide(partition, []), f"{partition}: {exc}")
            return
        assert result.base_offset > max(readable[partition], default=-1), f"{partition}: offset {result.base_offset} again"
        if not self.is_damaged(partition) and self.partition is not None:
            assert result.base_offset >= self.image.truths[partition].log_end_offset
        answer = await fetch_one(broker, partition, result.base_offset)
        assert not isinstance(answer, RequestError), f"{partition}: {answer}"
        assert answer[0].value == text.encode()


@attrs.frozen
class File:
    """A file to be damaged; the partition whose it is, None for the directory's own; and what may take its place."""

    path: str
    partition: TopicPartition | None
    donors: list[Path]


def files_of_partition(image: Image, partition: TopicPartition, rng: random.Random) -> Iterator[File]:
    """Of each kind one, and all of the small ones, whether they are there or not."""
    names = sorted(path.name for path in (image.path / str(partition)).iterdir())
    others = [other for other in (TABLE, FLIGHTS[1], OFFSETS) if other != partition]
    for suffix in SEGMENT_SUFFIXES:
        found = [name for name in names if name.endswith(suffix)]
        for name in rng.sample(found, min(len(found), 1)):
            yield File(f"{partition}/{name}", partition, [image.path / str(other) / name for other in others])
    for name in SMALL_FILES:
        yield File(f"{partition}/{name}", partition, [image.path / str(other) / name for other in others])


async def check_damages(
    image: Image, files: list[File], path: Path, caplog: pytest.LogCaptureFixture, rng: random.Random
) -> None:
    """As many damages of the files as the suite's counts say."""
    every = [(file, damage) for file in files for damage in damages_of(image.path / file.path, file.donors, rng)]
    for number, (file, damage) in enumerate(rng.sample(every, min(len(every), counts(CASES)))):
        caplog.clear()
        case_path = image.copy_to(path / f"case-{number}")
        damage.apply(case_path / file.path)
        case = Case(image, case_path, file.path, damage, caplog.records, file.partition, foreign_values(image, file, damage))
        try:
            await case.check()
        except BaseException as exc:
            said = "\n".join(record.getMessage() for record in caplog.records)
            raise AssertionError(f"{file.path} {damage.name}: {exc!r}\n{said}") from exc


def foreign_values(image: Image, file: File, damage: Damage) -> dict[int, bytes | None]:
    """Batches do not say whose they are: those of another partition's log that fit are read as this one's."""
    if damage.donor is None or not file.path.endswith(".log"):
        return {}
    donor = next(partition for partition in EVERY if str(partition) == damage.donor.parent.name)
    return {offset: record.value for offset, record in image.truths[donor].records.items()}


@pytest.mark.merge
@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("name", DIRECTORY_FILES)
async def test_a_damaged_file_of_the_directory_is_survived_or_named(
    images: tuple[Image, Image], fast_path: Path, caplog: pytest.LogCaptureFixture, is_clean: bool, name: str
) -> None:
    image = images[0] if is_clean else images[1]
    others = ("recovery-point-offset-checkpoint", "topics.json", "log-start-offset-checkpoint")
    donors = [image.path / other for other in others if other != name]
    await check_damages(image, [File(name, None, donors)], fast_path, caplog, draws(7 * len(name) + is_clean))


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("partition", [*FLIGHTS, TABLE, OFFSETS, TRANSACTIONS], ids=str)
async def test_a_damaged_file_of_a_partition_is_its_own_matter(
    images: tuple[Image, Image], fast_path: Path, caplog: pytest.LogCaptureFixture, is_clean: bool, partition: TopicPartition
) -> None:
    image, rng = images[0] if is_clean else images[1], draws(int(is_clean))
    await check_damages(image, list(files_of_partition(image, partition, rng)), fast_path, caplog, rng)


async def test_the_servers_own_topics_are_not_trimmed_by_a_checkpoint(images: tuple[Image, Image], fast_path: Path) -> None:
    """Taken from another file of that form: it says that every log starts at its end."""
    path = images[0].copy_to(fast_path / "data")
    (path / "log-start-offset-checkpoint").write_bytes((path / "recovery-point-offset-checkpoint").read_bytes())
    async with running_broker(path, topic=SETTINGS) as broker:
        assert {partition: offset for partition, offset, _ in await broker.offsets.fetch(GROUP)} == images[0].committed


@pytest.mark.parametrize("content", [bytes(10), bytes(34)])
async def test_a_cut_or_zeroed_transaction_index_is_rebuilt(
    images: tuple[Image, Image], fast_path: Path, content: bytes
) -> None:
    path, truth = images[0].copy_to(fast_path / "data"), images[0].truths[FLIGHTS[0]]
    indexes = list((path / str(FLIGHTS[0])).glob("*.txnindex"))
    for index in indexes:
        index.write_bytes(content)
    async with running_broker(path, topic=SETTINGS) as broker:
        assert await aborted_from(broker, FLIGHTS[0], 0) == truth.aborted
    assert indexes
    assert truth.aborted


async def test_an_index_entry_that_leads_too_far_hides_no_record(images: tuple[Image, Image], fast_path: Path) -> None:
    """The first entry of an index with the position of the last one: what lies between was stepped over."""
    path, truth = images[0].copy_to(fast_path / "data"), images[0].truths[TABLE]
    changed = 0
    for index in (path / str(TABLE)).glob("*.index"):
        content = index.read_bytes()
        changed += len(content) > 8
        index.write_bytes(content[:4] + content[-4:] + content[8:])
    async with running_broker(path, topic=SETTINGS) as broker:
        for offset, record in truth.records.items():
            answer = await fetch_one(broker, TABLE, offset)
            assert not isinstance(answer, RequestError)
            assert answer[0] == record
    assert changed
