from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import pyarrow.dataset as ds
import pytest
import triolog
from click.testing import CliRunner
from triolog.protocol.types import TopicPartition
from triolog.server.offline import verify as storage_verify
from triolog.server.offline.findings import Collector
from triolog.server.storage.directory.inventory import StoppedDirectory, read_directory
from triolog.server.storage.disk.checkpoints import encode_partition_metadata
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.log.gaps import NO_FILE, OffsetGap, encode_gaps
from triolog.server.storage.producers.producer_snapshots import encode_snapshot
from triolog.tools.cli.main import main
from triolog.tools.cli.terminal.failures import FailedError
from triolog.tools.client.blocking import BlockingAdmin, BlockingClient
from triolog.tools.export.layout import MANIFEST, Export
from triolog.tools.export.log_pieces import LogSource
from triolog.tools.export.manifest import JobError, ManifestError
from triolog.tools.spark.jobs.compact import compact
from triolog.tools.spark.jobs.export import export
from triolog.tools.spark.jobs.job_session import JobProgress, job_session
from triolog.tools.spark.jobs.reindex import reindex
from triolog.tools.spark.jobs.verify import verify

from tests.support.server_process import COMMAND, Address
from tests.support.stopped_logs import TOPIC, write_stopped_logs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY_MS: Final = 86_400_000
START_MS: Final = 19_000 * DAY_MS
RECORDS: Final = 3000


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Topics t, with two partitions of many small segments over three days, and u."""
    path = tmp_path_factory.mktemp("written") / "data"
    with triolog.blocking.open(path, durability="os", config={"retention.ms": "-1"}) as broker:
        broker.create_topic("t", 2, {"segment.bytes": "20000", "index.interval.bytes": "500"})
        broker.create_topic("u")
        broker.append("u", [b"other"])
        for start in range(0, RECORDS, 50):
            for partition in range(2):
                rows = [
                    (START_MS + number * (3 * DAY_MS // RECORDS), b"k%d" % (number % 7), b"value %06d" % number, ())
                    for number in range(start, start + 50)
                ]
                broker.append("t", rows, partition=partition)
    return path


@pytest.fixture
def stopped(written: Path, tmp_path: Path) -> StoppedDirectory:
    return directory(Path(shutil.copytree(written, tmp_path / "data")))


def directory(path: Path) -> StoppedDirectory:
    return read_directory(OsFileSystem(), str(path))


def of_topic(path: str, topic: str) -> StoppedDirectory:
    return read_directory(OsFileSystem(), path, topics=frozenset({topic}))


def damage(
    found: StoppedDirectory, suffix: str, position: int = -10, *, topic_partition: tuple[str, int] = ("t", 0), slot: int = 1
) -> Path:
    segment = next(files for files in found.partitions if files.topic_partition == topic_partition).segments[slot]
    path = Path(segment.path(suffix))
    content = bytearray(path.read_bytes())
    content[position] ^= 0xFF
    path.write_bytes(content)
    return path


def exported(target: Path) -> list[dict[str, object]]:
    table = ds.dataset(target, partitioning="hive", format="parquet").to_table()
    return sorted(table.to_pylist(), key=lambda row: (row["topic"], row["partition"], row["offset"]))


def test_export_writes_each_record_once_by_day(spark: SparkSession, stopped: StoppedDirectory, tmp_path: Path) -> None:
    target = tmp_path / "out"
    source = LogSource(directories=(stopped.path,), split_bytes=30_000)
    seen: list[JobProgress] = []
    done = export(spark, Export(source=source, target=str(target)), seen.append)
    rows = exported(target)
    assert done.records == len(rows) == 2 * RECORDS + 1
    assert [row["value"] for row in rows if (row["topic"], row["partition"]) == ("t", 1)] == [
        b"value %06d" % number for number in range(RECORDS)
    ]
    assert {path.name for path in (target / "topic=t").iterdir()} == {"day=2022-01-08", "day=2022-01-09", "day=2022-01-10"}
    assert sorted(path.name for path in target.iterdir()) == ["_SUCCESS", MANIFEST, "topic=t", "topic=u"]
    assert seen[-1].done == seen[-1].pieces > 4
    assert seen[-1].records == done.records


def test_export_that_failed_goes_on_where_it_was(spark: SparkSession, stopped: StoppedDirectory, tmp_path: Path) -> None:
    target = tmp_path / "out"
    job = Export(source=LogSource(directories=(stopped.path,), topics=("t",), split_bytes=30_000), target=str(target))
    log = damage(stopped, ".log")
    sound = bytearray(log.read_bytes())
    with pytest.raises(
        JobError, match=r"export of t-0-\d+ failed: DamagedLogError: .*`triolog repair` .*the same command continues"
    ):
        export(spark, job)
    assert not (target / "_SUCCESS").exists()
    done_before = set(json.loads((target / MANIFEST).read_text())["done"])
    assert done_before
    sound[-10] ^= 0xFF
    log.write_bytes(sound)
    seen: list[JobProgress] = []
    assert export(spark, job, seen.append).records == 2 * RECORDS
    assert seen[0].done_before == len(done_before)
    assert len(exported(target)) == 2 * RECORDS
    with pytest.raises(ManifestError, match="was begun with compression='zstd', this run has 'none'"):
        export(spark, Export(source=job.source, target=job.target, compression="none"))


def test_export_into_a_folder_with_something_else_fails(spark: SparkSession, stopped: StoppedDirectory, tmp_path: Path) -> None:
    """Files of an export whose manifest was deleted would stand beside those of another plan, and rows be there twice."""
    target = tmp_path / "out"
    job = Export(source=LogSource(directories=(stopped.path,), split_bytes=30_000), target=str(target))
    export(spark, job)
    before = sorted(path for path in target.rglob("*"))
    (target / MANIFEST).unlink()
    with pytest.raises(JobError, match=r"out holds _SUCCESS and no _triolog_export\.json"):
        export(spark, attrs.evolve(job, source=LogSource(directories=(stopped.path,), split_bytes=70_000)))
    assert sorted(path for path in target.rglob("*")) == [path for path in before if path.name != MANIFEST]


def test_paths_are_the_callers(
    spark: SparkSession, stopped: StoppedDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors have a working directory of their own, and the same command may be given from another one."""
    monkeypatch.chdir(tmp_path)
    job = Export(source=LogSource(directories=("data",)), target="out")
    monkeypatch.chdir("/")
    assert export(spark, job).records == 2 * RECORDS + 1
    assert len(exported(tmp_path / "out")) == 2 * RECORDS + 1


