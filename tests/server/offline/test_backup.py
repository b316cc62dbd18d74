"""A copy of a directory that a server works in: consistent, sharing what never changes, with all that was acknowledged."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from pathlib import Path

import attrs
import pytest
from triolog.protocol.types import TopicPartition
from triolog.server.config import LogConfig
from triolog.server.offline.backup import BackupPlan, PartitionBackup, make_backup, plan_backup
from triolog.server.storage.directory.topics_file import (
    CREATIONS_FILE,
    TOPICS_FILE,
    Creation,
    Topic,
    decode_topics,
    encode_creations,
    encode_topics,
)
from triolog.server.storage.disk import checkpoints
from triolog.server.storage.disk.checkpoints import ProducerIdBlock
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.errors import LogDirectoryError

from tests.server.offline.test_verify import verified
from tests.support.logs import START_MS, DrivenLog, batch, open_driven
from tests.support.stopped_logs import CONFIGS, TOPIC, StoppedLogs

PARTITION = TopicPartition(TOPIC, 0)


@pytest.fixture
def logs(written: StoppedLogs, tmp_path: Path) -> StoppedLogs:
    """On the device of the copies, for links."""
    return attrs.evolve(written, path=Path(shutil.copytree(written.path, tmp_path / "data")))


def never() -> None:
    pytest.fail("nothing changes meanwhile")


def planned(logs: StoppedLogs) -> BackupPlan:
    return plan_backup(OsFileSystem(), str(logs.path), never)


def made(plan: BackupPlan, target: Path, *, links: bool = True) -> list[PartitionBackup]:
    return make_backup(OsFileSystem(), plan, str(target), never, links=links)


def opened(path: Path, *, was_clean: bool = True) -> DrivenLog:
    config = LogConfig().overlay(CONFIGS)
    point = checkpoints.decode_offsets("", (path / checkpoints.RECOVERY_POINT_FILE).read_bytes())[PARTITION]
    directory = path / str(PARTITION)
    return open_driven(directory, topic_partition=PARTITION, config=config, was_clean=was_clean, recovery_point=point)


def test_the_copy_has_every_record_and_verifies_and_its_checkpoints_match_it(logs: StoppedLogs, tmp_path: Path) -> None:
    (logs.path / checkpoints.LOG_START_FILE).write_bytes(
        checkpoints.encode_offsets({PARTITION: 5, TopicPartition("gone", 0): 7})
    )
    (logs.path / checkpoints.RECOVERY_POINT_FILE).write_bytes(checkpoints.encode_offsets({PARTITION: 10**6}))
    copy = tmp_path / "copy"
    ends = {backup.topic_partition: backup.log_end_offset for backup in made(planned(logs), copy)}
    assert not (copy / checkpoints.CLEAN_SHUTDOWN_FILE).exists()
    read = {
        name: checkpoints.decode_offsets(name, (copy / name).read_bytes())
        for name in (checkpoints.HIGH_WATERMARK_FILE, checkpoints.RECOVERY_POINT_FILE)
    }
    assert read[checkpoints.HIGH_WATERMARK_FILE] == ends
    assert read[checkpoints.RECOVERY_POINT_FILE][PARTITION] == int(sorted(logs.partition().glob("*.log"))[-1].stem)
    assert checkpoints.decode_offsets("", (copy / checkpoints.LOG_START_FILE).read_bytes()) == {PARTITION: 5}
    assert verified(copy).damages == []
    driven = opened(copy, was_clean=False)
    assert driven.records() == logs.records[PARTITION]
    driven.close()


def test_sealed_segments_are_hard_links_and_the_active_one_is_a_copy(logs: StoppedLogs, tmp_path: Path) -> None:
    (first, _) = made(planned(logs), tmp_path / "copy")
    *sealed, active = sorted(logs.partition().glob("*.log"))
    copy = tmp_path / "copy" / str(PARTITION)
    assert all((copy / path.name).stat().st_ino == path.stat().st_ino for path in sealed)
    assert (copy / active.name).stat().st_ino != active.stat().st_ino
    assert (copy / active.name).stat().st_mtime_ns == active.stat().st_mtime_ns
    assert not (copy / active.with_suffix(".index").name).exists()
    assert first.linked_files >= 3 * len(sealed)


@pytest.mark.parametrize("links", [True, False])
def test_records_that_a_mirror_has_set_aside_are_in_the_copy(logs: StoppedLogs, tmp_path: Path, links: bool) -> None:
    """A file in the log directory may be larger than any small file."""
    beside, inside = f"orders-0.{0:020}.log.aside-4", f"{7:020}.log.aside-9.2"
    with (logs.path / beside).open("wb") as file:
        file.truncate(checkpoints.MAX_CHECKPOINT_BYTES + 1)
    (logs.partition() / inside).write_bytes(b"records")
    made(planned(logs), tmp_path / "copy", links=links)
    assert (tmp_path / "copy" / beside).stat().st_size == checkpoints.MAX_CHECKPOINT_BYTES + 1
    assert (tmp_path / "copy" / str(PARTITION) / inside).read_bytes() == b"records"
    found = verified(tmp_path / "copy")
    assert found.damages == []
    assert [finding.check for finding in found.remarks if finding.file.endswith(inside)] == ["quarantine"]


class NoLinks(OsFileSystem):
    def link(self, source: str, target: str) -> None:
        raise OSError(errno.EACCES, "links are refused", target)


@pytest.mark.parametrize(("fs", "links"), [(OsFileSystem(), False), (NoLinks(), True)], ids=["not wanted", "refused"])
def test_without_links_nothing_is_shared(logs: StoppedLogs, tmp_path: Path, fs: OsFileSystem, links: bool) -> None:
    backups = make_backup(fs, planned(logs), str(tmp_path / "copy"), never, links=links)
    assert sum(backup.linked_files for backup in backups) == 0
    assert verified(tmp_path / "copy").damages == []
    inodes = {path.stat().st_ino for path in logs.path.rglob("*") if path.is_file()}
    copies = [path for path in (tmp_path / "copy").rglob("*") if path.is_file()]
    assert not inodes & {path.stat().st_ino for path in copies}
    for path in copies:
        if path.suffix == ".log":
            assert path.stat().st_mtime_ns == (logs.path / path.relative_to(tmp_path / "copy")).stat().st_mtime_ns


def test_what_is_appended_after_the_plan_or_torn_is_not_in_the_copy(logs: StoppedLogs, tmp_path: Path) -> None:
    active = sorted(logs.partition().glob("*.log"))[-1]
    whole = active.stat().st_size
    plan = planned(logs)
    driven = opened(logs.path)
    for _ in range(5):
        driven.append(batch(START_MS))
    driven.close()
    made(plan, tmp_path / "copy")
    copy = opened(tmp_path / "copy", was_clean=False)
    assert copy.records() == logs.records[PARTITION]
    copy.close()
    os.truncate(active, whole + 50)
    made(planned(logs), tmp_path / "torn")
    assert (tmp_path / "torn" / str(PARTITION) / active.name).stat().st_size == whole


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_segment_that_goes_or_changes_meanwhile_is_noted_again(logs: StoppedLogs, tmp_path: Path, is_replaced: bool) -> None:
    plan = planned(logs)
    first, *others = sorted(logs.partition().glob("*.log"))
    data = first.read_bytes()
    for path in [first] if is_replaced else [*logs.partition().glob(f"{first.stem}.*")]:
        path.rename(f"{path}.deleted")
    if is_replaced:
        first.write_bytes(data)
    waits: list[None] = []
    make_backup(OsFileSystem(), plan, str(tmp_path / "copy"), lambda: waits.append(None))
    assert len(waits) == 1
    copied = sorted((tmp_path / "copy" / str(PARTITION)).glob("*.log"))
    assert [path.name for path in copied] == [path.name for path in ([first, *others] if is_replaced else others)]
    assert not is_replaced or copied[0].stat().st_ino == first.stat().st_ino


def test_a_topic_that_is_deleted_meanwhile_is_not_in_the_copy(logs: StoppedLogs, tmp_path: Path) -> None:
    plan = planned(logs)
    for number in range(2):
        logs.partition(number).rename(logs.path / f"{TOPIC}-{number}.{'0' * 32}-delete")
    (logs.path / TOPICS_FILE).write_bytes(encode_topics(2, []))
    assert make_backup(OsFileSystem(), plan, str(tmp_path / "copy"), lambda: None) == []
    assert decode_topics("", (tmp_path / "copy" / TOPICS_FILE).read_bytes())[1] == []
    assert not list((tmp_path / "copy").glob(f"{TOPIC}-*"))


def test_a_topic_that_is_being_made_meanwhile_is_not_in_the_copy(logs: StoppedLogs, tmp_path: Path) -> None:
    """Not with the configuration of an adopted one."""
    generation, topics = decode_topics("", (logs.path / TOPICS_FILE).read_bytes())
    made = Topic(name="made", topic_id=uuid.UUID(int=1000), partitions=2, configs={"retention.ms": "5"})
    creation = Creation(name="made", topic_id=made.topic_id, first_partition=0, partitions=2)
    (logs.path / CREATIONS_FILE).write_bytes(encode_creations(generation, [creation]))
    for number in range(2):
        directory = logs.path / f"made-{number}"
        directory.mkdir()
        (directory / checkpoints.PARTITION_METADATA_FILE).write_bytes(checkpoints.encode_partition_metadata(made.topic_id))
        (directory / "00000000000000000000.log").touch()

    class MadeMeanwhile(OsFileSystem):
        """The topic is made when its first partition has been looked at."""

        def list_directory(self, path: str) -> list[str]:
            if path.endswith("made-0"):
                (logs.path / TOPICS_FILE).write_bytes(encode_topics(generation + 1, [*topics, made]))
                (logs.path / CREATIONS_FILE).unlink(missing_ok=True)
            return super().list_directory(path)

    for number, fs in enumerate((OsFileSystem(), MadeMeanwhile())):
        copy = tmp_path / f"copy-{number}"
        make_backup(fs, plan_backup(fs, str(logs.path), never), str(copy), never)
        assert not list(copy.glob("made-*"))
        assert not (copy / CREATIONS_FILE).exists()
        assert not verified(copy).damages


def test_a_topic_that_is_created_again_meanwhile_takes_over_no_log_start(logs: StoppedLogs, tmp_path: Path) -> None:
    """Nor the place of the deleted topic with its name, where the backup sees it in time."""
    starts = {TopicPartition(TOPIC, number): 5 for number in range(2)}
    (logs.path / checkpoints.LOG_START_FILE).write_bytes(checkpoints.encode_offsets(starts))
    generation, [topic] = decode_topics("", (logs.path / TOPICS_FILE).read_bytes())
    again = encode_topics(generation + 1, [attrs.evolve(topic, topic_id=uuid.UUID(int=1000))])

    class CreatedAgain(OsFileSystem):
        """The topic is created again when its checkpoints have been read."""

        def list_directory(self, path: str) -> list[str]:
            if path.endswith(f"{TOPIC}-0"):
                (logs.path / TOPICS_FILE).write_bytes(again)
            return super().list_directory(path)

    before = plan_backup(CreatedAgain(), str(logs.path), never)
    assert before.partitions == ()
    (logs.path / TOPICS_FILE).write_bytes(encode_topics(generation, [topic]))
    plan = planned(logs)
    (logs.path / TOPICS_FILE).write_bytes(again)
    make_backup(OsFileSystem(), plan, str(tmp_path / "copy"), never)
    assert decode_topics("", (tmp_path / "copy" / TOPICS_FILE).read_bytes())[1] == []
    assert checkpoints.decode_offsets("", (tmp_path / "copy" / checkpoints.LOG_START_FILE).read_bytes()) == {}


@pytest.mark.parametrize("links", [True, False])
def test_the_copy_is_for_its_owner_alone(logs: StoppedLogs, tmp_path: Path, links: bool) -> None:
    """What is linked is as it is."""
    for path in logs.path.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    made(planned(logs), tmp_path / "copy", links=links)
    modes = {path: path.stat().st_mode & 0o777 for path in (tmp_path / "copy", *(tmp_path / "copy").rglob("*"))}
    linked = {path for path in modes if path.is_file() and path.stat().st_nlink > 1}
    assert bool(linked) is links
    assert {mode for path, mode in modes.items() if path not in linked} == {0o700, 0o600}


def test_internal_topics_are_noted_before_the_others(logs: StoppedLogs) -> None:
    """An offset that is committed meanwhile is not in the copy: it could lie behind the end of its copied log."""
    (logs.path / "__consumer_offsets-0").mkdir()
    (logs.path / "a-0").mkdir()
    listed: list[str] = []

    class Listing(OsFileSystem):
        def list_directory(self, path: str) -> list[str]:
            listed.append(os.path.basename(path))
            return super().list_directory(path)

    plan_backup(Listing(), str(logs.path), never)
    noted = list(dict.fromkeys(reversed(listed)))[::-1]
    assert noted.index("__consumer_offsets-0") < min(noted.index(name) for name in ("a-0", str(PARTITION)))


def test_producer_ids_are_noted_behind_the_logs(logs: StoppedLogs, tmp_path: Path) -> None:
    """Ids that are given out while logs are noted may be in them: where the copy is served they are not free."""
    checkpoints.write_producer_id_block(OsFileSystem(), str(logs.path), ProducerIdBlock(1000), durable=False)

    class TakesABlock(OsFileSystem):
        def list_directory(self, path: str) -> list[str]:
            if path.endswith(str(PARTITION)):
                checkpoints.write_producer_id_block(OsFileSystem(), str(logs.path), ProducerIdBlock(2000), durable=False)
            return super().list_directory(path)

    plan = plan_backup(TakesABlock(), str(logs.path), never)
    noted = plan.small[checkpoints.PRODUCER_ID_BLOCK_FILE]
    found = checkpoints.decode_producer_id_block("producer-id-block", noted).first_free
    assert found == 2000, "a copy begins at a random id above it"


@pytest.mark.parametrize("has_file", [False, True])
def test_a_copy_gives_out_no_id_of_the_original_or_of_another_copy(logs: StoppedLogs, tmp_path: Path, has_file: bool) -> None:
    fs, first = OsFileSystem(), checkpoints.FIRST_PRODUCER_ID + 5000
    if has_file:
        checkpoints.write_producer_id_block(fs, str(logs.path), ProducerIdBlock(first), durable=False)
    for name in ("one", "two"):
        made(plan_backup(fs, str(logs.path), never), tmp_path / name)
    blocks = [checkpoints.read_producer_id_block(fs, str(tmp_path / name)) for name in ("one", "two")]
    assert all(each.first_own == each.first_free for each in blocks)
    one, two = (each.first_free for each in blocks)
    known = first if has_file else checkpoints.FIRST_PRODUCER_ID
    assert (one > known, two > known, one != two, max(one, two) < 2**53) == (True,) * 4
    assert checkpoints.read_producer_id_block(fs, str(logs.path)) == ProducerIdBlock(first if has_file else 0)


def test_a_target_that_cannot_be_and_one_partition_are_refused(logs: StoppedLogs, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").touch()
    before = sorted(os.listdir(logs.path))
    for target in ("data/inside", "data", "full"):
        with pytest.raises(LogDirectoryError, match="Choose another one"):
            made(planned(logs), tmp_path / target)
        assert sorted(os.listdir(logs.path)) == before
    with pytest.raises(LogDirectoryError, match="is one partition"):
        plan_backup(OsFileSystem(), str(logs.partition()), never)
