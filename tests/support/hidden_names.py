"""A pytest plug-in (`-p tests.support.hidden_names`) that hides what only Linux has, to run suites as macOS would run them.

`TRIOLOG_TEST_WATCHER` names what watches sockets instead of epoll: `kqueue` (an imitation, `tests.support.kqueue`) or
`portable`. Names are hidden in this process alone: servers that a test starts as processes of their own keep theirs. trio,
asyncio and `selectors` keep epoll, in a copy of the module `select`: on macOS they have kqueue in its place.
"""

from __future__ import annotations

import fcntl
import os
import select
import selectors
import socket
import types
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

import pytest
import trio
import trio._core._io_epoll

from tests.support import kqueue

VARIABLE: Final = "TRIOLOG_TEST_WATCHER"
WATCHERS: Final = ("portable", "kqueue")
HIDDEN: Final[dict[types.ModuleType, tuple[str, ...]]] = {
    select: ("epoll", "EPOLL*", "POLLRDHUP"),
    fcntl: ("F_OFD_*",),
    os: ("fdatasync", "posix_fadvise", "POSIX_FADV_*", "posix_fallocate", "RWF_*", "sched_getaffinity", "pipe2"),
    socket: ("SOCK_CLOEXEC", "SOCK_NONBLOCK", "TCP_KEEPIDLE", "TCP_USER_TIMEOUT", "TCP_QUICKACK"),
}
"""Patterns of names, by module. `/proc`, `/sys` and `/dev/shm` are hidden from triolog too."""
KERNEL_FILES: Final = ("/proc/", "/sys/")

SKIPPED: Final[dict[str, str]] = {
    "tests/server/embedded/test_conformance.py::test_a_directory_that_nobody_named_goes_with_the_broker": "expects `/dev/shm`",
    "tests/server/listeners/connections/test_attacks.py::test_peers_that_vanish_are_found_out_within_a_minute": (
        "reads TCP_KEEPIDLE back from the kernel"
    ),
    "tests/server/listeners/kafka/test_list_offsets.py::test_a_hundred_partitions_are_answered_in_the_turn_that_asks": (
        "expects reads without a thread (RWF_NOWAIT)"
    ),
}
"""Tests that need what is hidden, by node id or the start of one, each with the reason. docs/platforms.md has the list."""
SKIPPED_WITH_PORTABLE: Final[dict[str, str]] = {
    "tests/server/listeners/connections/test_attacks.py::test_a_parked_fetch_of_a_peer_that_sends_no_more_is_answered": (
        "portable watcher: the end of a peer is noticed after the requests ahead of it"
    ),
}


def hide(watcher: str) -> None:
    """Hide names until the process ends. Call it before triolog is imported."""
    for module in (trio._core._io_epoll, selectors):
        copy = types.ModuleType("select")
        copy.__dict__.update(select.__dict__)
        vars(module)["select"] = copy
    for module, patterns in HIDDEN.items():
        for name in [name for name in vars(module) if _is_hidden(name, patterns)]:
            delattr(module, name)
    if watcher == "kqueue":
        select.__dict__.update(kqueue=kqueue.Kqueue, kevent=kqueue.Kevent)
        select.__dict__.update({name: getattr(kqueue, name) for name in kqueue.NAMES})
    _hide_kernel_files()


def _is_hidden(name: str, patterns: tuple[str, ...]) -> bool:
    return any(name.startswith(each[:-1]) if each.endswith("*") else name == each for each in patterns)


def _hide_kernel_files() -> None:
    from triolog.server.embedded import living
    from triolog.server.storage.directory import log_directory
    from triolog.server.system import block_devices

    def hidden(function: Callable[[str], Any]) -> Callable[[str], Any]:
        @wraps(function)
        def instead(path: str) -> Any:
            return None if path.startswith(KERNEL_FILES) else function(path)

        return instead

    vars(block_devices).update(read_text=hidden(block_devices.read_text), _device=hidden(block_devices._device))
    vars(living)["_SHARED_MEMORY"] = "/no-shared-memory"
    vars(log_directory)["_OPEN_FILE_LOCK"] = None


def pytest_configure() -> None:
    watcher = os.environ.get(VARIABLE, "")
    if watcher not in WATCHERS:
        raise pytest.UsageError(f"{VARIABLE}={watcher}: set it to one of {', '.join(WATCHERS)}")
    hide(watcher)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skipped = SKIPPED | (SKIPPED_WITH_PORTABLE if os.environ[VARIABLE] == "portable" else {})
    for item in items:
        for start, reason in skipped.items():
            if item.nodeid.startswith(start):
                item.add_marker(pytest.mark.skip(reason=reason))
