"""The native protocol's calls on a broker: one function per call, values in, body out."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from importlib import metadata
from typing import Any, Final

import attrs
import trio

from ...protocol.errors import InvalidRequestError, RequestError
from ...protocol.limits import MIB
from ...protocol.native import messages, wide
from ...protocol.native.connection import NativeConnection, Request
from ...protocol.native.state import Role, State
from ...protocol.records.compression import load_codecs
from ...protocol.types import TopicPartition
from ..broker import LOOKUPS_PER_TURN, Append, Broker, FetchAnswer, FetchPartition, ReaderView
from ..broker_config import Address
from . import file_calls, group_calls, group_descriptions, stage_calls, topic_calls
from .counters import ProtocolCounters
from .fetched import fetch_body
from .idle import IDLE_TIMEOUT_S, end_when_idle
from .in_turns import in_turns
from .produce import PendingProduce, check_transaction
from .session import HELLO_TIMEOUT_S, Session
from .sockets import Admission, Listener, Served
from .statistics import statistics
from .transport import Transport

LOGGER: Final = logging.getLogger(__name__)

FRAME_RESERVE: Final = MIB
"""Room for the map around the records of a fetch answer."""
TIMEOUT_CHECK_S: Final = 1.0
EXPLAINED_PER_TURN: Final = 4
REQUESTS_PER_TURN: Final = 4
"""Requests of one connection that are served before others have their turn: with lookups about 0.3 ms. A peer that sends
64 at once would otherwise hold everything up for as long as all of them take."""
PARTITIONS_PER_TURN: Final = 128
"""Appends of a request that are enqueued before others have their turn."""


def server_version() -> str:
    try:
        return metadata.version("triolog")
    except metadata.PackageNotFoundError:
        return "unknown"


def native_listener(
    broker: Broker, address: Address, admission: Admission, *, idle_timeout_s: float = IDLE_TIMEOUT_S
) -> Listener:
    """The native protocol on one address. A connection without a request for `idle_timeout_s` is closed."""
    load_codecs()
    config, version = broker.config, server_version()

    def open_session(transport: Transport) -> Served:
        connection = NativeConnection(
            Role.SERVER,
            max_frame_bytes=config.max_frame_bytes,
            max_in_flight=config.max_in_flight,
            max_in_flight_bytes=config.max_in_flight_bytes,
            hands_out_wide_frames=True,
        )
        session = Session(transport, connection, admission.budget, broker.in_steps)
        serve = partial(
            serve_session, session, broker, version=version, protocols=admission.protocols, idle_timeout_s=idle_timeout_s
        )
        return Served(serve, session.stop_reading)

    return Listener(address, admission, open_session, "native")


async def serve_session(
    session: Session,
    broker: Broker,
    *,
    version: str,
    protocols: Mapping[str, ProtocolCounters],
    idle_timeout_s: float = IDLE_TIMEOUT_S,
) -> None:
    """Serve one connection to its end. Cancelled: requests that are enqueued still happen, their answers are lost."""
    try:
        async with session.transport.stream:
            async with trio.open_nursery() as writing:
                writing.start_soon(session.transport.write)
                async with trio.open_nursery() as nursery:
                    calls = NativeCalls(session, broker, nursery, version, protocols)
                    session.departed = calls.end_long_polls
                    nursery.start_soon(end_when_idle, session, idle_timeout_s)
                    with session.reading:
                        if await _said_hello(session, calls):
                            session.transport.known()
                            await _serve_requests(session, calls)
                    session.drop_unread()
                    calls.end_long_polls()
                    await session.all_answered()
                    nursery.cancel_scope.cancel()  # only a timer is left, or calls whose answers nobody gets
                session.transport.finish()
            if session.lingers:
                await session.transport.linger()
    finally:
        session.close()


async def _said_hello(session: Session, calls: NativeCalls) -> bool:
    with trio.move_on_after(HELLO_TIMEOUT_S):
        while session.connection.state is not State.READY:  # a refused hello may be said again
            if not await _serve_next(session, calls):
                return False
        return True
    LOGGER.debug("%s said no hello within %d s", session.peer, HELLO_TIMEOUT_S)
    return False


async def _serve_requests(session: Session, calls: NativeCalls) -> None:
    served = 0
    while await _serve_next(session, calls):
        served += 1
        if not served % REQUESTS_PER_TURN:
            await trio.lowlevel.checkpoint()


async def _serve_next(session: Session, calls: NativeCalls) -> bool:
    """Take one request and serve it. A frame of its own: an idle connection must not keep its last request in memory."""
    request = await session.next_request()
    if request is None:
        return False
    await calls.serve(request)
    return True


@attrs.define(eq=False)
class NativeCalls:
    """What the calls of one connection have in common. Owner: its session's tasks."""

    session: Session
    broker: Broker
    nursery: trio.Nursery
    version: str
    protocols: Mapping[str, ProtocolCounters]
    """What the connections of the broker's listeners have counted."""
    _produces: dict[int, PendingProduce] = attrs.field(factory=dict)
    _watching: bool = False
    _long_polls: set[trio.CancelScope] = attrs.field(factory=set)
    _late_answers: trio.Lock = attrs.field(factory=trio.Lock)
    _ends_long_polls: bool = False

    async def serve(self, request: Request) -> None:
        """Answer a request now, or see to it that it is answered later. Waits only for room in a mailbox."""
        try:
            if request.is_wide:
                message = await self.broker.in_steps(wide.decode_steps(request.api, request.version, request.body))
            else:
                message = messages.decode_request(request.api, request.version, request.body)
            match message:
                case messages.ProduceRequest():
                    await self._produce(request.correlation_id, message)
                case messages.FetchRequest():
                    await self._fetch(request.correlation_id, message)
                case messages.OffsetsForTimesRequest() if len(message.partitions) <= LOOKUPS_PER_TURN:
                    await self._answer(request.correlation_id, partial(self._offsets_for_times, message))
                case messages.HelloRequest():
                    self.session.respond(request.correlation_id, None, self._hello(message))
                case messages.MetadataRequest():
                    body = await topic_calls.metadata(self.broker, message)
                    self.session.respond(request.correlation_id, None, body)
                case messages.DescribeConfigsRequest():
                    body = await topic_calls.describe_configs(self.broker, message)
                    self.session.respond(request.correlation_id, None, body)
                case messages.StageRequest():
                    later = await stage_calls.stage(self.broker, message)
                    self.nursery.start_soon(self._answer, request.correlation_id, later)
                case messages.OffsetsForTimesRequest():
                    call = partial(self._offsets_for_times, message)
                    self.nursery.start_soon(self._answer, request.correlation_id, call)
                case messages.StatisticsRequest():
                    later = partial(statistics, self.broker, self.protocols.values())
                    self.nursery.start_soon(self._answer, request.correlation_id, later)
                case messages.ExplainRequest():
                    self.nursery.start_soon(self._answer, request.correlation_id, partial(self._explain, message))
                case _:
                    later = partial(_CALLS[type(message)], self.broker, message)
                    self.nursery.start_soon(self._answer, request.correlation_id, later)
        except RequestError as exc:
            self.session.respond(request.correlation_id, exc.as_answer(), None)
        except Exception as exc:
            self.session.met_bug(exc)

    async def _answer(self, correlation_id: int, call: Callable[[], Awaitable[Any]]) -> None:
        try:
            body = await call()
        except RequestError as exc:
            self.session.respond(correlation_id, exc.as_answer(), None)
        except Exception as exc:
            self.session.met_bug(exc)
        else:
            self.session.respond(correlation_id, None, body)

    # ---- hello ---------------------------------------------------------------------------------------------------------

    def _hello(self, message: messages.HelloRequest) -> Any:
        self.session.client_id = message.client_id
        config = self.broker.config
        return messages.HelloResponse(
            server="triolog",
            version=self.version,
            node_id=self.broker.node_id,
            cluster_id=self.broker.cluster_id,
            apis=messages.API_VERSIONS,
            max_frame_bytes=config.max_frame_bytes,
            max_in_flight=config.max_in_flight,
        ).to_body()

    # ---- produce -------------------------------------------------------------------------------------------------------

    async def _produce(self, correlation_id: int, message: messages.ProduceRequest) -> None:
        pending = PendingProduce(self.session, self._forget, correlation_id, message)
        if message.acks:
            self._produces[correlation_id] = pending
            self._watch_timeouts()
        appends = await self._prepare(message, pending)
        if message.transactional_id is not None:
            appends = await self._join_transaction(message.transactional_id, appends, pending)
        for slot, (actor, prepared) in appends.items():
            await self.broker.submit(actor, prepared, message.acks, partial(pending.put, slot))
            if not slot % PARTITIONS_PER_TURN and slot:
                await trio.lowlevel.checkpoint()
        if not message.acks:
            if not self.session.failed:
                self.session.discard(correlation_id)
        elif not message.partitions:
            pending.answer()

    async def _prepare(self, message: messages.ProduceRequest, pending: PendingProduce) -> dict[int, Append]:
        """What can be appended, by slot; the other partitions have their answers."""
        appends: dict[int, Append] = {}
        for slot, each in enumerate(message.partitions):
            try:
                topic_partition = TopicPartition(each.topic, each.partition)
                if isinstance(each.records, tuple):
                    append = await self.broker.prepare_records(topic_partition, each.records)
                else:
                    append = await self.broker.prepare(topic_partition, each.records)
                check_transaction(message.transactional_id, topic_partition, append[1].batches[0][0])
                appends[slot] = append
            except RequestError as exc:
                pending.put(slot, exc.as_answer())
            except ValueError as exc:
                pending.put(slot, InvalidRequestError(f"{each.topic}-{each.partition}: {exc}"))
        return appends

    async def _join_transaction(
        self, transactional_id: str, appends: dict[int, Append], pending: PendingProduce
    ) -> dict[int, Append]:
        """Let the partitions join their producer's transaction: all do, or the request is answered with why not."""
        partitions: dict[tuple[int, int], list[TopicPartition]] = {}
        for slot, (_, prepared) in appends.items():
            header = prepared.batches[0][0]
            each = pending.message.partitions[slot]
            producer = header.producer_id, header.producer_epoch
            partitions.setdefault(producer, []).append(TopicPartition(each.topic, each.partition))
        try:
            for producer, joining in partitions.items():
                await self.broker.add_partitions_to_transaction(transactional_id, *producer, joining)
        except RequestError as exc:
            for slot in appends:
                pending.put(slot, exc.as_answer())
            return {}
        return appends

    def _forget(self, correlation_id: int) -> None:
        self._produces.pop(correlation_id, None)

    def _watch_timeouts(self) -> None:
        if not self._watching:
            self._watching = True
            self.nursery.start_soon(self._expire_produces)

    async def _expire_produces(self) -> None:
        """Answer produces whose timeout is over, while there are any. A connection that is idle is not woken."""
        while self._produces:
            now = trio.current_time()
            for pending in [each for each in self._produces.values() if each.deadline <= now]:
                pending.expire()
            await trio.sleep(TIMEOUT_CHECK_S)
        self._watching = False

    # ---- fetch and lookups ---------------------------------------------------------------------------------------------

    async def _fetch(self, correlation_id: int, message: messages.FetchRequest) -> None:
        """Answer at once when enough is there; else wait in a task of its own, so that nothing behind it is held up."""
        max_bytes = min(message.max_bytes, self.broker.config.max_frame_bytes - FRAME_RESERVE)
        partitions = [
            FetchPartition(TopicPartition(each.topic, each.partition), each.offset, each.max_bytes)
            for each in message.partitions
        ]
        view = ReaderView(message.isolation, message.gaps is messages.Gaps.SKIP)
        if await self._answer_fetch(correlation_id, message, partitions, max_bytes, view, wants_more=message.max_wait_ms > 0):
            return
        self.nursery.start_soon(self._fetch_late, correlation_id, message, partitions, max_bytes, view)

    async def _fetch_late(
        self,
        correlation_id: int,
        message: messages.FetchRequest,
        partitions: list[FetchPartition],
        max_bytes: int,
        view: ReaderView,
    ) -> None:
        """Wait, then read and answer. One at a time and only while there is room: a peer that does not read its answers
        must not fill the memory with them."""
        with trio.move_on_after(message.max_wait_ms / 1000) as waiting:
            if self._ends_long_polls:
                waiting.cancel()
            self._long_polls.add(waiting)
            await self.broker.wait_for_bytes(partitions, max_bytes=max_bytes, min_bytes=message.min_bytes, view=view)
        self._long_polls.discard(waiting)
        async with self._late_answers:
            await self.session.room_to_answer()
            await self._answer_fetch(correlation_id, message, partitions, max_bytes, view, wants_more=False)

    async def _answer_fetch(
        self,
        correlation_id: int,
        message: messages.FetchRequest,
        partitions: list[FetchPartition],
        max_bytes: int,
        view: ReaderView,
        *,
        wants_more: bool,
    ) -> bool:
        """Answer with what is there, as far as there is memory for it. False, and no answer, when more is wanted."""
        wanted = min(max_bytes, sum(each.max_bytes for each in partitions))
        room = self.session.transport.reserve(wanted)
        if room < wanted:
            max_bytes = room
        try:
            answers, is_enough = await self.broker.fetch_now(
                partitions, max_bytes=max_bytes, min_bytes=min(message.min_bytes, max_bytes), view=view
            )
            if is_enough or not wants_more:
                self.session.respond(correlation_id, None, await self._fetch_body(answers, partitions, message, max_bytes))
                return True
            return False
        finally:
            self.session.transport.unreserve(room)

    async def _fetch_body(
        self,
        answers: Sequence[FetchAnswer],
        asked: Sequence[FetchPartition],
        message: messages.FetchRequest,
        max_bytes: int,
    ) -> Any:
        if message.format is messages.Format.BATCHES:
            return fetch_body(answers, asked, message)
        return fetch_body(answers, asked, message, await self.broker.unpack(answers, asked, max_bytes=max_bytes))

    def end_long_polls(self) -> None:
        """Answer fetches with what is there from now on: the peer has sent its last request, or the server stops."""
        self._ends_long_polls = True
        for waiting in self._long_polls:
            waiting.cancel()

    async def _offsets_for_times(self, message: messages.OffsetsForTimesRequest) -> Any:
        questions = [(TopicPartition(each.topic, each.partition), each.timestamp) for each in message.partitions]
        answers = await self.broker.offsets_for_times(questions, message.isolation)
        return messages.OffsetsForTimesResponse(
            tuple(
                messages.OffsetsForTimesPartitionResponse(topic, partition, answer)
                if isinstance(answer, RequestError)
                else messages.OffsetsForTimesPartitionResponse(
                    topic, partition, None, answer.offset, answer.timestamp, answer.leader_epoch
                )
                for ((topic, partition), _), answer in zip(questions, answers, strict=True)
            )
        ).to_body()

    async def _explain(self, message: messages.ExplainRequest) -> Any:
        explained = []
        async for each in in_turns(message.partitions, EXPLAINED_PER_TURN):
            topic_partition = TopicPartition(each.topic, each.partition)
            try:
                walk = await self.broker.explain(topic_partition, offset=each.offset, timestamp=each.timestamp)
            except RequestError as exc:
                explained.append(messages.ExplainPartitionResponse(each.topic, each.partition, exc.as_answer()))
            else:
                explained.append(messages.ExplainPartitionResponse(each.topic, each.partition, None, walk))
        return messages.ExplainResponse(tuple(explained)).to_body()


