"""A thousand partitions in a process that may open 1,024 files (a tenth of both in the quick suite), and connections beyond
what it may open."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Final

import pytest
from triolog.protocol.native import messages

from tests.support.counts import counts
from tests.support.logs import START_MS, batch
from tests.support.server_process import ServerFolder, ServerProcess, python_command
from tests.support.wire_client import WireClient, records_from

PARTITIONS: Final = counts(1000)
LIMIT: Final = PARTITIONS + 24
LIMITED: Final = python_command(f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({LIMIT}, {LIMIT}))")
ALL: Final = range(PARTITIONS)


def append_to_all(client: WireClient, timestamp: int, expected_offset: int) -> None:
    answers = client.produce_all([("many", number, batch(timestamp + number, value=b"%d" % number)) for number in ALL])
    assert [answer.error for answer in answers] == [None] * PARTITIONS
    assert {answer.base_offset for answer in answers} == {expected_offset}


def check_all(client: WireClient, rounds: int) -> None:
    """Fetch from every partition, and look up the time of its last record, each in one request."""
    questions = tuple(messages.FetchPartition("many", number, 0) for number in ALL)
    fetched = client.call(messages.FetchRequest(questions, min_bytes=1)).partitions
    for number, entry in enumerate(fetched):
        assert entry.error is None
        assert [record.value for record in records_from(entry.records, 0)] == [b"%d" % number] * rounds
        assert entry.high_watermark == rounds
    last = START_MS + (rounds - 1) * 10_000
    found = client.offsets_for_times(("many", number, last + number) for number in ALL)
    assert {(entry.error, entry.offset) for entry in found} == {(None, rounds - 1)}
    assert [entry.timestamp for entry in found] == [last + number for number in ALL]


def hard_limit(server: ServerProcess) -> int:
    return resource.prlimit(server.pid, resource.RLIMIT_NOFILE)[1]


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux tells the limits of another process")
def test_partitions_are_served_and_recovered_under_a_limit_of_about_as_many_descriptors(tmp_path: Path) -> None:
    with ServerFolder(tmp_path, command=LIMITED) as folder:
        server = folder.start("--durability", "os")
        assert hard_limit(server) == LIMIT
        with WireClient.connect(server.address) as client:
            client.create_topic("many", PARTITIONS, {"index.interval.bytes": "0"})
            append_to_all(client, START_MS, 0)
            append_to_all(client, START_MS + 10_000, 1)
            check_all(client, 2)
        server.kill()
        server = folder.start("--durability", "os")
        with WireClient.connect(server.address) as client:
            check_all(client, 2)
            append_to_all(client, START_MS + 20_000, 2)
            check_all(client, 3)
            assert len(server.open_files()) < LIMIT
        assert server.stop() == 0
        server = folder.start()
        with WireClient.connect(server.address) as client:
            check_all(client, 3)
            append_to_all(client, START_MS + 30_000, 3)
        assert server.stop() == 0
        assert "Too many open files" not in folder.wrote()


def test_connections_beyond_the_descriptors_wait_and_are_served_later(tmp_path: Path) -> None:
    """Accepting fails with EMFILE: the server goes on, and takes the next one when a descriptor is free again."""
    limited = python_command("import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))")
    with ServerFolder(tmp_path, command=limited) as folder:
        server = folder.start()
        with WireClient.connect(server.address) as first:
            first.create_topic("topic")
            held = [WireClient.connect(server.address, say_hello=False) for _ in range(80)]
            try:
                server.wait_stderr("accepting failed")
                assert first.high_watermark("topic") == 0
            finally:
                for client in held:
                    client.close()
            with WireClient.connect(server.address) as late:
                assert late.produce("topic", 0, batch()) == 0
        assert server.stop() == 0
