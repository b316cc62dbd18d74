"""What a client may do, by ACLs: one table for all APIs, so that a handler knows nothing of it. Source: Kafka's KafkaApis,
ControllerApis, AclApis and AuthHelper (4.1), and the table of operations in Kafka's documentation.

| table | a request |
|---|---|
| WHOLE | is refused as a whole: with the first rule's code that denies it |
| EACH | has elements that are refused, each with the error; the others are served |
| SEEN | has an answer out of which is taken what the client may not see |

Produce, Fetch, Metadata and the APIs of users and ACLs ask `Call.authorize` themselves: what they do while they answer hangs on
it. Where no ACLs are enforced nothing of this is asked for.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any, Final

import attrs

from ....protocol.errors import ErrorCode, RequestError
from ....protocol.kafka.apis import Api, ApiKey
from ....protocol.kafka.authorization import CLUSTER_NAME, DENIED, AclOperation, ResourceType
from ....protocol.limits import INT32_MIN
from .door import NO_TOPIC_ID, Call
from .error_answers import SHAPES, error_response, repeat

MESSAGE: Final = "Authorization failed."
"""Kafka's words."""
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)

Handler = Callable[[Call, Any], Any]
Rule = Callable[[Call, Any], ErrorCode | None]
"""(call, request) -> why it is refused."""
Judge = Callable[[Call, Any, Any], ErrorCode | None]
"""(call, request, an element of it) -> why that is refused."""


async def guarded(call: Call, api: Api, body: Any, handler: Handler) -> Any:
    """The answer to a request, as far as the client may have it."""
    for rule in WHOLE.get(api.key, ()):
        if (code := rule(call, body)) is not None:
            return error_response(api, call.version, body, code, MESSAGE)
    each = next((each for each in EACH.get(api.key, ()) if getattr(body, each.path)), None)
    answer = await _served(call, body, handler) if each is None else await _divided(call, api, body, each, handler)
    if (hide := SEEN.get(api.key)) is not None:
        hide(call, body, answer)
    return answer


async def _served(call: Call, body: Any, handler: Handler) -> Any:
    answer = handler(call, body)
    return await answer if inspect.isawaitable(answer) else answer


# ---- requests that are refused as a whole --------------------------------------------------------------------------------


def _on(kind: ResourceType, operation: AclOperation, field: str | None = None) -> Rule:
    """An operation on what a field of the request names; on the cluster without one. A null name is nobody's."""

    def rule(call: Call, body: Any) -> ErrorCode | None:
        name = CLUSTER_NAME if field is None else getattr(body, field)
        return None if name is None or call.authorize(operation, kind, name) else DENIED[kind]

    return rule


def _markers(call: Call, _body: Any) -> ErrorCode | None:
    may = call.authorize(AclOperation.ALTER, CLUSTER) or call.authorize(AclOperation.CLUSTER_ACTION, CLUSTER)
    return None if may else DENIED[CLUSTER]


def _idempotent_producer(call: Call, body: Any) -> ErrorCode | None:
    """Without a transactional id: whoever may write to any topic may have a producer id."""
    if body.transactional_id is not None or call.may_on_any(AclOperation.WRITE, TOPIC):
        return None
    return None if call.authorize(AclOperation.IDEMPOTENT_WRITE, CLUSTER) else DENIED[CLUSTER]


def _one_coordinator(call: Call, body: Any) -> ErrorCode | None:
    return None if body.coordinator_keys else _coordinator(call, body, body.key)


def _coordinator(call: Call, body: Any, key: str) -> ErrorCode | None:
    kind = {0: GROUP, 1: TRANSACTIONAL_ID}.get(body.key_type)
    return None if kind is None or call.authorize(AclOperation.DESCRIBE, kind, key) else DENIED[kind]


def _one_group(call: Call, body: Any) -> ErrorCode | None:
    return None if body.groups or call.authorize(AclOperation.DESCRIBE, GROUP, body.group_id) else DENIED[GROUP]


