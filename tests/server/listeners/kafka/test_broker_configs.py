"""Keys of brokers that are set while the server runs: topics follow them, they outlive it, and where they stand is told."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from triolog.server.storage.directory.state_files import BROKERS
from triolog.server.storage.errors import CheckpointError

from tests.support.brokers import actor_of, running_broker
from tests.support.gate_fs import GateFileSystem
from tests.support.kafka_admin import BROKER_TYPE, DELETE, SET, TOPIC_TYPE, alter_incrementally, describe, error_names
from tests.support.kafka_server import TOPIC, KafkaServer, kafka_server
from tests.support.kafka_stream import KafkaStream

NODE, ALL = "1", ""
DYNAMIC_TOPIC, DYNAMIC_BROKER, DYNAMIC_DEFAULT_BROKER, DEFAULT = 1, 2, 3, 5


async def put(client: KafkaStream, name: str, key: str, value: str | None) -> str:
    """The error of setting one key, or of deleting it."""
    change = (BROKER_TYPE, name, [(key, DELETE if value is None else SET, value)])
    return error_names((await client.call(alter_incrementally(change), 1)).responses)[0]


async def sources(client: KafkaStream, kind: int, name: str, key: str) -> list[tuple[str, str, int]]:
    """What is told of a key, and of where its value could come from."""
    [result] = (await client.call(describe((kind, name), keys=[key], synonyms=True), 4)).results
    found: list[Any] = [(each.value, each.config_source) for each in result.configs]
    synonyms = [(each.name, each.value, each.source) for config in result.configs for each in config.synonyms]
    assert found == [(value, source) for _, value, source in synonyms[:1]]
    return synonyms


async def test_topics_follow_what_is_set_unless_they_say_something_themselves(kafka: KafkaServer, client: KafkaStream) -> None:
    await kafka.broker.topics.create("own", 1, {"retention.ms": "5"})
    assert await put(client, ALL, "log.retention.ms", "7000") == "NONE"
    assert actor_of(kafka.broker).log.config.retention_ms == 7000
    assert await put(client, NODE, "log.retention.ms", "8000") == "NONE"
    assert actor_of(kafka.broker).log.config.retention_ms == 8000
    await kafka.broker.topics.create("later")
    started = ("log.retention.ms", "604800000", DEFAULT)
    for_all, for_one = ("log.retention.ms", "7000", DYNAMIC_DEFAULT_BROKER), ("log.retention.ms", "8000", DYNAMIC_BROKER)
    assert await sources(client, TOPIC_TYPE, "later", "retention.ms") == [for_one, for_all, started]
    assert await sources(client, TOPIC_TYPE, "own", "retention.ms") == [
        ("retention.ms", "5", DYNAMIC_TOPIC),
        for_one,
        for_all,
        started,
    ]
    assert await sources(client, BROKER_TYPE, NODE, "log.retention.ms") == [for_one, for_all, started]
    assert await sources(client, BROKER_TYPE, ALL, "log.retention.ms") == [for_all]
    for name in (NODE, ALL):
        assert await put(client, name, "log.retention.ms", None) == "NONE"
    assert await sources(client, TOPIC_TYPE, TOPIC, "retention.ms") == [started]
    assert actor_of(kafka.broker).log.config.retention_ms == 604_800_000


async def test_what_is_set_is_there_after_a_restart(fast_path: Path) -> None:
    async with kafka_server(fast_path) as kafka, kafka.connected() as client:
        await kafka.broker.topics.create(TOPIC)
        assert await put(client, ALL, "message.max.bytes", "2000") == "NONE"
    async with kafka_server(fast_path) as kafka:
        assert actor_of(kafka.broker).log.config.max_message_bytes == 2000
        kafka.broker.configure(kafka.broker.config)
        await kafka.broker.topics.create("later")
        assert kafka.broker.topics.describe_config("later")["max.message.bytes"][0] == "2000"


async def test_what_cannot_be_stored_is_refused_and_not_in_effect(tmp_path: Path) -> None:
    fs = GateFileSystem()
    async with kafka_server(tmp_path, fs=fs) as kafka, kafka.connected() as client:
        await kafka.broker.topics.create(TOPIC)
        for _ in range(2):
            fs.fail("write", f"{BROKERS.name}.tmp", number=errno.ENOSPC)
        assert await put(client, ALL, "log.retention.ms", "7000") == "KAFKA_STORAGE_ERROR"
        assert actor_of(kafka.broker).log.config.retention_ms == 604_800_000
        assert await put(client, ALL, "log.retention.ms", "x") == "INVALID_CONFIG"
        assert kafka.broker.broker_configs.overrides() == {}


async def test_a_damaged_file_keeps_the_server_from_starting(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.broker_configs.change(ALL, lambda _: {"log.retention.ms": "7000"})
    (tmp_path / BROKERS.name).write_bytes((tmp_path / BROKERS.name).read_bytes().replace(b"7000", b"8000"))
    with pytest.raises(CheckpointError, match=BROKERS.name):
        async with running_broker(tmp_path):
            pass
