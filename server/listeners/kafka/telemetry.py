"""GetTelemetrySubscriptions and PushTelemetry. What they mean is in `server.telemetry`. Source: KIP-714, ClientMetricsManager.

Advertised where `telemetry_enable` is set, as Kafka does where a plug-in takes metrics.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import trio

from ....protocol.errors import ErrorCode, RequestError
from ....protocol.kafka.messages.configs import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from ...broker import ACCEPTED_COMPRESSION, Compute, Point, Procedure, Push, point_steps, unpack
from ...loop.procedures import in_turns
from .door import Call

POINTS_PER_TURN: Final = 256


def get_telemetry_subscriptions(call: Call, body: GetTelemetrySubscriptionsRequest) -> GetTelemetrySubscriptionsResponse:
    """Return the metrics that the client must send, the interval, and the size limit."""
    instances = call.broker.telemetry.instances
    instance = instances.get(body.client_instance_id, _client(call), call.session, _now_ms())
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance.instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=[int(each) for each in ACCEPTED_COMPRESSION],
        push_interval_ms=instance.interval_ms,
        telemetry_max_bytes=instances.max_bytes,
        delta_temporality=True,
        requested_metrics=list(instance.metrics),
    )


async def push_telemetry(call: Call, body: PushTelemetryRequest) -> PushTelemetryResponse:
    """Take what the client sends, if it may."""
    telemetry = call.broker.telemetry
    try:
        await _take(call, body)
    except RequestError as exc:
        telemetry.pushes[exc.code.name] += 1
        raise
    telemetry.pushes[ErrorCode.NONE.name] += 1
    return PushTelemetryResponse()


async def _take(call: Call, body: PushTelemetryRequest) -> None:
    telemetry, data = call.broker.telemetry, bytes(body.metrics)
    push = Push(body.subscription_id, body.terminating, body.compression_type, len(data))
    instance = telemetry.instances.push(body.client_instance_id, _client(call), push, call.session, _now_ms())
    if not data:
        return

    try:
        points = await call.broker.disk.compute(_read(data, body.compression_type, telemetry.instances.max_bytes))
    except RequestError:
        instance.last_error = ErrorCode.INVALID_RECORD
        raise
    now_ms = _now_ms()
    async for start in in_turns(range(0, max(1, len(points)), POINTS_PER_TURN), 1):
        telemetry.collected.add(
            instance.instance_id,
            instance.client,
            points[start : start + POINTS_PER_TURN],
            now_ms=now_ms,
            expires_ms=now_ms + instance.expiry_ms,
        )


def _read(data: bytes, compression_type: int, max_bytes: int) -> Procedure[list[Point]]:
    """The numbers in a push. Its size says nothing about what it unpacks to, so that is done in a thread, and the rest in
    steps, of one push at a time."""
    plain = yield Compute(partial(unpack, data, compression_type, max_bytes=max_bytes), ())
    return (yield from point_steps(plain))


def _client(call: Call) -> dict[str, str]:
    """Return the client's attributes that subscriptions match on."""
    session = call.session
    name, _, version = session.software.partition(" ")
    # As it was when the client came: the socket of one that is gone has no peer.
    host, port = session.transport.host, session.transport.peer.rpartition(":")[2]
    return {
        "client_id": session.client_id,
        "client_software_name": name,
        "client_software_version": version,
        "client_source_address": host,
        "client_source_port": port,
    }


def _now_ms() -> int:
    return round(trio.current_time() * 1000)
