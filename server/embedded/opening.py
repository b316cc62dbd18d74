"""Opening a broker in a trio program, configured by the keys of `serve` and the options of `open`."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Final, Unpack

import attrs

from ...protocol.errors import InvalidConfigError
from ...protocol.extras import how_to_install
from ...protocol.former import warn_former
from ..broker import PlainRecord
from ..config import Durability
from ..config.broker_config import SECURITY_KEYS, Address, BrokerConfig
from ..config.broker_settings import read_given
from ..config.listener_security import OAUTHBEARER, SASL_MECHANISMS
from ..fake.clock import MovedClock, clock_by
from ..fake.life import Life, Seed, Topics
from ..fake.views.log_view import Text
from ..listeners.addresses import Addresses
from ..system.clock import NowMs, system_now_ms
from .broker import EmbeddedBroker
from .living import data_directory, living
from .options import OpenOptions, listening


@asynccontextmanager
async def open(
    path: str | os.PathLike[str] | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    native: Address | str | None = None,
    kafka: Address | str | None = None,
    metrics: Address | str | None = None,
    durability: str | None = None,
    config: Mapping[str, str] | None = None,
    for_tests: bool | None = None,
    lenient: bool | None = None,
    users: Mapping[str, str] | None = None,
    oauth: bool = False,
    security: Mapping[str, Any] | None = None,
    now_ms: NowMs = system_now_ms,
    clock: MovedClock | None = None,
    topics: Topics = (),
    records: Mapping[str, Sequence[PlainRecord | Text]] | None = None,
    nodes: int = 1,
    emulate: str | None = None,
    telemetry: bool = False,
) -> AsyncIterator[EmbeddedBroker]:
    """Open a broker for the time of the block: `async with triolog.open("data") as broker`.

    `path`: its directory; None for a temporary directory that is removed at the end, `":memory:"` for one in memory.
    `OpenOptions` describes the other options. A TCP port is opened only if `native`, `kafka`, `metrics` or `settings` name it.

    The end of the block is a clean stop, also when it is cancelled. Raises InvalidConfigError, StorageError, OSError or
    RequestError when the broker cannot start.
    """
    given, seed = settings or {}, Seed.of(topics, records or {})
    if native is not None and "native" in given:
        raise InvalidConfigError(f"native is given twice: {given['native']} in settings, {native} as the argument")
    arguments = Arguments(
        native=address_of("native", native),
        kafka=address_of("kafka", kafka),
        metrics=address_of("metrics", metrics),
        durability=durability,
        config=config or {},
        lenient=lenient,
        users=users or {},
        oauth=oauth,
        security=security or {},
        telemetry=telemetry,
    )
    with data_directory(path) as (directory, is_lasting):
        is_test = not is_lasting if for_tests is None else for_tests
        chosen = broker_config(directory, given, arguments, is_lasting=is_lasting, for_tests=is_test)
        life_of = partial(Life, node_count=nodes, kafka_version=emulate, has_grace=not is_test, issues_tokens=is_test)
        clock = clock or clock_by(now_ms)
        life_of = partial(life_of, checks_clock=is_lasting and not is_test and not clock.is_tests)
        async with living(life_of, chosen, Addresses(chosen.native, chosen.kafka), clock) as running:
            await seed.put(running.life.core)
            yield EmbeddedBroker(running.life, directory, seed, running.metrics, is_lasting=is_lasting)


def open_broker(
    path: str | os.PathLike[str] | None = None, **options: Unpack[OpenOptions]
) -> AbstractAsyncContextManager[EmbeddedBroker]:
    """The former name of `open`, kept for one release. By default it listens for native clients on a port of 127.0.0.1 that the
    system chooses."""
    warn_former("open_broker()", "triolog.open()")
    return open(path, **listening(options))


SOURCE: Final = "settings"

REFUSED: Final = {
    "data_dirs": "it has one directory, the path that it is opened with",
    "http": "the program appends itself, and other programs over `native` or `kafka`",
    "log_level": "the program configures logging: logging.getLogger('triolog').setLevel(...)",
    "log_lines_per_minute": "the program configures logging: add a filter to its own handlers",
}
"""Keys of `serve` that have no meaning inside a program, and what has."""

TEST_DEFAULTS: Final[Mapping[str, Any]] = {
    "lenient": True,
    "disk_reserve_bytes": 0,
    "group_initial_rebalance_delay_ms": 0,
    "group_min_session_timeout_ms": 1,
    "group_consumer_heartbeat_interval_ms": 100,
    "group_share_heartbeat_interval_ms": 100,
    "group_streams_heartbeat_interval_ms": 100,
    "group_streams_initial_rebalance_delay_ms": 0,
}
"""Nobody waits for more members, and Kafka clients get what tests want."""


@attrs.frozen(kw_only=True)
class Arguments:
    """The options of `open` besides `settings`; None leaves a value to `settings` or to the default."""

    native: Address | None
    kafka: Address | None
    metrics: Address | None
    durability: str | None
    config: Mapping[str, str]
    lenient: bool | None
    users: Mapping[str, str]
    oauth: bool
    security: Mapping[str, Any]
    telemetry: bool


def broker_config(
    directory: str, settings: Mapping[str, Any], arguments: Arguments, *, is_lasting: bool, for_tests: bool
) -> BrokerConfig:
    """The configuration of a broker on a directory; `is_lasting`: it stays when the broker ends. What arguments say goes before
    what `settings` say. Raises InvalidConfigError, ValueError for a durability that there is not."""
    for name in settings:
        if name in REFUSED:
            raise InvalidConfigError(f"{SOURCE}: {name} has no meaning in an embedded broker: {REFUSED[name]}")
    given = read_given(SOURCE, {"durability": "fsync" if is_lasting else "os", **settings})
    defaults = given.pop("topic_defaults")
    if arguments.durability is not None:
        defaults = attrs.evolve(defaults, durability=Durability.parse(arguments.durability))
    values: dict[str, Any] = {**(TEST_DEFAULTS if for_tests else {}), **given, **_security(arguments)}
    said = {
        "native": arguments.native,
        "kafka": arguments.kafka,
        "metrics": arguments.metrics,
        "lenient": arguments.lenient,
        "telemetry_enable": arguments.telemetry or None,
    }
    values |= {name: value for name, value in said.items() if value is not None}
    if values.get("metrics") is not None:
        _check_metrics_extra()
    return BrokerConfig(**values, data_dirs=(directory,), topic_defaults=defaults.overlay(arguments.config), durable=is_lasting)


def address_of(name: str, given: Address | tuple[str, int] | str | None) -> Address | None:
    """Return the address in an argument. Raises InvalidConfigError, which names the argument."""
    if given is None or isinstance(given, Address):
        return given
    try:
        return Address.parse(given) if isinstance(given, str) else Address(*given)
    except (ValueError, TypeError):
        raise InvalidConfigError(
            f"{name} is {given!r}, expected HOST:PORT such as 127.0.0.1:0, or Address(host, port)"
        ) from None


def _check_metrics_extra() -> None:
    missing = [name for name in ("prometheus_client", "h11") if importlib.util.find_spec(name) is None]
    if missing:
        raise InvalidConfigError(f"metrics needs {' and '.join(missing)}: {how_to_install('metrics')}")


def _security(arguments: Arguments) -> dict[str, Any]:
    """Raises InvalidConfigError."""
    said: dict[str, Any] = {"kafka_security": "sasl_plaintext"} if arguments.users or arguments.oauth else {}
    if arguments.oauth:
        said["sasl_enabled_mechanisms"] = SASL_MECHANISMS if arguments.users else (OAUTHBEARER,)
    said |= arguments.security
    if unknown := sorted(said.keys() - SECURITY_KEYS.keys()):
        raise InvalidConfigError(f"{unknown[0]} is not one of {', '.join(SECURITY_KEYS)}")
    read = read_given("security", said)
    del read["topic_defaults"]
    return {**read, "sasl_users": dict(arguments.users)}
