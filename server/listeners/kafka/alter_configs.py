"""AlterConfigs and IncrementalAlterConfigs. Source: ConfigAdminManager, ConfigurationControlManager, KIP-133, KIP-339.

Topics, groups and subscriptions are configured while the server runs; of the broker's keys those that topics follow.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from ....protocol.errors import InvalidConfigError, InvalidRequestError, RequestError, UnknownTopicOrPartitionError
from ....protocol.kafka.messages.admin.configs import (
    AlterConfigsAlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    IncrementalAlterConfigsAlterableConfig,
    IncrementalAlterConfigsAlterConfigsResource,
    IncrementalAlterConfigsAlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ...config import KNOWN_KEYS, TOPIC_KEYS, LogConfig
from ..connections.in_turns import in_turns
from .configs import ResourceType, check_broker_name, check_group_name, unknown_type
from .door import Call, error_code, error_message


class Operation(enum.IntEnum):
    """Kafka's AlterConfigOp.OpType. APPEND and SUBTRACT are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


OPERATIONS: Final = frozenset(Operation)

Resource = AlterConfigsResource | IncrementalAlterConfigsAlterConfigsResource


# ---- AlterConfigs ----------------------------------------------------------------------------------------------------------


async def alter_configs(call: Call, body: AlterConfigsRequest) -> AlterConfigsResponse:
    """Replace all that resources override: what is not named follows the defaults again."""
    repeated = _repeated(body.resources)
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(**await _answer(call, resource, repeated, validate_only=body.validate_only))
            async for resource in in_turns(body.resources)
        ]
    )


# ---- IncrementalAlterConfigs -----------------------------------------------------------------------------------------------


async def incremental_alter_configs(call: Call, body: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    """Change single keys of resources."""
    repeated = _repeated(body.resources)
    return IncrementalAlterConfigsResponse(
        responses=[
            IncrementalAlterConfigsAlterConfigsResourceResponse(
                **await _answer(call, resource, repeated, validate_only=body.validate_only)
            )
            async for resource in in_turns(body.resources)
        ]
    )


def _applied(
    overrides: Mapping[str, str], configs: Sequence[IncrementalAlterConfigsAlterableConfig], defaults: LogConfig
) -> dict[str, str]:
    """The overrides of a topic after these operations."""
    changed = dict(overrides)
    for config in configs:
        name, value = config.name, config.value or ""
        if config.config_operation == Operation.DELETE:
            changed.pop(name, None)
        elif config.config_operation == Operation.SET:
            changed[name] = value
        else:
            changed[name] = _list_with(config.config_operation, name, value.split(","), _list(name, changed, defaults))
    return changed


def _list(name: str, overrides: Mapping[str, str], defaults: LogConfig) -> list[str]:
    """The parts of a list as it is in effect. Raises InvalidConfigError for what is no list."""
    key = KNOWN_KEYS.get(name)
    if key is None or key.type != "list":
        raise InvalidConfigError(f"{name} is no list: nothing can be appended to it or subtracted from it")
    default = key.write(getattr(defaults, key.attribute) if name in TOPIC_KEYS else key.default)
    return [part.strip() for part in overrides.get(name, default).split(",") if part.strip()]


def _list_with(operation: int, name: str, parts: Sequence[str], present: list[str]) -> str:
    wanted = dict.fromkeys(part.strip() for part in parts if part.strip())
    if operation == Operation.APPEND:
        return ",".join(dict.fromkeys([*present, *wanted]))
    return ",".join(part for part in present if part not in wanted)


# ---- both ------------------------------------------------------------------------------------------------------------------


def _repeated(resources: Sequence[Resource]) -> set[tuple[int, str]]:
    counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    return {resource for resource, count in counts.items() if count > 1}


async def _answer(call: Call, resource: Resource, repeated: set[tuple[int, str]], *, validate_only: bool) -> dict[str, Any]:
    """Apply a change to one resource and return the fields of its result; others are not affected."""
    error: RequestError | None = None
    try:
        if (resource.resource_type, resource.resource_name) in repeated:
            raise InvalidRequestError("each resource is there at most once")
        _check_keys(resource)
        await _alter(call, resource, validate_only=validate_only)
    except RequestError as exc:
        error = exc.as_answer()
    return {
        "error_code": error_code(error),
        "error_message": error_message(error),
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }


def _check_keys(resource: Resource) -> None:
    """Raises RequestError for keys that are there twice, for missing values, and for operations that do not exist."""
    counts = Counter(config.name for config in resource.configs)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise InvalidRequestError(f"{', '.join(twice)}: each key is there at most once")
    operations = {config.name: _operation(config) for config in resource.configs}
    if strange := [name for name, operation in operations.items() if operation not in OPERATIONS]:
        raise InvalidRequestError(f"{', '.join(strange)}: operations are {', '.join(f'{o.name} {o}' for o in Operation)}")
    missing = [config.name for config in resource.configs if config.value is None]
    if without := [name for name in missing if operations[name] != Operation.DELETE]:
        raise InvalidRequestError(f"{', '.join(without)}: no value is given")


def _operation(config: AlterConfigsAlterableConfig | IncrementalAlterConfigsAlterableConfig) -> int:
    return config.config_operation if isinstance(config, IncrementalAlterConfigsAlterableConfig) else Operation.SET


async def _alter(call: Call, resource: Resource, *, validate_only: bool) -> None:
    if resource.resource_type == ResourceType.BROKER:
        check_broker_name(call, resource.resource_name)
        await call.broker.broker_configs.change(
            resource.resource_name, partial(_plain_overrides, resource), validate_only=validate_only
        )
        return
    if resource.resource_type == ResourceType.GROUP:
        check_group_name(resource.resource_name)
        await call.broker.group_configs.change(
            resource.resource_name, partial(_plain_overrides, resource), validate_only=validate_only
        )
        return
    if resource.resource_type == ResourceType.CLIENT_METRICS:
        await call.broker.client_metrics.change(
            resource.resource_name, partial(_plain_overrides, resource), validate_only=validate_only
        )
        return
    if resource.resource_type != ResourceType.TOPIC:
        raise unknown_type(resource.resource_type)
    if not resource.resource_name:
        raise InvalidRequestError("there is no configuration of all topics; the server's keys are what topics follow")

    def change(overrides: Mapping[str, str]) -> dict[str, str]:
        if isinstance(resource, AlterConfigsResource):
            return {config.name: config.value or "" for config in resource.configs}
        return _applied(overrides, resource.configs, call.broker.config.topic_defaults)

    try:
        await call.broker.topics.change_configs(
            resource.resource_name, change, lenient=call.door.lenient, validate_only=validate_only
        )
    except UnknownTopicOrPartitionError:
        call.broker.config.topic_defaults.overlay(change({}), lenient=call.door.lenient)  # Kafka says first what is wrong
        raise


def _plain_overrides(resource: Resource, overrides: Mapping[str, str]) -> dict[str, str]:
    """What a group, a subscription or a broker overrides after a change. Nothing can be appended to its keys, as in Kafka."""
    if isinstance(resource, AlterConfigsResource):
        return {config.name: config.value or "" for config in resource.configs}
    changed = dict(overrides)
    for config in resource.configs:
        if config.config_operation == Operation.DELETE:
            changed.pop(config.name, None)
        elif config.config_operation == Operation.SET:
            changed[config.name] = config.value or ""
        else:
            raise InvalidConfigError(f"{config.name} is no list: nothing can be appended to it or subtracted from it")
    return changed
