"""A sync that failed is not forgotten by a restart: what was acknowledged under fsync survives the power cut that follows.

Linux marks pages clean that it could not write (see `tests/support/crash_fs`). The process that saw the failure ends, the
kernel goes on; the next one reads what was written from the cache, and must not take that for what the device has.
"""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Callable
from functools import partial
from typing import Final

import attrs
import pytest
from triolog.protocol.records.builder import build_batch
from triolog.server.config import LogConfig
from triolog.server.storage.log.append import AppendResult
from triolog.server.storage.log.log import Log
from triolog.server.storage.log.prepare import PreparedAppend, prepare_append

from tests.support.counts import counts
from tests.support.crash_fs import CrashFileSystem
from tests.support.inline_log import ORDERS, InlineLog, make_on_device

DIRECTORY: Final = "/data/orders-0"
PRODUCER: Final = 7
NOW_MS: Final = 1_700_000_000_000


@attrs.define(eq=False)
class Server:
    """A log under fsync, the producer that writes to it, and what it was acknowledged."""

    rng: random.Random
    fs: CrashFileSystem = attrs.field(factory=lambda: CrashFileSystem(page_bytes=64))
    config: LogConfig = attrs.field(init=False)
    inline: InlineLog = attrs.field(init=False)
    checkpoint: int = 0
    acknowledged: int = 0
    """Below this offset everything was acknowledged. Record n lies at offset n."""

    def __attrs_post_init__(self) -> None:
        self.config = LogConfig(
            segment_bytes=self.rng.randint(300, 1200),
            index_interval_bytes=self.rng.choice([0, 200]),
            preallocate=self.rng.random() < 0.3,
        )
        make_on_device(self.fs, DIRECTORY)
        self.open()

    @property
    def log(self) -> Log:
        return self.inline.log

    def open(self) -> None:
        self.inline = InlineLog.open_orders(self.fs, DIRECTORY, self.config, lambda: NOW_MS, recovery_point=self.checkpoint)

    def write(self, count: int, *, sync: bool = True) -> None:
        """The next records, those first that the log has and were not acknowledged: they are sent again."""
        for number in range(self.acknowledged, self.acknowledged + count):
            (answer,) = self.inline.append([self.record(number)], sync=sync)
            assert isinstance(answer, AppendResult)
            assert answer.base_offset == number
            if self.log.recovery_point > number:
                self.acknowledged = max(self.acknowledged, number + 1)

    def record(self, number: int) -> PreparedAppend:
        data = build_batch(
            [(NOW_MS, b"%d" % number, random.Random(number).randbytes(number * 7 % 90), ())],
            producer_id=PRODUCER,
            producer_epoch=0,
            base_sequence=number,
        )
        return prepare_append(data, ORDERS, self.config, now_ms=NOW_MS)

    def restart(self) -> None:
        """The process is gone, without a power cut."""
        self.fs.end_process()
        self.open()

    def power_cut(self) -> None:
        self.fs = self.fs.crash(self.rng)
        self.open()

    def numbers(self) -> list[int]:
        return [int(record.key or b"") for _, records in self.inline.stored() for record in records]

    def check(self) -> None:
        numbers = self.numbers()
        assert numbers == list(range(len(numbers)))
        assert len(numbers) >= self.acknowledged, f"{self.acknowledged} were acknowledged, {len(numbers)} are there"


def _fails(server: Server, deed: Callable[[], None], skip: int) -> bool:
    """Whether it met the sync that fails: so many others come before it."""
    server.fs.fail_next("sync", errno.EIO, skip=skip)
    with contextlib.suppress(OSError):
        deed()
    return not server.fs.forget_failures()


@pytest.mark.parametrize("chunk", range(10))
def test_what_is_acknowledged_after_a_restart_without_a_power_cut_survives_the_next_one(chunk: int) -> None:
    for seed in range(chunk * counts(200), (chunk + 1) * counts(200)):
        rng = random.Random(seed)
        server = Server(rng)
        for _ in range(rng.randint(1, 3)):
            server.write(rng.randint(0, 8))
            if rng.random() < 0.5:
                server.checkpoint = server.log.recovery_point
            server.write(rng.randint(0, 3), sync=False)
            _fails(server, partial(server.write, 3), rng.randint(0, 3))
            server.restart()
            server.write(rng.randint(1, 6))
            if rng.random() < 0.3:
                server.restart()
            if rng.random() < 0.2:
                server.fs.drop_caches(rng)
                server.restart()
        server.power_cut()
        server.check()


def test_a_restart_whose_sync_fails_too_forgets_nothing_either() -> None:
    lost = []
    for seed in range(counts(300)):
        rng = random.Random(seed)
        server = Server(rng)
        server.write(4)
        assert _fails(server, partial(server.write, 1), 0)
        server.fs.end_process()
        _fails(server, server.open, rng.randint(0, 6))
        server.restart()
        server.write(1)
        server.power_cut()
        lost += [seed] if len(server.numbers()) < server.acknowledged else []
    assert not lost
