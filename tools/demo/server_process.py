"""A `triolog serve` process that can be killed and started again on the same directory."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from .child import Child

Address = tuple[str, int]


class ServerProcess(Child):
    """One server, several processes after each other. `options` go to `triolog serve`, `settings` are its variables."""

    def __init__(
        self, data_dir: Path, work_dir: Path, options: Sequence[str] = (), settings: Mapping[str, str] | None = None
    ) -> None:
        super().__init__("the server", work_dir / "ready.json", work_dir / "server.log", settings or {})
        self._data_dir = data_dir
        self._options = options
        self._addresses: dict[str, Address] = {"native": ("", 0), "kafka": ("", 0)}
        self._console = ""

    def address(self) -> Address:
        """Where the server is, or was when it was last ready."""
        return self._addresses["native"]

    def kafka_address(self) -> Address:
        """The same for Kafka's protocol, where `--kafka` is among the options."""
        return self._addresses["kafka"]

    def page(self) -> str:
        """The URL at which browsers are shown the server, where `--console` is among the options."""
        return f"http://{self._console}"

    async def start(self) -> float:
        took_ms = await super().start()
        told = json.loads(self._ready_file.read_text())
        self._console = told.get("console", "")
        for name, text in told.items():
            if name in self._addresses and text:
                host, port = text.rsplit(":", 1)
                self._addresses[name] = (host.strip("[]"), int(port))
        return took_ms

    def _arguments(self) -> list[str]:
        return [
            "serve",
            *("--data-dir", str(self._data_dir)),
            *("--native", "127.0.0.1:0"),
            *("--ready-file", str(self._ready_file)),
            *("--durability", "fsync"),
            *self._options,
        ]


@asynccontextmanager
async def open_server(
    data_dir: Path, work_dir: Path, options: Sequence[str] = (), settings: Mapping[str, str] | None = None
) -> AsyncIterator[ServerProcess]:
    """A running server; leaving the block kills what still runs of it."""
    server = ServerProcess(data_dir, work_dir, options, settings)
    try:
        await server.start()
        yield server
    finally:
        await server.close()