def test_verify_finds_nothing_where_indexes_were_rebuilt(spark: SparkSession, stopped: StoppedDirectory) -> None:
    done = verify(spark, stopped)
    assert done.findings == ()
    assert done.records == 2 * RECORDS + 1
    assert done.segments == sum(len(files.segments) for files in stopped.partitions) > 6
    paths = [
        Path(segment.path(suffix))
        for files in stopped.partitions
        for segment in files.segments
        for suffix in (".index", ".timeindex")
    ]
    before = {path: path.read_bytes() for path in paths}
    for path in paths:
        path.unlink()
    done = reindex(spark, directory(Path(stopped.path)))
    assert done.failures == ()
    assert done.segments * 2 == len(paths)
    assert {path: path.read_bytes() for path in paths} == before
    assert verify(spark, directory(Path(stopped.path))).damages == 0


def test_verify_resumes_and_begins_again_when_finished(spark: SparkSession, stopped: StoppedDirectory, tmp_path: Path) -> None:
    manifest = tmp_path / "verify.json"
    first = verify(spark, stopped, manifest=manifest)
    kept = json.loads(manifest.read_text())
    kept["done"].popitem()
    manifest.write_text(json.dumps(kept | {"is_complete": False}))
    seen: list[JobProgress] = []
    assert verify(spark, stopped, manifest=manifest, progress=seen.append) == first
    assert seen[0].done_before == seen[0].pieces - 1
    damage(stopped, ".log")
    assert verify(spark, stopped, manifest=manifest).damages == 1


