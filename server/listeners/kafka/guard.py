"""The permissions of clients by ACLs: one table for all APIs, so that a handler knows nothing of it. Source: Kafka's KafkaApis,
ControllerApis, AclApis and AuthHelper (4.1), and the table of operations in Kafka's documentation.

The meaning of a request's fields determines the resources that it names (`protocol.kafka.apis`). As in Kafka, the handler
reports errors in an element itself, before any check of permissions. These APIs call `Call.authorize` themselves: Produce,
Fetch, Metadata, DescribeTopicPartitions, AddPartitionsToTxn, ShareFetch, ShareAcknowledge, StreamsGroupHeartbeat,
AlterUserScramCredentials and the three APIs of ACLs. Their work depends on the result: automatic creation of topics, a limit
that counts visible entries, partitions that join all or none, or that a session remembers. No other handler does. Where no ACLs
are enforced the guard checks nothing.

`guarded` answers a request as far as the client may have it; `seen_answers` has what is left out.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable
from types import GeneratorType
from typing import Any, Final

import attrs

from ....protocol.errors import AuthorizationError, ErrorCode, RequestError
from ....protocol.kafka.apis import (
    APIS,
    COORDINATOR_KEY,
    GROUP_ID,
    RESOURCE_NAME,
    TOPIC_NAME,
    TRANSACTIONAL_ID,
    Api,
    ApiKey,
    ApiTable,
    lists_naming,
    name_in,
    names_of,
    paths_to,
    values_at,
)
from ....protocol.kafka.authorization import DENIED, ResourceType
from ....protocol.kafka.authorization import AclOperation as Op
from ....protocol.schema.fields import Entity
from ....protocol.types import TopicPartition
from ...loop.procedures import perform
from ..access import rules
from ..access.rules import (
    CLUSTER,
    CREATE_TOPIC,
    DELETE_TOPIC,
    GROUP,
    PRODUCER_ID,
    TOPIC,
    TRANSACTION,
    Denied,
    Rule,
    Steps,
    check_steps,
    denied_configs,
    divide_steps,
    each_steps,
    needs,
    needs_otherwise,
    right,
)
from . import seen_answers
from .door import NO_TOPIC_ID, Call
from .error_answers import SHAPES, error_response_steps, repeat_steps

ENTITIES: Final = {TOPIC: TOPIC_NAME, GROUP: GROUP_ID, TRANSACTION: TRANSACTIONAL_ID}
_API_KEYS: Final = {api.request: api.key for api in APIS.values()}


@attrs.frozen(kw_only=True)
class Each(rules.Each):
    """The list of a request that names an entity."""

    entity: Entity
    once: bool = False
    """Elements that are there twice are not judged: their handler refuses them."""
    is_of_group: bool = False
    """The group is looked for even where every element is refused."""


Rules = rules.Rules[Each]


# ---- requests that are refused as a whole --------------------------------------------------------------------------------


def _on(kind: ResourceType, operation: Op) -> Rule:
    """Requires an operation on every resource of a kind that the request names, or on the cluster. Null names are skipped."""
    paths = ApiTable(lambda api: _paths(api, kind))

    def names(body: Any) -> Iterable[str]:
        return (name for path in paths[_API_KEYS[type(body)]] for name in values_at(body, path))

    return needs(operation, kind) if kind is CLUSTER else needs(operation, kind, names)


def _paths(api: Api, kind: ResourceType) -> tuple[str, ...]:
    """The paths to names of this kind in a request. There must be one: a rule without names would refuse nobody."""
    paths = tuple(paths_to(api, api.request, ENTITIES[kind]))
    assert paths, f"{api.name} has no field for a {ENTITIES[kind].name}"
    return paths


def _markers(call: Call, _body: Any) -> Denied:
    may = call.authorize(Op.ALTER, CLUSTER) or call.authorize(Op.CLUSTER_ACTION, CLUSTER)
    return None if may else CLUSTER


def _one_coordinator(call: Call, body: Any) -> Denied:
    return None if body.coordinator_keys else _coordinator(call, body, body.key)


def _coordinator(call: Call, body: Any, key: str) -> Denied:
    kind = {0: GROUP, 1: TRANSACTION}.get(body.key_type)
    return None if kind is None or call.authorize(Op.DESCRIBE, kind, key) else kind


def _one_group(call: Call, body: Any) -> Denied:
    return None if body.groups or call.authorize(Op.DESCRIBE, GROUP, body.group_id) else GROUP


# ---- elements that are refused ---------------------------------------------------------------------------------------------


def _named(kind: ResourceType, operation: Op, *, once: bool = False, is_of_group: bool = False) -> Each:
    """Requires an operation on what each element names. An unknown topic id, and the id of none, is left to the handler."""
    entity = ENTITIES[kind]

    def denied(call: Call, _body: Any, element: Any) -> Denied:
        name, topic_id = name_in(element, entity), getattr(element, "topic_id", NO_TOPIC_ID)
        if topic_id != NO_TOPIC_ID:
            try:
                name = call.broker.topics.named(topic_id)
            except RequestError:
                return None
        elif not name and hasattr(element, "topic_id"):
            return None
        return None if call.authorize(operation, kind, name or "") else kind

    return Each(right(operation, kind), denied, entity=entity, once=once, is_of_group=is_of_group)


def _new_topic(call: Call, _body: Any, element: Any) -> Denied:
    return None if call.may_create_topic(element.name) else TOPIC


def _old_topic(call: Call, _body: Any, element: Any) -> Denied:
    """A topic to delete, by name or by id. An unknown id is left to the handler."""
    name, topic_id = name_in(element, TOPIC_NAME), getattr(element, "topic_id", NO_TOPIC_ID)
    if (name is None) == (topic_id == NO_TOPIC_ID):
        return None
    topics = call.broker.topics
    try:
        known = topics.named(topic_id) if name is None else name
    except RequestError:
        return None
    return None if call.may_delete_topic(known, is_there=topics.has_partition(TopicPartition(known, 0))) else TOPIC


_CONFIGURED: Final = {2: TOPIC, 32: GROUP, 4: CLUSTER, 8: CLUSTER, 16: CLUSTER}
"""By the type of a configuration; there are no others."""
BROKER_TYPES: Final = (4, 8)


def _configs(call: Call, operation: Op, element: Any) -> Denied:
    kind = _CONFIGURED.get(element.resource_type)
    return None if kind is None else denied_configs(call, operation, kind, element.resource_name)


def _described_configs(call: Call, _body: Any, element: Any) -> Denied:
    return _configs(call, Op.DESCRIBE_CONFIGS, element)


def _altered_configs(call: Call, _body: Any, element: Any) -> Denied:
    """In Kafka the broker refuses missing values and unknown broker names before the controller looks at ACLs."""
    is_elsewhere = element.resource_type in BROKER_TYPES and element.resource_name not in _node_names(call)
    if is_elsewhere or any(each.value is None and not _is_deletion(each) for each in element.configs):
        return None
    return _configs(call, Op.ALTER_CONFIGS, element)


def _node_names(call: Call) -> list[str]:
    return ["", *(str(node.node_id) for node in call.door.nodes(call.session))]


def _is_deletion(config: Any) -> bool:
    return getattr(config, "config_operation", None) == 1


_IN_GROUP: Final = _on(GROUP, Op.READ)
_IN_TRANSACTION: Final = _on(TRANSACTION, Op.WRITE)
COORDINATOR: Final = "DESCRIBE GROUP or TRANSACTIONAL_ID"
_NEW_TOPICS: Final = Each(CREATE_TOPIC, _new_topic, entity=TOPIC_NAME, once=True)
_OLD_TOPICS: Final = Each(DELETE_TOPIC, _old_topic, entity=TOPIC_NAME, once=True)
_DESCRIBED_CONFIGS: Final = Each("DESCRIBE_CONFIGS TOPIC, GROUP or CLUSTER", _described_configs, entity=RESOURCE_NAME)
_ALTERED_CONFIGS: Final = Each("ALTER_CONFIGS TOPIC, GROUP or CLUSTER", _altered_configs, entity=RESOURCE_NAME, once=True)
_OFFSETS_OF_GROUP: Final = _named(TOPIC, Op.READ, is_of_group=True)
_ONE_GROUP: Final = needs_otherwise(right(Op.DESCRIBE, GROUP), _one_group)

RULES: Final[dict[ApiKey, Rules]] = {
    ApiKey.JOIN_GROUP: Rules((_IN_GROUP,)),
    ApiKey.SYNC_GROUP: Rules((_IN_GROUP,)),
    ApiKey.HEARTBEAT: Rules((_IN_GROUP,)),
    ApiKey.LEAVE_GROUP: Rules((_IN_GROUP,)),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Rules((_IN_GROUP, _on(TOPIC, Op.DESCRIBE))),
    ApiKey.SHARE_FETCH: Rules((_IN_GROUP,)),
    ApiKey.SHARE_ACKNOWLEDGE: Rules((_IN_GROUP,)),
    ApiKey.OFFSET_COMMIT: Rules((_IN_GROUP,), _named(TOPIC, Op.READ)),
    ApiKey.OFFSET_FETCH: Rules((_ONE_GROUP,), _named(GROUP, Op.DESCRIBE), seen_answers.offsets),
    ApiKey.OFFSET_DELETE: Rules((_on(GROUP, Op.DELETE),), _OFFSETS_OF_GROUP),
    ApiKey.DESCRIBE_GROUPS: Rules(each=_named(GROUP, Op.DESCRIBE)),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Rules(each=_named(GROUP, Op.DESCRIBE), hide=seen_answers.described_groups),
    ApiKey.SHARE_GROUP_HEARTBEAT: Rules((_IN_GROUP, _on(TOPIC, Op.DESCRIBE))),
    ApiKey.SHARE_GROUP_DESCRIBE: Rules(each=_named(GROUP, Op.DESCRIBE), hide=seen_answers.described_groups),
    ApiKey.STREAMS_GROUP_HEARTBEAT: Rules((_IN_GROUP,)),
    ApiKey.STREAMS_GROUP_DESCRIBE: Rules(each=_named(GROUP, Op.DESCRIBE), hide=seen_answers.streams_groups),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Rules(each=_named(GROUP, Op.DESCRIBE), hide=seen_answers.share_offsets),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: Rules((_IN_GROUP,), _OFFSETS_OF_GROUP),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: Rules((_on(GROUP, Op.DELETE),), _OFFSETS_OF_GROUP),
    ApiKey.LIST_GROUPS: Rules(hide=seen_answers.listed_groups),
    ApiKey.DELETE_GROUPS: Rules(each=_named(GROUP, Op.DELETE)),
    ApiKey.FIND_COORDINATOR: Rules(
        (needs_otherwise(COORDINATOR, _one_coordinator),), Each(COORDINATOR, _coordinator, entity=COORDINATOR_KEY)
    ),
    ApiKey.INIT_PRODUCER_ID: Rules((_IN_TRANSACTION, PRODUCER_ID)),
    ApiKey.ADD_PARTITIONS_TO_TXN: Rules((_IN_TRANSACTION,)),
    ApiKey.ADD_OFFSETS_TO_TXN: Rules((_IN_TRANSACTION, _IN_GROUP)),
    ApiKey.TXN_OFFSET_COMMIT: Rules((_IN_TRANSACTION, _IN_GROUP), _named(TOPIC, Op.READ)),
    ApiKey.END_TXN: Rules((_IN_TRANSACTION,)),
    ApiKey.WRITE_TXN_MARKERS: Rules((needs_otherwise("ALTER CLUSTER, or CLUSTER_ACTION CLUSTER", _markers),)),
    ApiKey.DESCRIBE_PRODUCERS: Rules(each=_named(TOPIC, Op.READ)),
    ApiKey.DESCRIBE_TRANSACTIONS: Rules(each=_named(TRANSACTION, Op.DESCRIBE), hide=seen_answers.transactions),
    ApiKey.LIST_TRANSACTIONS: Rules(hide=seen_answers.listed_transactions),
    ApiKey.LIST_OFFSETS: Rules(each=_named(TOPIC, Op.DESCRIBE)),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Rules(each=_named(TOPIC, Op.DESCRIBE)),
    ApiKey.CREATE_TOPICS: Rules(each=_NEW_TOPICS, hide=seen_answers.new_topics),
    ApiKey.DELETE_TOPICS: Rules(each=_OLD_TOPICS, hide=seen_answers.old_topics),
    ApiKey.CREATE_PARTITIONS: Rules(each=_named(TOPIC, Op.ALTER, once=True)),
    ApiKey.DELETE_RECORDS: Rules(each=_named(TOPIC, Op.DELETE)),
    ApiKey.DESCRIBE_CONFIGS: Rules(each=_DESCRIBED_CONFIGS),
    ApiKey.ALTER_CONFIGS: Rules(each=_ALTERED_CONFIGS),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Rules(each=_ALTERED_CONFIGS),
    ApiKey.LIST_CONFIG_RESOURCES: Rules((_on(CLUSTER, Op.DESCRIBE_CONFIGS),)),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Rules((_on(CLUSTER, Op.DESCRIBE_CONFIGS),)),
    ApiKey.ALTER_CLIENT_QUOTAS: Rules((_on(CLUSTER, Op.ALTER_CONFIGS),)),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Rules((_on(CLUSTER, Op.DESCRIBE),)),
    ApiKey.DESCRIBE_LOG_DIRS: Rules((_on(CLUSTER, Op.DESCRIBE),)),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Rules((_on(CLUSTER, Op.ALTER),)),
    ApiKey.ELECT_LEADERS: Rules((_on(CLUSTER, Op.ALTER),)),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Rules((_on(CLUSTER, Op.ALTER),)),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Rules((_on(CLUSTER, Op.DESCRIBE),)),
    ApiKey.DESCRIBE_QUORUM: Rules((_on(CLUSTER, Op.DESCRIBE),)),
    ApiKey.UPDATE_FEATURES: Rules((_on(CLUSTER, Op.ALTER),)),
}
FREE: Final = frozenset(
    {
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        ApiKey.PUSH_TELEMETRY,
    }
)
"""What everybody may."""
BY_THEMSELVES: Final = {
    ApiKey.PRODUCE: "WRITE TRANSACTIONAL_ID, if one is named; each: WRITE TOPIC",
    ApiKey.FETCH: "each: READ TOPIC",
    ApiKey.METADATA: "each: DESCRIBE TOPIC; one that is made by asking for it: CREATE TOPIC, or CREATE CLUSTER",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "each: DESCRIBE TOPIC",
    ApiKey.ADD_PARTITIONS_TO_TXN: "WRITE TOPIC, all that are named",
    ApiKey.SHARE_FETCH: "each: READ TOPIC",
    ApiKey.SHARE_ACKNOWLEDGE: "each: READ TOPIC",
    ApiKey.STREAMS_GROUP_HEARTBEAT: "DESCRIBE TOPIC, all of the topology; internal ones: CREATE TOPIC, or CREATE CLUSTER",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "ALTER CLUSTER",
    ApiKey.DESCRIBE_ACLS: "DESCRIBE CLUSTER",
    ApiKey.CREATE_ACLS: "ALTER CLUSTER",
    ApiKey.DELETE_ACLS: "ALTER CLUSTER",
}
"""What the handlers of these ask, beside RULES, in words."""


MESSAGE: Final = "Authorization failed."
"""Kafka's words."""

