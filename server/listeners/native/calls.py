"""The native protocol on one address: its sessions, and who does each call.

The version of triolog, as the native protocol reports it. Reading it from the installed package instead takes 2 MiB.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Final

import attrs

from ....protocol.errors import AuthorizationError, ErrorCode, RequestError
from ....protocol.kafka.authorization import DENIED, ResourceType
from ....protocol.native import messages
from ....protocol.native.connection import NativeConnection, NativeRequest
from ....protocol.native.state import Role
from ....protocol.records.compression import load_codecs
from ...broker import LOOKUPS_PER_TURN, AuditLog, Broker, Security
from ...config.broker_config import Address
from ...config.version import VERSION
from ...loop.procedures import Procedure, perform
from ...loop.reactor import Work
from ..access.rules import Asker, note_change
from ..connections.session import IDLE_TIMEOUT_S
from ..connections.sockets import Admission, Listener, Served
from ..connections.transport import Transport
from . import described, group_calls, log_calls, security_calls
from .described import statistics
from .fetches import Fetches
from .guard import AUDITED, NATIVE, RULES, Judged, judge_steps, judged
from .login import NOBODY_LOGS_IN, NativeLogin, mechanisms_of
from .produce import take_produce
from .session import NativeSession, TakeUp, error_codes

Answering = Callable[[], Awaitable[messages.ResponseMessage | None]]
"""Serves a request; None: it has responded. Raises RequestError."""


def native_listener(
    broker: Broker, address: Address, admission: Admission, *, idle_timeout_s: float = IDLE_TIMEOUT_S
) -> Listener:
    """The native protocol on one address. A connection without a request for `idle_timeout_s` is closed."""
    load_codecs()
    config = broker.config

    mechanisms = mechanisms_of(broker)

    def open_calls(session: NativeSession) -> TakeUp:
        calls = NativeCalls(session, broker, VERSION, admission)
        if not mechanisms:
            return calls.take_up
        calls.login = NativeLogin.of(broker, session, calls.take_up)
        return calls.login.take_up

    def open_session(transport: Transport) -> Served:
        connection = NativeConnection(
            Role.SERVER,
            max_frame_bytes=config.max_frame_bytes,
            max_in_flight=config.max_in_flight,
            max_in_flight_bytes=config.max_in_flight_bytes,
            hands_out_wide_frames=True,
            awaits_login=bool(mechanisms),
        )
        session = NativeSession(
            transport=transport,
            connection=connection,
            budget=admission.budget,
            open_calls=open_calls,
            in_steps=broker.in_steps,
            quotas=broker.security.quotas,
            idle_timeout_s=idle_timeout_s,
        )
        return Served(session.serve, session.stop_reading, session)

    return Listener(address, admission, open_session, "native", gathering=broker.disk.gathering)


@attrs.define(eq=False, repr=False)
class NativeCalls(Asker):
    """The state that the calls of one connection share. Owner: its session."""

    session: NativeSession
    broker: Broker
    version: str
    admission: Admission
    """What the connections of the broker's listeners share, and have counted."""
    login: NativeLogin | None = None
    """None where nobody logs in."""
    guard: Security | None = None
    """Who knows what a principal may do; None: everybody may do everything."""
    fetches: Fetches = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        security = self.broker.security
        self.guard = None if security.authorizer is None else security
        self.fetches = Fetches(self.session, self.broker)
        self.session.departed = self.fetches.end_long_polls

    def take_up(self, request: NativeRequest) -> Work | None:
        """Answer a request now, see to it that it is answered later, or answer what is to be waited for before the next one is
        taken up."""
        if request.is_wide:
            return partial(self._read_and_serve, request)
        try:
            message = messages.decode_request(request.api, request.version, request.body)
            if self.guard is not None:
                return self._serve_judged(request.correlation_id, message, judged(self, message))
            return self._serve(request.correlation_id, message)
        except AuthorizationError as exc:
            self._refuse(request.correlation_id, message, exc.as_answer())
        except RequestError as exc:
            self.session.respond(request.correlation_id, exc.as_answer(), None)
        except Exception as exc:
            self.session.met_bug(exc)
        return None

    async def _read_and_serve(self, request: NativeRequest) -> None:
        try:
            message = await self.broker.in_steps(messages.decode_steps(request.api, request.version, request.body))
            if self.guard is None:
                work = self._serve(request.correlation_id, message)
            else:
                found = await self.broker.in_steps(judge_steps(self, message))
                work = self._serve_judged(request.correlation_id, message, found)
            if work is not None:
                await work()
        except AuthorizationError as exc:
            self._refuse(request.correlation_id, message, exc.as_answer())
        except RequestError as exc:
            self.session.respond(request.correlation_id, exc.as_answer(), None)
        except Exception as exc:
            self.session.met_bug(exc)

    def _serve_judged(self, correlation_id: int, asked: messages.RequestMessage, found: Judged) -> Work | None:
        """Serve what the client may have of a request."""
        if not found.changes_answer:
            return self._serve(correlation_id, asked)
        if found.refused and _is_unanswered(asked):
            error = AuthorizationError("the request writes to topics that the client may not write", DENIED[ResourceType.TOPIC])
            self.session.fail(error)
            return None
        self.session.amends[correlation_id] = partial(found.amend, self)
        if found.message is not None:
            return self._serve(correlation_id, found.message)
        self.session.respond(correlation_id, None, {found.key: []})
        return None

    def _refuse(self, correlation_id: int, message: messages.RequestMessage, error: AuthorizationError) -> None:
        """A request that is refused as a whole. One without an answer ends the connection, as its failure always does."""
        if _is_unanswered(message):
            self.session.fail(error)
        else:
            self.session.respond(correlation_id, error, None)

    def _serve(self, correlation_id: int, message: messages.RequestMessage) -> Work | None:
        match message:
            case messages.ProduceRequest():
                return self._in_turn(correlation_id, take_produce(self.session, self.broker, correlation_id, message))
            case messages.FetchRequest():
                return self._begin(correlation_id, self.fetches.fetch(correlation_id, message))
            case messages.StageRequest():
                self.session.pay()
                return self._in_turn(correlation_id, partial(self._stage, correlation_id, message))
            case messages.OffsetsForTimesRequest():
                is_small = len(message.partitions) <= LOOKUPS_PER_TURN
                return self._begin(correlation_id, log_calls.offsets_for_times(self.broker, message), beside=not is_small)
            case messages.HelloRequest():
                self._respond(correlation_id, self._hello(message))
                if self.login is None:
                    self.session.transport.known()
            case messages.AuthenticateRequest():
                if self.login is None:
                    raise RequestError(NOBODY_LOGS_IN, ErrorCode.ILLEGAL_SASL_STATE)
                return self._in_turn(correlation_id, partial(self.login.authenticate, correlation_id, message))
            case messages.MetadataRequest():
                return self._begin(correlation_id, log_calls.metadata(self.broker, message))
            case messages.DescribeConfigsRequest():
                return partial(self._answer, correlation_id, partial(log_calls.describe_configs, self.broker, message))
            case messages.ListTransactionsRequest():
                list_them = partial(described.list_transactions, self.broker, message, self._sees(message))
                self._answer_beside(correlation_id, list_them)
            case messages.ListConnectionsRequest():
                list_those = partial(described.list_connections, self.broker, self.admission, message)
                self._answer_beside(correlation_id, list_those)
            case messages.StatisticsRequest():
                self._answer_beside(correlation_id, partial(statistics, self.broker, self.admission.protocols.values()))
            case _:
                self.session.pay()
                call: Answering = partial(_CALLS[type(message)], self.broker, message)
                audit = self.broker.security.audit
                names = None if audit is None else AUDITED.get(type(message))
                if names is not None and not getattr(message, "validate_only", False):
                    call = partial(self._audited, audit, message, names, call)
                self._answer_beside(correlation_id, call)
        return None

    def _sees(self, message: messages.RequestMessage) -> Callable[[str], bool] | None:
        """Return the filter for the listed names that the client may see; None if it may see all."""
        sees = RULES[type(message)].sees
        return None if self.guard is None or sees is None else partial(sees, self)

    def _begin(
        self, correlation_id: int, procedure: Procedure[messages.ResponseMessage | None], *, beside: bool = False
    ) -> Work | None:
        """Begin a procedure, and respond with what it returns, if that is anything. What it waits for holds up the requests
        after it, unless it goes on `beside` them."""
        try:
            wait = procedure.send(None)
        except StopIteration as stop:
            if stop.value is not None:
                self._respond(correlation_id, stop.value)
            return None
        rest = partial(perform, procedure, wait)
        if not beside:
            return partial(self._answer, correlation_id, rest)
        self._answer_beside(correlation_id, rest)
        return None

    def _in_turn(self, correlation_id: int, work: Work | None) -> Work | None:
        """Work that holds up what comes behind it, with its errors answered."""

        async def done() -> None:
            assert work is not None
            try:
                await work()
            except RequestError as exc:
                self.session.respond(correlation_id, exc.as_answer(), None)
            except Exception as exc:
                self.session.met_bug(exc)

        return None if work is None else done

    def _answer_beside(self, correlation_id: int, call: Answering) -> None:
        """In a task of its own, so that nothing behind it is held up."""
        self.session.nursery.start_soon(self._answer, correlation_id, call)

    async def _audited(
        self, audit: AuditLog | None, message: messages.RequestMessage, names: Callable[[Any], Iterable[str]], call: Answering
    ) -> messages.ResponseMessage | None:
        """Have a change noted, with what became of it."""
        try:
            answer = await call()
        except RequestError as exc:
            note_change(audit, self, NATIVE, message.api, names(message), [exc.code])
            raise
        assert answer is not None
        note_change(audit, self, NATIVE, message.api, names(message), error_codes(answer.to_body()))
        return answer

    async def _stage(self, correlation_id: int, message: messages.StageRequest) -> None:
        self._answer_beside(correlation_id, await log_calls.stage(self.broker, message))

    async def _answer(self, correlation_id: int, call: Answering) -> None:
        try:
            answer = await call()
            body = None if answer is None else answer.to_body()
        except RequestError as exc:
            self.session.respond(correlation_id, exc.as_answer(), None)
        except Exception as exc:
            self.session.met_bug(exc)
        else:
            if body is not None:
                self.session.respond(correlation_id, None, body)

    def _respond(self, correlation_id: int, answer: messages.ResponseMessage) -> None:
        self.session.respond(correlation_id, None, answer.to_body())

    def _hello(self, message: messages.HelloRequest) -> messages.HelloResponse:
        self.session.client_id = message.client_id
        if message.software:
            self.session.software = message.software
        config = self.broker.config
        return messages.HelloResponse(
            server="triolog",
            version=self.version,
            node_id=self.broker.node_id,
            cluster_id=self.broker.cluster_id,
            apis=messages.API_VERSIONS,
            max_frame_bytes=config.max_frame_bytes,
            max_in_flight=config.max_in_flight,
            sasl_mechanisms=() if self.login is None else self.login.login.mechanisms,
        )