def test_verify_finds_what_the_command_without_spark_finds(spark: SparkSession, tmp_path: Path) -> None:
    """In every kind of file, and where no segment alone shows it: topic ids that differ, a lost end, a gap, snapshots where no
    batch is."""
    logs = write_stopped_logs(tmp_path / "data", partitions=4)
    found = directory(logs.path)
    for slot, suffix in enumerate((".log", ".index", ".timeindex")):
        damage(found, suffix, -1 if slot else -10, topic_partition=(TOPIC, 3), slot=slot)
    (logs.path / "topics.json").unlink()
    other = logs.partition(1) / "partition.metadata"
    other.write_bytes(encode_partition_metadata(uuid.UUID(int=77)))
    last = max(logs.partition(0).glob("*.log"))
    end = max(record.offset for record in logs.records[TopicPartition(TOPIC, 0)]) + 100
    last.with_name(f"{end:020}.snapshot").write_bytes(encode_snapshot([]))
    (logs.partition(0) / "quarantine-checkpoint").write_bytes(encode_gaps([OffsetGap(end - 90, end, NO_FILE)]))
    segments = sorted(logs.partition(2).glob("*.log"))
    for segment in (*segments[:2], segments[4]):
        for path in segment.parent.glob(f"{segment.stem}.*"):
            path.unlink()
    (logs.partition(2) / f"{1:020}.snapshot").write_bytes(b"no snapshot")
    seen = Collector()
    found = directory(logs.path)
    storage_verify.verify(OsFileSystem(), found, seen)
    expected = {"topic id", "quarantine", "snapshot", "gap", "batch", "index", "time index"}
    assert {finding.check for finding in seen.findings} >= expected
    assert set(verify(spark, found).findings) == set(seen.findings)


def test_compact_keeps_the_newest_record_of_each_key_at_its_offset(spark: SparkSession, stopped: StoppedDirectory) -> None:
    done = compact(spark, of_topic(stopped.path, "t"), include_active=True)
    assert done.partitions == 2
    assert done.bytes_after < done.bytes_before / 10
    assert verify(spark, directory(Path(stopped.path))).damages == 0
    with triolog.blocking.open(stopped.path, durability="os") as broker:
        for partition in range(2):
            kept = [(record.offset, record.key) for record in broker.fetch("t", partition=partition)]
            assert kept == [(number, b"k%d" % (number % 7)) for number in range(RECORDS - 7, RECORDS)]
        assert [record.value for record in broker.fetch("u")] == [b"other"]
        broker.append("t", [(None, b"k0", b"new", ())])


def test_compact_repeats_a_partition_that_has_changed(spark: SparkSession, stopped: StoppedDirectory, tmp_path: Path) -> None:
    """Of a run that was cut off: what it noted of the partition, its high watermark among that, is not true any more."""
    manifest = tmp_path / "compact.json"
    compact(spark, of_topic(stopped.path, "t"), include_active=True, manifest=manifest)
    kept = json.loads(manifest.read_text())
    del kept["done"]["t-1"]
    manifest.write_text(json.dumps(kept | {"is_complete": False}))
    with triolog.blocking.open(stopped.path, durability="os", config={"retention.ms": "-1"}) as broker:
        broker.append("t", [(None, b"k1", b"newest", ())], partition=0)
    seen: list[JobProgress] = []
    compact(spark, of_topic(stopped.path, "t"), include_active=True, manifest=manifest, progress=seen.append)
    assert (seen[0].done_before, seen[-1].done) == (0, 2)
    assert verify(spark, directory(Path(stopped.path))).damages == 0
    with triolog.blocking.open(stopped.path, durability="os") as broker:
        [newest] = [record for record in broker.fetch("t", partition=0) if record.key == b"k1"]
        assert (newest.offset, newest.value) == (RECORDS, b"newest")


