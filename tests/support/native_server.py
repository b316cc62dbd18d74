"""A small log server that speaks the native protocol over any trio stream, with faults a test can ask for.

Keeps stamped batches in memory, answers lookups by scanning, knows producers' last five batches, transactions and groups.
Requests are applied in the order received and answered each in a task of its own, so that answers may overtake each other.
No files, no limits, one node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import trio
import trio.testing
from triolog.protocol import errors, limits, types
from triolog.protocol.native import messages as m
from triolog.protocol.native.connection import Idle, NativeConnection, NativeRequest
from triolog.protocol.native.state import Role
from triolog.protocol.records.batch import BatchHeader, end_txn_marker, increment_sequence, iter_batches, parse_header, stamp
from triolog.protocol.records.builder import build_batch
from triolog.protocol.records.record import iter_records

APIS: Final = {
    api: versions
    for api, versions in m.API_VERSIONS.items()
    if api not in ("split_points", "lease_segments", "stage", "commit_stage", "abort_stage", "last_commit")
}
"""What it answers: a server that is older than the calls of Spark's sources and sink."""


class FakeProducer:
    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.last_sequence = types.NO_SEQUENCE
        self.batches: list[tuple[int, int, int]] = []  # base sequence, last sequence, base offset; the last five


class FakeLog:
    def __init__(self) -> None:
        self.batches: list[tuple[int, int, bytes]] = []  # base offset, next offset, bytes
        self.log_start_offset = 0
        self.high_watermark = 0
        self.producers: dict[int, FakeProducer] = {}
        self.open_transactions: dict[int, int] = {}  # first offset by producer id
        self.aborted: list[tuple[int, int, int]] = []  # producer id, first offset, offset of the marker

    @property
    def last_stable_offset(self) -> int:
        return min(self.open_transactions.values(), default=self.high_watermark)

    def append(self, records: bytes | tuple[m.PlainRecord, ...], expected_offset: int | None = None) -> int:
        if isinstance(records, tuple):
            records = build_batch([(r.timestamp or 0, r.key, r.value, r.headers) for r in records])
        headers = [header for header, _ in iter_batches(records)]
        if headers[0].has_producer_id:
            known = self.producers.setdefault(headers[0].producer_id, FakeProducer(headers[0].producer_epoch))
            duplicate = self._check(known, headers)
            if duplicate is not None:
                return duplicate
        base_offset = self.high_watermark
        if expected_offset not in (None, base_offset):
            raise errors.ExpectedOffsetError(f"the log ends at {base_offset}", base_offset)
        for header, batch in iter_batches(records):
            if header.has_producer_id:
                known.last_sequence = header.last_sequence
                known.batches = [*known.batches, (header.base_sequence, header.last_sequence, self.high_watermark)][-5:]
            if header.is_transactional:
                self.open_transactions.setdefault(header.producer_id, self.high_watermark)
            self._store(header, batch)
        return base_offset

    def end_transaction(self, producer_id: int, epoch: int, *, commit: bool) -> None:
        first_offset = self.open_transactions.pop(producer_id, None)
        if first_offset is None:
            return
        marker = end_txn_marker(producer_id=producer_id, producer_epoch=epoch, commit=commit, timestamp=0, coordinator_epoch=0)
        if not commit:
            self.aborted.append((producer_id, first_offset, self.high_watermark))
        self._store(parse_header(marker), memoryview(marker))

    def cut(self, offset: int) -> None:
        """What a power cut takes: the end of the log. Producers are known from what is left."""
        self.batches = [batch for batch in self.batches if batch[0] < offset]
        self.high_watermark = offset
        for known in self.producers.values():
            known.batches = [batch for batch in known.batches if batch[2] < offset]
            known.last_sequence = known.batches[-1][1] if known.batches else types.NO_SEQUENCE

    def _check(self, known: FakeProducer, headers: list[BatchHeader]) -> int | None:
        """The offset of a duplicate, None for what may be written."""
        first, last = headers[0], headers[-1]
        if first.producer_epoch < known.epoch:
            raise errors.InvalidProducerEpochError(f"epoch {first.producer_epoch}, the log has {known.epoch}")
        if first.producer_epoch > known.epoch:
            known.epoch, known.last_sequence, known.batches = first.producer_epoch, types.NO_SEQUENCE, []
        stored = {(base, end): offset for base, end, offset in known.batches}
        if (last.base_sequence, last.last_sequence) in stored and (first.base_sequence, first.last_sequence) in stored:
            return stored[first.base_sequence, first.last_sequence]
        expected = 0 if known.last_sequence == types.NO_SEQUENCE else increment_sequence(known.last_sequence, 1)
        for header in headers:
            if header.base_sequence != expected:
                raise errors.OutOfOrderSequenceError(f"sequence {header.base_sequence}, expected {expected}")
            expected = increment_sequence(header.last_sequence, 1)
        return None

    def _store(self, header: BatchHeader, batch: memoryview) -> None:
        next_offset = self.high_watermark + header.last_offset_delta + 1
        stamped = stamp(self.high_watermark, header, 0) + batch[16:]
        self.batches.append((self.high_watermark, next_offset, stamped))
        self.high_watermark = next_offset

    def read(self, offset: int, max_bytes: int, end: int | None = None) -> bytes:
        end = self.high_watermark if end is None else end
        if not self.log_start_offset <= offset <= self.high_watermark:
            raise errors.OffsetOutOfRangeError(f"offset {offset}, log has {self.log_start_offset} to {self.high_watermark}")
        found = [batch for base_offset, next_offset, batch in self.batches if next_offset > offset and base_offset < end]
        whole = b"".join(found)
        return whole[: max(max_bytes, len(found[0]))] if found else b""

    def aborted_from(self, offset: int) -> tuple[tuple[int, int], ...]:
        return tuple((producer_id, first) for producer_id, first, last in self.aborted if last >= offset)

    def records(self) -> list[types.Record]:
        records = [
            record for _, _, batch in self.batches if not parse_header(batch).is_control for record in iter_records(batch)
        ]
        return [record for record in records if record.offset >= self.log_start_offset]

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records()]

    def lookup(self, timestamp: int, isolation: types.Isolation) -> tuple[int, int]:
        if timestamp == types.LATEST_TIMESTAMP:
            committed = isolation is types.Isolation.READ_COMMITTED
            return self.last_stable_offset if committed else self.high_watermark, -1
        if timestamp == types.EARLIEST_TIMESTAMP:
            return self.log_start_offset, -1
        if timestamp == types.MAX_TIMESTAMP:
            timestamp = max((record.timestamp for record in self.records()), default=-1)
        for record in self.records():
            if record.timestamp >= timestamp:
                return record.offset, record.timestamp
        return -1, -1


