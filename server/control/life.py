"""A broker that can be stopped, killed and started again in its process, on its ports, while a test goes on.

A crash leaves what SIGKILL leaves: connections are cut, nothing is flushed, no checkpoint is written, the directory is not
marked clean; the next start recovers. It is done by a file system that dies (`actors.faulty_disk`): what the broker still does
to end, it does to nothing.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import attrs
import trio

from ..actors.faulty_disk import FaultyFileSystem
from ..broker import Broker, open_broker_core
from ..broker_config import BrokerConfig
from ..faults.disk_faults import DiskFaults
from ..faults.faults import Faults
from ..faults.requests import RequestLog
from ..listeners.opening import Addresses, Listeners
from ..storage.filesystem import OsFileSystem
from .clock import MovedClock
from .ports import Ports

BACKUP_WAIT_S: Final = 0.01


class NotRunningError(RuntimeError):
    """The broker is down: it has crashed or was stopped, and was not started again."""


@attrs.define(eq=False)
class Life:
    """Owner of the running core. `run` is the task of one life, in `nursery`."""

    config: BrokerConfig
    wanted: Addresses
    nursery: trio.Nursery
    clock: MovedClock = attrs.field(factory=MovedClock)
    faults: Faults = attrs.field(factory=Faults)
    disk_faults: DiskFaults = attrs.field(factory=DiskFaults)
    requests: RequestLog = attrs.field(factory=RequestLog)
    addresses: Addresses = attrs.field(factory=Addresses)
    starts: int = 0
    torn_files: list[str] = attrs.field(factory=list)
    """What the last crash took bytes from."""
    _core: Broker | None = None
    _fs: FaultyFileSystem = attrs.field(init=False)
    _serving: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _stop: trio.Event = attrs.field(factory=trio.Event)
    _ended: trio.Event = attrs.field(factory=trio.Event)
    _ports: Ports = attrs.field(factory=Ports)

    @property
    def core(self) -> Broker:
        """Raises NotRunningError."""
        if self._core is None:
            raise NotRunningError("the broker is down; restart() starts it again")
        return self._core

    @property
    def is_running(self) -> bool:
        return self._core is not None

    # ---- start and stop --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the directory and listen. Raises what keeps it from that."""
        if self._core is not None:
            return
        if not self.starts:
            self.wanted = Addresses(self._ports.keep(self.wanted.native), self._ports.keep(self.wanted.kafka))
        await self.nursery.start(self.run)
        self.starts += 1

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """One life, until it is stopped."""
        self._fs = FaultyFileSystem(self.disk_faults)
        self._stop, self._ended = trio.Event(), trio.Event()
        try:
            async with open_broker_core(self.config, fs=self._fs, now_ms=self.clock.now_ms) as core:
                failure = await self._serve(core, task_status)
                if failure is not None:
                    raise failure
        finally:
            self._core = None
            self._ended.set()

    async def _serve(self, core: Broker, task_status: trio.TaskStatus[None]) -> BaseException | None:
        """Listen until stopped; answers why it could not, outside of the nursery, which would wrap it in a group."""
        failure: BaseException | None = None
        async with trio.open_nursery() as serving:
            self._serving = serving.cancel_scope
            try:
                self.addresses = await self._listen(core, serving)
                self._core = core
                task_status.started()
                await self._stop.wait()
            except trio.Cancelled:
                raise
            except BaseException as exc:
                failure = exc
            serving.cancel_scope.cancel()
        return failure

    async def _listen(self, core: Broker, serving: trio.Nursery) -> Addresses:
        watch = None
        if self.wanted.kafka is not None:
            from ..listeners.kafka.watched import Watch

            watch = Watch(self.faults, self.requests, self.clock.now_ms)
        return await Listeners(core, watch).start(serving, self.wanted, advertised=self.config.kafka_advertised)

    async def stop(self) -> None:
        """An orderly stop: everything is flushed, the directory is marked clean. A broker that is down stays down."""
        if self._core is not None:
            self._core = None
            self._stop.set()
            with trio.CancelScope(shield=True):
                await self._ended.wait()

    async def restart(self) -> None:
        """Start again where it is down; stop in order and start where it runs. The ports stay the same."""
        await self.stop()
        await self.start()

    async def crash(self) -> None:
        """End as by SIGKILL; see the module. With `torn` faults some of what was not synced is lost, too."""
        if self._core is None:
            return
        self._fs.crash()
        self._serving.cancel()
        await self.stop()
        self.torn_files = await trio.to_thread.run_sync(self._fs.tear) if self.disk_faults.is_active else []

    def close(self) -> None:
        """Give the ports back."""
        self._ports.close()

    # ---- the directory ---------------------------------------------------------------------------------------------------

    @property
    def directory(self) -> Path:
        return Path(self.config.data_dirs[0])

    async def wipe(self) -> None:
        """Start with an empty directory, at once: what was there is not flushed before it goes."""
        await self.crash()
        await trio.to_thread.run_sync(_empty, self.directory)
        await self.start()

    async def snapshot(self, target: Path) -> None:
        """Put a consistent copy of the directory into `target`, which is empty or not there; the broker serves meanwhile."""
        from ..storage.backup import make_backup, plan_backup

        fs = OsFileSystem()

        def copy() -> None:
            def wait() -> None:
                trio.from_thread.run(trio.sleep, BACKUP_WAIT_S)

            plan = plan_backup(fs, str(self.directory), wait)
            make_backup(fs, plan, str(target), wait, links=False)

        await trio.to_thread.run_sync(copy)


def _empty(directory: Path) -> None:
    for path in directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
