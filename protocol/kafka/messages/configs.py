"""DescribeConfigs (32), AlterConfigs (33), IncrementalAlterConfigs (44), ListConfigResources (74), GetTelemetrySubscriptions
and PushTelemetry (71, 72; KIP-714).

DescribeConfigs: v1 synonyms; v3 types and documentation (KIP-569). ListConfigResources: v0 lists client metrics only, v1 any
kind (KIP-1142).
"""

from __future__ import annotations

from ...schema.fields import BOOL, BYTES, INT8, INT16, INT32, STRING, UUID, struct, wire
from ..apis import RESOURCE_NAME, RESOURCE_TYPE
from .responses import Response, ResponseWithCode


@struct
class DescribeConfigsResource:
    resource_type: int = wire(RESOURCE_TYPE)
    resource_name: str = wire(RESOURCE_NAME)
    configuration_keys: list[str] | None = wire([STRING], nullable="0+")


@struct
class DescribeConfigsRequest:
    resources: list[DescribeConfigsResource] = wire([DescribeConfigsResource])
    include_synonyms: bool = wire(BOOL, "1+")
    include_documentation: bool = wire(BOOL, "3+")


@struct
class DescribeConfigsSynonym:
    name: str = wire(STRING, "1+")
    value: str | None = wire(STRING, "1+", nullable="0+")
    source: int = wire(INT8, "1+")


@struct
class DescribeConfigsResourceResult:
    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable="0+")
    read_only: bool = wire(BOOL)
    config_source: int = wire(INT8, "1+", default=-1)
    is_default: bool = wire(BOOL, "0")
    is_sensitive: bool = wire(BOOL)
    synonyms: list[DescribeConfigsSynonym] = wire([DescribeConfigsSynonym], "1+")
    config_type: int = wire(INT8, "3+")
    documentation: str | None = wire(STRING, "3+", nullable="0+")


@struct
class DescribeConfigsResult:
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+")
    resource_type: int = wire(RESOURCE_TYPE)
    resource_name: str = wire(RESOURCE_NAME)
    configs: list[DescribeConfigsResourceResult] = wire([DescribeConfigsResourceResult])


@struct
class DescribeConfigsResponse(Response):
    results: list[DescribeConfigsResult] = wire([DescribeConfigsResult])


@struct
class AlterConfigsAlterableConfig:
    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable="0+")


@struct
class AlterConfigsResource:
    resource_type: int = wire(RESOURCE_TYPE)
    resource_name: str = wire(RESOURCE_NAME)
    configs: list[AlterConfigsAlterableConfig] = wire([AlterConfigsAlterableConfig])


@struct
class AlterConfigsRequest:
    resources: list[AlterConfigsResource] = wire([AlterConfigsResource])
    validate_only: bool = wire(BOOL)


@struct
class AlteredResource:
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+")
    resource_type: int = wire(RESOURCE_TYPE)
    resource_name: str = wire(RESOURCE_NAME)


@struct
class AlterConfigsResponse(Response):
    responses: list[AlteredResource] = wire([AlteredResource])


@struct
class IncrementalAlterConfigsAlterableConfig:
    name: str = wire(STRING)
    config_operation: int = wire(INT8)
    value: str | None = wire(STRING, nullable="0+")


@struct
class IncrementalAlterConfigsAlterConfigsResource:
    resource_type: int = wire(RESOURCE_TYPE)
    resource_name: str = wire(RESOURCE_NAME)
    configs: list[IncrementalAlterConfigsAlterableConfig] = wire([IncrementalAlterConfigsAlterableConfig])


@struct
class IncrementalAlterConfigsRequest:
    resources: list[IncrementalAlterConfigsAlterConfigsResource] = wire([IncrementalAlterConfigsAlterConfigsResource])
    validate_only: bool = wire(BOOL)


@struct
class IncrementalAlterConfigsResponse(Response):
    responses: list[AlteredResource] = wire([AlteredResource])


@struct
class ListConfigResourcesRequest:
    resource_types: list[int] = wire([INT8], "1+")


@struct
class ListConfigResourcesConfigResource:
    resource_name: str = wire(RESOURCE_NAME)
    resource_type: int = wire(RESOURCE_TYPE, "1+", default=16)


@struct
class ListConfigResourcesResponse(ResponseWithCode):
    config_resources: list[ListConfigResourcesConfigResource] = wire([ListConfigResourcesConfigResource])


@struct
class GetTelemetrySubscriptionsRequest:
    client_instance_id: bytes = wire(UUID)


@struct
class GetTelemetrySubscriptionsResponse(ResponseWithCode):
    client_instance_id: bytes = wire(UUID, default=bytes(16))
    subscription_id: int = wire(INT32, default=0)
    accepted_compression_types: list[int] = wire([INT8])
    push_interval_ms: int = wire(INT32, default=0)
    telemetry_max_bytes: int = wire(INT32, default=0)
    delta_temporality: bool = wire(BOOL, default=False)
    requested_metrics: list[str] = wire([STRING])


@struct
class PushTelemetryRequest:
    client_instance_id: bytes = wire(UUID)
    subscription_id: int = wire(INT32)
    terminating: bool = wire(BOOL)
    compression_type: int = wire(INT8)
    metrics: bytes = wire(BYTES)


@struct
class PushTelemetryResponse(ResponseWithCode):
    """Only the code."""
