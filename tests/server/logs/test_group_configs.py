"""Configurations of groups: what was answered is there after any end, in every directory, and counts at once."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import trio
from triolog.protocol.errors import InvalidConfigError, RequestError
from triolog.server.storage.directory.state_files import GROUPS
from triolog.server.storage.disk import checkpoints
from triolog.server.storage.errors import CheckpointError

from tests.support.brokers import running_broker
from tests.support.gate_fs import GateFileSystem

LIMIT, LOCKS = "share.delivery.count.limit", "share.partition.max.record.locks"


async def test_configurations_are_there_after_a_restart_in_every_directory(tmp_path: Path) -> None:
    """Also what only a lenient server accepts."""
    one, two = tmp_path / "one", tmp_path / "two"
    async with running_broker(one, two, lenient=True, group_share_delivery_count_limit=10) as broker:
        configs = broker.group_configs
        await configs.change("a", lambda _: {LIMIT: " 100 "})
        await configs.change("b", lambda _: {LIMIT: "4"})
        await configs.change("b", lambda _: {})
        await configs.change("c", lambda _: {LIMIT: "4"}, validate_only=True)
        assert configs.overrides() == {"a": {LIMIT: "100"}}
        assert (configs.of_group("a")[LIMIT], configs.of_group("b")[LIMIT]) == (100, 10)
    assert (one / GROUPS.name).read_bytes() == (two / GROUPS.name).read_bytes()
    (one / GROUPS.name).unlink()
    async with running_broker(one, two) as broker:
        assert broker.group_configs.of_group("a")[LIMIT] == 100


async def test_the_servers_keys_are_what_groups_follow(tmp_path: Path) -> None:
    settings = {
        "group_share_record_lock_duration_ms": 1_000,
        "group_share_delivery_count_limit": 9,
        "group_share_partition_max_record_locks": 100,
    }
    async with running_broker(tmp_path, **settings) as broker:
        await broker.group_configs.change("own", lambda _: {LOCKS: "300"})
        keys = ("share.record.lock.duration.ms", LIMIT, LOCKS)
        assert [[broker.group_configs.of_group(group)[key] for key in keys] for group in ("any", "own")] == [
            [1_000, 9, 100],
            [1_000, 9, 300],
        ]


async def test_changes_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        configs = broker.group_configs
        async with trio.open_nursery() as nursery:
            for key, value in ((LIMIT, "3"), (LOCKS, "200")):
                nursery.start_soon(configs.change, "a", lambda before, key=key, value=value: {**before, key: value})
        assert (configs.of_group("a")[LIMIT], configs.of_group("a")[LOCKS]) == (3, 200)


async def test_a_wrong_change_does_not_count(tmp_path: Path, fs: GateFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(checkpoints.LIMITS, "groups.json", 300)
    async with running_broker(tmp_path, fs=fs) as broker:
        configs = broker.group_configs
        with pytest.raises(RequestError, match=r"^POLICY_VIOLATION"):
            await configs.change("b" * 300, lambda _: {LIMIT: "3"})
        with pytest.raises(InvalidConfigError):
            await configs.change("a", lambda _: {LIMIT: "11"})
        fs.fail("write", f"{GROUPS.name}.tmp", number=errno.ENOSPC)
        with pytest.raises(RequestError, match="free space"):
            await configs.change("a", lambda _: {LIMIT: "3"})
        assert (configs.overrides(), configs.of_group("a")[LIMIT]) == ({}, 5)
        await configs.change("a", lambda _: {LIMIT: "4"})
    async with running_broker(tmp_path) as broker:
        assert broker.group_configs.of_group("a")[LIMIT] == 4


async def test_a_damaged_file_keeps_the_server_from_starting(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.group_configs.change("a", lambda _: {LIMIT: "3"})
    (tmp_path / GROUPS.name).write_bytes((tmp_path / GROUPS.name).read_bytes().replace(b'"3"', b'"4"'))
    with pytest.raises(CheckpointError, match=GROUPS.name):
        async with running_broker(tmp_path):
            raise AssertionError("it started")
