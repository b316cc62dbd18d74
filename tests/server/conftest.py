"""One broker on a file system that tests can stop, and server processes for what only a process shows."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest
from triolog.server.broker import Broker

from tests.support.brokers import one_partition
from tests.support.forked_servers import ServerForker
from tests.support.gate_fs import GateFileSystem
from tests.support.logs import Clock
from tests.support.server_process import ServerFolder, ServerProcess
from tests.support.wire_client import WireClient

_NUMBERS: Final = itertools.count()


@pytest.fixture
def fs() -> GateFileSystem:
    return GateFileSystem()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def broker(tmp_path: Path, fs: GateFileSystem) -> AsyncIterator[Broker]:
    """With the topic TOPIC of one partition. It leaves no descriptor uncounted."""
    async with one_partition(tmp_path, fs=fs) as broker:
        yield broker
    assert fs.open_paths == []


@pytest.fixture
def server_folder(tmp_path: Path, server_forker: ServerForker) -> Iterator[ServerFolder]:
    """A directory to run servers in; what they wrote is shown with a failure."""
    with ServerFolder(tmp_path, command=server_forker) as folder:
        yield folder
    print(folder.wrote())  # noqa: T201 - shown with a failure only


@pytest.fixture
def fast_path() -> Iterator[Path]:
    """An empty directory, in memory where the system has such a place: for many small brokers that sync all the time."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as path:
        yield Path(path)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, server_forker: ServerForker) -> Iterator[ServerProcess]:
    """One server for all tests of a module, each with topics of its own. It lives to the end and stops in order."""
    with ServerFolder(tmp_path_factory.mktemp("server"), command=server_forker) as folder:
        started = folder.start()
        yield started
        assert started.process.poll() is None, f"the server died: {started.process.returncode}\n{started.stderr()}"
        assert started.stop() == 0, started.stderr()
        assert "Traceback" not in started.stderr(), started.stderr()


@pytest.fixture
def client(server: ServerProcess) -> Iterator[WireClient]:
    """A connection to the module's server that has said hello."""
    with WireClient.connect(server.address) as connected:
        yield connected


@pytest.fixture
def topic(client: WireClient) -> str:
    """A topic of three partitions of the test's own."""
    name = f"topic-{next(_NUMBERS)}"
    client.create_topic(name, 3)
    return name
