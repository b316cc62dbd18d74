"""DescribeLogDirs and AlterReplicaLogDirs: where partitions lie, how large they are, and that they stay there."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
from triolog.protocol.types import TopicPartition
from triolog.server.config.broker_config import Address
from triolog.server.listeners.connections.sockets import Admission
from triolog.server.listeners.kafka.calls import kafka_listener

from tests.support.brokers import running_broker
from tests.support.kafka_admin import error_names
from tests.support.kafka_server import TOPIC, batch, produced
from tests.support.kafka_stream import KafkaStream, connected
from tests.support.kafka_wire import ask


def asking(topics: dict[str, list[int]] | None) -> Any:
    asked = topics and [{"topic": name, "partitions": numbers} for name, numbers in topics.items()]
    return ask("DescribeLogDirs", topics=[] if topics == {} else asked)


@pytest.mark.parametrize("version", range(1, 6))
async def test_sizes_of_partitions_and_the_room_of_the_device(client: KafkaStream, fast_path: Path, version: int) -> None:
    await produced(client, batch("x"), partition=1)
    answer = await client.call(asking(None), version)
    [directory] = answer.results
    assert (answer.error_code, directory.error_code, directory.log_dir) == (0, 0, str(fast_path))
    [topic] = directory.topics
    assert topic.name == TOPIC
    assert [(each.partition_index, each.partition_size) for each in topic.partitions] == [(0, 0), (1, len(batch("x"))), (2, 0)]
    assert {(each.offset_lag, each.is_future_key) for each in topic.partitions} == {(0, False)}
    total = shutil.disk_usage(fast_path).total if version >= 4 else -1
    assert directory.total_bytes == total
    assert -1 <= directory.usable_bytes <= total
    assert (directory.usable_bytes > -1) == (version >= 4)
    assert not directory.is_cordoned


@pytest.mark.parametrize(
    ("topics", "found"), [({TOPIC: [2, 9], "nope": [0]}, [2]), ({TOPIC: []}, []), ({}, [])], ids=["some", "none", "empty"]
)
async def test_only_partitions_asked_for_are_told(client: KafkaStream, topics: dict[str, list[int]], found: list[int]) -> None:
    [directory] = (await client.call(asking(topics), 4)).results
    assert [each.partition_index for topic in directory.topics for each in topic.partitions] == found


@pytest.fixture
async def two_directories(tmp_path: Path) -> AsyncIterator[tuple[KafkaStream, Path, Path]]:
    """A connection to a server of which the second log directory cannot be used, and has two others."""
    (tmp_path / "file").touch()
    paths = [tmp_path / "a", tmp_path / "file", tmp_path / "b"]
    async with running_broker(*paths) as broker, trio.open_nursery() as nursery:
        await broker.topics.create(TOPIC, 2)
        listener = kafka_listener(broker, Address("127.0.0.1", 0), Admission.of(broker.config))
        address = await nursery.start(listener.run)
        async with connected(address) as client:
            first, second = (Path(broker.directories.of(TopicPartition(TOPIC, number))) for number in (0, 1))
            yield client, first, second
        nursery.cancel_scope.cancel()


async def test_every_directory_is_told_also_one_that_is_out_of_service(two_directories: tuple[KafkaStream, Path, Path]) -> None:
    client, first, second = two_directories
    answer = await client.call(asking(None), 4)
    found = {each.log_dir: each for each in answer.results}
    broken = found.pop(str(first.parent / "file"))
    assert (error_names([broken]), broken.topics, broken.total_bytes) == (["KAFKA_STORAGE_ERROR"], [], -1)
    assert error_names(found.values()) == ["NONE", "NONE"]
    for number, path in enumerate((first, second)):
        [topic] = found[str(path)].topics
        assert [each.partition_index for each in topic.partitions] == [number]


@pytest.mark.parametrize("version", [1, 2])
async def test_partitions_stay_where_they_are_and_say_so(two_directories: tuple[KafkaStream, Path, Path], version: int) -> None:
    client, first, second = two_directories
    moves = [(first, TOPIC, 0), (second, TOPIC, 0), (first.parent / "file", TOPIC, 0), (Path("/none"), TOPIC, 0)]
    moves += [(first, TOPIC, 9), (first, "nope", 0)]
    request = ask(
        "AlterReplicaLogDirs",
        dirs=[{"path": str(path), "topics": [{"name": name, "partitions": [number]}]} for path, name, number in moves],
    )
    answer = await client.call(request, version)
    assert error_names(topic.partitions[0] for topic in answer.results) == [
        "NONE",
        "INVALID_REQUEST",
        "KAFKA_STORAGE_ERROR",
        "LOG_DIR_NOT_FOUND",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_OR_PARTITION",
    ]
