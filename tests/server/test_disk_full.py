"""A full device under a real server: appends fail and say which file, reads go on, appends work again when there is space.

The device is a small tmpfs. Mounting one needs the right to; where it is missing the tests are skipped and say so (the same
rules hold on the file system that refuses writes, in the tests of storage and actors).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.types import Record

from tests.support.forked_servers import ServerForker
from tests.support.logs import START_MS, batch, scan_for_timestamp
from tests.support.server_process import ServerFolder
from tests.support.small_devices import NO_RESERVE, fill, mounted_device
from tests.support.wire_client import WireClient, error_of

VALUE: Final = b"v" * 3000
SMALL_SEGMENTS: Final = {"segment.bytes": "65536", "segment.index.bytes": "4096", "index.interval.bytes": "0"}
ONE_SEGMENT: Final = {"segment.index.bytes": "4096", "index.interval.bytes": "0"}


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Path]:
    with mounted_device(tmp_path, "tmpfs") as path:
        yield path


@pytest.fixture
def folder(device: Path, tmp_path: Path, server_forker: ServerForker) -> Iterator[ServerFolder]:
    with ServerFolder(tmp_path, data_dirs=("device/data",), command=server_forker) as folder:
        yield folder
    print(folder.wrote())  # noqa: T201 - shown with a failure only


def append_until_full(client: WireClient, topic: str, start: int) -> tuple[int, RequestError]:
    """Append single records until one is refused; answers how many are there, and why."""
    offset = start
    while True:
        try:
            assert client.produce(topic, 0, batch(START_MS + offset, value=VALUE, key=b"%d" % offset)) == offset
        except RequestError as exc:
            return offset, exc
        offset += 1


def check_log(client: WireClient, topic: str, count: int) -> list[Record]:
    """The log holds the first `count` numbered records and nothing else, and lookups by time say the same."""
    records, high_watermark = client.read_all(topic, 0)
    assert high_watermark == count
    assert [(record.offset, record.key) for record in records] == [(number, b"%d" % number) for number in range(count)]
    for timestamp in (0, START_MS, START_MS + count // 2, START_MS + count - 1, START_MS + count):
        assert client.offset_for_time(topic, 0, timestamp) == scan_for_timestamp(records, timestamp)
    return records


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
        count, error = append_until_full(client, "full", 0)
        assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert str(folder.data_dir / "full-0") in error.message
        assert "No space left on device" in error.message
        check_log(client, "full", count)
        for _ in range(3):
            assert error_of(client.produce, "full", 0, batch(value=VALUE)).code is ErrorCode.KAFKA_STORAGE_ERROR
        check_log(client, "full", count)
        ballast.unlink()
        grown, _ = append_until_full(client, "full", count)
        assert grown > count
        check_log(client, "full", grown)
    assert server.process.poll() is None


def test_a_server_killed_on_a_full_device_recovers_when_there_is_space(folder: ServerFolder, device: Path) -> None:
    server = folder.start(extra_environment=NO_RESERVE)
    with WireClient.connect(server.address) as client:
        client.create_topic("full", 1, SMALL_SEGMENTS)
        ballast = device / "ballast"
        ballast.write_bytes(bytes(100_000))
        count, _ = append_until_full(client, "full", 0)
        before = check_log(client, "full", count)
    server.kill()
    ballast.unlink()
    with WireClient.connect(folder.start(extra_environment=NO_RESERVE).address) as client:
        assert check_log(client, "full", count) == before


def test_a_server_starts_on_a_full_device_after_a_kill_and_serves_what_it_can(folder: ServerFolder, device: Path) -> None:
    """Small files cannot be written: it refuses to start and names one, or it serves; afterwards nothing is lost."""
    server = folder.start(extra_environment=NO_RESERVE)
    with WireClient.connect(server.address) as client:
        client.create_topic("full", 1, ONE_SEGMENT)
        for number in range(20):
            client.produce("full", 0, batch(START_MS + number, value=VALUE, key=b"%d" % number))
        ballast = fill(device)
        assert error_of(client.produce, "full", 0, batch(value=VALUE * 3)).code is ErrorCode.KAFKA_STORAGE_ERROR
    server.kill()
    crowded = folder.spawn()
    try:
        crowded.wait_ready()
    except AssertionError:
        assert crowded.wait_exit() == 3
        assert "No space left on device" in crowded.stderr()
        assert str(folder.data_dir) in crowded.stderr()
        assert "Traceback" not in crowded.stderr()
    else:
        crowded.kill()
    ballast.unlink()
    server = folder.start(extra_environment=NO_RESERVE)
    with WireClient.connect(server.address) as client:
        check_log(client, "full", 20)
        assert client.produce("full", 0, batch(START_MS + 20, value=VALUE, key=b"20")) == 20
        check_log(client, "full", 21)
    assert server.stop() == 0


def test_an_orderly_stop_on_a_full_device_ends_and_loses_nothing(folder: ServerFolder, device: Path) -> None:
    server = folder.start(extra_environment=NO_RESERVE)
    with WireClient.connect(server.address) as client:
        client.create_topic("full", 1, ONE_SEGMENT)
        for number in range(20):
            client.produce("full", 0, batch(START_MS + number, value=VALUE, key=b"%d" % number))
    ballast = fill(device)
    assert server.stop() in (0, 3)
    assert "Traceback" not in server.stderr()
    os.unlink(ballast)
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