def test_compact_that_was_finished_is_done_again(spark: SparkSession, stopped: StoppedDirectory, tmp_path: Path) -> None:
    manifest = tmp_path / "compact.json"
    first = compact(spark, of_topic(stopped.path, "t"), include_active=True, manifest=manifest)
    again = compact(spark, of_topic(stopped.path, "t"), include_active=True, manifest=manifest)
    assert again.bytes_before == first.bytes_after


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Topic t with 1,000 records of ten keys."""
    path = tmp_path / "data"
    with triolog.blocking.open(path, durability="os", config={"retention.ms": "-1"}) as broker:
        broker.create_topic("t", config={"segment.bytes": "10000"})
        for start in range(0, 1000, 50):
            broker.append("t", [(1_700_000_000_000 + n, b"k%d" % (n % 10), b"value", ()) for n in range(start, start + 50)])
    return path


def call(*arguments: str, exit_code: int = 0) -> str:
    result = CliRunner().invoke(main, ["spark", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == exit_code, result.output
    return result.output


def test_verify_reindex_profile_export_and_compact_say_what_they_did(data: Path, tmp_path: Path) -> None:
    assert "1,000 records" in call("verify", str(data))
    assert json.loads(call("reindex", str(data), "--json"))["failures"] == []
    report = tmp_path / "report.html"
    assert "t: 1,000 records, 10 keys, the most frequent has 10.0%" in call("profile", str(data), "--html", str(report))
    assert "<svg" in report.read_text()
    exported = call("export", str(data), "--target", str(tmp_path / "out"), "--json")
    assert json.loads(exported)["records"] == 1000
    refused = call("compact", str(data), "--topic", "t", exit_code=1)
    assert "the cleanup.policy of t is not compact" in refused
    done = json.loads(call("compact", str(data), "--topic", "t", "--force", "--include-active", "--json"))
    assert done["bytes_after"] < done["bytes_before"]


def test_damage_is_listed_and_ends_with_exit_code_1(data: Path) -> None:
    log = sorted((data / "t-0").glob("*.log"))[1]
    content = bytearray(log.read_bytes())
    content[200] ^= 1
    log.write_bytes(content)
    output = call("verify", str(data), exit_code=1)
    assert f"t-0/{log.name}" in output
    assert f"t-0/{log.name}" in call("reindex", str(data), exit_code=1)


def test_error_of_a_job_is_one_line_and_has_another_exit_code_than_damage(data: Path, tmp_path: Path) -> None:
    output = call("export", str(data), "--target", str(tmp_path / "out"), "--topic", "absent", exit_code=1)
    assert output == f"Error: {data}: no partition of topic absent\n"
    assert "--columns" in call("export", str(data), "--target", str(tmp_path / "out"), "--columns", "size", exit_code=2)
    (tmp_path / "manifest.json").write_text("mine")
    assert "is not a manifest" in call("verify", str(data), "--manifest", str(tmp_path / "manifest.json"), exit_code=3)


def test_a_job_with_a_session_of_its_own_writes_its_result_and_nothing_else(data: Path) -> None:
    done = subprocess.run([*COMMAND, "spark", "verify", str(data)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("no damage\n")
    assert done.stdout.count("\n") == 1


def test_error_of_a_worker_that_dies_is_one_line(spark: SparkSession) -> None:
    """PySpark has no class for it."""

    def die(number: int) -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return number

    with pytest.raises(FailedError) as caught, job_session("test", "local") as session:
        session.sparkContext.parallelize([1], 1).map(die).collect()
    assert "Job aborted due to stage failure" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_profile_of_nothing_says_so(tmp_path: Path) -> None:
    with triolog.blocking.open(tmp_path / "data", durability="os") as broker:
        broker.create_topic("t")
    assert call("profile", str(tmp_path / "data")) == "no records\n"


def test_load_writes_rows_to_a_topic(spark: SparkSession, served: tuple[Address, BlockingClient], tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    address, client = served
    BlockingAdmin(client).create_topic("loaded")
    load = ("load", str(tmp_path / "rows.jsonl"), "--format", "json", "--server", f"{address.host}:{address.port}")
    assert call(*load, "--topic", "loaded") == "2 records in loaded\n"
    assert call(*load, "--topic", "absent") == "2 records in absent\n", "the server creates topics that its clients use"
