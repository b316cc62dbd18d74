"""A full device under a real server, also when it starts: appends fail and say which file, readers and groups are served, and
all of it works again when there is space, without another start.

The device is a small file system. Mounting one needs the right to; where it is missing the tests are skipped and say so (the
same rules hold on the file system that refuses writes, in the tests of storage and actors).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Final

import pytest
from click.testing import CliRunner
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.native.calls import groups
from triolog.tools.cli.main import main

from tests.support.failing_device import NO_RESERVE, fill, mounted_device
from tests.support.forked_servers import ServerForker
from tests.support.logs import START_MS, batch, scan_for_timestamp
from tests.support.server_process import ServerFolder
from tests.support.wire_client import WireClient, error_of

ONE_SEGMENT: Final = {"segment.index.bytes": "4096", "index.interval.bytes": "0"}
SMALL_SEGMENTS: Final = {**ONE_SEGMENT, "segment.bytes": "16384"}
PATIENCE_S: Final = 30.0
VALUE: Final = b"v" * 3000
RECORDS: Final = 43
RESERVE_BYTES: Final = 40_000


ON_EXT4_TOO: Final = pytest.mark.parametrize("device", ["tmpfs", pytest.param("ext4", marks=pytest.mark.merge)], indirect=True)


@pytest.fixture
def device(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    with mounted_device(tmp_path, getattr(request, "param", "tmpfs")) as path:
        yield path


@pytest.fixture
def folder(device: Path, tmp_path: Path, server_forker: ServerForker) -> Iterator[ServerFolder]:
    with ServerFolder(tmp_path, data_dirs=("device/data",), command=server_forker) as folder:
        yield folder
    print(folder.wrote())  # noqa: T201 - shown with a failure only


def append(client: WireClient, topic: str, first: int, count: int) -> None:
    for number in range(first, first + count):
        assert client.produce(topic, 0, batch(START_MS + number, value=VALUE, key=b"%d" % number)) == number


def check_log(client: WireClient, topic: str, count: int, first: int = 0) -> None:
    records, high_watermark = client.read_all(topic, 0, offset=first)
    assert high_watermark == count
    assert [(each.offset, each.key) for each in records] == [(number, b"%d" % number) for number in range(first, count)]
    for timestamp in (START_MS + first, START_MS + (first + count) // 2, START_MS + count - 1, START_MS + count):
        assert client.offset_for_time(topic, 0, timestamp) == scan_for_timestamp(records, timestamp)


def commit(client: WireClient, offset: int) -> None:
    """Raises RequestError."""
    answer = client.call(groups.CommitOffsetsRequest("readers", (groups.CommittedPartition("orders", 0, offset, "m" * 500),)))
    if answer.partitions[0].error is not None:
        raise answer.partitions[0].error


def commit_until_refused(client: WireClient) -> None:
    """What is left of a page of the log can take some more."""
    for _ in range(10):
        commit(client, 17)


def committed(client: WireClient) -> int:
    answer = client.call(groups.FetchOffsetsRequest("readers", (groups.Partition("orders", 0),)))
    assert isinstance(answer, groups.FetchOffsetsResponse)
    return answer.partitions[0].offset


def killed_on_a_full_device(folder: ServerFolder, device: Path) -> Path:
    """Two topics with records, a committed offset, an unclean stop, no free block. Answers the file to delete."""
    server = folder.start(extra_environment=NO_RESERVE)
    with WireClient.connect(server.address) as client:
        for topic in ("orders", "other"):
            client.create_topic(topic, 1, SMALL_SEGMENTS)
            append(client, topic, 0, RECORDS)
        for offset in range(18):
            commit(client, offset)
    server.kill()
    return fill(device)


def check_directory(folder: ServerFolder) -> None:
    verified = CliRunner().invoke(main, ["verify", str(folder.data_dir)])
    assert verified.exit_code == 0, verified.output


def append_until_refused(client: WireClient, topic: str, count: int) -> tuple[int, RequestError]:
    """Answers how many are there. Rebuilding frees a page here and there: a log may be opened for real and take a record."""
    while True:
        try:
            append(client, topic, count, 1)
        except RequestError as exc:
            return count, exc
        count += 1


def append_once_there_is_room(client: WireClient, topic: str, number: int) -> None:
    """The guard of the reserve looks once a second, and takes one round of segments at a time."""
    deadline = monotonic() + PATIENCE_S
    while True:
        try:
            append(client, topic, number, 1)
        except RequestError:
            if monotonic() > deadline:
                raise
        else:
            return


@pytest.mark.parametrize("durability", ["fsync", "os", "group:5"])
@pytest.mark.parametrize("config", [ONE_SEGMENT, SMALL_SEGMENTS], ids=["one segment", "small segments"])
def test_appends_fail_naming_the_file_reads_go_on_and_appends_work_again(
    folder: ServerFolder, device: Path, config: dict[str, str], durability: str
) -> None:
    server = folder.start(extra_environment=NO_RESERVE)
    with WireClient.connect(server.address) as client:
        client.create_topic("full", 1, {**config, "durability": durability})
        ballast = device / "ballast"
        ballast.write_bytes(bytes(300_000))
        count, error = append_until_refused(client, "full", 0)
        assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert str(folder.data_dir / "full-0") in error.message
        assert "No space left on device" in error.message
        check_log(client, "full", count)
        for _ in range(3):
            assert error_of(client.produce, "full", 0, batch(value=VALUE)).code is ErrorCode.KAFKA_STORAGE_ERROR
        check_log(client, "full", count)
        ballast.unlink()
        grown, _ = append_until_refused(client, "full", count)
        assert grown > count
        check_log(client, "full", grown)
    assert server.process.poll() is None


def test_an_orderly_stop_on_a_full_device_ends_and_loses_nothing(folder: ServerFolder, device: Path) -> None:
    server = folder.start(extra_environment=NO_RESERVE)
    with WireClient.connect(server.address) as client:
        client.create_topic("full", 1, ONE_SEGMENT)
        append(client, "full", 0, 20)
    ballast = fill(device)
    assert server.stop() in (0, 3)
    assert "Traceback" not in server.stderr()
    ballast.unlink()
    with WireClient.connect(folder.start(extra_environment=NO_RESERVE).address) as client:
        check_log(client, "full", 20)


def test_a_topic_that_finds_no_space_is_not_made(folder: ServerFolder, device: Path) -> None:
    server = folder.start(extra_environment=NO_RESERVE)
    with WireClient.connect(server.address) as client:
        client.create_topic("there", 1, ONE_SEGMENT)
        ballast = fill(device)
        error = error_of(client.create_topic, "not-there", 5, {**ONE_SEGMENT, "preallocate": "true", "segment.bytes": "65536"})
        assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert error_of(client.partition_metadata, "not-there").code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert list(folder.data_dir.glob("not-there*")) == []
        ballast.unlink()
        assert client.produce("there", 0, batch()) == 0
        client.create_topic("not-there", 5, ONE_SEGMENT)
        assert client.produce("not-there", 4, batch()) == 0
    assert server.stop() == 0


@ON_EXT4_TOO
def test_readers_and_groups_are_served_and_appends_refused_until_there_is_space(folder: ServerFolder, device: Path) -> None:
    ballast = killed_on_a_full_device(folder, device)
    server = folder.start(extra_environment=NO_RESERVE)
    counts = dict.fromkeys(("orders", "other"), RECORDS)
    with WireClient.connect(server.address) as client:
        for topic in counts:
            check_log(client, topic, RECORDS)
            counts[topic], error = append_until_refused(client, topic, RECORDS)
            assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
            assert "No space left on device" in error.message
        waiting = {topic for topic in counts if f"{topic}-0 waits for space" in server.stderr()}
        assert waiting
        assert committed(client) == 17
        refused = error_of(commit_until_refused, client)
        assert refused.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert refused.retriable
        assert error_of(client.create_topic, "new", 1, SMALL_SEGMENTS).code is ErrorCode.KAFKA_STORAGE_ERROR
        ballast.unlink()
        for topic in waiting:
            server.wait_stderr(f"{topic}-0 has space now")
        for topic, count in counts.items():
            check_log(client, topic, count)
            append(client, topic, count, 3)
            check_log(client, topic, count + 3)
        assert committed(client) == 17
        commit(client, 18)
        assert committed(client) == 18
        client.create_topic("new", 1, SMALL_SEGMENTS)
    assert server.stop() == 0
    assert "Traceback" not in folder.wrote()
    check_directory(folder)
    with WireClient.connect(folder.start(extra_environment=NO_RESERVE).address) as client:
        check_log(client, "orders", counts["orders"] + 3)
        assert committed(client) == 18


@ON_EXT4_TOO
def test_a_kill_and_a_stop_while_it_waits_lose_nothing(folder: ServerFolder, device: Path) -> None:
    ballast = killed_on_a_full_device(folder, device)
    folder.start(extra_environment=NO_RESERVE).kill()
    server = folder.start(extra_environment=NO_RESERVE)
    assert server.stop() in (0, 3)
    with WireClient.connect(folder.start(extra_environment=NO_RESERVE).address) as client:
        check_log(client, "orders", RECORDS)
        assert committed(client) == 17
        ballast.unlink()


@ON_EXT4_TOO
def test_drop_oldest_frees_space_on_a_device_without_a_free_block_and_it_goes_on(folder: ServerFolder, device: Path) -> None:
    """Nobody frees anything by hand: the oldest segments go, and with their space the logs are opened."""
    killed_on_a_full_device(folder, device)
    config = folder.path / "server.toml"
    config.write_text(f'disk_reserve_bytes = {RESERVE_BYTES}\n[topic_defaults]\n"disk.full.policy" = "drop-oldest"\n')
    server = folder.start("--config", str(config))
    with WireClient.connect(server.address) as client:
        server.wait_stderr("segments of topics with disk.full.policy=drop-oldest")
        for topic in {topic for topic in ("orders", "other") if f"{topic}-0 waits for space" in server.stderr()}:
            server.wait_stderr(f"{topic}-0 has space now")
        for topic in ("orders", "other"):
            append_once_there_is_room(client, topic, RECORDS)
        server.wait_room(device, RESERVE_BYTES)  # until then the logs may start further up with every look of the guard
        starts = {topic: client.partition_metadata(topic)[0].log_start_offset for topic in ("orders", "other")}
        assert max(starts.values()) > 0
        for topic, first in starts.items():
            check_log(client, topic, RECORDS + 1, first)
    server.kill()
    server = folder.start()
    with WireClient.connect(server.address) as client:
        for topic, first in starts.items():
            check_log(client, topic, RECORDS + 1, first)
    assert server.stop() == 0
    check_directory(folder)
