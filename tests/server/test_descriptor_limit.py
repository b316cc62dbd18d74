"""A thousand partitions in a process that may open 1,024 files (a tenth of both in the commit tier), and connections beyond
what it may open."""

from __future__ import annotations

import json
import re
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Final

import pytest
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.kafka.messages.cluster import ApiVersionsRequest
from triolog.protocol.native import messages

from tests.support.counts import counts
from tests.support.descriptor_limits import exhaust, relieve
from tests.support.forked_servers import ServerForker
from tests.support.kafka_wire import KafkaWire
from tests.support.logs import START_MS, batch
from tests.support.server_process import ServerFolder, ServerProcess
from tests.support.wire_client import WireClient, error_of, records_from

PARTITIONS: Final = counts(1000, commit=66)
LIMIT: Final = PARTITIONS + 24
ALL: Final = range(PARTITIONS)
MORE_THAN_FILES: Final = 40
"""Partitions whose files and maps are more than a low limit allows."""
ON_ALL_PROTOCOLS: Final = ("--kafka", "127.0.0.1:0", "--metrics", "127.0.0.1:0")

Limited = Callable[..., ServerFolder]
"""A folder of servers that may open so many files: soft limit, hard limit where it is another."""


@pytest.fixture
def limited(tmp_path: Path, server_forker: ServerForker) -> Limited:
    return lambda *limits: ServerFolder(tmp_path, command=server_forker.limited_to(*limits))


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
def test_partitions_are_served_and_recovered_under_a_limit_of_about_as_many_descriptors(limited: Limited) -> None:
    with limited(LIMIT) as folder:
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


def all_connections(server: ServerProcess, kafka: tuple[str, int]) -> Iterator[WireClient | KafkaWire]:
    """As many clients as are served at a time, of either protocol by turns, each answered once."""
    most = int(re.findall(r"at most (\d+) connections", server.stderr())[0])
    for number in range(most):
        if number % 2:
            client = KafkaWire.connect(kafka)
            client.call(ApiVersionsRequest(), 0)
            yield client
        else:
            yield WireClient.connect(server.address)


def fill_compacted(client: WireClient) -> None:
    """A log of which most goes when it is compacted, in more segments than one."""
    small = {"segment.bytes": "1024", "min.cleanable.dirty.ratio": "0.1", "cleanup.policy": "compact"}
    client.create_topic("keyed", 1, small)
    for number in range(40):
        client.produce("keyed", 0, batch(START_MS, key=b"%d" % (number % 3), value=b"x" * 100))


