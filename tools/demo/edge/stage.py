"""What the edge demo plays on: a server on a small disk, a forwarder, the link, and an upstream behind it.

An upstream that is not ours is met through the link, but then says itself where it is: so it is the forwarder that is slow, and
the upstream is not killed.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import attrs
import trio

from ....protocol.types import TopicPartition
from ..child import Child
from ..server_process import Address, ServerProcess
from .forwarder import LINK, Forwarder
from .slow_link import SlowLink
from .small_disk import SmallDisk
from .upstream import Arrived, delete_topics, read_upstream
from .week import PARTITIONS

LINK_BYTES_PER_SECOND: Final = 1_000_000
"""Of the proxy: 8 Mbit/s."""
DIRECT_BYTES_PER_SECOND: Final = 6_000_000
"""Before compression, where the records cannot be led through the proxy: about the same."""
RETENTION_CHECK_MS: Final = 1000


@attrs.define(eq=False, repr=False)
class Stage:
    """The processes and the link between them. Owned by the task that opened it. `upstream` is None where it is not ours."""

    node: str
    source: ServerProcess
    upstream: ServerProcess | None
    link: SlowLink
    forwarder: Forwarder
    read_at: str
    """Where the upstream is read; the link is as fast as it can be then."""

    @property
    def group(self) -> str:
        return f"triolog-forward.{self.node}.{LINK}"

    async def start_forwarder(self) -> None:
        self.forwarder.source = self.source.address()
        await self.forwarder.start()

    async def bring_link_up(self) -> int:
        """Answers how many bytes a second it carries."""
        self.link.is_up = True
        self.link.bytes_per_second = LINK_BYTES_PER_SECOND
        await self.forwarder.resume()
        return LINK_BYTES_PER_SECOND

    async def kill(self) -> dict[str, int]:
        """Everything of ours, at once; answers exit statuses."""
        children: dict[str, Child] = {"forwarder": self.forwarder, "server": self.source}
        if self.upstream is not None:
            children["upstream"] = self.upstream
        for child in children.values():
            child.kill()
        return {name: await child.wait() for name, child in children.items()}

    async def restart(self) -> float:
        """The same, with a forwarder that ends when nothing is left; answers the milliseconds that took."""
        begin = time.perf_counter()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.source.start)
            if self.upstream is not None:
                nursery.start_soon(self.upstream.start)
        self.forwarder.drains = True
        await self.start_forwarder()
        return (time.perf_counter() - begin) * 1000

    async def read_upstream(self, arrived: Mapping[TopicPartition, Arrived]) -> None:
        self.link.bytes_per_second = 0
        targets = {TopicPartition(f"{self.node}.{place.topic}", place.partition): each for place, each in arrived.items()}
        await trio.to_thread.run_sync(read_upstream, self.read_at, targets)

    async def tidy(self) -> None:
        """Take the topics away from an upstream that is not ours."""
        if self.upstream is None:
            await trio.to_thread.run_sync(delete_topics, self.read_at, [f"{self.node}.{topic}" for topic in PARTITIONS])


@asynccontextmanager
async def open_stage(disk: SmallDisk, work_dir: Path, to: Address | None) -> AsyncIterator[Stage]:
    """Servers that run and a forwarder that does not yet. Leaving the block kills what still runs."""
    folders = {name: work_dir / name for name in ("source", "upstream", "forward")}
    for folder in folders.values():
        folder.mkdir()
    settings = {"TRIOLOG_RETENTION_CHECK_INTERVAL_MS": str(RETENTION_CHECK_MS), **disk.settings}
    source = ServerProcess(disk.folder / "data", folders["source"], settings=settings)
    link = SlowLink(lambda: to or (upstream.kafka_address() if upstream is not None else ("", 0)))
    node = f"edge-demo-{secrets.token_hex(4)}"
    children: list[Child] = [source]
    async with trio.open_nursery() as nursery:
        await nursery.start(link.run)
        upstream = None
        if to is None:
            upstream = ServerProcess(
                folders["upstream"] / "data",
                folders["upstream"],
                ("--kafka", "127.0.0.1:0"),
                {"TRIOLOG_KAFKA_ADVERTISED": link.address},
            )
            children.append(upstream)
        cap = 0 if to is None else DIRECT_BYTES_PER_SECOND
        forwarder = Forwarder(folders["forward"], node, link.address, cap)
        children.append(forwarder)
        try:
            async with trio.open_nursery() as starting:
                for child in children[:-1]:
                    starting.start_soon(child.start)
            yield Stage(node, source, upstream, link, forwarder, link.address if to is None else f"{to[0]}:{to[1]}")
        finally:
            for child in reversed(children):
                await child.close()
            nursery.cancel_scope.cancel()
