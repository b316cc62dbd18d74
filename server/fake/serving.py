"""`triolog serve` with a control port or rules: a broker whose life the port can end and begin again. For tests only."""

from __future__ import annotations

import logging
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import attrs
import trio

from ...protocol.errors import InvalidConfigError
from ..config.broker_config import Address, BrokerConfig
from ..config.broker_settings import KAFKA, METRICS, NATIVE, check_exposure, is_loopback
from ..listeners.opening import Addresses
from .api import ControlApi
from .clock import MovedClock
from .life import Life, told_over_http
from .routes import MAX_CONTROL_BODY_BYTES, answer
from .rules_file import add_rules

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
    """Run a server until a signal stops it. `rules`: a file, see `rules_file`. `nodes`, `emulate`: see `Life`.
    `control_token`: what who uses the port has to show. Raises what keeps it from starting."""
    check_exposure(config, {NATIVE: wanted.native, KAFKA: wanted.kafka, METRICS: config.metrics})
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            life = Life(config, wanted, nursery, clock, node_count=nodes, kafka_version=emulate)
            api = ControlApi(life)
            if rules is not None:
                LOGGER.warning("%d fault rules stand: this server is for tests only", add_rules(rules, api.faults))
            async with _controlled(api, control, control_token) as address, told_over_http(config, life) as metrics:
                await life.start()
                started(attrs.evolve(life.addresses, control=address, metrics=metrics))
                LOGGER.info("serving for tests %s control=%s", life.addresses, address)
                name = signal.Signals(await anext(signals)).name
                LOGGER.info("stopping signal=%s", name)
                await life.stop()
            life.close()
    LOGGER.info("stopped")


@asynccontextmanager
async def _controlled(api: ControlApi, control: Address | None, token: str | None) -> AsyncIterator[Address | None]:
    """Raises InvalidConfigError where other machines would reach the port and nothing is asked of them."""
    if control is None:
        yield None
        return
    from ..listeners.http.access import HttpAccess
    from ..listeners.http.server import http_listener

    if token is None and not is_loopback(control.host):
        raise InvalidConfigError(f"control {control}: other machines reach that; --control-token-file has a token asked for")
    access = attrs.evolve(HttpAccess.of(control, token), accepts_untyped=True)
    async with trio.open_nursery() as nursery:
        listener = http_listener(control, partial(answer, api, access), max_body_bytes=MAX_CONTROL_BODY_BYTES)
        address: Address = await nursery.start(listener.run)
        LOGGER.warning("the control port %s can do everything to the data: it is for tests only", address)
        yield address
        nursery.cancel_scope.cancel()
