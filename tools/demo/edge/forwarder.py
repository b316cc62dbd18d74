"""A `triolog forward` process with one link, that can be killed and started again."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

from ...forward.process.asking import ask
from ...forward.process.place import CONTROL
from ..child import Child
from .week import CANCELLATIONS, DELAYS, PARTITIONS

LINK: Final = "uplink"
ASK_S: Final = 10.0


class Forwarder(Child):
    """Exactly once, what matters first, in transactions of 1 MiB. `source` is the server that it reads; with `drains` the next
    process ends when nothing is left."""

    def __init__(self, work_dir: Path, node: str, to: str, max_bytes_per_second: int = 0) -> None:
        super().__init__("the forwarder", work_dir / "ready", work_dir / "forward.log", {})
        self._config_file = work_dir / "forward.toml"
        self._state_dir = work_dir / "links"
        self._node = node
        self._to = to
        self._max_bytes_per_second = max_bytes_per_second
        self.source = ("", 0)
        self.drains = False

    async def status(self) -> dict[str, Any] | None:
        """What the link says of itself; None while nobody answers."""
        return await self._ask("status")

    async def resume(self) -> None:
        """Try at once, whatever pause it is in."""
        await self._ask("resume")

    async def _ask(self, command: str) -> dict[str, Any] | None:
        path = str(self._state_dir / LINK / CONTROL)
        try:
            return await trio.to_thread.run_sync(partial(ask, path, {"command": command}, ASK_S))
        except OSError:
            return None

    def _arguments(self) -> list[str]:
        self._config_file.write_text(
            f"""server = "{self.source[0]}:{self.source[1]}"
state_dir = "{self._state_dir}"
node = "{self._node}"

[[forward]]
name = "{LINK}"
to = "{self._to}"
topics = ["{'", "'.join(PARTITIONS)}"]
priority = ["{CANCELLATIONS}", "{DELAYS}"]
target = "{{node}}.{{topic}}"
compression = "zstd"
transaction_max_bytes = 1_048_576
max_bytes_per_second = {self._max_bytes_per_second}
create_config = {{ "retention.ms" = "-1" }}
"""
        )
        drain = ["--drain"] if self.drains else []
        return ["forward", "--config", str(self._config_file), "--ready-file", str(self._ready_file), *drain]
