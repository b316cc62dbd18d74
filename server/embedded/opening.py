"""Opening a broker in a trio program."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from ...protocol.errors import InvalidConfigError
from ..broker import PlainRecord
from ..config.broker_config import Address
from ..fake.clock import MovedClock
from ..fake.life import Life
from ..fake.seed import Seed, Topics
from ..fake.views.log_view import Text
from ..listeners.addresses import Addresses
from ..system.clock import NowMs, system_now_ms
from .broker import EmbeddedBroker
from .living import LOCALHOST, data_directory, living
from .settings import Arguments, address_of, broker_config


@asynccontextmanager
async def open_broker(
    path: str | os.PathLike[str] | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    native: Address | str | None = LOCALHOST,
    kafka: Address | str | None = None,
    metrics: Address | str | None = None,
    durability: str | None = None,
    config: Mapping[str, str] | None = None,
    for_tests: bool | None = None,
    lenient: bool | None = None,
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

    `path`: its directory; None for a temporary one, MEMORY for one in memory. `settings`: keys of the server as
    docs/reference/configuration.md has them, with the values of a TOML file, and the table `topic_defaults`; arguments go
    before them. `native`, `kafka`: where to listen with which protocol, as `"127.0.0.1:0"` or Address; None for not at all.
    `metrics`: where /metrics, /livez and /readyz are answered over HTTP (extra `metrics`). `durability`: `fsync` by default
    for a directory of yours, `os` for one that goes with the block. `config`: defaults of all topics. `for_tests`: whether
    other settings are those of tests, where groups wait for nobody and `lenient` is on, or those of `triolog serve`; by default
    those of `serve` for a directory of yours.

    For tests: `lenient`: Kafka clients get what tests want instead of what Kafka refuses, such as topics with more replicas
    than there are nodes. `users`: who logs in to the Kafka listener with which password. `security`: keys of
    docs/operations/security.md. `topics`: names, or names with numbers of partitions, that are made when they are not there;
    `records`: what is appended to topics that are made. `clock`: the broker's, by default one that begins at `now_ms`. `nodes`:
    so many Kafka listeners look like a cluster. `emulate`: advertise what that version of Kafka does, such as "3.4".
    `telemetry`: ask clients for their metrics, as subscriptions say.

    Raises InvalidConfigError, StorageError, OSError or RequestError when it cannot start.
    """
    given, seed = settings or {}, Seed.of(topics, records or {})
    if native is not None and native is not LOCALHOST and "native" in given:
        raise InvalidConfigError(f"native is said twice: {given['native']} by settings, {native} by the argument")
    arguments = Arguments(
        native=None if native is LOCALHOST and "native" in given else address_of("native", native),
        kafka=address_of("kafka", kafka),
        metrics=address_of("metrics", metrics),
        durability=durability,
        config=config or {},
        lenient=lenient,
        users=users or {},
        security=security or {},
        telemetry=telemetry,
    )
    with data_directory(path) as (directory, is_lasting):
        is_test = not is_lasting if for_tests is None else for_tests
        chosen = broker_config(directory, given, arguments, is_lasting=is_lasting, for_tests=is_test)
        life_of = partial(Life, node_count=nodes, kafka_version=emulate, has_grace=not is_test)
        async with living(life_of, chosen, Addresses(chosen.native, chosen.kafka), clock or MovedClock(now_ms)) as running:
            await seed.put(running.life.core)
            yield EmbeddedBroker(running.life, directory, seed, running.metrics, is_lasting=is_lasting)
