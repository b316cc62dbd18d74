"""The division of `max_memory_bytes` into budgets.

| for | of it |
|---|---|
| a server without clients (60 MiB resident, measured), and the process that compacts | FIXED_BYTES |
| requests of all connections, and the one admitted over the limit | an eighth of the rest, twice |
| responses that clients have not read | an eighth |
| a batch that is unpacked to be checked | an eighth |
| uncounted memory of connections, CONNECTION_BYTES each | an eighth |
| keys of a compaction | an eighth |
| state kept on behalf of clients, including members of groups | an eighth |
| logs that wait for space | a sixteenth |
| open logs, producers, memory that Python does not release | the rest: a sixteenth |

A key that is set by hand keeps its value. Without `max_memory_bytes` every budget has its usual value.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import attrs

from ...protocol.errors import InvalidConfigError
from ...protocol.limits import KIB, MAX_WAITING_LOGS_BYTES, MIB
from ..system.open_files import default_max_connections
from .key import int_key

FIXED_BYTES: Final = 96 * MIB
LEAST_MEMORY_BYTES: Final = 160 * MIB
"""Then an eighth is 8 MiB: a request of the largest usual batches fits, and 64 connections."""
CONNECTION_BYTES: Final = 128 * KIB
"""The first 64 KiB of requests, and as much of answers."""
EIGHTH: Final = 8
SIXTEENTH: Final = 16


class Budgets(Protocol):
    """The memory settings of a configuration."""

    @property
    def max_memory_bytes(self) -> int | None: ...
    @property
    def max_broker_in_flight_bytes(self) -> int: ...
    @property
    def max_request_bytes(self) -> int: ...
    @property
    def max_frame_bytes(self) -> int: ...
    @property
    def max_unpacked_bytes(self) -> int: ...
    @property
    def max_connections(self) -> int: ...
    @property
    def cleaner_enable(self) -> bool: ...
    @property
    def cleaner_dedupe_buffer_bytes(self) -> int: ...
    @property
    def max_client_memory_bytes(self) -> int: ...


def budget_key(usual: int, share: int, doc: str, **more: Any) -> Any:
    """A field in bytes, by default what is usual, or 1/`share` of the memory that there is for budgets if that is less."""
    default = attrs.Factory(lambda config: share_of(config.max_memory_bytes, usual, share), takes_self=True)
    return int_key(default, doc, shown=str(usual), **more)


def share_of(max_memory_bytes: int | None, usual: int, share: int) -> int:
    if max_memory_bytes is None:
        return usual
    return min(usual, (max_memory_bytes - FIXED_BYTES) // share)


def usual_connections(max_memory_bytes: int | None) -> int:
    """Return the number of connections that fit the limit of open files and the memory."""
    usual = default_max_connections()
    return share_of(max_memory_bytes, usual * CONNECTION_BYTES, EIGHTH) // CONNECTION_BYTES


def waiting_logs_bytes(max_memory_bytes: int | None) -> int:
    """For what logs that wait for space cannot write."""
    return share_of(max_memory_bytes, MAX_WAITING_LOGS_BYTES, SIXTEENTH)


def check_memory(config: Budgets) -> None:
    """Raises InvalidConfigError where budgets that were set by hand do not fit."""
    if config.max_memory_bytes is None:
        return
    if config.max_memory_bytes < LEAST_MEMORY_BYTES:
        raise InvalidConfigError(
            f"max_memory_bytes = {config.max_memory_bytes} is too little: a server needs {LEAST_MEMORY_BYTES} at least"
        )
    taken = {
        "max_broker_in_flight_bytes, twice": 2 * config.max_broker_in_flight_bytes,
        "the larger of max_request_bytes and max_frame_bytes": max(config.max_request_bytes, config.max_frame_bytes),
        "max_unpacked_bytes": config.max_unpacked_bytes,
        f"max_connections, {CONNECTION_BYTES} each": config.max_connections * CONNECTION_BYTES,
        "cleaner_dedupe_buffer_bytes": config.cleaner_dedupe_buffer_bytes if config.cleaner_enable else 0,
        "max_client_memory_bytes": config.max_client_memory_bytes,
        "logs that wait for space": waiting_logs_bytes(config.max_memory_bytes),
    }
    room = config.max_memory_bytes - FIXED_BYTES
    if (sum_of_all := sum(taken.values())) > room:
        each = ", ".join(f"{name}: {size}" for name, size in taken.items())
        raise InvalidConfigError(
            f"max_memory_bytes = {config.max_memory_bytes} leaves {room} for budgets, and they take {sum_of_all} ({each}): "
            "raise it, or lower a budget that is set"
        )
