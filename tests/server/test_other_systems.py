"""A system without Linux's own calls: `RWF_NOWAIT` and `fdatasync` are taken away before the server is imported."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest
from triolog.protocol.types import LATEST_TIMESTAMP

from tests.support.logs import START_MS, batch, scan_for_timestamp
from tests.support.server_process import ServerFolder, python_command
from tests.support.wire_client import WireClient

LINUX_CALLS: Final = [name for name in ("RWF_NOWAIT", "fdatasync") if hasattr(os, name)]
WITHOUT: Final = f"import os\nfor name in {LINUX_CALLS}: delattr(os, name)"


@pytest.mark.parametrize("durability", ["fsync", *(pytest.param(each, marks=pytest.mark.merge) for each in ("group:5", "os"))])
def test_a_system_without_nowait_reads_and_fdatasync_serves_and_recovers(tmp_path: Path, durability: str) -> None:
    with ServerFolder(tmp_path, command=python_command(WITHOUT)) as folder:
        server = folder.start("--durability", durability)
        with WireClient.connect(server.address) as client:
            client.create_topic("topic", 2, {"segment.bytes": "4096", "index.interval.bytes": "0"})
            for number in range(60):
                client.produce("topic", number % 2, batch(START_MS + number, START_MS + number - 5, value=b"v" * 200))
            before = [client.read_all("topic", partition) for partition in range(2)]
        server.kill()
        server = folder.start("--durability", durability)
        with WireClient.connect(server.address) as client:
            for partition, (records, high_watermark) in enumerate(before):
                assert (client.read_all("topic", partition)) == (records, high_watermark)
                assert high_watermark == 60
                for timestamp in (0, START_MS + 17, START_MS + 59, START_MS + 100):
                    assert client.offset_for_time("topic", partition, timestamp) == scan_for_timestamp(records, timestamp)
                assert client.offset_for_time("topic", partition, LATEST_TIMESTAMP)[1] == 60
                assert client.produce("topic", partition, batch()) == 60
        assert server.stop() == 0
