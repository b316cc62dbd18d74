"""The processes of a server that is killed: they end, and its log has not a word of them."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from pathlib import Path
from typing import Final

import pytest
from triolog.protocol.records.builder import build_batch

from tests.support.server_process import DEADLINE_S, POLL_S, ServerFolder, ServerProcess
from tests.support.wire_client import WireClient

COMPACTED: Final = {"cleanup.policy": "compact", "segment.bytes": "4096", "min.cleanable.dirty.ratio": "0.01"}
SETTINGS: Final = {
    "TRIOLOG_DURABILITY": "os",
    "TRIOLOG_CHECKPOINT_INTERVAL_MS": "100",
    "TRIOLOG_CLEANER_BACKOFF_MS": "1",
    "TRIOLOG_CLEANER_IO_MAX_BYTES_PER_SECOND": "20000",
    "PYTHONUNBUFFERED": "",
}


def children(server: ServerProcess) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            _, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == server.pid:
                found.append(int(stat.parent.name))
    return found


@pytest.mark.parametrize("moment", ["new", "at work"])
def test_a_cleaner_whose_server_is_killed_ends_without_a_word(server_folder: ServerFolder, moment: str) -> None:
    """It is held at that moment until the server is gone."""
    server = server_folder.start(extra_environment=SETTINGS)
    with WireClient.connect(server.address) as client:
        client.create_topic("compacted", 1, COMPACTED)
        for number in range(30):
            client.produce("compacted", 0, build_batch([(number, b"key-%d" % (number % 3), bytes(900), ())]))
    deadline = time.monotonic() + DEADLINE_S
    while not (found := children(server)) or (moment == "at work" and not list(server_folder.data_dir.rglob("*.cleaned"))):
        assert time.monotonic() < deadline, server.stderr()
        time.sleep(POLL_S)
    [cleaner] = found
    with open(os.pidfd_open(cleaner)) as descriptor:
        signal.pidfd_send_signal(descriptor.fileno(), signal.SIGSTOP)
        server.kill()
        signal.pidfd_send_signal(descriptor.fileno(), signal.SIGCONT)
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        assert poll.poll(DEADLINE_S * 1000), "the cleaner outlives its server"
    written = server.stderr()
    for word in ("Traceback", "Exception", "BrokenPipe"):
        assert word not in written
