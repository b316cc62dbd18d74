"""A power cut before any operation of the server's disk while lines of files are stored: every line is in the topic once."""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import pytest
import trio
from triolog.protocol.types import Isolation
from triolog.server.config.values import Address
from triolog.server.listeners.opening import Addresses, Listeners
from triolog.server.system.clock import system_now_ms
from triolog.tools.client.blocking.client import BlockingClient
from triolog.tools.client.blocking.consumer import BlockingConsumer
from triolog.tools.forward.memory import Wishes
from triolog.tools.ingest.file_ingest import FileIngest
from triolog.tools.ingest.file_store import FileStore
from triolog.tools.ingest.settings import INGEST

from tests.support.brokers import running_broker
from tests.support.counting_fs import made_directories
from tests.support.counts import by_tier, seeds
from tests.support.crash_fs import CrashFileSystem, distinct
from tests.support.forwarding import Running, until

TOPIC: Final = "lines"
ANY_PORT: Final = Address("127.0.0.1", 0)
Where = tuple[str, int]


@contextmanager
def serving(fs: CrashFileSystem, paths: Sequence[Path]) -> Iterator[Where]:
    """A server on that disk, in a thread of its own."""
    started: queue.SimpleQueue[tuple[Where, Callable[[], None]] | BaseException] = queue.SimpleQueue()

    async def main() -> None:
        async with (
            running_broker(*paths, fs=fs, durability="fsync", clock=system_now_ms) as broker,  # type: ignore[arg-type]
            trio.open_nursery() as nursery,
        ):
            listeners = Listeners(broker)
            addresses = await listeners.start(nursery, Addresses(ANY_PORT))
            assert addresses.native is not None
            token, stop = trio.lowlevel.current_trio_token(), trio.Event()
            where = addresses.native.host, addresses.native.port
            started.put((where, partial(trio.from_thread.run_sync, stop.set, trio_token=token)))
            await stop.wait()
            nursery.cancel_scope.cancel()

    def run() -> None:
        try:
            trio.run(main)
        except BaseException as exc:
            started.put(exc)
            raise

    thread = threading.Thread(target=run)
    thread.start()
    found = started.get()
    try:
        if isinstance(found, BaseException):
            raise found
        where, stop = found
        try:
            yield where
        finally:
            stop()
    finally:
        thread.join()


@attrs.define
class Files:
    """Followed files, and the lines that programs have written to each name."""

    folder: Path
    written: dict[bytes, list[bytes]] = attrs.field(factory=dict)

    def write(self, name: str, count: int) -> None:
        path = self.folder / name
        lines = self.written.setdefault(str(path).encode(), [])
        with path.open("ab") as stream:
            for _ in range(count):
                lines.append(b"%s %d" % (name.encode(), len(lines)))
                stream.write(lines[-1] + b"\n")

    def rotate(self, name: str) -> None:
        (self.folder / name).rename(self.folder / f"{name}.1")

    def ingest(self, where: Where) -> None:
        """Store all lines, and end. A transaction has a few of them."""
        table = {"name": "files", "topic": TOPIC, "files": [str(self.folder / "*.log")], "poll_ms": 1, "batch_bytes": 40}
        link = FileIngest(
            INGEST.read_link("the test", table),
            lambda link: FileStore(link, where, None, None),
            Wishes(),
        )
        link.wishes.drain()
        with Running(link):
            until(lambda: link.wishes.drains_since_s is None, "all lines are stored")
        assert link.error is None


def stored(where: Where) -> dict[bytes, list[bytes]]:
    """Return the lines that a reader of committed records finds, by the name of their file."""
    found: dict[bytes, list[bytes]] = {}
    with (
        BlockingClient(where) as client,
        BlockingConsumer(client, follow=False, isolation=Isolation.READ_COMMITTED) as consumer,
    ):
        consumer.assign(TOPIC)
        for _, record in consumer.records():
            found.setdefault(bytes(record.key or b""), []).append(bytes(record.value or b""))
    return found


@pytest.mark.parametrize("seed", seeds(3, merge=1, commit=1))
def test_a_power_cut_at_any_moment_loses_and_doubles_no_line(tmp_path: Path, seed: int) -> None:
    rng, fs = random.Random(seed), CrashFileSystem()
    paths = made_directories(fs, tmp_path, 1)
    (tmp_path / "files").mkdir()
    files = Files(tmp_path / "files")
    files.write("a.log", 2)
    with serving(fs, paths) as where:
        files.ingest(where)
        fs.sync_all()
        moments = fs.moments()
        files.write("a.log", 5)
        files.write("b.log", 2)
        files.ingest(where)
        files.rotate("a.log")
        files.write("a.log", 3)
        files.ingest(where)
        found = distinct(list(moments))
    for moment in rng.sample(found, min(len(found), by_tier(commit=2, merge=4, long=len(found)))):
        after = moment.crash(rng)
        with serving(after, paths) as where:
            files.ingest(where)
            assert stored(where) == files.written