@pytest.mark.parametrize("limit", [*(pytest.param(limit, marks=pytest.mark.merge) for limit in (64, 128, 256)), 1024])
def test_all_connections_in_the_limit_are_served_while_files_are_opened_rolled_and_compacted(
    limit: int, limited: Limited
) -> None:
    settings = {"TRIOLOG_CLEANER_BACKOFF_MS": "100"}
    with limited(limit) as folder, ExitStack() as held:
        server = folder.start(*ON_ALL_PROTOCOLS, "--durability", "os", extra_environment=settings)
        kafka = server.address_of("kafka")
        clients = [held.enter_context(client) for client in all_connections(server, kafka)]
        for _ in range(max(1, min(64, limit // 16))):
            held.enter_context(socket.create_connection(server.address_of("metrics")))
        first = clients[0]
        assert isinstance(first, WireClient)
        first.create_topic("many", MORE_THAN_FILES, {"index.interval.bytes": "0", "segment.bytes": "1024"})
        fill_compacted(first)
        for offset in range(20):
            entries = [("many", number, batch(START_MS + offset, value=b"x" * 100)) for number in range(MORE_THAN_FILES)]
            assert {(answer.error, answer.base_offset) for answer in first.produce_all(entries)} == {(None, offset)}
        found = first.offsets_for_times(("many", number, START_MS + 10) for number in range(MORE_THAN_FILES))
        assert {(entry.error, entry.offset) for entry in found} == {(None, 10)}
        server.wait_stderr("keyed-0 compacted up to offset")
        late = WireClient.connect(server.address, say_hello=False)
        for client in clients:
            if isinstance(client, WireClient):
                assert client.high_watermark("many", MORE_THAN_FILES - 1) == 20
            else:
                client.call(ApiVersionsRequest(), 0)
        clients[-1].close()
        with late:
            late.say_hello()
        assert server.stop() == 0
        wrote = server.stderr()
        assert "Too many open files" not in wrote
        assert "failed" not in wrote


def changed(client: WireClient, change: messages.RequestMessage) -> RequestError | None:
    """What became of a change of one topic or partition."""
    answer = client.call(change)
    [entry] = answer.partitions if isinstance(answer, messages.DeleteRecordsResponse) else answer.topics
    error: RequestError | None = entry.error
    return error


def test_changes_that_find_no_descriptor_are_refused_and_made_when_there_are_some(limited: Limited) -> None:
    changes = (
        messages.DeleteRecordsRequest((messages.DeleteRecordsPartition("topic", 0, 2),)),
        messages.AlterConfigsRequest((messages.ConfigChange("topic", {"segment.bytes": "4096"}),)),
        messages.CreatePartitionsRequest((messages.NewPartitions("topic", 3),)),
    )
    with limited(256) as folder:
        server = folder.start("--durability", "os")
        with WireClient.connect(server.address) as client:
            client.create_topic("topic", 2)
            assert [client.produce("topic", 0, batch()) for _ in range(3)] == [0, 1, 2]
            for change in changes:
                exhaust(server)
                error = changed(client, change)
                assert error is not None
                assert "Too many open files" in error.message
            exhaust(server)
            assert error_of(client.produce, "topic", 1, batch()).code is ErrorCode.KAFKA_STORAGE_ERROR
            relieve(server)
            assert [changed(client, change) for change in changes] == [None, None, None]
            assert [client.produce("topic", partition, batch()) for partition in range(3)] == [3, 0, 0]
            assert client.fetch("topic", 0, 2).log_start_offset == 2
        assert server.stop() == 0


@pytest.mark.merge
def test_compaction_and_scrubbing_that_get_no_process_at_the_limit_are_tried_again(limited: Limited) -> None:
    """The clock stands still, but for what the test lets pass."""
    settings = {"TRIOLOG_SCRUB_BYTES_PER_SECOND": "1000000000", "TRIOLOG_SCRUB_INTERVAL_MS": "15000"}
    with limited(256) as folder:
        server = folder.start("--control", "127.0.0.1:0", "--durability", "os", extra_environment=settings)
        control = HTTPConnection(*server.address_of("control"))
        with closing(control), WireClient.connect(server.address) as client:
            told(control, "/clock/freeze")
            fill_compacted(client)
            exhaust(server)
            for _ in range(2):
                told(control, "/clock/advance", seconds=16)
                server.wait_stderr("compaction cannot continue")
                server.wait_stderr("scrubbing failed, starting again")
                assert client.high_watermark("keyed") == 40
            relieve(server)
            told(control, "/clock/advance", seconds=16)
            server.wait_stderr("keyed-0 compacted up to offset")
            assert client.produce("keyed", 0, batch(key=b"k")) == 40
        assert server.stop() == 0


def told(control: HTTPConnection, path: str, **fields: object) -> None:
    """Tell a server for tests what to do, over one connection."""
    control.request("POST", path, json.dumps(fields), {"Content-Type": "application/json"})
    answer = control.getresponse()
    said = answer.read()
    assert answer.status == 200, said


def test_a_soft_limit_is_raised_to_the_hard_one_before_connections_are_counted(limited: Limited) -> None:
    with limited(64, 4096) as folder:
        server = folder.start()
        assert resource.prlimit(server.pid, resource.RLIMIT_NOFILE) == (4096, 4096)
        assert "at most" not in server.stderr()
        assert server.stop() == 0


def test_connections_beyond_the_descriptors_wait_and_are_served_later(limited: Limited) -> None:
    """Accepting fails with EMFILE: the server goes on, says so once, and takes them when there are descriptors again."""
    with limited(256) as folder:
        server = folder.start()
        with WireClient.connect(server.address) as first:
            first.create_topic("topic")
            exhaust(server)
            waiting = [WireClient.connect(server.address, say_hello=False) for _ in range(20)]
            server.wait_stderr("accepting on")
            assert first.high_watermark("topic") == 0
            relieve(server)
            for client in waiting:
                with client:
                    client.say_hello()
            assert waiting[-1].hello is not None
            with WireClient.connect(server.address) as late:
                assert late.produce("topic", 0, batch()) == 0
        assert server.stop() == 0
        assert server.stderr().count("accepting on") == 1
