"""The function that answers each API. They are loaded when there is a listener for them, all before it listens: a server that
has no descriptor left could not read them later."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from types import GeneratorType
from typing import Any, Final, Protocol

import attrs

from ....protocol.errors import ErrorCode, RequestError
from ....protocol.kafka.apis import APIS, ApiKey
from ....protocol.kafka.connection import FEW_ELEMENTS, KafkaConnection, Request, answer_steps
from ....protocol.patterns import load_patterns
from ....protocol.records.compression import load_codecs
from ....protocol.schema.fields import has_more_elements
from ...config.broker_config import Address
from ...loop.procedures import PAUSE, PENDING, Procedure, Reply, Wait, perform
from ...loop.reactor import Work
from ...system.client_memory import PAYER
from ..access.rules import note_change
from ..connections.sockets import Admission, Listener, Served
from ..connections.transport import Transport
from . import (
    cluster,
    configs,
    consumer_groups,
    fetch,
    groups,
    list_offsets,
    metadata,
    offsets,
    security,
    share_fetch,
    share_groups,
    streams_groups,
    telemetry,
    topics,
    transactions,
)
from .audited import AUDITED, KAFKA
from .door import Call, Given, KafkaDoor
from .error_answers import error_codes, error_codes_steps, error_response
from .guard import guarded, served
from .login import KafkaLogin
from .produce import take_produce
from .session import KafkaSession, TakeUp, Turn


class Watch(Protocol):
    """Notes the requests of a listener and carries out fault rules, in tests."""

    def take_up(self, door: KafkaDoor, turn: Turn, serve: TakeUp) -> Work | None:
        """Take up a request, which `serve` serves."""
        ...


IN_TURN: Final[dict[ApiKey, Callable[[Call, Any], Any]]] = {
    ApiKey.FETCH: fetch.fetch,
    ApiKey.LIST_OFFSETS: list_offsets.list_offsets,
    ApiKey.METADATA: metadata.metadata,
    ApiKey.API_VERSIONS: cluster.api_versions,
    ApiKey.FIND_COORDINATOR: cluster.find_coordinator,
    ApiKey.OFFSET_COMMIT: offsets.offset_commit,
    ApiKey.TXN_OFFSET_COMMIT: offsets.txn_offset_commit,
    ApiKey.OFFSET_FETCH: offsets.offset_fetch,
    ApiKey.HEARTBEAT: groups.heartbeat,
    ApiKey.DESCRIBE_CLUSTER: cluster.describe_cluster,
    ApiKey.SASL_HANDSHAKE: security.sasl_handshake,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: cluster.needs("group.version", consumer_groups.consumer_group_heartbeat),
    ApiKey.SHARE_GROUP_HEARTBEAT: cluster.needs("share.version", share_groups.share_group_heartbeat),
    ApiKey.STREAMS_GROUP_HEARTBEAT: cluster.needs("streams.version", streams_groups.streams_group_heartbeat),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: cluster.list_partition_reassignments,
    ApiKey.DESCRIBE_ACLS: security.describe_acls,
    ApiKey.DESCRIBE_QUORUM: cluster.describe_quorum,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: telemetry.get_telemetry_subscriptions,
    ApiKey.LIST_CONFIG_RESOURCES: configs.list_config_resources,
}
"""(call, the request's body) -> the answer's, or a procedure that returns it. They begin in the reactor's turn, so none may
take longer than a turn's share. A RequestError that one raises is the answer to the whole request."""

IN_TASK: Final[dict[ApiKey, Callable[[Call, Any], Awaitable[Any]]]] = {
    ApiKey.INIT_PRODUCER_ID: transactions.init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: list_offsets.offset_for_leader_epoch,
    ApiKey.JOIN_GROUP: groups.join_group,
    ApiKey.SYNC_GROUP: groups.sync_group,
    ApiKey.LEAVE_GROUP: groups.leave_group,
    ApiKey.DESCRIBE_GROUPS: groups.describe_groups,
    ApiKey.LIST_GROUPS: groups.list_groups,
    ApiKey.DELETE_GROUPS: groups.delete_groups,
    ApiKey.OFFSET_DELETE: offsets.offset_delete,
    ApiKey.CREATE_TOPICS: topics.create_topics,
    ApiKey.DELETE_TOPICS: topics.delete_topics,
    ApiKey.DELETE_RECORDS: topics.delete_records,
    ApiKey.CREATE_PARTITIONS: topics.create_partitions,
    ApiKey.DESCRIBE_CONFIGS: configs.describe_configs,
    ApiKey.ALTER_CONFIGS: configs.alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: configs.incremental_alter_configs,
    ApiKey.ADD_PARTITIONS_TO_TXN: transactions.add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: transactions.add_offsets_to_txn,
    ApiKey.END_TXN: transactions.end_txn,
    ApiKey.WRITE_TXN_MARKERS: transactions.write_txn_markers,
    ApiKey.DESCRIBE_PRODUCERS: transactions.describe_producers,
    ApiKey.DESCRIBE_TRANSACTIONS: transactions.describe_transactions,
    ApiKey.LIST_TRANSACTIONS: transactions.list_transactions,
    ApiKey.SASL_AUTHENTICATE: security.sasl_authenticate,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: security.describe_user_scram_credentials,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: security.alter_user_scram_credentials,
    ApiKey.CONSUMER_GROUP_DESCRIBE: cluster.needs("group.version", consumer_groups.consumer_group_describe),
    ApiKey.SHARE_GROUP_DESCRIBE: cluster.needs("share.version", share_groups.share_group_describe),
    ApiKey.SHARE_FETCH: cluster.needs("share.version", share_fetch.share_fetch),
    ApiKey.SHARE_ACKNOWLEDGE: cluster.needs("share.version", share_fetch.share_acknowledge),
    ApiKey.STREAMS_GROUP_DESCRIBE: cluster.needs("streams.version", streams_groups.streams_group_describe),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: cluster.needs("share.version", share_groups.describe_share_group_offsets),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: cluster.needs("share.version", share_groups.alter_share_group_offsets),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: cluster.needs("share.version", share_groups.delete_share_group_offsets),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: metadata.describe_topic_partitions,
    ApiKey.DESCRIBE_LOG_DIRS: cluster.describe_log_dirs,
    ApiKey.ALTER_REPLICA_LOG_DIRS: cluster.alter_replica_log_dirs,
    ApiKey.ELECT_LEADERS: cluster.elect_leaders,
    ApiKey.UPDATE_FEATURES: cluster.update_features,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: cluster.alter_partition_reassignments,
    ApiKey.CREATE_ACLS: security.create_acls,
    ApiKey.DELETE_ACLS: security.delete_acls,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: security.describe_client_quotas,
    ApiKey.ALTER_CLIENT_QUOTAS: security.alter_client_quotas,
    ApiKey.PUSH_TELEMETRY: telemetry.push_telemetry,
}
"""The same for requests that always wait, or may always take long: the connection's task runs them."""


def load_calls() -> None:
    """Import everything that a request can need."""
    assert IN_TURN.keys() | IN_TASK.keys() == APIS.keys() - {ApiKey.PRODUCE}, "an API has no handler"
    for api in APIS.values():
        api.load()
    load_codecs()
    load_patterns()


@attrs.define(eq=False, repr=False)
class KafkaCalls:
    """The state that the calls of one connection share. Owner: its session."""

    door: KafkaDoor
    session: KafkaSession
    watch: Watch | None = None
    login: KafkaLogin | None = None
    _calls: dict[int, Call] = attrs.field(factory=dict)
    """By version; they differ in nothing else."""

    def take_up(self, turn: Turn) -> Work | None:
        """Answer a request, or answer what is to be waited for before the next one may be taken up."""
        if self.login is not None and (why := self.login.refusal(turn.request.api.key)) is not None:
            self._refuse(turn, why)
            return None
        if self.watch is None:
            return self.serve(turn)
        return self.watch.take_up(self.door, turn, self.serve)

    def _refuse(self, turn: Turn, why: str) -> None:
        """End the connection; between handshake and login with an answer, as Kafka's."""
        api, version, body = turn.request.api, turn.request.version, turn.request.body
        has_answer = body is not None and (api.key is not ApiKey.PRODUCE or body.acks)
        if self.login is None or not self.login.awaits_token or not has_answer:
            self.session.fail(why)
            return
        self.session.stop_reading()
        turn.answer(error_response(api, version, body, ErrorCode.ILLEGAL_SASL_STATE, why))

    def serve(self, turn: Turn) -> Work | None:
        """The same, without noting the request or applying fault rules."""
        request = turn.request
        if request.version not in self._calls:
            needs_message = self.watch is not None or self.door.guard is not None
            self._calls[request.version] = Call(self.door, self.session, request.version, self.login, needs_message)
        call, key = self._calls[request.version], request.api.key
        if key is ApiKey.PRODUCE:
            return take_produce(call, turn, request.body)
        if key is not ApiKey.FETCH:
            PAYER.set(self.session.client or self.session.known_client())  # `pay`, with one call less for each request
        if key not in IN_TURN or request.is_large or (self.door.guard is not None and request.body is not None):
            return partial(self._serve_in_task, turn, call)
        try:
            answer = IN_TURN[key](call, request.body)
            if answer.__class__ is GeneratorType:
                wait = answer.send(None)
                if wait.__class__ is not Reply:
                    is_over = wait is PAUSE and self.session.reactor.is_serving  # the task has its turn after the reactor's
                    return partial(self._continue, turn, answer, None if is_over else wait)
                wait.then = partial(self._replied, turn, answer)
                if wait.result is not PENDING:
                    wait.then(wait.result)
                return None
        except StopIteration as stop:
            answer = stop.value
        except RequestError as exc:
            answer = _failure(request, exc)
        if answer.__class__ is Given:
            _answer_given(turn, answer)
        else:
            turn.answer(answer)
        return None

    def _replied(self, turn: Turn, procedure: Procedure[Any], reply: Any) -> None:
        """Called by who has the reply, a log's actor for example. Raises nothing: it serves others too."""
        try:
            try:
                procedure.send(reply)
            except StopIteration as stop:
                turn.answer(stop.value)
            except RequestError as exc:
                turn.answer(_failure(turn.request, exc))
            else:
                raise AssertionError("a procedure waits after its reply")
        except Exception as exc:
            turn.met_bug(exc)

    async def _continue(self, turn: Turn, procedure: Procedure[Any], wait: Wait | None) -> None:
        try:
            answer = await perform(procedure, wait)
        except RequestError as exc:
            answer = _failure(turn.request, exc)
        await self._answer(turn, answer)

    async def _serve_in_task(self, turn: Turn, call: Call) -> None:
        request = turn.request
        key = request.api.key
        handler = IN_TURN.get(key) or IN_TASK[key]
        if self.door.guard is not None and request.body is not None:
            answer = await guarded(call, request.api, request.body, handler)
        else:
            answer = await served(call, request.api, request.body, handler)
        audit = self.door.broker.security.audit
        names = None if audit is None or request.body is None else AUDITED.get(key)
        if names is not None and not getattr(request.body, "validate_only", False):
            note_change(audit, call, KAFKA, request.api.name, names(request.body), error_codes(answer))
        await self._answer(turn, answer)

    async def _answer(self, turn: Turn, answer: Any) -> None:
        request = turn.request
        if answer.__class__ is Given:
            _answer_given(turn, answer)
        elif request.is_large or has_more_elements(answer, FEW_ELEMENTS):
            if self.session.quotas.is_active:
                answer = turn.charged(answer)
            in_steps = self.door.broker.in_steps
            buffers = await in_steps(answer_steps(request, answer))
            turn.answer(answer, buffers, await in_steps(error_codes_steps(answer)))
        else:
            turn.answer(answer)


def _failure(request: Request, error: RequestError) -> Any:
    return error_response(request.api, request.version, request.body, error.code, error.message)


def _answer_given(turn: Turn, given: Given) -> None:
    form, elements, is_single = given
    throttle_ms = turn.charge() if turn.session.quotas.is_active else 0
    if is_single:
        buffers = form.single(turn.request, (throttle_ms, *elements))
    else:
        buffers = form.buffers(turn.request, (throttle_ms, elements))
    turn.leave(buffers)


def listener_of(door: KafkaDoor, address: Address, admission: Admission, watch: Watch | None = None) -> Listener:
    """A listener whose connections share `door`."""
    load_calls()

    def open_calls(session: KafkaSession) -> TakeUp:
        login = KafkaLogin.of(door.broker, session, door.sasl_mechanisms) if door.sasl_mechanisms else None
        calls = KafkaCalls(door, session, watch, login)
        return calls.serve if login is None and watch is None else calls.take_up

    def ended(session: KafkaSession) -> None:
        door.broker.shares.disconnected(session)
        door.broker.telemetry.instances.disconnected(session)

    def open_session(transport: Transport) -> Served:
        session = KafkaSession(
            transport=transport,
            connection=KafkaConnection(door.apis, door.broker.config.max_request_bytes),
            budget=admission.budget,
            open_calls=open_calls,
            in_steps=door.broker.in_steps,
            quotas=door.broker.security.quotas,
            idle_timeout_s=door.idle_timeout_s,
            has_ended=ended,
        )
        return Served(session.serve, session.stop_reading, session)

    return Listener(address, admission, open_session, "kafka", gathering=door.broker.disk.gathering)
