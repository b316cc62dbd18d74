"""A server that forwards: the process that does it is a child, started when the server serves, and again when it has died.

It is a process of its own so that neither librdkafka's memory nor its processor time is the server's.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import trio

from ....server.settings.broker_config import Address
from ...client.backoff import Backoff

LOGGER: Final = logging.getLogger(__name__)
FIRST_PAUSE_MS: Final = 1_000
LONGEST_PAUSE_MS: Final = 300_000
SETTLED_S: Final = 60.0
"""A child that has lived as long begins anew with short pauses."""
END_S: Final = 15.0
"""How long it may take to end."""
FOR_GOOD: Final = frozenset({1, 2})
"""Exit codes after which trying again is of no use: every link has failed, or what it is told makes no sense."""
ANY_HOST: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}

Serve = Callable[..., Awaitable[None]]


async def serve_and_forward(config_file: str, serve: Serve, config: Any, started: Callable[[Any], None], *others: Any) -> None:
    """Serve until the server ends; forward meanwhile, as the file says. `others`: what `serve` is given too."""
    async with trio.open_nursery() as nursery:

        def both(addresses: Any) -> None:
            started(addresses)
            nursery.start_soon(supervise, child_command(config_file, addresses.native))

        await serve(config, both, *others)
        nursery.cancel_scope.cancel()


def child_command(config_file: str, native: Address) -> list[str]:
    """What forwards from a server that listens there."""
    address = Address(ANY_HOST.get(native.host, native.host), native.port)
    return [
        *(sys.executable, "-m", "triolog.tools.cli", "forward"),
        *("--server-config", config_file, "--server", str(address), "--parent", str(os.getpid())),
    ]


async def supervise(command: Sequence[str], backoff: Backoff | None = None) -> None:
    """Keep a child running until cancelled; then it is stopped."""
    backoff = backoff or Backoff(FIRST_PAUSE_MS, LONGEST_PAUSE_MS)
    while True:
        begun_s = trio.current_time()
        child = await trio.lowlevel.open_process(command, stdin=subprocess.DEVNULL)
        LOGGER.info("forwarding process %d has started", child.pid)
        try:
            code = await child.wait()
        except trio.Cancelled:
            with trio.CancelScope(shield=True):
                await _end(child)
            raise
        if code in FOR_GOOD:
            LOGGER.error("the forwarding process has ended with exit code %d; it says why, and is not started again", code)
            return
        if trio.current_time() - begun_s >= SETTLED_S:
            backoff.reset()
        pause_s = backoff.pause_s()
        LOGGER.warning("the forwarding process has ended with exit code %d; it is started again in %.1f s", code, pause_s)
        await trio.sleep(pause_s)


async def _end(child: trio.Process) -> None:
    child.terminate()
    with trio.move_on_after(END_S):
        await child.wait()
        return
    child.kill()
    await child.wait()
