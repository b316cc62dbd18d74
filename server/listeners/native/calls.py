"""The native protocol on one address: its sessions, and who does each call."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from importlib import metadata
from typing import Final

import attrs
import trio

from ....protocol.errors import RequestError
from ....protocol.native import messages, wide
from ....protocol.native.connection import NativeConnection, NativeRequest
from ....protocol.native.state import Role, State
from ....protocol.records.compression import load_codecs
from ...broker import LOOKUPS_PER_TURN, Broker
from ...settings.broker_config import Address
from ..connections.counters import ProtocolCounters
from ..connections.idle import IDLE_TIMEOUT_S, end_when_idle
from ..connections.sockets import Admission, Listener, Served
from ..connections.transport import Transport
from . import file_calls, group_calls, group_descriptions, lookup_calls, stage_calls, topic_calls
from .fetches import Fetches
from .produce import Produces
from .session import HELLO_TIMEOUT_S, Session
from .statistics import statistics

Answering = Callable[[], Awaitable[messages.ResponseMessage]]
"""What is done for a request; raises RequestError."""

LOGGER: Final = logging.getLogger(__name__)

REQUESTS_PER_TURN: Final = 4
"""Requests of one connection that are served before others have their turn: with lookups about 0.3 ms. A peer that sends
64 at once would otherwise hold everything up for as long as all of them take."""


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
                    session.departed = calls.fetches.end_long_polls
                    nursery.start_soon(end_when_idle, session, idle_timeout_s)
                    with session.reading:
                        if await _said_hello(session, calls):
                            session.transport.known()
                            await _serve_requests(session, calls)
                    session.drop_unread()
                    calls.fetches.end_long_polls()
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
    produces: Produces = attrs.field(init=False)
    fetches: Fetches = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.produces = Produces(self.session, self.broker, self.nursery)
        self.fetches = Fetches(self.session, self.broker, self.nursery)

    async def serve(self, request: NativeRequest) -> None:
        """Answer a request now, or see to it that it is answered later. Waits only for room in a mailbox."""
        try:
            if request.is_wide:
                message = await self.broker.in_steps(wide.decode_steps(request.api, request.version, request.body))
            else:
                message = messages.decode_request(request.api, request.version, request.body)
            match message:
                case messages.ProduceRequest():
                    await self.produces.produce(request.correlation_id, message)
                case messages.FetchRequest():
                    await self.fetches.fetch(request.correlation_id, message)
                case messages.OffsetsForTimesRequest() if len(message.partitions) <= LOOKUPS_PER_TURN:
                    await self._answer(request.correlation_id, partial(lookup_calls.offsets_for_times, self.broker, message))
                case messages.HelloRequest():
                    self._respond(request.correlation_id, self._hello(message))
                case messages.MetadataRequest():
                    self._respond(request.correlation_id, await topic_calls.metadata(self.broker, message))
                case messages.DescribeConfigsRequest():
                    self._respond(request.correlation_id, await topic_calls.describe_configs(self.broker, message))
                case messages.StageRequest():
                    later: Answering = await stage_calls.stage(self.broker, message)
                    self.nursery.start_soon(self._answer, request.correlation_id, later)
                case messages.StatisticsRequest():
                    later = partial(statistics, self.broker, self.protocols.values())
                    self.nursery.start_soon(self._answer, request.correlation_id, later)
                case _:
                    later = partial(_CALLS[type(message)], self.broker, message)
                    self.nursery.start_soon(self._answer, request.correlation_id, later)
        except RequestError as exc:
            self.session.respond(request.correlation_id, exc.as_answer(), None)
        except Exception as exc:
            self.session.met_bug(exc)

    async def _answer(self, correlation_id: int, call: Answering) -> None:
        try:
            body = (await call()).to_body()
        except RequestError as exc:
            self.session.respond(correlation_id, exc.as_answer(), None)
        except Exception as exc:
            self.session.met_bug(exc)
        else:
            self.session.respond(correlation_id, None, body)

    def _respond(self, correlation_id: int, answer: messages.ResponseMessage) -> None:
        self.session.respond(correlation_id, None, answer.to_body())

    def _hello(self, message: messages.HelloRequest) -> messages.HelloResponse:
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
        )


_CALLS: Final[dict[type, Callable[..., Awaitable[messages.ResponseMessage]]]] = {
    messages.OffsetsForTimesRequest: lookup_calls.offsets_for_times,
    messages.ExplainRequest: lookup_calls.explain,
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