Fault = Callable[[m.RequestMessage], Any]
"""Asked for each request, and for each partition of a produce; returns None for no fault, a RequestError to answer with,
"drop" (the connection, before the request is applied), "drop after", or an Event to wait for before answering."""


class NativeServer:
    """Topics, and the streams to them. Owner: the test's nursery."""

    def __init__(self, nursery: trio.Nursery, **topics: int) -> None:
        self.nursery = nursery
        self.logs: dict[str, list[FakeLog]] = {
            topic: [FakeLog() for _ in range(partitions)] for topic, partitions in topics.items()
        }
        self.requests: list[m.RequestMessage] = []
        self.faults: list[Fault] = []
        self.connections = 0
        self.is_down = False
        self.max_in_flight = 64
        self.max_frame_bytes = limits.MAX_FRAME_BYTES
        self.login_lifetime_ms = 0  # with one, clients have to log in, and any token will do
        self.next_producer_id = 1000
        self.transactional: dict[str, tuple[int, int]] = {}  # producer id and epoch by transactional id
        self.groups: dict[str, dict[types.TopicPartition, tuple[int, str | None]]] = {}
        self.pending_offsets: dict[str, list[tuple[str, types.TopicPartition, int, str | None]]] = {}
        self._scopes: list[trio.CancelScope] = []
        self._appended = trio.Event()

    async def open_stream(self) -> trio.abc.Stream:
        """What a client calls to connect."""
        await trio.lowlevel.checkpoint()
        if self.is_down:
            raise ConnectionRefusedError("the test's server is down")
        client_end, server_end = trio.testing.memory_stream_pair()
        self.nursery.start_soon(self.serve, server_end)
        return client_end

    def kill(self) -> None:
        """Every connection breaks; what was appended stays."""
        for scope in self._scopes:
            scope.cancel()
        self._scopes.clear()

    async def serve(self, stream: trio.abc.Stream) -> None:
        """One connection, until either side ends it."""
        self.connections += 1
        protocol = NativeConnection(Role.SERVER, max_in_flight=self.max_in_flight, max_frame_bytes=self.max_frame_bytes)
        session = _Session(self, stream, protocol)
        with trio.CancelScope() as scope:
            self._scopes.append(scope)
            try:
                await session.run()
            except* (trio.BrokenResourceError, trio.ClosedResourceError):
                pass  # the client has gone
        await trio.aclose_forcefully(stream)

    def fault_for(self, request: m.RequestMessage) -> Any:
        for fault in self.faults:
            found = fault(request)
            if found is not None:
                return found
        return None

    def log(self, topic: str, partition: int) -> FakeLog:
        logs = self.logs.get(topic)
        if logs is None or partition >= len(logs):
            raise errors.UnknownTopicOrPartitionError(f"no partition {topic}-{partition}")
        return logs[partition]

    def appended(self) -> None:
        self._appended.set()
        self._appended = trio.Event()

    async def wait_appended(self, timeout_s: float) -> None:
        with trio.move_on_after(timeout_s):
            await self._appended.wait()


