"""Log directories that fail under a real server: the others serve, the last one ends it, and the exit code says so."""

from __future__ import annotations

from pathlib import Path

from triolog.protocol.errors import ErrorCode

from tests.support.forked_servers import ServerForker
from tests.support.logs import batch
from tests.support.server_process import ServerFolder
from tests.support.wire_client import WireClient, error_of

CANNOT_SERVE = 3
FAST = {"TRIOLOG_CHECKPOINT_INTERVAL_MS": "100"}


def vanish(directory: Path) -> None:
    """At once, as a device does: while files were deleted one by one, a checkpoint would be written among them."""
    directory.rename(directory.with_suffix(".gone"))


def test_a_directory_that_vanishes_is_taken_out_and_the_last_one_ends_the_server(
    tmp_path: Path, server_forker: ServerForker
) -> None:
    with ServerFolder(tmp_path, command=server_forker, data_dirs=("left", "right")) as folder:
        server = folder.start(extra_environment=FAST)
        with WireClient.connect(server.address) as client:
            client.create_topic("two", 2)
            client.produce("two", 0, batch())
            client.produce("two", 1, batch())
            vanish(tmp_path / "right")
            server.wait_stderr("right is out of service")
            error = error_of(client.produce, "two", 1, batch())
            assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
            assert client.produce("two", 0, batch()) == 1
            vanish(tmp_path / "left")
            assert server.wait_exit() == CANNOT_SERVE
        assert "level=critical" in server.stderr()
        assert "no log directory can be used" in server.stderr()


def test_a_server_starts_without_a_directory_that_cannot_be_used_and_not_without_any(
    tmp_path: Path, server_forker: ServerForker
) -> None:
    (tmp_path / "file").touch()
    with ServerFolder(tmp_path, command=server_forker, data_dirs=("file/data", "data")) as folder:
        server = folder.start()
        with WireClient.connect(server.address) as client:
            client.create_topic("one", 1)
            assert client.produce("one", 0, batch()) == 0
        assert server.stop() == 0
        assert "file/data is out of service" in server.stderr()
    with ServerFolder(tmp_path, command=server_forker, data_dirs=("file/data",)) as folder:
        refused = folder.spawn()
        assert refused.wait_exit() == CANNOT_SERVE
        assert "no log directory can be used" in refused.stderr()
