from __future__ import annotations

import errno
import logging
import os
import sys

import pytest
import trio
from triolog.tools.forward.process import supervised_child
from triolog.tools.forward.process.supervised_child import SupervisedChild

from tests.support.forwarding import PATIENCE_S


async def test_a_start_without_memory_or_descriptors_is_tried_again_and_ends_no_server(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervised_child, "FIRST_PAUSE_MS", 1)
    caplog.set_level(logging.WARNING)
    failures, started = [errno.EAGAIN, errno.EMFILE, errno.ENOMEM], trio.Event()

    async def start() -> trio.Process:
        if failures:
            number = failures.pop()
            raise OSError(number, os.strerror(number))
        started.set()
        return await trio.lowlevel.open_process([sys.executable, "-c", ""])

    child = SupervisedChild(name="link process", start=start, final_codes=frozenset({0}))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(child.supervise)
        with trio.fail_after(PATIENCE_S):
            await started.wait()
        nursery.cancel_scope.cancel()
    assert [each.getMessage().partition(",")[0] for each in caplog.records if each.levelno == logging.WARNING] == [
        f"cannot start link process: {os.strerror(number)}" for number in (errno.ENOMEM, errno.EMFILE, errno.EAGAIN)
    ]
