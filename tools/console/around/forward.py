"""Links of `triolog forward` on this machine: state, backlog, rate, what is lost what stands in the way; paused and resumed.

They are asked by the sockets in their state directory, with the rights of the console's process: links know no users. Where
the server has some, who may not see its statistics sees no links either, and who may not alter its configuration
(ALTER_CONFIGS of the cluster) pauses and resumes none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import trio

from ...forward.process.place import CONTROL, ask_in_trio
from ..errors import ApiError
from ..routes import Call, Route, change, page
from ..watching.watcher import now_ms
from .links import ASK_S, link_names, link_status, shown_status


async def forward(call: Call) -> dict[str, Any]:
    """Every link that has or had a process."""
    await call.check_sees_statistics()
    folder = call.settings.forward_state_dir
    links: list[dict[str, Any]] = []
    if folder is not None:
        names = await link_names(folder)
        told: dict[str, dict[str, Any]] = {}

        async def look(name: str) -> None:
            told[name] = await link_status(folder, name)

        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(look, name)
        links = [told[name] for name in names]
    return {"status": call.watcher.status.to_json(), "now_ms": now_ms(), "state_dir": folder, "links": links}


async def pause(call: Call) -> dict[str, Any]:
    """Lets a link send nothing, over restarts too."""
    return await _tell(call, "pause")


async def resume(call: Call) -> dict[str, Any]:
    """Lets a link go on, and look at stopped topics at once."""
    return await _tell(call, "resume")


async def _tell(call: Call, command: str) -> dict[str, Any]:
    await call.check_may_change()
    folder, link = call.settings.forward_state_dir, call.path["link"]
    if folder is None or link not in await link_names(folder):
        raise ApiError(404, "NO_SUCH_LINK", f"there is no link {link} in {folder or 'any state directory'}")
    try:
        return shown_status(await ask_in_trio(str(Path(folder) / link / CONTROL), {"command": command}, ASK_S))
    except (OSError, ValueError) as exc:
        raise ApiError(409, "LINK_NOT_RUNNING", f"no process responds for link {link}: {exc}") from exc


ROUTES: Final[tuple[Route, ...]] = (
    page("/forward", forward),
    change("POST", "/forward/{link}/pause", pause),
    change("POST", "/forward/{link}/resume", resume),
)