def _is_unanswered(message: messages.RequestMessage) -> bool:
    return isinstance(message, messages.ProduceRequest) and message.acks == messages.ACKS_NONE


_CALLS: Final[dict[type, Callable[..., Awaitable[messages.ResponseMessage]]]] = {
    messages.ExplainRequest: log_calls.explain,
    messages.CreateTopicsRequest: log_calls.create_topics,
    messages.DeleteTopicsRequest: log_calls.delete_topics,
    messages.CreatePartitionsRequest: log_calls.create_partitions,
    messages.AlterConfigsRequest: log_calls.alter_configs,
    messages.DeleteRecordsRequest: log_calls.delete_records,
    messages.InitProducerRequest: group_calls.init_producer,
    messages.EndTransactionRequest: group_calls.end_transaction,
    messages.DescribeTransactionsRequest: described.describe_transactions,
    messages.DescribeProducersRequest: described.describe_producers,
    messages.AbortTransactionRequest: group_calls.abort_transaction,
    messages.AbortHangingTransactionsRequest: group_calls.abort_hanging_transactions,
    messages.CommitOffsetsRequest: group_calls.commit_offsets,
    messages.FetchOffsetsRequest: group_calls.fetch_offsets,
    messages.ListGroupsRequest: group_calls.list_groups,
    messages.DescribeGroupsRequest: group_calls.describe_groups,
    messages.DeleteGroupsRequest: group_calls.delete_groups,
    messages.AlterShareGroupOffsetsRequest: group_calls.alter_share_group_offsets,
    messages.DescribeQuotasRequest: group_calls.describe_quotas,
    messages.AlterQuotasRequest: group_calls.alter_quotas,
    messages.DescribeUsersRequest: security_calls.describe_users,
    messages.AlterUsersRequest: security_calls.alter_users,
    messages.DescribeAclsRequest: security_calls.describe_acls,
    messages.CreateAclsRequest: security_calls.create_acls,
    messages.DeleteAclsRequest: security_calls.delete_acls,
    messages.ListGapsRequest: log_calls.list_gaps,
    messages.AcceptGapsRequest: log_calls.accept_gaps,
    messages.DescribeSegmentsRequest: described.describe_segments,
    messages.SplitPointsRequest: log_calls.split_points,
    messages.LeaseSegmentsRequest: log_calls.lease_segments,
    messages.CommitStageRequest: log_calls.commit_stage,
    messages.AbortStageRequest: log_calls.abort_stage,
    messages.LastCommitRequest: log_calls.last_commit,
}
"""Calls that may take their time: each in a task of its own, so that nothing behind it is held up."""
