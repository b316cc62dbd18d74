"""Which function answers which API. The modules are loaded when there is a listener for them, all before it listens: a server
that has no descriptor left could not read them when they are asked for."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any, Final, Protocol

import attrs

from ....protocol.errors import ErrorCode
from ....protocol.kafka.apis import APIS, Api, ApiKey
from ....protocol.kafka.connection import FEW_ELEMENTS, KafkaConnection, answer_steps
from ....protocol.patterns import load_patterns
from ....protocol.records.compression import load_codecs
from ....protocol.schema.fields import has_more_elements
from ...broker import Broker
from ...config.broker_config import Address
from ...system.client_memory import PAYER
from ..access.audited import note_change
from ..connections.connection_task import Work
from ..connections.sockets import Admission, Listener, Served
from ..connections.transport import Transport
from .access.audited import AUDITED, KAFKA
from .access.guarded import guarded
from .access.login import KafkaLogin
from .door import Call, KafkaDoor
from .error_answers import error_codes, error_codes_steps, error_response
from .fetch import take_fetch
from .list_offsets import take_list_offsets
from .offset_commits import take_offset_commit
from .produce import take_produce
from .session import KafkaSession, TakeUp, Turn

Handler = Callable[[Call, Any], Any]
"""(call, the request's body) -> the answer's, or an awaitable of it."""
AtOnce = Callable[[Call, Any], Any]
"""(call, the request's body) -> the answer's; None where it has to be waited for, and nothing has happened."""
Taking = Callable[[Call, Turn, Any], Work | None]
"""(call, turn, the request's body) -> what is to be waited for; None: it is answered, or will be."""


class Watch(Protocol):
    """Notes the requests of a listener and carries out fault rules, in tests."""

    def take_up(self, door: KafkaDoor, turn: Turn, serve: TakeUp) -> Work | None:
        """Take up a request, which `serve` serves."""
        ...


HANDLER_MODULES: Final = (
    *(
        "acls",
        "add_partitions",
        "alter_configs",
        "api_versions",
        "cluster",
        "configs",
        "consumer_groups",
        "create_topics",
        "describe_topic_partitions",
    ),
    *("features", "fetch", "find_coordinator", "group_views", "groups", "list_offsets", "log_dirs", "metadata"),
    *("offset_commits", "offsets", "quorum", "quotas", "sasl", "scram_users", "share_acknowledge", "share_fetch"),
    *(
        "share_group_offsets",
        "share_groups",
        "streams_group_views",
        "streams_groups",
        "telemetry",
        "topics",
        "transaction_views",
        "transactions",
    ),
)
"""Where the functions are that answer: each has its API's name in small letters. Produce has none: `take_produce` is it."""

TAKEN: Final[dict[ApiKey, Taking]] = {
    ApiKey.FETCH: take_fetch,
    ApiKey.LIST_OFFSETS: take_list_offsets,
    ApiKey.OFFSET_COMMIT: take_offset_commit,
}
"""What is begun on the spot and may be answered later; the handlers of these are for what is large or guarded."""


@functools.cache
def _handlers() -> dict[ApiKey, Handler]:
    modules = [importlib.import_module(f".{name}", __package__) for name in HANDLER_MODULES]
    return {
        key: vars(module)[name]
        for module in modules
        for key in ApiKey
        if (name := key.name.lower()) in vars(module) and vars(module)[name].__module__ == module.__name__
    }


@functools.cache
def _at_once() -> dict[ApiKey, AtOnce]:
    """Of the APIs that can be answered without waiting: a handler that has nothing to wait for, or the function beside it whose
    name ends with `_at_once`."""
    found: dict[ApiKey, AtOnce] = {}
    for key, handler in _handlers().items():
        beside = getattr(sys.modules[handler.__module__], f"{handler.__name__}_at_once", None)
        if beside is not None or not inspect.iscoroutinefunction(handler):
            found[key] = beside or handler
    return found


def handler_of(key: ApiKey) -> Handler:
    """The function that answers an API."""
    return _handlers()[key]


def load_calls() -> None:
    """Import everything that a request can need."""
    assert _handlers().keys() == APIS.keys() - {ApiKey.PRODUCE}, "an API has no handler"
    for api in APIS.values():
        api.load()
    load_codecs()
    load_patterns()


@attrs.define(eq=False, repr=False)
class KafkaCalls:
    """What the calls of one connection have in common. Owner: its session."""

    door: KafkaDoor
    session: KafkaSession
    watch: Watch | None = None
    login: KafkaLogin | None = None
    _at_once: dict[ApiKey, AtOnce] = attrs.field(factory=_at_once)
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
        call = self._calls.get(request.version)
        if call is None:
            call = self._calls[request.version] = Call(self.door, self.session, request.version, self.login)
        key = request.api.key
        if key is ApiKey.PRODUCE:
            return take_produce(call, turn, request.body)
        if key is not ApiKey.FETCH:
            PAYER.set(self.session.client or self.session.known_client())  # `pay`, with one call less for each request
        if not request.is_large and (self.door.guard is None or request.body is None):
            if (take := TAKEN.get(key)) is not None:
                return take(call, turn, request.body)
            at_once = self._at_once.get(key)
            if at_once is not None and (answer := at_once(call, request.body)) is not None:
                turn.answer(answer)
                return None
        return functools.partial(self._serve_later, turn, call)

    async def _serve_later(self, turn: Turn, call: Call) -> None:
        request = turn.request
        handler = handler_of(request.api.key)
        if self.door.guard is not None and request.body is not None:
            answer = await guarded(call, request.api, request.body, handler)
        else:
            answer = handler(call, request.body)
            if inspect.isawaitable(answer):
                answer = await answer
        audit = self.door.broker.security.audit
        names = None if audit is None or request.body is None else AUDITED.get(request.api.key)
        if names is not None and not getattr(request.body, "validate_only", False):
            note_change(audit, call, KAFKA, request.api.name, names(request.body), error_codes(answer))
        if request.is_large or has_more_elements(answer, FEW_ELEMENTS):
            if self.session.quotas.is_active:
                answer = turn.charged(answer)
            in_steps = self.door.broker.in_steps
            buffers = await in_steps(answer_steps(request, answer))
            turn.answer(answer, buffers, await in_steps(error_codes_steps(answer)))
        else:
            turn.answer(answer)


def kafka_listener(
    broker: Broker,
    address: Address,
    admission: Admission,
    *,
    advertised: Address | None = None,
    watch: Watch | None = None,
    apis: dict[int, Api] | None = None,
) -> Listener:
    """Kafka's protocol on one address. `advertised` is where clients are sent, by default to where they connected. `watch`:
    for tests, see `watched`."""
    return listener_of(KafkaDoor(broker, advertised, apis=APIS if apis is None else apis), address, admission, watch)


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
