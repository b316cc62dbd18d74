"""`triolog serve` with a control port or rules: a broker whose life the port can end and begin again. For tests only.

`triolog serve --faults FILE` reads rules from YAML:

faults:
  - {api: Produce, topic: orders, error: NOT_LEADER_OR_FOLLOWER, times: 3}
  - {api: Fetch, client_id: "report-*", delay_ms: 250, probability: 0.1, seed: 7}
disk_faults:
  - {effect: delay, operation: sync, delay_ms: 50}
"""

from __future__ import annotations

import logging
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from ...protocol.errors import InvalidConfigError
from ..config.broker_config import Address, BrokerConfig
from ..config.broker_settings import HTTP, KAFKA, METRICS, NATIVE, REGISTRY, check_exposure, is_loopback
from ..listeners.opening import Addresses
from .api import MAX_CONTROL_BODY_BYTES, ControlApi, answer
from .clock import MovedClock
from .faults.faults import DiskFaults, Faults
from .faults.rules import RuleError
from .life import Life, told_over_http
from .views.fault_views import FaultsView

LOGGER: Final = logging.getLogger(__name__)


async def serve_for_tests(
    config: BrokerConfig,
    wanted: Addresses,
    control: Address | None,
    rules: str | None,
    clock: MovedClock,
    started: Callable[[Addresses], None],
    nodes: int = 1,
    emulate: str | None = None,
    control_token: str | None = None,
) -> None:
    """Run a server until a signal stops it. `rules`: a file, see `rules_file`. `nodes`, `emulate`: see `Life`. `control_token`:
    the token that users of the port must send. Raises the error that prevents the start.
    """
    others = {METRICS: config.metrics, REGISTRY: config.schema_registry, HTTP: wanted.http}
    check_exposure(config, {NATIVE: wanted.native, KAFKA: wanted.kafka, **others})
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            life = Life(config, wanted, nursery, clock, node_count=nodes, kafka_version=emulate, issues_tokens=True)
            api = ControlApi(life)
            if rules is not None:
                LOGGER.warning("%d fault rules are active. This server is for tests only.", add_rules(rules, api.faults))
            async with _controlled(api, control, control_token) as address, told_over_http(config, life) as metrics:
                await life.start()
                registry = None if config.schema_registry is None else await life.serve_registry(config.schema_registry)
                started(attrs.evolve(life.addresses, control=address, metrics=metrics, schema_registry=registry))
                LOGGER.info("serving for tests %s control=%s", life.addresses, address)
                name = signal.Signals(await anext(signals)).name
                LOGGER.info("stopping signal=%s", name)
                await life.stop()
            life.close()
            nursery.cancel_scope.cancel()
    LOGGER.info("stopped")


@asynccontextmanager
async def _controlled(api: ControlApi, control: Address | None, token: str | None) -> AsyncIterator[Address | None]:
    """Raises InvalidConfigError where other machines could reach the port without a token."""
    if control is None:
        yield None
        return
    from ..listeners.http.access import HttpAccess
    from ..listeners.http.server import http_listener

    if token is None and not is_loopback(control.host):
        raise InvalidConfigError(f"control {control}: other machines can reach it. Require a token with --control-token-file")
    access = attrs.evolve(HttpAccess.of(control, token), accepts_untyped=True)
    async with trio.open_nursery() as nursery:
        listener = http_listener(control, partial(answer, api, access), max_body_bytes=MAX_CONTROL_BODY_BYTES)
        address: Address = await nursery.start(listener.run)
        LOGGER.warning("control port %s has full access to the data. Use it for tests only.", address)
        yield address
        nursery.cancel_scope.cancel()


LISTS: Final = ("faults", "disk_faults")


def read_rules(path: str) -> dict[str, list[dict[str, Any]]]:
    """The lists of a file. Raises RuleError, OSError."""
    import yaml

    try:
        told = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError, RecursionError) as exc:  # ValueError: no UTF-8, a number of thousands of digits
        raise RuleError(f"{path} is not YAML: {exc}") from None
    if not isinstance(told, dict) or (unknown := told.keys() - set(LISTS)):
        raise RuleError(
            f"{path}: expected {' and '.join(LISTS)}, found {sorted(unknown) if isinstance(told, dict) else told!r}"
        )
    for name in LISTS:
        rules = told.get(name) or []
        if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
            raise RuleError(f"{path}: {name} is not a list of rules")
    return {name: told.get(name) or [] for name in LISTS}


def check_rules(path: str) -> None:
    """Raises what `add_rules` raises."""
    add_rules(path, FaultsView(Faults(), DiskFaults()))


def add_rules(path: str, faults: FaultsView) -> int:
    """Add the rules of a file, and return their number. Raises RuleError, naming the rule, and OSError."""
    lists = read_rules(path)
    for name, add in (("faults", faults.add_rule), ("disk_faults", faults.add_disk_rule)):
        for number, rule in enumerate(lists[name], 1):
            try:
                add(rule)
            except RuleError as exc:
                raise RuleError(f"{path}: rule {number} of {name}: {exc}") from None
    return sum(map(len, lists.values()))