NO_RULES: Final = Rules()


def _judged_lists(api: Api) -> tuple[str, ...]:
    each = RULES.get(api.key, NO_RULES).each
    if each is None:
        return ()
    paths = tuple(path for path, _ in lists_naming(api, api.request, (each.entity,)))
    assert paths, f"{api.name} has no list of {each.entity.name}"
    return paths


PATHS: Final = ApiTable(_judged_lists)
"""The lists whose elements are judged. A request has one of them, or none."""

Handler = Callable[[Call, Any], Any]


async def served(call: Call, api: Api, body: Any, handler: Handler) -> Any:
    """Return the answer of a handler of any kind."""
    try:
        answer = handler(call, body)
        if answer.__class__ is GeneratorType:
            return await perform(answer)
        return await answer if isinstance(answer, Awaitable) else answer
    except RequestError as exc:
        return await call.broker.in_steps(error_response_steps(api, call.version, body, exc.code, exc.message))


async def guarded(call: Call, api: Api, body: Any, handler: Handler) -> Any:
    """Answer a request under ACLs: refuse it, serve the elements that are allowed, hide what the client may not see."""
    rules, in_steps = RULES.get(api.key, NO_RULES), call.broker.in_steps
    try:
        await in_steps(check_steps(call, body, rules))
    except AuthorizationError as exc:
        return await in_steps(error_response_steps(api, call.version, body, exc.code, MESSAGE))
    path = next((path for path in PATHS[api.key] if getattr(body, path)), None)
    if rules.each is None or path is None:
        answer = await served(call, api, body, handler)
    else:
        answer = await _divided(call, api, body, rules.each, path, handler)
    if rules.hide is not None:
        await in_steps(rules.hide(call, body, answer))
    return answer


