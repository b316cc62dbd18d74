"""`triolog serve` on one directory and one port, killed and started again under applications that know nothing of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, Self

import attrs
from triolog.server.config.broker_config import Address
from triolog.server.fake.ports import Ports

from tests.support.forked_servers import ServerForker
from tests.support.server_process import ServerFolder, ServerProcess

QUICK: Final = {
    "TRIOLOG_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "TRIOLOG_GROUP_STREAMS_INITIAL_REBALANCE_DELAY_MS": "0",
    "TRIOLOG_GROUP_STREAMS_SESSION_TIMEOUT_MS": "6000",
}
"""Nothing here is about how long members wait for others, alive or dead."""


@attrs.define(eq=False)
class RestartedServer:
    """Strict, as `triolog serve` is. Owner: the test."""

    address: str
    """Of a port that nobody else is given while no server listens there."""
    _folder: ServerFolder
    _server: ServerProcess

    @classmethod
    @contextmanager
    def running(cls, path: Path, forker: ServerForker) -> Iterator[Self]:
        path.mkdir()
        with ServerFolder(path, command=forker) as folder, closing(Ports()) as ports:
            address = str(ports.keep(Address("127.0.0.1", 0)))
            server = cls(address, folder, folder.start("--kafka", address, extra_environment=QUICK))
            yield server
            assert server._server.stop() == 0
            assert "Traceback" not in folder.wrote()

    def kill(self) -> None:
        self._server.kill()

    def start(self) -> None:
        """On what the last one left behind."""
        self._server = self._folder.start("--kafka", self.address, extra_environment=QUICK)
