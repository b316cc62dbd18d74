"""ApiVersions (key 18): which APIs and versions a broker has. The answer's header is version 0 whatever the request's is.

v3 the client's name and version (KIP-511); v4 features whose lowest level is 0 (KAFKA-17492); v5 whom the client means to reach
(KIP-1242).
"""

from __future__ import annotations

from ...schema.fields import BOOL, INT16, INT32, INT64, STRING, struct, wire


@struct
class ApiVersionsRequest:
    client_software_name: str = wire(STRING, "3+")
    client_software_version: str = wire(STRING, "3+")
    cluster_id: str | None = wire(STRING, "5+", nullable="5+", default=None)
    node_id: int = wire(INT32, "5+", default=-1)


@struct
class ApiVersion:
    api_key: int = wire(INT16)
    min_version: int = wire(INT16)
    max_version: int = wire(INT16)


@struct
class ApiVersionsSupportedFeatureKey:
    name: str = wire(STRING, "3+")
    min_version: int = wire(INT16, "3+")
    max_version: int = wire(INT16, "3+")


@struct
class ApiVersionsFinalizedFeatureKey:
    name: str = wire(STRING, "3+")
    max_version_level: int = wire(INT16, "3+")
    min_version_level: int = wire(INT16, "3+")


@struct
class ApiVersionsResponse:
    error_code: int = wire(INT16, default=0)
    api_keys: list[ApiVersion] = wire([ApiVersion])
    throttle_time_ms: int = wire(INT32, "1+", default=0)
    supported_features: list[ApiVersionsSupportedFeatureKey] = wire([ApiVersionsSupportedFeatureKey], "3+", tag=0, default=...)
    finalized_features_epoch: int = wire(INT64, "3+", tag=1, default=-1)
    finalized_features: list[ApiVersionsFinalizedFeatureKey] = wire([ApiVersionsFinalizedFeatureKey], "3+", tag=2, default=...)
    zk_migration_ready: bool = wire(BOOL, "3+", tag=3, default=...)
