"""GetTelemetrySubscriptions and PushTelemetry (keys 71, 72): metrics that clients send (KIP-714)."""

from __future__ import annotations

from ....schema.fields import BOOL, BYTES, INT8, INT16, INT32, STRING, UUID, struct, wire


@struct
class GetTelemetrySubscriptionsRequest:
    client_instance_id: bytes = wire(UUID)


@struct
class GetTelemetrySubscriptionsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
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
class PushTelemetryResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
