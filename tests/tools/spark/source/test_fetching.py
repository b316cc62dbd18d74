"""Reading from a server that fails in between, or is older than some calls: the small one of tests/support."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio
from triolog.protocol.errors import CorruptRecordError, ErrorCode, RequestError
from triolog.protocol.native import messages as m
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.tools.spark.source.bounds import PartitionRange
from triolog.tools.spark.source.broker import Broker, BrokerUnavailableError, close_connections
from triolog.tools.spark.source.options import ReadOptions
from triolog.tools.spark.source.reader import BatchReader, DataLossError, OffsetRange, plan_ranges

from tests.support.native_server import NativeServer
from tests.support.native_server_thread import ServerThread, serving

COUNT = 40


@pytest.fixture
def server() -> Iterator[ServerThread]:
    """Two partitions of 20 batches with two records each."""
    with serving(events=2) as handle:
        handle.run(_fill)
        yield handle
        close_connections()


def _fill(server: NativeServer) -> None:
    for log in server.logs["events"]:
        for number in range(COUNT // 2):
            log.append(build_batch([(number, b"k", b"x" * 400, ())] * 2))


def _reader(handle: ServerThread, **options: Any) -> BatchReader:
    given = {"triolog.servers": f"127.0.0.1:{handle.port}", "subscribe": "events", "fetchMaxBytes": "2048"}
    given |= {name.replace("__", "."): str(value) for name, value in options.items()}
    read = ReadOptions.from_options(given, streaming=False)
    return BatchReader(read, ("partition", "offset"))


def _offsets(reader: BatchReader) -> list[tuple[int, int]]:
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return [(row["partition"], row["offset"]) for batch in batches for row in batch.to_pylist()]


ALL = [(partition, offset) for partition in range(2) for offset in range(COUNT)]


def _fails(handle: ServerThread, kind: type, fault: Callable[[], Any], times: int) -> None:
    """The third to last requests of a kind fail, `times` of them."""
    seen = 0

    def answer(request: m.RequestMessage) -> Any:
        nonlocal seen
        seen += isinstance(request, kind)
        return fault() if isinstance(request, kind) and 2 < seen <= 2 + times else None

    handle.run(lambda server: server.faults.append(answer))


@pytest.mark.parametrize("fault", ["drop", "drop after"])
def test_a_connection_that_breaks_loses_and_doubles_nothing(server: ServerThread, fault: str) -> None:
    _fails(server, m.FetchRequest, lambda: fault, times=3)
    assert _offsets(_reader(server)) == ALL
    assert server.run(lambda found: found.connections) > 1


def test_errors_that_pass_are_waited_for(server: ServerThread) -> None:
    _fails(server, m.FetchRequest, lambda: RequestError("moving house", ErrorCode.NOT_LEADER_OR_FOLLOWER), times=3)
    assert _offsets(_reader(server)) == ALL


def test_errors_that_stay_are_raised_at_once(server: ServerThread) -> None:
    _fails(server, m.FetchRequest, lambda: RequestError("no", ErrorCode.POLICY_VIOLATION), times=1)
    with pytest.raises(RequestError, match="POLICY_VIOLATION: no"):
        _offsets(_reader(server))


def test_a_server_that_stops_answering_is_named_and_costs_the_time_of_the_options_and_no_more(server: ServerThread) -> None:
    server.run(
        lambda found: found.faults.append(lambda request: trio.Event() if isinstance(request, m.MetadataRequest) else None)
    )
    began = time.monotonic()
    with pytest.raises(BrokerUnavailableError, match=rf":{server.port} did not answer within 2000 ms.*is this its address"):
        _reader(server, kafkaConsumer__pollTimeoutMs=2000, kafka__request__timeout__ms=1900).partitions()
    assert time.monotonic() - began < 3.7  # two requests of 1900 ms are more


def test_an_error_that_does_not_pass_in_time_is_not_called_a_server_that_is_gone(server: ServerThread) -> None:
    offline = RequestError("the log directory has failed", ErrorCode.KAFKA_STORAGE_ERROR)
    _fails(server, m.FetchRequest, lambda: offline, times=1000)
    with pytest.raises(BrokerUnavailableError, match=r"no other answer within 150 ms .* the log directory has failed$"):
        _offsets(_reader(server, kafkaConsumer__pollTimeoutMs=150))


def test_both_bounds_of_all_partitions_are_asked_for_in_one_request(server: ServerThread) -> None:
    assert _offsets(_reader(server, startingTimestamp=5, endingTimestamp=6)) == [(0, 10), (0, 11), (1, 10), (1, 11)]
    asked = server.run(
        lambda found: [len(each.partitions) for each in found.requests if isinstance(each, m.OffsetsForTimesRequest)]
    )
    assert asked == [4]


def test_without_the_call_for_split_points_partitions_are_cut_at_even_offsets(server: ServerThread) -> None:
    options = ReadOptions.from_options(
        {"triolog.servers": f"127.0.0.1:{server.port}", "subscribe": "events", "splitBytes": "1m"}
    )
    name = TopicPartition("events", 0)
    known = {name: PartitionRange(0, COUNT, 4 << 20)}
    planned = plan_ranges(Broker(options), options, [OffsetRange(*name, 10, COUNT)], known)
    assert [(range_.low, range_.high) for range_ in planned] == [(10, 20), (20, 30), (30, 40)]


def test_damaged_records_are_an_error_or_reported_and_skipped(server: ServerThread, caplog: pytest.LogCaptureFixture) -> None:
    def damage(request: m.RequestMessage) -> Any:
        is_refused = (
            isinstance(request, m.FetchRequest) and request.gaps is m.Gaps.REFUSE and request.partitions[0].offset >= 10
        )
        return RequestError("offsets 10 to 12 are damaged", ErrorCode.CORRUPT_MESSAGE) if is_refused else None

    server.run(lambda found: found.faults.append(damage))
    with pytest.raises(DataLossError, match=r"events-0: offset 1\d cannot be read: offsets 10 to 12 are damaged"):
        _offsets(_reader(server))
    assert _offsets(_reader(server, failOnDataLoss="false")) == ALL
    assert "offsets 10 to 12 are damaged" in caplog.text


def test_damage_that_the_server_cannot_pass_over_ends_the_read_whatever_failondataloss_says(server: ServerThread) -> None:
    def damage(request: m.RequestMessage) -> Any:
        is_there = isinstance(request, m.FetchRequest) and request.partitions[0].offset >= 10
        return RequestError("the batch at position 812 has another CRC", ErrorCode.CORRUPT_MESSAGE) if is_there else None

    server.run(lambda found: found.faults.append(damage))
    with pytest.raises(CorruptRecordError, match=r"events-0: offset 1\d is damaged .* position 812 .* `triolog repair`"):
        _offsets(_reader(server, failOnDataLoss="false"))


def test_a_log_that_has_shrunk_since_it_was_planned_is_data_loss(server: ServerThread) -> None:
    reader = _reader(server)
    planned = reader.partitions()
    server.run(lambda found: found.log("events", 1).cut(30))
    with pytest.raises(DataLossError, match="events-1: offsets up to 40 are to be read and the log ends at offset 30"):
        [list(reader.read(partition)) for partition in planned]


def test_aborted_records_come_to_uncommitted_reads_only(server: ServerThread) -> None:
    def transact(found: NativeServer) -> None:
        log = found.log("events", 1)
        for producer_id, commit in ((7, False), (8, True)):
            log.append(
                build_batch(
                    [(50, None, b"t", ())], producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
                )
            )
            log.end_transaction(producer_id, 0, commit=commit)
        log.append(build_batch([(50, None, b"t", ())], producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True))

    server.run(transact)
    assert _offsets(_reader(server)) == [*ALL, (1, 40), (1, 42), (1, 44)]
    for option in ("isolationLevel", "kafka__isolation__level"):
        assert _offsets(_reader(server, **{option: "read_committed"})) == [*ALL, (1, 42)]


def test_a_reader_that_is_given_up_leaves_the_connection_usable(server: ServerThread) -> None:
    reader = _reader(server)
    rows = reader.read(reader.partitions()[0])
    next(rows)
    rows.close()
    assert _offsets(reader) == ALL
    assert server.run(lambda found: found.connections) == 1
