"""The server under simulation, life after life."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import trio
from triolog.server.broker import Broker, open_broker_core
from triolog.server.config.broker_config import Address
from triolog.server.listeners.opening import Addresses, Listeners
from triolog.server.storage.errors import StorageError

from tests.support.brokers import broker_config
from tests.support.crash_fs import PowerCut

from .device.children import SimulatedChild, opener
from .device.disk import Device
from .network import HOST, Network

LOGGER: Final = logging.getLogger(__name__)

NATIVE_PORT: Final = 9095
KAFKA_PORT: Final = 9092
GRACE_S: Final = 1.0
PATIENCE_S: Final = 2.0
"""For the change of the disk that ends a life."""
LIMITS: Final[dict[str, Any]] = {
    "checkpoint_interval_ms": 5000,
    "retention_check_interval_ms": 3000,
    "cleaner_backoff_ms": 4000,
    "transaction_max_timeout_ms": 15_000,
    "auto_create_topics_enable": False,
    "lenient": True,  # groups may have short timeouts
    "group_initial_rebalance_delay_ms": 300,
    "group_min_session_timeout_ms": 1000,
    "group_consumer_session_timeout_ms": 4000,
    "group_consumer_heartbeat_interval_ms": 800,
    "group_share_session_timeout_ms": 4000,
    "group_share_heartbeat_interval_ms": 800,
}


@attrs.define(eq=False)
class Server:
    """Owner: the operator, who starts and ends lives one after the other."""

    device: Device
    network: Network
    durability: str
    nursery: trio.Nursery
    limits: Mapping[str, Any] = attrs.field(factory=dict)
    """Beside LIMITS."""
    broker: Broker | None = None
    latest: Broker | None = None
    """The one that lives, or lived last."""
    children: list[SimulatedChild] = attrs.field(factory=list)
    refusals: list[str] = attrs.field(factory=list)
    """Why it did not start."""
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _stopping: trio.Event = attrs.field(factory=trio.Event)
    _ended: trio.Event = attrs.field(factory=trio.Event)

    async def start(self) -> bool:
        """Begin a life; whether it serves."""
        self._scope, self._stopping, self._ended = trio.CancelScope(), trio.Event(), trio.Event()
        return bool(await self.nursery.start(self._live))

    @property
    def loses(self) -> bool:
        """Whether more than nothing may be lost of what was acknowledged when the power is cut."""
        return self.durability != "fsync"

    async def stop(self) -> None:
        self._stopping.set()
        await self._ended.wait()
        if self.device.fs.is_off:
            self.device.end_process()
        else:
            self.device.fs.end_process()

    async def kill(self, *, power: bool, after: int = 0) -> None:
        """End a life, in front of one of its next changes of the disk: the first for `after` 0."""
        if after:
            self.device.fs.cut_after(after)
            with trio.move_on_after(PATIENCE_S):
                await self._ended.wait()
        self.network.cut_all()
        if power:
            self.device.cut_power()
        else:
            self.device.end_process()
        self._scope.cancel()
        await self._ended.wait()

    async def _live(self, *, task_status: trio.TaskStatus[bool]) -> None:
        fs = self.device.fs
        is_told = False
        try:
            with self._scope:
                paths = [Path(path) for path in self.device.directories]
                config = broker_config(*paths, durability=self.durability, **LIMITS, **self.limits)
                open_child = opener(fs, self.device.latency, self.children)
                async with open_broker_core(config, fs=fs, now_ms=self.device.now_ms, open_child=open_child) as broker:
                    self.latest = broker
                    listeners = Listeners(broker)
                    async with trio.open_nursery() as serving:
                        await listeners.start(serving, Addresses(Address(HOST, NATIVE_PORT), Address(HOST, KAFKA_PORT)))
                        self.broker, is_told = broker, True
                        task_status.started(True)
                        await self._stopping.wait()
                        listeners.stop(GRACE_S)
        except* PowerCut:
            self.network.cut_all()
        except* (StorageError, OSError) as errors:
            self.refusals.append(self.device.without_paths(repr(errors.exceptions)))
        finally:
            self.broker = None
            self._ended.set()
        if not is_told:
            task_status.started(False)
