"""A topic that the driver has deleted and created again under its name, all through a run: see `kill_recreated`.

Its notes are its own: the history of the run knows partitions by their names.
"""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from typing import Final

from triolog.protocol.errors import RequestError
from triolog.protocol.native import messages
from triolog.protocol.types import TopicPartition

from tests.support.kill_history import KillHistory, Numbered
from tests.support.kill_loads import OLD_MS, Caller, Progress, RecreatingLoad, ServerGoneError
from tests.support.server_process import Address
from tests.support.wire_client import WireClient

PAUSE_S: Final = 0.05
"""Between two requests, so that the other clients have the server."""
AWAY: Final = (ServerGoneError, RequestError, ConnectionError, EOFError, TimeoutError)
"""What the troubles of a run do to a request: it is asked for again."""


class Remaking(threading.Thread):
    """Works from `start` to `finish`, on one server after the other."""

    def __init__(self, address: Address, seed: str) -> None:
        super().__init__(name="remaking")
        self._address = address
        self._history = KillHistory()
        self._load = RecreatingLoad(
            name="remaking",
            rng=random.Random(f"{seed}/remaking"),
            history=self._history,
            where=TopicPartition("remade", 0),
            make=_made,
            max_records=4,
            share=0.3,
            config={"segment.bytes": "8192", "retention.ms": "-1"},
        )
        self._is_over = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._is_over.is_set():
                with suppress(*AWAY):
                    self._work()
                self._is_over.wait(PAUSE_S)
        except BaseException as exc:
            self._error = exc

    def _work(self) -> None:
        with WireClient.connect(self._address, say_hello=False) as client:
            caller = Caller(client, Progress())
            caller.ask(messages.HelloRequest("remaking"))
            while not self._is_over.wait(PAUSE_S):
                self._load.step(caller)

    def finish(self) -> None:
        """No more requests from now on."""
        self._is_over.set()
        if self.ident is not None:
            self.join()

    def problems(self) -> list[str]:
        """What is wrong with the topic as it is; nothing troubles the server any more."""
        if self._error is not None:
            return [f"remaking: {self._error!r}"]
        try:
            with WireClient.connect(self._address) as client:
                self._load.read(client)
                self._load.settle(Caller(client, Progress()))
                self._load.read(client)
            self._history.check()
        except (AssertionError, *AWAY) as exc:
            return [f"remaking: {exc!r}"]
        return []


def _made(producer: str, rng: random.Random, number: int) -> Numbered:
    return Numbered(producer, number, OLD_MS + number, None, rng.randbytes(rng.randint(0, 100)))
