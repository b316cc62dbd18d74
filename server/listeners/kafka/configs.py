"""DescribeConfigs and ListConfigResources. Source: KafkaApis, ConfigHelper, KIP-133, KIP-226, KIP-569, KIP-1142.

Topics, the broker, groups and subscriptions to clients' metrics have configurations; loggers have none here.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final

from ....protocol.errors import ErrorCode, InvalidRequestError, RequestError
from ....protocol.kafka.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    ListConfigResourcesConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from ...broker import ALL_BROKERS, check_topic_name
from ...loop.procedures import in_turns
from .config_entries import (
    Entry,
    broker_entries,
    client_metrics_entries,
    entries_of_all_brokers,
    group_entries,
    topic_entries,
)
from .door import Call, error_code, error_message

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


async def describe_configs(call: Call, body: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Every key of each resource, or those asked for; no keys at all ask for every one. A resource that is there twice is
    answered once, with the keys of both: an answer is some hundred times as long as its question."""
    wanted: dict[tuple[int, str], set[str] | None] = {}
    for each in body.resources:
        resource = each.resource_type, each.resource_name
        before = wanted.get(resource, set())
        wanted[resource] = None if before is None or not each.configuration_keys else before | set(each.configuration_keys)
    return DescribeConfigsResponse(
        results=[
            _describe(call, body, *resource, keys) async for resource, keys in in_turns(wanted.items(), RESOURCES_PER_TURN)
        ]
    )


def _describe(
    call: Call, body: DescribeConfigsRequest, resource_type: int, name: str, keys: set[str] | None
) -> DescribeConfigsResult:
    entries: Iterable[Entry] = ()
    error: RequestError | None = None
    try:
        entries = _entries(call, resource_type, name)
    except RequestError as exc:
        error = exc.as_answer()
    return DescribeConfigsResult(
        error_code=error_code(error),
        error_message=error_message(error),
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
        raise InvalidRequestError("Group name must not be empty; the server's keys are what groups follow")


def _result(entry: Entry, *, synonyms: bool, documentation: bool) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_default=False,
        is_sensitive=False,
        synonyms=[
            DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source)
            for each in (entry.synonyms if synonyms else ())
        ],
        config_type=entry.type,
        documentation=entry.doc if documentation else None,
    )


def check_broker_name(call: Call, name: str) -> None:
    """Raises RequestError unless it is the number of a node, or empty for all of them."""
    nodes = [str(node.node_id) for node in call.door.nodes(call.session)]
    if name != ALL_BROKERS and name not in nodes:
        raise InvalidRequestError(f"broker {name!r}: {', '.join(nodes)} or nothing was expected")


def unknown_type(resource_type: int) -> RequestError:
    """Return the error for resources that have no configuration here."""
    known = [kind for kind in ResourceType if kind == resource_type]
    name = known[0].name if known else str(resource_type)
    return InvalidRequestError(f"resources of type {name} have no configuration here; all but loggers have")


# ---- ListConfigResources ---------------------------------------------------------------------------------------------------


def list_config_resources(call: Call, body: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    """List the resources that have a configuration, of the requested types or of all. Version 0 covers client metrics only."""
    wanted = set(body.resource_types or ResourceType) if call.version else {int(ResourceType.CLIENT_METRICS)}
    if not wanted <= set(ResourceType):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[])
    names: dict[ResourceType, list[str]] = {
        ResourceType.TOPIC: list(call.broker.topics.names()),
        ResourceType.BROKER: [str(node.node_id) for node in call.door.nodes(call.session)],
        ResourceType.CLIENT_METRICS: sorted(call.broker.client_metrics.overrides()),
        ResourceType.GROUP: sorted(call.broker.group_configs.overrides()),
    }
    return ListConfigResourcesResponse(
        config_resources=[
            ListConfigResourcesConfigResource(resource_name=name, resource_type=kind)
            for kind, found in names.items()
            if kind in wanted
            for name in found
        ]
    )
