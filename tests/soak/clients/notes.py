"""What a client process writes down: one line of JSON for each invocation and each completion, in a file of its own.

A line is written by one system call before the client goes on, so it outlives a SIGKILL of the process; what a call was to do
is noted before it is made, what came of it after. `at` is CLOCK_MONOTONIC in ns, which all processes of a machine share: lines
of several files sorted by it are what happened. `tests.simulation.loading` reads them.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Sequence
from typing import Any

Line = dict[str, Any]


class Notes:
    """The file of a process. Its threads share it."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._lock = threading.Lock()

    def write(self, who: str, do: str, **told: Any) -> None:
        """Note something now; the lines of a file ascend by time."""
        with self._lock:
            line = {"at": time.monotonic_ns(), "who": who, "do": do, **told}
            os.write(self._fd, json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        os.close(self._fd)


class Notebook:
    """What one part of a process notes, under its name. Partitions are (topic, number)."""

    def __init__(self, notes: Notes, who: str) -> None:
        self._notes = notes
        self.who = who

    def write(self, do: str, **told: Any) -> None:
        self._notes.write(self.who, do, **told)

    def sends(self, where: tuple[str, int], producer: str, records: Sequence[Sequence[Any]], transaction: str = "") -> None:
        """`records`: (id, timestamp) or (id, timestamp, key), in the order in which they leave."""
        self.write("sends", to=where, producer=producer, records=records, transaction=transaction)

    def acknowledged(self, where: tuple[str, int], ids: Sequence[str], base_offset: int) -> None:
        self.write("acknowledged", to=where, ids=ids, offset=base_offset)

    def given_up(self, ids: Sequence[str], error: str) -> None:
        """Nobody knows whether they are there."""
        self.write("given up", ids=ids, error=error)

    def introduces(self, transactional_id: str, producer: str) -> None:
        self.write("introduces", transactional_id=transactional_id, producer=producer)

    def introduced(self, transactional_id: str, producer: str) -> None:
        self.write("introduced", transactional_id=transactional_id, producer=producer)

    def ends(self, transaction: str, *, commit: bool) -> None:
        """It is about to be ended: one that never comes here with `commit` is committed by nobody."""
        self.write("ends", transaction=transaction, commit=commit)

    def ended(self, transaction: str, is_committed: bool | None) -> None:
        self.write("ended", transaction=transaction, committed=is_committed)

    def moved(self, where: tuple[str, int], position: int | None) -> None:
        """Reading goes on there; None: wherever the next record is."""
        self.write("moved", of=where, position=position)

    def polled(
        self,
        where: tuple[str, int],
        records: Sequence[tuple[int, str, int]],
        *,
        committed: bool,
        group: str = "",
        transaction: str = "",
        next_position: int | None = None,
    ) -> None:
        """`records`: (offset, id, timestamp). `next_position` None: behind the last of them."""
        told = {"committed": committed, "group": group, "transaction": transaction, "next": next_position}
        self.write("polled", of=where, records=records, **told)

    def commits(self, group: str, offsets: dict[tuple[str, int], int], transaction: str = "") -> None:
        for where, offset in offsets.items():
            self.write("commits", group=group, of=where, offset=offset, transaction=transaction)

    def offset_committed(self, group: str, where: tuple[str, int], offset: int, is_kept: bool | None) -> None:
        self.write("offset committed", group=group, of=where, offset=offset, kept=is_kept)

    def offset_fetched(self, group: str, where: tuple[str, int], offset: int, begun: int) -> None:
        """`begun`: when it was asked, in ns."""
        self.write("offset fetched", group=group, of=where, offset=offset, begun=begun)

    def looked_up(self, where: tuple[str, int], timestamp: int, begun: int, offset: int, found_timestamp: int | None) -> None:
        """`found_timestamp` None: the client does not say."""
        self.write("looked up", of=where, timestamp=timestamp, begun=begun, offset=offset, found=found_timestamp)
