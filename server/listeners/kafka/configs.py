"""DescribeConfigs, ListConfigResources, AlterConfigs and IncrementalAlterConfigs. Source: KafkaApis, ConfigHelper,
ConfigAdminManager, ConfigurationControlManager, KIP-133, KIP-226, KIP-339, KIP-569, KIP-1142.

Topics, the broker, groups and subscriptions to clients' metrics have configurations; loggers have none here. Topics, groups and
subscriptions are configured while the server runs; of the broker's keys those that topics follow.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NoReturn, TypeVar

from ....protocol.errors import (
    InvalidConfigError,
    InvalidRequestError,
    RequestError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from ....protocol.kafka.messages import configs as messages
from ...broker import ALL_BROKERS, StoredOverrides, check_topic_name
from ...config import KNOWN_KEYS, TOPIC_KEYS, LogConfig
from ...loop.procedures import in_turns
from .config_entries import (
    Entry,
    broker_entries,
    client_metrics_entries,
    entries_of_all_brokers,
    group_entries,
    topic_entries,
)
from .door import Call, filled, reported

T = TypeVar("T")

RESOURCES_PER_TURN: Final = 2
"""Each has forty keys."""


class ResourceType(enum.IntEnum):
    """Kafka's ConfigResource.Type."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


# ---- DescribeConfigs -------------------------------------------------------------------------------------------------------


async def describe_configs(call: Call, body: messages.DescribeConfigsRequest) -> messages.DescribeConfigsResponse:
    """Every key of each resource, or those asked for; no keys at all ask for every one. A resource that is there twice is
    answered once, with the keys of both: an answer is some hundred times as long as its question."""
    wanted: dict[tuple[int, str], set[str] | None] = {}
    for each in body.resources:
        resource = each.resource_type, each.resource_name
        before = wanted.get(resource, set())
        wanted[resource] = None if before is None or not each.configuration_keys else before | set(each.configuration_keys)
    return messages.DescribeConfigsResponse(
        results=[
            _describe(call, body, *resource, keys) async for resource, keys in in_turns(wanted.items(), RESOURCES_PER_TURN)
        ]
    )


def _describe(
    call: Call, body: messages.DescribeConfigsRequest, resource_type: int, name: str, keys: set[str] | None
) -> messages.DescribeConfigsResult:
    entries: Iterable[Entry] = ()
    error: RequestError | None = None
    try:
        entries = _entries(call, resource_type, name)
    except RequestError as exc:
        error = exc.as_answer()
    return reported(
        messages.DescribeConfigsResult,
        error,
        resource_type=resource_type,
        resource_name=name,
        configs=[
            _result(entry, synonyms=body.include_synonyms, documentation=body.include_documentation)
            for entry in entries
            if keys is None or entry.name in keys
        ],
    )


def _entries(call: Call, resource_type: int, name: str) -> Iterable[Entry]:
    if resource_type == ResourceType.TOPIC:
        check_topic_name(name)
        return topic_entries(call.broker, name)
    if resource_type == ResourceType.BROKER:
        check_broker_name(call, name)
        return entries_of_all_brokers(call) if name == ALL_BROKERS else broker_entries(call)
    if resource_type == ResourceType.GROUP:
        check_group_name(name)
        return group_entries(call.broker, name)
    if resource_type == ResourceType.CLIENT_METRICS:
        if not name:
            raise InvalidRequestError("Client metrics subscription name must not be empty")
        return client_metrics_entries(call.broker, name)
    raise unknown_type(resource_type)


def check_group_name(name: str) -> None:
    """Raises RequestError: there is no configuration of all groups."""
    if not name:
        raise InvalidRequestError("Group name must not be empty. Groups follow the server's keys")


def _result(entry: Entry, *, synonyms: bool, documentation: bool) -> messages.DescribeConfigsResourceResult:
    shown = filled(
        messages.DescribeConfigsResourceResult,
        entry,
        read_only=entry.is_read_only,
        config_source=entry.source,
        config_type=entry.type,
        documentation=entry.doc if documentation else None,
    )
    if not synonyms:
        shown.synonyms = []
    return shown