async def _divided(call: Call, api: Api, body: Any, each: Each, path: str, handler: Handler) -> Any:
    in_steps = call.broker.in_steps
    kept, refused = await in_steps(_judge_steps(call, body, each, getattr(body, path)))
    if not refused:
        return await served(call, api, body, handler)
    answer = await served(call, api, _with(body, path, kept), handler) if kept or each.is_of_group else api.response()
    if getattr(answer, "error_code", 0):
        return answer
    for code, elements in refused.items():
        for shape in SHAPES[api.key].lists:
            if shape.asked == path:
                asked = _with(body, path, elements)
                repeated = await in_steps(repeat_steps(shape, api.response, asked, code, MESSAGE))
                setattr(answer, shape.answer, getattr(answer, shape.answer) + repeated)
    return answer


def _judge_steps(call: Call, body: Any, each: Each, elements: list[Any]) -> Steps[tuple[list[Any], dict[ErrorCode, list[Any]]]]:
    """(elements that are served, error -> those refused with it)."""
    counts: Counter[Hashable] = Counter()
    if each.once:
        yield from each_steps(elements, lambda element: counts.update((_identity(element),)))

    def refusal(element: Any) -> Denied:
        return None if each.once and counts[_identity(element)] > 1 else each.denied(call, body, element)

    kept, found = yield from divide_steps(elements, refusal)
    refused: dict[ErrorCode, list[Any]] = {}
    yield from each_steps(found, lambda one: refused.setdefault(DENIED[one[2]], []).append(one[1]))
    return kept, refused


def _identity(element: Any) -> Hashable:
    """A key for what an element names; equal for two elements that name the same."""
    return element if isinstance(element, str) else tuple(getattr(element, name) for name in names_of(type(element)).values())


def _with(body: Any, path: str, elements: list[Any]) -> Any:
    changed = copy.copy(body)
    setattr(changed, path, elements)
    return changed
