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
    "tests/server/storage/directory/test_log_directory.py::test_removing_the_file_lets_no_second_owner_in": (
        "expects that the holder is read from `.lock`; without F_OFD_SETLK the process knows it"
    ),
    "tests/server/storage/directory/test_log_directory.py::test_a_full_device_keeps_nobody_from_the_lock": "the same",
    "tests/server/storage/directory/test_log_directory.py::test_linux_has_locks_of_open_files": "is about F_OFD_SETLK",
    "tests/server/storage/disk/test_diskops.py::test_a_created_file_is_empty_or_allocated": "expects `posix_fallocate`",
    "tests/server/storage/disk/test_filesystem.py::test_a_cached_read_is_exact_or_none": "is about RWF_NOWAIT",
    "tests/server/storage/disk/test_filesystem.py::test_a_mount_that_does_not_know_the_flag": "is about RWF_NOWAIT",
    "tests/server/storage/disk/test_filesystem.py::test_without_fdatasync_and_fallocate_a_file_is_synced_and_has_its_length": (
        "hides `fdatasync` itself"
    ),
    "tests/server/storage/disk/test_filesystem.py::test_a_log_works_where_nothing_of_linux_is_there": (
        "hides RWF_NOWAIT itself"
    ),
    "tests/server/storage/disk/test_memory_overlay.py::test_it_answers_as_the_real_file_system": (
        "expects cached reads (RWF_NOWAIT)"
    ),
    "tests/server/storage/disk/test_memory_overlay.py::test_a_log_that_is_cut_is_shorter": (
        "expects cached reads (RWF_NOWAIT)"
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
    from trio._core import _io_epoll  # Linux only, as all of this

    for module in (_io_epoll, selectors):
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