class _Session:
    def __init__(self, server: NativeServer, stream: trio.abc.Stream, protocol: NativeConnection) -> None:
        self.server = server
        self.stream = stream
        self.protocol = protocol
        self.sending = trio.Lock()
        self.answered = trio.Event()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            try:
                while (event := self.protocol.next_event()) is not Idle.CONNECTION_CLOSED:
                    if isinstance(event, NativeRequest):
                        self.accept(event, nursery)
                    elif event is Idle.PAUSED:
                        self.answered = trio.Event()
                        await self.answered.wait()
                    else:
                        self.protocol.receive_data(await self.stream.receive_some(65536))
            except errors.RemoteProtocolError as exc:
                await self.send(self.protocol.send_fatal_error(exc))
            nursery.cancel_scope.cancel()

    def accept(self, event: NativeRequest, nursery: trio.Nursery) -> None:
        try:
            request = m.decode_request(event.api, event.version, event.body)
        except errors.RequestError as exc:
            nursery.start_soon(self.send, self.protocol.send_response(event.correlation_id, exc))
            return
        self.server.requests.append(request)
        fault = self.server.fault_for(request)
        if fault == "drop":
            nursery.cancel_scope.cancel()
            return
        if isinstance(fault, errors.RequestError):
            nursery.start_soon(self.send, self.protocol.send_response(event.correlation_id, fault))
            return
        produced = self.produce(request) if isinstance(request, m.ProduceRequest) else None
        if fault == "drop after":
            nursery.cancel_scope.cancel()
            return
        nursery.start_soon(self.answer, event, request, produced, fault)

    async def answer(
        self, event: NativeRequest, request: m.RequestMessage, response: m.ResponseMessage | None, fault: Any
    ) -> None:
        if isinstance(fault, trio.Event):
            await fault.wait()
        if isinstance(request, m.FetchRequest):
            response = await self.fetch(request)
        elif response is None:
            try:
                response = self.respond(request)
            except errors.RequestError as exc:
                await self.send(self.protocol.send_response(event.correlation_id, exc))
                self.answered.set()
                return
        if isinstance(request, m.ProduceRequest) and request.acks == m.ACKS_NONE:
            self.protocol.discard(event.correlation_id)
        else:
            await self.send(self.protocol.send_response(event.correlation_id, None, response.to_body()))
        self.answered.set()

    async def send(self, pieces: list[Any]) -> None:
        async with self.sending:
            for piece in pieces:
                await self.stream.send_all(piece)

    def produce(self, request: m.ProduceRequest) -> m.ProduceResponse:
        entries = []
        for part in request.partitions:
            fault = self.server.fault_for(part)  # type: ignore[arg-type]
            try:
                if isinstance(fault, errors.RequestError):
                    raise fault
                if request.transactional_id is not None:
                    self.check_producer(request.transactional_id, part.records)
                log = self.server.log(part.topic, part.partition)
                base_offset = log.append(part.records, part.expected_offset)  # type: ignore[arg-type]
                entries.append(m.ProducePartitionResponse(part.topic, part.partition, None, base_offset, -1, 0))
            except errors.RequestError as exc:
                end = exc.log_end_offset if isinstance(exc, errors.ExpectedOffsetError) else None
                entries.append(m.ProducePartitionResponse(part.topic, part.partition, exc, log_end_offset=end))
        self.server.appended()
        return m.ProduceResponse(tuple(entries))

    def check_producer(self, transactional_id: str, records: Any) -> None:
        header = parse_header(records)
        if self.server.transactional.get(transactional_id) != (header.producer_id, header.producer_epoch):
            raise errors.InvalidProducerEpochError(f"producer {header.producer_id} epoch {header.producer_epoch} was fenced")

    async def fetch(self, request: m.FetchRequest) -> m.FetchResponse:
        deadline = trio.current_time() + request.max_wait_ms / 1000
        while True:
            entries = tuple(self.fetch_partition(part, request.isolation) for part in request.partitions)
            size = sum(len(entry.records) for entry in entries)
            left = deadline - trio.current_time()
            if size >= request.min_bytes or any(entry.error for entry in entries) or left <= 0:
                return m.FetchResponse(entries)
            await self.server.wait_appended(left)

    def fetch_partition(self, part: m.FetchPartition, isolation: types.Isolation) -> m.FetchPartitionResponse:
        committed = isolation is types.Isolation.READ_COMMITTED
        try:
            log = self.server.log(part.topic, part.partition)
            records = log.read(part.offset, part.max_bytes, log.last_stable_offset if committed else None)
        except errors.RequestError as exc:
            return m.FetchPartitionResponse(part.topic, part.partition, exc)
        aborted = log.aborted_from(part.offset) if committed else ()
        return m.FetchPartitionResponse(
            part.topic, part.partition, None, log.high_watermark, log.last_stable_offset, log.log_start_offset, aborted, records
        )

    def respond(self, request: m.RequestMessage) -> m.ResponseMessage:
        match request:
            case m.HelloRequest():
                limit, count = self.server.max_frame_bytes, self.server.max_in_flight
                mechanisms = ("OAUTHBEARER",) if self.server.login_lifetime_ms else ()
                return m.HelloResponse(
                    "fake", "0", 1, "c", APIS, sasl_mechanisms=mechanisms, max_frame_bytes=limit, max_in_flight=count
                )
            case m.AuthenticateRequest():
                return m.AuthenticateResponse(b"", True, self.server.login_lifetime_ms)
            case m.OffsetsForTimesRequest():
                return m.OffsetsForTimesResponse(tuple(self.lookup(part, request.isolation) for part in request.partitions))
            case m.ExplainRequest():
                return m.ExplainResponse(
                    tuple(
                        m.ExplainPartitionResponse(part.topic, part.partition, None, {"asked": part.to_body()})
                        for part in request.partitions
                    )
                )
            case m.MetadataRequest():
                names = sorted(self.server.logs) if request.topics is None else request.topics
                return m.MetadataResponse(tuple(map(self.describe, names)))
            case m.CreateTopicsRequest():
                return m.CreateTopicsResponse(tuple(map(self.create, request.topics)))
            case m.DeleteTopicsRequest():
                return m.DeleteTopicsResponse(tuple(map(self.delete, request.topics)))
            case m.DescribeConfigsRequest():
                config = {"retention.ms": m.ConfigEntry("-1", "default")}
                return m.DescribeConfigsResponse(tuple(m.TopicConfig(name, None, config) for name in request.topics))
            case m.CreatePartitionsRequest():
                return m.CreatePartitionsResponse(tuple(map(self.grow, request.topics)))
            case m.AlterConfigsRequest():
                return m.AlterConfigsResponse(tuple(m.TopicAnswer(change.name) for change in request.topics))
            case m.DeleteRecordsRequest():
                return m.DeleteRecordsResponse(tuple(map(self.trim, request.partitions)))
            case _:
                return self.respond_to_group(request)

    def respond_to_group(self, request: m.RequestMessage) -> m.ResponseMessage:
        server = self.server
        match request:
            case m.InitProducerRequest(transactional_id):
                return self.init_producer(transactional_id)
            case m.EndTransactionRequest(producer, commit):
                self.end_transaction(producer, commit=commit)
                return m.EndTransactionResponse()
            case m.CommitOffsetsRequest(group, partitions, transaction):
                kept = [(group, types.TopicPartition(p.topic, p.partition), p.offset, p.metadata) for p in partitions]
                if transaction is None:
                    self.keep(kept)
                else:
                    server.pending_offsets.setdefault(transaction.transactional_id, []).extend(kept)
                return m.CommitOffsetsResponse(tuple(m.PartitionAnswer(p.topic, p.partition) for p in partitions))
            case m.FetchOffsetsRequest(group, partitions):
                offsets = server.groups.get(group, {})
                wanted = offsets if partitions is None else [types.TopicPartition(p.topic, p.partition) for p in partitions]
                return m.FetchOffsetsResponse(
                    tuple(m.FetchOffsetsPartitionResponse(*name, None, *offsets.get(name, (-1, None))) for name in wanted)
                )
            case m.ListGroupsRequest():
                return m.ListGroupsResponse(tuple(sorted(server.groups)))
            case m.DescribeGroupsRequest(groups):
                return m.DescribeGroupsResponse(tuple(map(self.describe_group, groups)))
            case m.DeleteGroupsRequest(groups):
                return m.DeleteGroupsResponse(tuple(map(self.delete_group, groups)))
            case _:
                raise AssertionError(f"no answer to {request}")

    def init_producer(self, transactional_id: str | None) -> m.InitProducerResponse:
        server = self.server
        if transactional_id is None:
            server.next_producer_id += 1
            return m.InitProducerResponse(server.next_producer_id, 0)
        if transactional_id in server.transactional:
            producer_id, epoch = server.transactional[transactional_id]
            self.end_transaction(m.TransactionProducer(transactional_id, producer_id, epoch), commit=False)
            server.transactional[transactional_id] = producer_id, epoch + 1
        else:
            server.next_producer_id += 1
            server.transactional[transactional_id] = server.next_producer_id, 0
        return m.InitProducerResponse(*server.transactional[transactional_id])

    def end_transaction(self, producer: m.TransactionProducer, *, commit: bool) -> None:
        server = self.server
        if server.transactional.get(producer.transactional_id) != (producer.producer_id, producer.producer_epoch):
            raise errors.RequestError(f"{producer} was fenced", errors.ErrorCode.PRODUCER_FENCED)
        for logs in server.logs.values():
            for log in logs:
                log.end_transaction(producer.producer_id, producer.producer_epoch, commit=commit)
        pending = server.pending_offsets.pop(producer.transactional_id, [])
        if commit:
            self.keep(pending)
        server.appended()

    def keep(self, offsets: list[tuple[str, types.TopicPartition, int, str | None]]) -> None:
        for group, partition, offset, metadata in offsets:
            self.server.groups.setdefault(group, {})[partition] = (offset, metadata)

    def describe_group(self, group: str) -> m.DescribedGroup:
        if group not in self.server.groups:
            return m.DescribedGroup(group, errors.RequestError(f"no group {group}", errors.ErrorCode.GROUP_ID_NOT_FOUND))
        return m.DescribedGroup(group, None, "Empty", "classic")

    def delete_group(self, group: str) -> m.DeletedGroup:
        if self.server.groups.pop(group, None) is None:
            return m.DeletedGroup(group, errors.RequestError(f"no group {group}", errors.ErrorCode.GROUP_ID_NOT_FOUND))
        return m.DeletedGroup(group)

    def grow(self, topic: m.NewPartitions) -> m.TopicAnswer:
        logs = self.server.logs.get(topic.name)
        if logs is None:
            return m.TopicAnswer(topic.name, errors.UnknownTopicOrPartitionError(f"no topic {topic.name}"))
        if topic.total <= len(logs):
            return m.TopicAnswer(
                topic.name, errors.RequestError(f"{topic.name} has {len(logs)}", errors.ErrorCode.INVALID_PARTITIONS)
            )
        logs += [FakeLog() for _ in range(topic.total - len(logs))]
        return m.TopicAnswer(topic.name)

    def trim(self, part: m.DeleteRecordsPartition) -> m.DeleteRecordsPartitionResponse:
        log = self.server.log(part.topic, part.partition)
        before = log.high_watermark if part.before_offset == m.TO_HIGH_WATERMARK else part.before_offset
        log.log_start_offset = max(log.log_start_offset, before)
        return m.DeleteRecordsPartitionResponse(part.topic, part.partition, None, log.log_start_offset)

    def lookup(self, part: m.OffsetsForTimesPartition, isolation: types.Isolation) -> m.OffsetsForTimesPartitionResponse:
        try:
            offset, timestamp = self.server.log(part.topic, part.partition).lookup(part.timestamp, isolation)
        except errors.RequestError as exc:
            return m.OffsetsForTimesPartitionResponse(part.topic, part.partition, exc)
        return m.OffsetsForTimesPartitionResponse(part.topic, part.partition, None, offset, timestamp, 0)

    def describe(self, name: str) -> m.TopicMetadata:
        if name not in self.server.logs:
            return m.TopicMetadata(name, errors.UnknownTopicOrPartitionError(f"no topic {name}"))
        partitions = tuple(
            m.PartitionMetadata(number, None, log.log_start_offset, log.high_watermark, 0, 1)
            for number, log in enumerate(self.server.logs[name])
        )
        return m.TopicMetadata(name, None, "id", {}, partitions)

    def create(self, topic: m.NewTopic) -> m.CreatedTopic:
        if topic.name in self.server.logs:
            return m.CreatedTopic(topic.name, errors.TopicAlreadyExistsError(f"{topic.name} exists"))
        self.server.logs[topic.name] = [FakeLog() for _ in range(topic.partitions)]
        return m.CreatedTopic(topic.name, None, "id")

    def delete(self, name: str) -> m.TopicAnswer:
        if self.server.logs.pop(name, None) is None:
            return m.TopicAnswer(name, errors.UnknownTopicOrPartitionError(f"no topic {name}"))
        return m.TopicAnswer(name)