def _subscribed(call: Call, body: Any) -> ErrorCode | None:
    names = body.subscribed_topic_names or ()
    return None if all(call.authorize(AclOperation.DESCRIBE, TOPIC, name) for name in names) else DENIED[TOPIC]


_IN_GROUP: Final = _on(GROUP, AclOperation.READ, "group_id")
_IN_TRANSACTION: Final = _on(TRANSACTIONAL_ID, AclOperation.WRITE, "transactional_id")

WHOLE: Final[dict[ApiKey, tuple[Rule, ...]]] = {
    ApiKey.JOIN_GROUP: (_IN_GROUP,),
    ApiKey.SYNC_GROUP: (_IN_GROUP,),
    ApiKey.HEARTBEAT: (_IN_GROUP,),
    ApiKey.LEAVE_GROUP: (_IN_GROUP,),
    ApiKey.OFFSET_COMMIT: (_IN_GROUP,),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (_IN_GROUP, _subscribed),
    ApiKey.OFFSET_FETCH: (_one_group,),
    ApiKey.OFFSET_DELETE: (_on(GROUP, AclOperation.DELETE, "group_id"),),
    ApiKey.FIND_COORDINATOR: (_one_coordinator,),
    ApiKey.INIT_PRODUCER_ID: (_IN_TRANSACTION, _idempotent_producer),
    ApiKey.ADD_PARTITIONS_TO_TXN: (_on(TRANSACTIONAL_ID, AclOperation.WRITE, "v3_and_below_transactional_id"),),
    ApiKey.ADD_OFFSETS_TO_TXN: (_IN_TRANSACTION, _IN_GROUP),
    ApiKey.TXN_OFFSET_COMMIT: (_IN_TRANSACTION, _IN_GROUP),
    ApiKey.END_TXN: (_IN_TRANSACTION,),
    ApiKey.WRITE_TXN_MARKERS: (_markers,),
    ApiKey.DESCRIBE_LOG_DIRS: (_on(CLUSTER, AclOperation.DESCRIBE),),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (_on(CLUSTER, AclOperation.ALTER),),
    ApiKey.ELECT_LEADERS: (_on(CLUSTER, AclOperation.ALTER),),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (_on(CLUSTER, AclOperation.ALTER),),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (_on(CLUSTER, AclOperation.DESCRIBE),),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (_on(CLUSTER, AclOperation.DESCRIBE_CONFIGS),),
    ApiKey.ALTER_CLIENT_QUOTAS: (_on(CLUSTER, AclOperation.ALTER_CONFIGS),),
    ApiKey.UPDATE_FEATURES: (_on(CLUSTER, AclOperation.ALTER),),
    ApiKey.LIST_CONFIG_RESOURCES: (_on(CLUSTER, AclOperation.DESCRIBE_CONFIGS),),
}


# ---- elements that are refused ---------------------------------------------------------------------------------------------


@attrs.frozen
class Each:
    """A list of a request whose elements are looked at one by one."""

    path: str
    judge: Judge
    others: ErrorCode | None = None
    """Nothing is done where one is refused, and this is answered for the others."""


async def _divided(call: Call, api: Api, body: Any, each: Each, handler: Handler) -> Any:
    refused: dict[ErrorCode, list[Any]] = {}
    kept: list[Any] = []
    for element in getattr(body, each.path):
        code = each.judge(call, body, element)
        (kept if code is None else refused.setdefault(code, [])).append(element)
    if not refused:
        return await _served(call, body, handler)
    if each.others is not None:
        refused[each.others], kept = kept, []
    answer = await _served(call, _with(body, each.path, kept), handler) if kept else api.response()
    for code, elements in refused.items():
        for shape in SHAPES[api.key].lists:
            if shape.asked == each.path:
                asked = _with(body, each.path, elements)
                setattr(answer, shape.answer, getattr(answer, shape.answer) + repeat(shape, api.response, asked, code, MESSAGE))
    return answer


def _with(body: Any, path: str, elements: list[Any]) -> Any:
    changed = copy.copy(body)
    setattr(changed, path, elements)
    return changed


