"""AlterConfigs and IncrementalAlterConfigs. Source: ConfigAdminManager, ConfigurationControlManager, KIP-133, KIP-339.

Topics, groups and subscriptions are configured while the server runs; of the broker's keys those that topics follow.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NoReturn

from ....protocol.errors import InvalidConfigError, InvalidRequestError, RequestError, UnknownTopicOrPartitionError
from ....protocol.kafka.messages.configs import (
    AlterConfigsAlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
    AlteredResource,
    IncrementalAlterConfigsAlterableConfig,
    IncrementalAlterConfigsAlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ...broker import StoredOverrides
from ...config import KNOWN_KEYS, TOPIC_KEYS, LogConfig
from ...loop.procedures import in_turns
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
            AlteredResource(**await _answer(call, resource, repeated, validate_only=body.validate_only))
            async for resource in in_turns(body.resources)
        ]
    )


# ---- IncrementalAlterConfigs -----------------------------------------------------------------------------------------------


async def incremental_alter_configs(call: Call, body: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    """Change single keys of resources."""
    repeated = _repeated(body.resources)
    return IncrementalAlterConfigsResponse(
        responses=[
            AlteredResource(**await _answer(call, resource, repeated, validate_only=body.validate_only))
            async for resource in in_turns(body.resources)
        ]
    )


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
        raise InvalidRequestError("there is no configuration of all topics; the server's keys are what topics follow")
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
    if isinstance(resource, AlterConfigsResource):
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
    raise InvalidConfigError(f"{name} is no list: nothing can be appended to it or subtracted from it")


def _list_with(operation: int, parts: Sequence[str], present: list[str]) -> str:
    wanted = dict.fromkeys(part.strip() for part in parts if part.strip())
    if operation == Operation.APPEND:
        return ",".join(dict.fromkeys([*present, *wanted]))
    return ",".join(part for part in present if part not in wanted)
