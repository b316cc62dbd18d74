from __future__ import annotations

import os
from pathlib import Path

import pytest
from triolog.tools.client.admin import Admin
from triolog.tools.client.connection import connect
from triolog.tools.demo.server_process import ServerFailedError, open_server


async def topics_of(address: tuple[str, int]) -> list[str]:
    async with connect(*address) as client:
        return [topic.name for topic in await Admin(client).list_topics()]


async def test_a_killed_server_starts_again_on_the_same_directory(tmp_path: Path) -> None:
    async with open_server(tmp_path / "data", tmp_path) as server:
        first_pid = server.pid
        async with connect(*server.address()) as client:
            await Admin(client).create_topic("t")
        server.kill()
        assert await server.wait() == -9
        assert await server.start() > 0
        assert server.pid != first_pid
        assert await topics_of(server.address()) == ["t"]
        assert await server.stop() == 0
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


async def test_leaving_the_block_by_an_exception_leaves_no_process(tmp_path: Path) -> None:
    pids: list[int] = []

    async def fail() -> None:
        async with open_server(tmp_path / "data", tmp_path) as server:
            pids.append(server.pid)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


async def test_a_server_that_cannot_start_is_reported_with_its_words(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    data_dir.write_text("not a directory")
    with pytest.raises(ServerFailedError, match=f"(?s)the server ended with 2; its log ends with.*{data_dir}"):
        async with open_server(data_dir, tmp_path):
            raise AssertionError("it cannot have started")


async def test_variables_of_the_callers_environment_do_not_reach_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIOLOG_NO_SUCH_KEY", "1")
    async with open_server(tmp_path / "data", tmp_path) as server:
        assert await server.stop() == 0
