"""Which function answers which API. The modules are loaded when there is a listener for them, all before it listens: a server
that has no descriptor left could not read them when they are asked for."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any, Final

import attrs
import trio

from ....protocol.kafka.apis import APIS, Api, ApiKey
from ....protocol.kafka.connection import KafkaConnection, answer_steps
from ....protocol.patterns import load_patterns
from ....protocol.records.compression import load_codecs
from ...broker import Broker
from ...broker_config import Address
from ..sockets import Admission, Listener, Served
from ..transport import Transport
from .door import Call, KafkaDoor
from .error_answers import error_codes_steps
from .guarded import guarded
from .login import Login
from .produce import Produces
from .session import KafkaSession, TakeUp, Turn
from .watched import Watch

Handler = Callable[[Call, Any], Any]
"""(call, the request's body) -> the answer's, or an awaitable of it."""

MODULES: Final[dict[ApiKey, str]] = {
    ApiKey.FETCH: "fetch",
    ApiKey.LIST_OFFSETS: "list_offsets",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "list_offsets",
    ApiKey.METADATA: "metadata",
    ApiKey.API_VERSIONS: "api_versions",
    ApiKey.FIND_COORDINATOR: "find_coordinator",
    ApiKey.INIT_PRODUCER_ID: "transactions",
    ApiKey.ADD_PARTITIONS_TO_TXN: "add_partitions",
    ApiKey.ADD_OFFSETS_TO_TXN: "transactions",
    ApiKey.END_TXN: "transactions",
    ApiKey.WRITE_TXN_MARKERS: "transactions",
    ApiKey.DESCRIBE_PRODUCERS: "transaction_views",
    ApiKey.DESCRIBE_TRANSACTIONS: "transaction_views",
    ApiKey.LIST_TRANSACTIONS: "transaction_views",
    ApiKey.JOIN_GROUP: "groups",
    ApiKey.SYNC_GROUP: "groups",
    ApiKey.HEARTBEAT: "groups",
    ApiKey.LEAVE_GROUP: "groups",
    ApiKey.DESCRIBE_GROUPS: "group_views",
    ApiKey.LIST_GROUPS: "group_views",
    ApiKey.DELETE_GROUPS: "group_views",
    ApiKey.OFFSET_COMMIT: "offsets",
    ApiKey.OFFSET_FETCH: "offsets",
    ApiKey.OFFSET_DELETE: "offsets",
    ApiKey.TXN_OFFSET_COMMIT: "offsets",
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "consumer_groups",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "consumer_groups",
    ApiKey.SASL_HANDSHAKE: "sasl",
    ApiKey.SASL_AUTHENTICATE: "sasl",
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "scram_users",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "scram_users",
    ApiKey.DESCRIBE_ACLS: "acls",
    ApiKey.CREATE_ACLS: "acls",
    ApiKey.DELETE_ACLS: "acls",
    ApiKey.CREATE_TOPICS: "create_topics",
    ApiKey.DELETE_TOPICS: "topics",
    ApiKey.CREATE_PARTITIONS: "topics",
    ApiKey.DELETE_RECORDS: "topics",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "describe_topic_partitions",
    ApiKey.DESCRIBE_CONFIGS: "configs",
    ApiKey.LIST_CONFIG_RESOURCES: "configs",
    ApiKey.ALTER_CONFIGS: "alter_configs",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "alter_configs",
    ApiKey.DESCRIBE_CLUSTER: "cluster",
    ApiKey.ELECT_LEADERS: "cluster",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "cluster",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "cluster",
    ApiKey.UPDATE_FEATURES: "features",
    ApiKey.DESCRIBE_LOG_DIRS: "log_dirs",
    ApiKey.ALTER_REPLICA_LOG_DIRS: "log_dirs",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "quotas",
    ApiKey.ALTER_CLIENT_QUOTAS: "quotas",
}
"""The function has the API's name in small letters."""

SERVED: Final[dict[int, Api]] = {key: api for key, api in APIS.items() if key in MODULES or key == ApiKey.PRODUCE}
"""What is spoken, and advertised."""


@functools.cache
def handler_of(key: ApiKey) -> Handler:
    """The function that answers an API."""
    module = importlib.import_module(f".{MODULES[key]}", __package__)
    handler: Handler = getattr(module, key.name.lower())
    return handler


def load_calls() -> None:
    """Import everything that a request can need."""
    for key in MODULES:
        handler_of(key)
    for api in SERVED.values():
        api.load()
    load_codecs()
    load_patterns()


@attrs.define(eq=False)
class KafkaCalls:
    """What the calls of one connection have in common. Owner: its session's tasks."""

    door: KafkaDoor
    session: KafkaSession
    produces: Produces
    watch: Watch | None = None
    login: Login | None = None

    async def take_up(self, turn: Turn) -> None:
        """Answer a request; returns when the next one may be taken up. An error of ours ends the connection and is raised."""
        if self.login is not None and (why := self.login.refusal(turn.request.api.key)) is not None:
            self.session.fail(why)
        elif self.watch is None:
            await self.serve(turn)
        else:
            await self.watch.take_up(self.door, turn, self.serve)

    async def serve(self, turn: Turn) -> None:
        """The same without anybody looking on."""
        request = turn.request
        call = Call(self.door, self.session, request.version, self.login)
        if request.api.key is ApiKey.PRODUCE:
            await self.produces.take(call, turn, request.body)
            return
        handler = handler_of(request.api.key)
        if self.door.guard is not None and request.body is not None:
            answer = await guarded(call, request.api, request.body, handler)
        else:
            answer = handler(call, request.body)
            if inspect.isawaitable(answer):
                answer = await answer
        if request.is_large:
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
    return listener_of(KafkaDoor(broker, advertised, apis=SERVED if apis is None else apis), address, admission, watch)


def listener_of(door: KafkaDoor, address: Address, admission: Admission, watch: Watch | None = None) -> Listener:
    """A listener whose connections share `door`."""
    load_calls()

    def open_calls(session: KafkaSession, nursery: trio.Nursery) -> TakeUp:
        login = None
        if door.sasl_mechanisms:
            login = Login(door.broker, session, door.sasl_mechanisms)
            nursery.start_soon(login.end_when_late)
        return KafkaCalls(door, session, Produces(nursery), watch, login).take_up

    def open_session(transport: Transport) -> Served:
        connection = KafkaConnection(door.apis)
        session = KafkaSession(
            transport,
            connection,
            admission.budget,
            open_calls,
            door.broker.in_steps,
            idle_timeout_s=door.idle_timeout_s,
        )
        return Served(session.serve, session.stop_reading)

    return Listener(address, admission, open_session, "kafka")
