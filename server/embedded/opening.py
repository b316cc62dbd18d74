"""Opening a broker in a trio program, with settings for tests and small programs."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs

from ...protocol.errors import InvalidConfigError
from ..broker import PlainRecord
from ..config import Durability, LogConfig
from ..control.clock import MovedClock
from ..control.life import Life
from ..control.seed import Seed, Topics
from ..control.views.log_view import Text
from ..listeners.opening import Addresses
from ..settings.broker_config import SECURITY_KEYS, Address, BrokerConfig
from ..system.clock import NowMs, system_now_ms
from .broker import EmbeddedBroker
from .living import LOCALHOST, data_directory, living


@asynccontextmanager
async def open_broker(
    path: str | os.PathLike[str] | None = None,
    *,
    native: Address | None = LOCALHOST,
    kafka: Address | None = None,
    durability: str | None = None,
    config: Mapping[str, str] | None = None,
    lenient: bool = True,
    users: Mapping[str, str] | None = None,
    security: Mapping[str, Any] | None = None,
    now_ms: NowMs = system_now_ms,
    clock: MovedClock | None = None,
    topics: Topics = (),
    records: Mapping[str, Sequence[PlainRecord | Text]] | None = None,
    nodes: int = 1,
    emulate: str | None = None,
    telemetry: bool = False,
) -> AsyncIterator[EmbeddedBroker]:
    """A broker for the time of the block.

    `path`: its directory; None for a temporary one, MEMORY for one in memory. `native`, `kafka`: where to listen with which
    protocol, None for not at all. `durability`: `fsync` by default for a directory of yours, `os` for one that goes with
    the block. `config`: defaults of all topics. `lenient`: Kafka clients get what tests want instead of what Kafka refuses,
    such as topics with more replicas than there are nodes. `users`: who logs in to the Kafka listener with which password.
    `security`: other keys of docs/operations/security.md. `topics`: names, or names with numbers of partitions, that
    are made when they are not there; `records`: what is appended to topics that are made. `clock`: the broker's, by default
    one that begins at `now_ms`. `nodes`: so many Kafka listeners look like a cluster. `emulate`: advertise what that version
    of Kafka does, such as "3.4". `telemetry`: ask clients for their metrics, as
    subscriptions say. Raises StorageError, OSError or RequestError when it cannot start.
    """
    with data_directory(path) as (directory, lasting):
        defaults = attrs.evolve(LogConfig(), durability=Durability.parse(durability or ("fsync" if lasting else "os")))
        settings = BrokerConfig(
            data_dirs=(directory,),
            native=native,
            topic_defaults=defaults.overlay(config or {}),
            lenient=lenient,
            durable=lasting,
            disk_reserve_bytes=0,
            group_initial_rebalance_delay_ms=0,
            group_min_session_timeout_ms=1,
            group_consumer_heartbeat_interval_ms=100,
            group_share_heartbeat_interval_ms=100,
            group_streams_heartbeat_interval_ms=100,
            group_streams_initial_rebalance_delay_ms=0,
            telemetry_enable=telemetry,
            **_security(users or {}, security or {}),
        )
        life_of = partial(Life, node_count=nodes, kafka_version=emulate)
        async with living(life_of, settings, Addresses(native, kafka), clock or MovedClock(now_ms)) as life:
            seed = Seed.of(topics, records or {})
            await seed.put(life.core)
            yield EmbeddedBroker(life, directory, seed, is_lasting=lasting)


def _security(users: Mapping[str, str], keys: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the broker. Raises InvalidConfigError."""
    said = {**({"kafka_security": "sasl_plaintext"} if users else {}), **keys}
    if unknown := sorted(said.keys() - SECURITY_KEYS.keys()):
        raise InvalidConfigError(f"{unknown[0]} is none of {', '.join(SECURITY_KEYS)}")
    settings: dict[str, Any] = {"sasl_users": dict(users)}
    for name, value in said.items():
        try:
            settings[name] = SECURITY_KEYS[name].read(value)
        except ValueError as exc:
            raise InvalidConfigError(f"{name}: {exc}") from exc
    return settings