def _named(kind: ResourceType, operation: AclOperation, field: str | None = None) -> Judge:
    """An operation on what a field of the element names, or the element itself."""

    def judge(call: Call, _body: Any, element: Any) -> ErrorCode | None:
        name = element if field is None else getattr(element, field)
        return None if call.authorize(operation, kind, name) else DENIED[kind]

    return judge


def _topic(operation: AclOperation) -> Judge:
    """The same for a topic that may be meant by its id; one that is not known is the handler's matter."""

    def judge(call: Call, _body: Any, element: Any) -> ErrorCode | None:
        name, topic_id = element.name, element.topic_id
        if topic_id != NO_TOPIC_ID:
            try:
                name = call.broker.topic_named(topic_id)
            except RequestError:
                return None
        return None if call.authorize(operation, TOPIC, name or "") else DENIED[TOPIC]

    return judge


def _new_topic(call: Call, _body: Any, element: Any) -> ErrorCode | None:
    may = call.authorize(AclOperation.CREATE, CLUSTER) or call.authorize(AclOperation.CREATE, TOPIC, element.name)
    return None if may else DENIED[TOPIC]


_CONFIGURED: Final = {2: TOPIC, 32: GROUP}
"""By the type of a configuration; all others are the cluster's."""


def _configs(operation: AclOperation) -> Judge:
    def judge(call: Call, _body: Any, element: Any) -> ErrorCode | None:
        kind = _CONFIGURED.get(element.resource_type, CLUSTER)
        name = CLUSTER_NAME if kind is CLUSTER else element.resource_name
        return None if call.authorize(operation, kind, name) else DENIED[kind]

    return judge


EACH: Final[dict[ApiKey, tuple[Each, ...]]] = {
    ApiKey.LIST_OFFSETS: (Each("topics", _named(TOPIC, AclOperation.DESCRIBE, "name")),),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (Each("topics", _named(TOPIC, AclOperation.DESCRIBE, "topic")),),
    ApiKey.OFFSET_COMMIT: (Each("topics", _topic(AclOperation.READ)),),
    ApiKey.TXN_OFFSET_COMMIT: (Each("topics", _named(TOPIC, AclOperation.READ, "name")),),
    ApiKey.OFFSET_DELETE: (Each("topics", _named(TOPIC, AclOperation.READ, "name")),),
    ApiKey.OFFSET_FETCH: (Each("groups", _named(GROUP, AclOperation.DESCRIBE, "group_id")),),
    ApiKey.DESCRIBE_GROUPS: (Each("groups", _named(GROUP, AclOperation.DESCRIBE)),),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (Each("group_ids", _named(GROUP, AclOperation.DESCRIBE)),),
    ApiKey.DELETE_GROUPS: (Each("groups_names", _named(GROUP, AclOperation.DELETE)),),
    ApiKey.FIND_COORDINATOR: (Each("coordinator_keys", _coordinator),),
    ApiKey.CREATE_TOPICS: (Each("topics", _new_topic),),
    ApiKey.DELETE_TOPICS: (
        Each("topics", _topic(AclOperation.DELETE)),
        Each("topic_names", _named(TOPIC, AclOperation.DELETE)),
    ),
    ApiKey.CREATE_PARTITIONS: (Each("topics", _named(TOPIC, AclOperation.ALTER, "name")),),
    ApiKey.DELETE_RECORDS: (Each("topics", _named(TOPIC, AclOperation.DELETE, "name")),),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        Each("v3_and_below_topics", _named(TOPIC, AclOperation.WRITE, "name"), others=ErrorCode.OPERATION_NOT_ATTEMPTED),
    ),
    ApiKey.DESCRIBE_PRODUCERS: (Each("topics", _named(TOPIC, AclOperation.READ, "name")),),
    ApiKey.DESCRIBE_TRANSACTIONS: (Each("transactional_ids", _named(TRANSACTIONAL_ID, AclOperation.DESCRIBE)),),
    ApiKey.DESCRIBE_CONFIGS: (Each("resources", _configs(AclOperation.DESCRIBE_CONFIGS)),),
    ApiKey.ALTER_CONFIGS: (Each("resources", _configs(AclOperation.ALTER_CONFIGS)),),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (Each("resources", _configs(AclOperation.ALTER_CONFIGS)),),
}