def check_broker_name(call: Call, name: str) -> None:
    """Raises RequestError unless it is the number of a node, or empty for all of them."""
    nodes = [str(node.node_id) for node in call.door.nodes(call.session)]
    if name != ALL_BROKERS and name not in nodes:
        raise InvalidRequestError(f"broker {name!r}: expected {', '.join(nodes)} or nothing")


def unknown_type(resource_type: int) -> RequestError:
    """Return the error for resources that have no configuration here."""
    known = [kind for kind in ResourceType if kind == resource_type]
    name = known[0].name if known else str(resource_type)
    return InvalidRequestError(f"resources of type {name} have no configuration here. All types except loggers have one")


# ---- ListConfigResources ---------------------------------------------------------------------------------------------------


def list_config_resources(call: Call, body: messages.ListConfigResourcesRequest) -> messages.ListConfigResourcesResponse:
    """List the resources that have a configuration, of the requested types or of all. Version 0 covers client metrics only."""
    wanted = set(body.resource_types or ResourceType) if call.version else {int(ResourceType.CLIENT_METRICS)}
    if not wanted <= set(ResourceType):
        raise UnsupportedVersionError(f"unknown resource types {sorted(wanted - set(ResourceType))}")
    names: dict[ResourceType, list[str]] = {
        ResourceType.TOPIC: list(call.broker.topics.names()),
        ResourceType.BROKER: [str(node.node_id) for node in call.door.nodes(call.session)],
        ResourceType.CLIENT_METRICS: sorted(call.broker.client_metrics.overrides()),
        ResourceType.GROUP: sorted(call.broker.group_configs.overrides()),
    }
    return messages.ListConfigResourcesResponse(
        config_resources=[
            messages.ListConfigResourcesConfigResource(resource_name=name, resource_type=kind)
            for kind, found in names.items()
            if kind in wanted
            for name in found
        ]
    )