_CALLS: Final[dict[type, Callable[..., Awaitable[Any]]]] = {
    messages.CreateTopicsRequest: topic_calls.create_topics,
    messages.DeleteTopicsRequest: topic_calls.delete_topics,
    messages.CreatePartitionsRequest: topic_calls.create_partitions,
    messages.AlterConfigsRequest: topic_calls.alter_configs,
    messages.DeleteRecordsRequest: topic_calls.delete_records,
    messages.InitProducerRequest: group_calls.init_producer,
    messages.EndTransactionRequest: group_calls.end_transaction,
    messages.CommitOffsetsRequest: group_calls.commit_offsets,
    messages.FetchOffsetsRequest: group_calls.fetch_offsets,
    messages.ListGroupsRequest: group_calls.list_groups,
    messages.DescribeGroupsRequest: group_descriptions.describe_groups,
    messages.DeleteGroupsRequest: group_calls.delete_groups,
    messages.SplitPointsRequest: file_calls.split_points,
    messages.LeaseSegmentsRequest: file_calls.lease_segments,
    messages.CommitStageRequest: stage_calls.commit_stage,
    messages.AbortStageRequest: stage_calls.abort_stage,
    messages.LastCommitRequest: stage_calls.last_commit,
}
"""Calls that may take their time: each in a task of its own, so that nothing behind it is held up."""