# ---- what is seen of an answer ---------------------------------------------------------------------------------------------


def _may_see(call: Call, topic: str) -> bool:
    return call.authorize(AclOperation.DESCRIBE, TOPIC, topic, quietly=True)


def _offsets(call: Call, body: Any, answer: Any) -> None:
    """Offsets of topics that are asked for have the error, those of all topics are left out."""
    asked = {each.group_id: each.topics is None for each in body.groups}
    groups = [(each, asked.get(each.group_id, False)) for each in answer.groups] or [(answer, body.topics is None)]
    for group, is_all in groups:
        if is_all:
            group.topics = [topic for topic in group.topics if _may_see(call, topic.name)]
        for topic in group.topics:
            if not _may_see(call, topic.name):
                for partition in topic.partitions:
                    partition.committed_offset, partition.metadata = -1, ""
                    partition.error_code = DENIED[TOPIC]


def _listed_groups(call: Call, _body: Any, answer: Any) -> None:
    if not call.authorize(AclOperation.DESCRIBE, CLUSTER, quietly=True):
        groups = answer.groups
        answer.groups = [each for each in groups if call.authorize(AclOperation.DESCRIBE, GROUP, each.group_id, quietly=True)]


def _listed_transactions(call: Call, _body: Any, answer: Any) -> None:
    answer.transaction_states = [
        each
        for each in answer.transaction_states
        if call.authorize(AclOperation.DESCRIBE, TRANSACTIONAL_ID, each.transactional_id, quietly=True)
    ]


def _transactions(call: Call, _body: Any, answer: Any) -> None:
    for each in answer.transaction_states:
        each.topics = [topic for topic in each.topics if _may_see(call, topic.topic)]


def _operations_on_groups(call: Call, _body: Any, answer: Any) -> None:
    for group in answer.groups:
        if not group.error_code and group.authorized_operations != INT32_MIN:
            group.authorized_operations = call.authorized_operations(GROUP, group.group_id)


def _cluster(call: Call, _body: Any, answer: Any) -> None:
    if answer.cluster_authorized_operations != INT32_MIN:
        answer.cluster_authorized_operations = call.operations_on_cluster()


def _topic_partitions(call: Call, body: Any, answer: Any) -> None:
    """Topics that are asked for have the error, of all topics they are left out."""
    if not body.topics:
        answer.topics = [topic for topic in answer.topics if _may_see(call, topic.name)]
    for topic in answer.topics:
        if not _may_see(call, topic.name):
            topic.error_code, topic.partitions = DENIED[TOPIC], []
            topic.topic_id, topic.topic_authorized_operations = NO_TOPIC_ID, INT32_MIN
        elif not topic.error_code:
            topic.topic_authorized_operations = call.authorized_operations(TOPIC, topic.name)


def _new_topics(call: Call, _body: Any, answer: Any) -> None:
    """Whoever may make a topic need not be allowed to see its configuration."""
    for topic in answer.topics:
        if not topic.error_code and not call.authorize(AclOperation.DESCRIBE_CONFIGS, TOPIC, topic.name):
            topic.topic_config_error_code, topic.configs = DENIED[TOPIC], None
            topic.num_partitions = topic.replication_factor = -1


SEEN: Final[dict[ApiKey, Callable[[Call, Any, Any], None]]] = {
    ApiKey.OFFSET_FETCH: _offsets,
    ApiKey.LIST_GROUPS: _listed_groups,
    ApiKey.DESCRIBE_GROUPS: _operations_on_groups,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _operations_on_groups,
    ApiKey.LIST_TRANSACTIONS: _listed_transactions,
    ApiKey.DESCRIBE_TRANSACTIONS: _transactions,
    ApiKey.DESCRIBE_CLUSTER: _cluster,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _topic_partitions,
    ApiKey.CREATE_TOPICS: _new_topics,
}
