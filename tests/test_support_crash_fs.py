"""The crashing file system keeps what it says: synced bytes and names always, all else in any state a disk could be in."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.server.storage.disk.filesystem import CREATE, READ, replace_file

from tests.support.crash_fs import CrashFileSystem, PowerCut

SEEDS = range(300)


def _file(fs: CrashFileSystem, path: str, data: bytes, *, synced: bool = True) -> int:
    fd = fs.open(path, CREATE)
    fs.write(fd, [data], 0)
    if synced:
        fs.sync(fd)
        fs.sync_directory("/")
    return fd


def _fails_to_sync(fs: CrashFileSystem, fd: int) -> None:
    fs.fail_next("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        fs.sync(fd)


def _after_crash(fs_of: CrashFileSystem, seed: int, path: str) -> bytes | None:
    after = fs_of.crash(random.Random(seed))
    return after.content(path) if after.file_size(path) is not None else None


def unlink(fs: CrashFileSystem) -> None:
    _file(fs, "/f", b"x")
    fs.unlink("/f")


def make_in_unsynced_directory(fs: CrashFileSystem) -> None:
    fs.make_directory("/d/e")
    fd = fs.open("/d/e/f", CREATE)
    fs.write(fd, [b"x"], 0)
    fs.sync(fd)
    for path in ("/d/e", "/d"):
        fs.sync_directory(path)


def write_three_pages(fs: CrashFileSystem) -> None:
    fd = _file(fs, "/f", b"")
    for page in range(3):
        fs.write(fd, [b"abc"[page : page + 1] * 8], page * 8)


def sync_again_after_failure(fs: CrashFileSystem) -> None:
    fd = _file(fs, "/f", b"old")
    fs.write(fd, [b"new"], 3)
    _fails_to_sync(fs, fd)
    fs.sync(fd)
    assert fs.content("/f") == b"oldnew"
    assert fs.durable_content("/f") == b"old"


def write_elsewhere_after_failure(fs: CrashFileSystem) -> None:
    fd = _file(fs, "/f", b"")
    fs.write(fd, [b"a" * 8], 0)
    _fails_to_sync(fs, fd)
    fs.write(fd, [b"b" * 8], 8)
    fs.sync(fd)


def write_page_again_after_failure(fs: CrashFileSystem, *, forgets: bool = False) -> None:
    """Written again alone it may be in an extent of ext4 that is still marked unwritten."""
    fd = _file(fs, "/f", b"")
    fs.write(fd, [b"abcdefgh"], 0)
    _fails_to_sync(fs, fd)
    if forgets:
        fs.forget(fd, 0, 8)
        assert fs.content("/f") == bytes(8)
    fs.write(fd, [b"abcdefgh"], 0)
    assert fs.durable_content("/f") == b""
    fs.sync(fd)


def cut_after_failure(fs: CrashFileSystem, *, to: int = 0, then: bytes = b"new") -> None:
    fd = _file(fs, "/f", b"old")
    fs.write(fd, [b"new"], 3)
    _fails_to_sync(fs, fd)
    fs.truncate(fd, to)
    fs.write(fd, [then], to)
    fs.sync(fd)


@attrs.frozen(kw_only=True)
class Case:
    """What may be left of a file after a power cut that follows `write`."""

    write: Callable[[CrashFileSystem], object]
    left: set[bytes | None]
    also: Callable[[bytes | None], bool] = lambda content: False
    """Which other contents may be left."""
    path: str = "/f"
    page_bytes: int = 4096


CASES = {
    "synced content with a synced name": Case(write=lambda fs: _file(fs, "/f", b"synced"), left={b"synced"}),
    "synced content without a synced name": Case(
        write=lambda fs: fs.sync(_file(fs, "/f", b"synced", synced=False)), left={b"synced", None}
    ),
    "an unsynced append": Case(
        write=lambda fs: fs.write(_file(fs, "/f", b"old"), [b"n", b"ew"], 3),
        left={b"old", b"oldn", b"oldne", b"oldnew", b"old\0\0\0"},
        also=lambda content: content is not None and content.startswith(b"old"),
    ),
    "an unsynced overwrite tears between sectors": Case(
        write=lambda fs: fs.write(_file(fs, "/f", b"o" * 16), [b"n" * 16], 0),
        left={b"n" * 6 + b"o" * 10, b"o" * 16, b"n" * 16},
        also=lambda content: content is not None,
        page_bytes=16,
    ),
    "later pages without earlier ones": Case(
        write=write_three_pages, left={bytes(16) + b"c" * 8}, also=lambda content: content is not None, page_bytes=8
    ),
    "an unsynced cut": Case(
        write=lambda fs: fs.truncate(_file(fs, "/f", b"12345678"), 4),
        left={b"1234", b"12345678"},
        also=lambda content: content is not None,
    ),
    "an unsynced unlink": Case(write=unlink, left={b"x", None}),
    "an unsynced directory": Case(write=make_in_unsynced_directory, left={b"x", None}, path="/d/e/f"),
    "a replacement without a sync": Case(
        write=lambda fs: replace_file(fs, "/f", b"12345678", durable=False),
        left={None, b"", bytes(8), b"12345678"},
        also=lambda content: True,
    ),
    "a failed sync and another": Case(write=sync_again_after_failure, left={b"old", b"oldnew"}, also=lambda content: True),
    "a failed sync and a write elsewhere": Case(
        write=write_elsewhere_after_failure, left={bytes(8) + b"b" * 8, b"a" * 8 + b"b" * 8}, page_bytes=8
    ),
    "a failed page, forgotten and written again": Case(
        write=lambda fs: write_page_again_after_failure(fs, forgets=True), left={b"abcdefgh"}, page_bytes=8
    ),
    "a failed page, written again": Case(write=write_page_again_after_failure, left={bytes(8), b"abcdefgh"}, page_bytes=8),
    "a failed page, cut off and written": Case(write=cut_after_failure, left={b"new"}),
    "a failed sync and a cut": Case(write=lambda fs: cut_after_failure(fs, to=3, then=b""), left={b"old"}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_a_power_cut_leaves_what_a_disk_could(case: Case) -> None:
    found = set()
    for seed in SEEDS:
        fs = CrashFileSystem(page_bytes=case.page_bytes)
        case.write(fs)
        found.add(_after_crash(fs, seed, case.path))
    assert found >= case.left
    assert [content for content in found - case.left if not case.also(content)] == []


def test_an_unsynced_rename_happens_or_does_not_and_loses_nothing() -> None:
    outcomes = set()
    for seed in SEEDS:
        fs = CrashFileSystem()
        _file(fs, "/a", b"a")
        _file(fs, "/b", b"b")
        fs.rename("/a", "/b")
        after = fs.crash(random.Random(seed))
        outcomes.add(tuple((name, after.content(f"/{name}")) for name in after.list_directory("/")))
    assert outcomes == {(("a", b"a"), ("b", b"b")), (("b", b"a"),)}


@given(st.binary(max_size=40), st.binary(min_size=1, max_size=40), st.integers())
def test_a_replaced_file_is_the_old_or_the_new_one_after_a_cut_at_any_operation(old: bytes, new: bytes, seed: int) -> None:
    for changes in range(8):
        fs = CrashFileSystem(page_bytes=8)
        replace_file(fs, "/f", old)
        fs.cut_after(changes)
        done = True
        try:
            replace_file(fs, "/f", new)
        except PowerCut:
            done = False
        assert _after_crash(fs, seed, "/f") in ((new,) if done else (old, new))


def _changed(fs: CrashFileSystem) -> None:
    """Every kind of change, synced here and there."""
    fs.make_directory("/d")
    fd = _file(fs, "/d/a", b"12345678" * 4)
    fs.sync_directory("/d")
    fs.link("/d/a", "/d/b")
    fs.write(fd, [b"x" * 12], 20)
    fs.rename("/d/b", "/d/c")
    fs.truncate(fd, 25)
    fs.allocate(fd, 100)
    replace_file(fs, "/d/e", b"new")
    fs.unlink("/d/a")
    fs.sync(fd)
    fs.close(fd)


def test_a_moment_of_a_recording_crashes_as_the_cut_there_does() -> None:
    recorded = CrashFileSystem(page_bytes=8)
    moments = recorded.moments()
    _changed(recorded)
    left = set()
    for changes, moment in enumerate(moments):
        fs = CrashFileSystem(page_bytes=8)
        fs.cut_after(changes)
        with pytest.raises(PowerCut):
            _changed(fs)
        for seed in range(20):
            after = fs.crash(random.Random(seed)).tree()
            assert moment.crash(random.Random(seed)).tree() == after
            left.add(tuple(after.items()))
    assert len(left) > 50


def test_a_copy_and_its_original_change_apart() -> None:
    fs = CrashFileSystem()
    fd = _file(fs, "/f", b"old")
    copy = fs.copy()
    fs.write(fd, [b"new"], 0)
    fs.unlink("/f")
    fs.sync(fd)
    assert copy.content("/f") == copy.durable_content("/f") == b"old"
    assert copy.crash(random.Random(0)).content("/f") == b"old"


def test_what_a_crash_left_is_durable() -> None:
    def content(fs: CrashFileSystem) -> dict[str, bytes]:
        return {name: fs.content(f"/{name}") for name in fs.list_directory("/")}

    for seed in range(20):
        fs = CrashFileSystem()
        _file(fs, "/f", b"unsynced", synced=False)
        after = fs.crash(random.Random(seed))
        left = content(after)
        assert content(after.crash(random.Random(seed + 1))) == left


def test_every_open_descriptor_is_told_of_a_failure_once() -> None:
    fs = CrashFileSystem()
    failing, other = _file(fs, "/f", b"old"), fs.open("/f", READ)
    fs.write(failing, [b"new"], 0)
    _fails_to_sync(fs, failing)
    later = fs.open("/f", READ)
    fs.sync(failing)
    fs.sync(later)
    with pytest.raises(OSError, match="Input/output"):
        fs.sync(other)
    fs.sync(other)


def test_a_descriptor_that_is_opened_later_is_told_only_what_nobody_was_told() -> None:
    fs = CrashFileSystem()
    fs.close(_file(fs, "/f", b"old", synced=False))
    fs.fail_write_back("/f", errno.ENOSPC)
    fd = fs.open("/f", READ)
    with pytest.raises(OSError, match="No space left"):
        fs.sync(fd)
    fs.sync(fs.open("/f", READ))


def test_a_process_that_ends_leaves_what_it_wrote_and_what_was_lost() -> None:
    fs = CrashFileSystem()
    fd = _file(fs, "/f", b"old")
    fs.write(fd, [b"new"], 0)
    _fails_to_sync(fs, fd)
    fs.fail_next("open", errno.EIO)
    fs.end_process()
    assert fs.open_descriptors == 0
    fs.sync(fs.open("/f", READ))
    assert fs.content("/f") == b"new"
    assert fs.durable_content("/f") == b"old"


def test_dropped_caches_show_what_the_device_has() -> None:
    found = set()
    for seed in range(20):
        fs = CrashFileSystem(page_bytes=8)
        fd = _file(fs, "/f", b"old")
        view = fs.map(fd, 3)
        fs.write(fd, [b"new"], 0)
        _fails_to_sync(fs, fd)
        fs.write(fd, [b"dirty"], 8)
        fs.drop_caches(random.Random(seed))
        content = fs.content("/f")
        assert content[3:] == bytes(5) + b"dirty"
        assert bytes(view) == content[:3]
        fs.sync(fd)
        assert fs.durable_content("/f") == content
        found.add(content[:3])
    assert found == {b"old", b"new"}


@given(st.lists(st.tuples(st.integers(0, 30), st.binary(min_size=1, max_size=20), st.sampled_from("wsfg")), max_size=12))
def test_what_was_written_and_synced_and_never_failed_since_it_was_forgotten_is_durable(
    steps: list[tuple[int, bytes, str]],
) -> None:
    fs = CrashFileSystem(page_bytes=8)
    fd = _file(fs, "/f", b"")
    sound: dict[int, bytes] = {}
    written: set[int] = set()
    failed: set[int] = set()
    for position, data, then in steps:
        fs.write(fd, [data], position)
        pages = set(range(position // 8, -(-(position + len(data)) // 8)))
        written |= pages
        if then == "f":
            _fails_to_sync(fs, fd)
            failed |= written
            written.clear()
        elif then == "s":
            fs.sync(fd)
            content = fs.content("/f")
            sound |= {page: content[page * 8 : page * 8 + 8] for page in written - failed}
            written.clear()
        elif then == "g":
            fs.forget(fd, 0)
            written -= failed
            failed.clear()
        for page in written | failed:
            sound.pop(page, None)
    after = fs.crash(random.Random(len(steps))).content("/f")
    for page, expected in sound.items():
        assert after[page * 8 : page * 8 + len(expected)] == expected


def test_a_map_of_a_cut_file_shows_that_nothing_is_there() -> None:
    fs = CrashFileSystem()
    fd = _file(fs, "/f", b"12345678")
    view = fs.map(fd, 8)
    fs.truncate(fd, 2)
    assert bytes(view) == b"12" + b"\xdb" * 6


def test_a_descriptor_for_reading_refuses_writes_and_a_closed_one_everything() -> None:
    fs = CrashFileSystem()
    fs.close(_file(fs, "/f", b"x"))
    fd = fs.open("/f", READ)
    with pytest.raises(OSError, match="Bad file descriptor"):
        fs.write(fd, [b"y"], 0)
    fs.close(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        fs.read(fd, 1, 0)
    assert fs.open_descriptors == 0
