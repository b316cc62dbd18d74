"""Shares out the files that a process may open (RLIMIT_NOFILE). A socket counts as one, and so does a map of an index.

| for | how many |
|---|---|
| everything else | RESERVED |
| connections of an HTTP listener | a sixteenth of the limit, 64 at most |
| connections of clients | `max_connections`; by default half of the rest, 1,000 at most |
| files of logs and maps of their indexes | what is left then, 8,192 at most |

The server reads the limit once, when a broker is configured. Nothing here changes the limit: the command does.
"""

from __future__ import annotations

import resource
from typing import Final

from ...protocol.errors import InvalidConfigError

RESERVED: Final = 40
"""Standard streams, event loop, locks, listeners: 16. Pipes of two child processes: 14. Files that are written whole: 10."""
LEAST_LIMIT: Final = 64
"""Below it a server does not start."""
LEAST_LOG_FILES: Final = 10
MOST_LOG_FILES: Final = 8192
MOST_SPARE: Final = 64
"""Of the files of logs a quarter, or so many, are no part of the budget: those that are in use when it is full, or wait to be
closed."""
MOST_CONNECTIONS: Final = 1000
MOST_HTTP_CONNECTIONS: Final = 64
UNLIMITED: Final = 1 << 20


def open_files_limit() -> int:
    """Return the number of files that the process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return UNLIMITED if soft == resource.RLIM_INFINITY else min(soft, UNLIMITED)


def http_connections(limit: int | None = None) -> int:
    """Of one HTTP listener, where the process may open `limit` files; None: as many as it may."""
    return max(1, min(MOST_HTTP_CONNECTIONS, (open_files_limit() if limit is None else limit) // 16))


def default_max_connections() -> int:
    """Connections of clients that there is room for beside as many files of logs."""
    limit = open_files_limit()
    return max(1, min(MOST_CONNECTIONS, (limit - RESERVED - http_connections(limit)) // 2))


def log_file_budget(max_connections: int) -> int:
    """Files and maps of logs that may be open beside so many connections."""
    left = open_files_limit() - _beside_log_files(max_connections)
    left = max(LEAST_LOG_FILES, min(MOST_LOG_FILES, left))
    return left - min(MOST_SPARE, left // 4)


def check_open_files(max_connections: int) -> None:
    """InvalidConfigError with what is needed when the process may not open so many files."""
    limit = open_files_limit()
    if limit < LEAST_LIMIT:
        raise InvalidConfigError(
            f"this process may open {limit} files, but a server needs at least {LEAST_LIMIT}. Raise the limit "
            f"(ulimit -n {LEAST_LIMIT}, LimitNOFILE={LEAST_LIMIT})"
        )
    room = limit - _beside_log_files(0) - LEAST_LOG_FILES
    if max_connections > room:
        needed = _limit_for(max_connections)
        raise InvalidConfigError(
            f"max_connections = {max_connections} needs {needed} open files, but this process may open {limit}. "
            f"Raise the limit (ulimit -n {needed}, LimitNOFILE={needed}), or set max_connections to at most {room}"
        )


def limit_for_most_connections() -> int:
    """The limit from which on it is not the limit that keeps connections out."""
    return RESERVED + MOST_HTTP_CONNECTIONS + 2 * MOST_CONNECTIONS


def _limit_for(max_connections: int) -> int:
    """The lowest that has room for so many connections."""
    needed = least = RESERVED + LEAST_LOG_FILES + max_connections
    while needed - http_connections(needed) < least:
        needed += 1
    return needed


def _beside_log_files(max_connections: int) -> int:
    return RESERVED + http_connections() + max_connections
