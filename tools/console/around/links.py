"""The status of `triolog forward` links on this machine, for the overview. It is polled every 5 s while somebody watches.

All links are polled concurrently. A link whose process does not respond delays neither the others nor the overview.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from ...forward.process.place import CONTROL, PAUSED, ask_in_trio, links_in
from ..errors import ApiError

ASK_S: Final = 5.0
OVERVIEW_ASK_S: Final = 2.0
EACH_S: Final = 5.0
"""Between two looks at all links."""
FIRST_S: Final = 0.3
"""That the overview waits for links that were not asked lately."""
MAX_ASKED: Final = 64
"""Links, the first by name."""
MAX_SHOWN: Final = 8
"""In the overview: those in trouble first, then those with the largest backlog."""
MAX_PARTITIONS: Final = 50
"""Told of a link: those with the largest backlog."""
NOT_RUNNING: Final = "not running"
LOOKING: Final = "looking"
"""Of a link that has not answered yet."""
WELL: Final = frozenset({LOOKING, "connecting", "running", "draining", "waiting"})
"""States that nobody has to look after."""
FIGURES: Final = ("backlog_records", "backlog_bytes", "records_per_second", "bytes_per_second", "eta_s", "lost_records")
Told = dict[str, Any]


async def link_names(folder: str) -> list[str]:
    """Of every link that has or had a process. Raises ApiError."""
    try:
        return await trio.to_thread.run_sync(links_in, Path(folder))
    except OSError as exc:
        raise ApiError(503, "STATE_DIR_UNREADABLE", f"{folder}: {exc.strerror or exc}") from exc


async def link_status(folder: str, name: str, timeout_s: float = ASK_S) -> Told:
    """Return the status that a link reports; without a response its state is NOT_RUNNING."""
    place = Path(folder) / name
    try:
        return shown_status(await ask_in_trio(str(place / CONTROL), {"command": "status"}, timeout_s))
    except (OSError, ValueError) as exc:
        is_paused = await trio.Path(place / PAUSED).exists()
        return {"link": name, "state": NOT_RUNNING, "error": str(exc), "is_paused": is_paused}


def shown_status(told: Told) -> Told:
    """Raises ValueError for an answer that is none."""
    if "state" not in told:
        raise ValueError(told.get("error", "no response"))
    try:
        behind = sorted(told["partitions"], key=lambda each: (-each["backlog_bytes"], each["topic"], each["partition"]))
    except (KeyError, TypeError) as exc:
        raise ValueError(f"unknown response of the link: {exc!r}") from exc
    return {
        **told,
        "partition_count": len(behind),
        "partitions": behind[:MAX_PARTITIONS],
        "is_paused": told["state"] == "paused",
    }


@attrs.define(eq=False, repr=False)
class KnownLinks:
    """Owner of what links last said. `run` is its task; links are asked only when `told` or `fresh` was called since."""

    folder: str | None = None
    _rows: dict[str, Told] = attrs.field(factory=dict)
    _count: int = 0
    _looked_s: float = float("-inf")
    _wanted: trio.Event = attrs.field(factory=trio.Event)
    _looked: trio.Event = attrs.field(factory=trio.Event)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Ask until cancelled."""
        task_status.started()
        while self.folder is not None:
            await self._wanted.wait()
            begun_s = trio.current_time()
            self._wanted = trio.Event()
            await self._look(self.folder)
            self._looked_s = trio.current_time()
            self._looked.set()
            self._looked = trio.Event()
            await trio.sleep_until(begun_s + EACH_S)

    async def fresh(self) -> None:
        """Wait for answers that are not of long ago, but not for long."""
        self._wanted.set()
        if self.folder is not None and self._is_old:
            with trio.move_on_after(FIRST_S):
                await self._looked.wait()

    def told(self) -> Told:
        """The links that matter most, and how many there are."""
        self._wanted.set()
        rows = sorted(
            self._rows.values(), key=lambda each: (not each["is_bad"], -(each.get("backlog_bytes") or 0), each["link"])
        )
        return {"links": rows[:MAX_SHOWN], "link_count": self._count}

    @property
    def _is_old(self) -> bool:
        return trio.current_time() - self._looked_s > EACH_S + OVERVIEW_ASK_S

    async def _look(self, folder: str) -> None:
        try:
            every = await link_names(folder)
        except ApiError:  # the view of the links says why
            every = []
        self._count, names = len(every), every[:MAX_ASKED]
        before = {} if self._is_old else self._rows
        self._rows = {name: before.get(name) or _row({"link": name, "state": LOOKING}) for name in names}

        async def ask(name: str) -> None:
            self._rows[name] = _row({**await link_status(folder, name, OVERVIEW_ASK_S), "link": name})

        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(ask, name)


def _row(told: Told) -> Told:
    """Of an answer what is understood: the link may be of another version."""
    state, troubles = str(told["state"]), told.get("troubles")
    stopped = len(troubles) if isinstance(troubles, dict) else 0
    return {
        "link": told["link"],
        "state": state,
        **{name: told[name] if _is_number(told[name]) else None for name in FIGURES if name in told},
        "stopped_topics": stopped,
        "is_bad": state not in WELL or stopped > 0,
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