class Operation(enum.IntEnum):
    """Kafka's AlterConfigOp.OpType. APPEND and SUBTRACT are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


OPERATIONS: Final = frozenset(Operation)

Resource = messages.AlterConfigsResource | messages.IncrementalAlterConfigsAlterConfigsResource


# ---- AlterConfigs ----------------------------------------------------------------------------------------------------------


async def alter_configs(call: Call, body: messages.AlterConfigsRequest) -> messages.AlterConfigsResponse:
    """Replace all that resources override: what is not named follows the defaults again."""
    repeated = _repeated(body.resources)
    return messages.AlterConfigsResponse(
        responses=[
            await _answer(messages.AlteredResource, call, resource, repeated, validate_only=body.validate_only)
            async for resource in in_turns(body.resources)
        ]
    )


# ---- IncrementalAlterConfigs -----------------------------------------------------------------------------------------------


async def incremental_alter_configs(
    call: Call, body: messages.IncrementalAlterConfigsRequest
) -> messages.IncrementalAlterConfigsResponse:
    """Change single keys of resources."""
    repeated = _repeated(body.resources)
    return messages.IncrementalAlterConfigsResponse(
        responses=[
            await _answer(
                messages.AlteredResource,
                call,
                resource,
                repeated,
                validate_only=body.validate_only,
            )
            async for resource in in_turns(body.resources)
        ]
    )


# ---- both ------------------------------------------------------------------------------------------------------------------


def _repeated(resources: Sequence[Resource]) -> set[tuple[int, str]]:
    counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    return {resource for resource, count in counts.items() if count > 1}


async def _answer(cls: type[T], call: Call, resource: Resource, repeated: set[tuple[int, str]], *, validate_only: bool) -> T:
    """Apply a change to one resource and return its result; others are not affected."""
    error: RequestError | None = None
    try:
        if (resource.resource_type, resource.resource_name) in repeated:
            raise InvalidRequestError("a resource is given more than once")
        _check_keys(resource)
        await _alter(call, resource, validate_only=validate_only)
    except RequestError as exc:
        error = exc.as_answer()
    return reported(cls, error, resource_type=resource.resource_type, resource_name=resource.resource_name)


def _check_keys(resource: Resource) -> None:
    """Raises RequestError for keys that are there twice, for missing values, and for operations that do not exist."""
    counts = Counter(config.name for config in resource.configs)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise InvalidRequestError(f"{', '.join(twice)}: a key is given more than once")
    operations = {config.name: _operation(config) for config in resource.configs}
    if strange := [name for name, operation in operations.items() if operation not in OPERATIONS]:
        raise InvalidRequestError(f"{', '.join(strange)}: operations are {', '.join(f'{o.name} {o}' for o in Operation)}")
    missing = [config.name for config in resource.configs if config.value is None]
    if without := [name for name in missing if operations[name] != Operation.DELETE]:
        raise InvalidRequestError(f"{', '.join(without)}: no value given")


def _operation(config: messages.AlterConfigsAlterableConfig | messages.IncrementalAlterConfigsAlterableConfig) -> int:
    return config.config_operation if isinstance(config, messages.IncrementalAlterConfigsAlterableConfig) else Operation.SET


async def _alter(call: Call, resource: Resource, *, validate_only: bool) -> None:
    kind, name, broker = resource.resource_type, resource.resource_name, call.broker
    if kind == ResourceType.TOPIC:
        await _alter_topic(call, resource, validate_only=validate_only)
        return
    stores: Mapping[int, StoredOverrides] = {
        ResourceType.BROKER: broker.broker_configs,
        ResourceType.GROUP: broker.group_configs,
        ResourceType.CLIENT_METRICS: broker.client_metrics,
    }
    if kind not in stores:
        raise unknown_type(kind)
    if kind == ResourceType.BROKER:
        check_broker_name(call, name)
    elif kind == ResourceType.GROUP:
        check_group_name(name)
    await stores[kind].change(name, partial(_changed, resource, _no_list), validate_only=validate_only)


async def _alter_topic(call: Call, resource: Resource, *, validate_only: bool) -> None:
    if not resource.resource_name:
        raise InvalidRequestError("topics have no common configuration. They follow the server's keys")
    defaults, lenient = call.broker.config.topic_defaults, call.door.lenient
    change = partial(_changed, resource, partial(_list, defaults))
    try:
        await call.broker.topics.change_configs(resource.resource_name, change, lenient=lenient, validate_only=validate_only)
    except UnknownTopicOrPartitionError:
        defaults.overlay(change({}), lenient=lenient)  # Kafka says first what is wrong
        raise


# ---- single operations -----------------------------------------------------------------------------------------------------

PresentList = Callable[[str, Mapping[str, str]], list[str]]
"""(key, overrides) -> the parts of a list as it is in effect. Raises InvalidConfigError if the key is not a list."""


def _changed(resource: Resource, present: PresentList, overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the overrides of a resource after a change."""
    if isinstance(resource, messages.AlterConfigsResource):
        return {config.name: config.value or "" for config in resource.configs}
    changed = dict(overrides)
    for config in resource.configs:
        name, value = config.name, config.value or ""
        if config.config_operation == Operation.DELETE:
            changed.pop(name, None)
        elif config.config_operation == Operation.SET:
            changed[name] = value
        else:
            changed[name] = _list_with(config.config_operation, value.split(","), present(name, changed))
    return changed


def _list(defaults: LogConfig, name: str, overrides: Mapping[str, str]) -> list[str]:
    key = KNOWN_KEYS.get(name)
    if key is None or key.type != "list":
        return _no_list(name, overrides)
    default = key.write(getattr(defaults, key.attribute) if name in TOPIC_KEYS else key.default)
    return [part.strip() for part in overrides.get(name, default).split(",") if part.strip()]


def _no_list(name: str, overrides: Mapping[str, str]) -> NoReturn:
    """Keys of groups, subscriptions and brokers are not lists, as in Kafka."""
    raise InvalidConfigError(f"{name} is not a list: APPEND and SUBTRACT do not apply")


def _list_with(operation: int, parts: Sequence[str], present: list[str]) -> str:
    wanted = dict.fromkeys(part.strip() for part in parts if part.strip())
    if operation == Operation.APPEND:
        return ",".join(dict.fromkeys([*present, *wanted]))
    return ",".join(part for part in present if part not in wanted)
