"""The crashing file system keeps what it says: synced bytes and names always, all else in any state a disk could be in."""

from __future__ import annotations

import errno
import os
import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.server.storage.disk.filesystem import CREATE, READ, FileSystem, read_file, replace_file

from tests.support.crash_fs import CrashFileSystem, PowerCut

SEEDS = range(300)


def _file(fs: CrashFileSystem, path: str, data: bytes, *, synced: bool = True) -> int:
    fd = fs.open(path, CREATE)
    fs.write(fd, [data], 0)
    if synced:
        fs.sync(fd)
        fs.sync_directory("/")
    return fd


def _after_crash(fs_of: CrashFileSystem, seed: int, path: str) -> bytes | None:
    after = fs_of.crash(random.Random(seed))
    return after.content(path) if after.file_size(path) is not None else None


def _survivors(write: object, path: str = "/f", page_bytes: int = 4096) -> set[bytes | None]:
    found = set()
    for seed in SEEDS:
        fs = CrashFileSystem(page_bytes=page_bytes)
        write(fs)  # type: ignore[operator]
        found.add(_after_crash(fs, seed, path))
    return found


def test_it_is_a_file_system() -> None:
    fs: FileSystem = CrashFileSystem()
    assert fs.is_directory("/")


def test_synced_content_with_a_synced_name_survives_every_crash() -> None:
    assert _survivors(lambda fs: _file(fs, "/f", b"synced")) == {b"synced"}


def test_synced_content_without_a_synced_name_survives_or_not() -> None:
    def write(fs: CrashFileSystem) -> None:
        fs.sync(_file(fs, "/f", b"synced", synced=False))

    assert _survivors(write) == {b"synced", None}


def test_an_unsynced_append_survives_as_a_prefix_or_as_zeros_never_touching_what_was_synced() -> None:
    def write(fs: CrashFileSystem) -> None:
        fs.write(_file(fs, "/f", b"old"), [b"n", b"ew"], 3)

    found = _survivors(write)
    assert {b"old", b"oldn", b"oldne", b"oldnew", b"old\0\0\0"} <= found
    assert all(content is not None and content.startswith(b"old") for content in found)


def test_later_pages_can_survive_where_earlier_ones_do_not() -> None:
    def write(fs: CrashFileSystem) -> None:
        fd = _file(fs, "/f", b"")
        for page in range(3):
            fs.write(fd, [b"abc"[page : page + 1] * 8], page * 8)

    assert bytes(8) + bytes(8) + b"c" * 8 in _survivors(write, page_bytes=8)


def test_an_unsynced_overwrite_tears_between_sectors() -> None:
    def write(fs: CrashFileSystem) -> None:
        fs.write(_file(fs, "/f", b"o" * 16), [b"n" * 16], 0)

    found = _survivors(write, page_bytes=16)
    assert b"n" * 6 + b"o" * 10 in found
    assert b"o" * 16 in found
    assert b"n" * 16 in found


def test_an_unsynced_cut_survives_or_not() -> None:
    def write(fs: CrashFileSystem) -> None:
        fs.truncate(_file(fs, "/f", b"12345678"), 4)

    assert _survivors(write) >= {b"1234", b"12345678"}


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


def test_an_unsynced_unlink_can_come_back() -> None:
    def write(fs: CrashFileSystem) -> None:
        _file(fs, "/f", b"x")
        fs.unlink("/f")

    assert _survivors(write) == {b"x", None}


def test_an_unsynced_directory_takes_its_files_with_it() -> None:
    def write(fs: CrashFileSystem) -> None:
        fs.make_directory("/d/e")
        fd = fs.open("/d/e/f", CREATE)
        fs.write(fd, [b"x"], 0)
        fs.sync(fd)
        for path in ("/d/e", "/d"):
            fs.sync_directory(path)

    assert _survivors(write, "/d/e/f") == {b"x", None}


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


def test_a_replaced_file_can_be_empty_when_nothing_was_synced() -> None:
    found = _survivors(lambda fs: replace_file(fs, "/f", b"12345678", durable=False))
    assert {None, b"", bytes(8), b"12345678"} <= found


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


def test_a_file_that_was_made_long_takes_no_memory_and_reads_as_zeros() -> None:
    fs = CrashFileSystem()
    fd = _file(fs, "/f", b"")
    fs.allocate(fd, 2**50)
    fs.write(fd, [b"x"], 3)
    assert fs.read(fd, 3, 2) == b"\0x\0"
    assert fs.read(fd, 8, 2**50 - 2) == b"\0\0"
    fs.sync(fd)
    fs.truncate(fd, 2)
    fs.truncate(fd, 5)
    assert fs.content("/f") == bytes(5)
    assert {fs.crash(random.Random(seed)).file_size("/f") for seed in SEEDS} == {2, 5, 2**50}


def test_what_a_crash_left_is_durable() -> None:
    def content(fs: CrashFileSystem) -> dict[str, bytes]:
        return {name: fs.content(f"/{name}") for name in fs.list_directory("/")}

    for seed in range(20):
        fs = CrashFileSystem()
        _file(fs, "/f", b"unsynced", synced=False)
        after = fs.crash(random.Random(seed))
        left = content(after)
        assert content(after.crash(random.Random(seed + 1))) == left


def test_everything_raises_after_the_cut() -> None:
    fs = CrashFileSystem()
    fd = _file(fs, "/f", b"x")
    fs.cut_after(1)
    fs.write(fd, [b"y"], 1)
    with pytest.raises(PowerCut):
        fs.write(fd, [b"z"], 2)
    with pytest.raises(PowerCut):
        fs.read(fd, 1, 0)
    fs.close(fd)


def test_a_device_that_fills_up_takes_a_part_of_the_write() -> None:
    fs = CrashFileSystem()
    fd = _file(fs, "/f", b"")
    fs.fail_next("write", errno.ENOSPC, after_bytes=5)
    fs.write(fd, [b"123"], 0)
    with pytest.raises(OSError, match="No space left") as caught:
        fs.write(fd, [b"45", b"67"], 3)
    assert caught.value.errno == errno.ENOSPC
    assert fs.content("/f") == b"12345"
    fs.write(fd, [b"67"], 5)
    assert fs.content("/f") == b"1234567"


def test_a_failure_waits_for_the_calls_it_skips() -> None:
    fs = CrashFileSystem()
    fs.fail_next("open", errno.EMFILE, skip=1)
    _file(fs, "/f", b"")
    with pytest.raises(OSError, match="Too many open files"):
        fs.open("/f", READ)
    fs.open("/f", READ)
    assert not fs.forget_failures()


def _fails_to_sync(fs: CrashFileSystem, fd: int) -> None:
    fs.fail_next("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        fs.sync(fd)


def test_a_failed_sync_is_not_healed_by_the_next_one() -> None:
    def write(fs: CrashFileSystem) -> None:
        fd = _file(fs, "/f", b"old")
        fs.write(fd, [b"new"], 3)
        _fails_to_sync(fs, fd)
        fs.sync(fd)
        assert fs.content("/f") == b"oldnew"
        assert fs.durable_content("/f") == b"old"

    assert {b"old", b"oldnew"} <= _survivors(write)


def test_a_failed_sync_is_not_healed_by_writing_elsewhere() -> None:
    def write(fs: CrashFileSystem) -> None:
        fd = _file(fs, "/f", b"")
        fs.write(fd, [b"a" * 8], 0)
        _fails_to_sync(fs, fd)
        fs.write(fd, [b"b" * 8], 8)
        fs.sync(fd)

    assert _survivors(write, page_bytes=8) == {bytes(8) + b"b" * 8, b"a" * 8 + b"b" * 8}


@pytest.mark.parametrize(("forgets", "left"), [(True, {b"abcdefgh"}), (False, {bytes(8), b"abcdefgh"})])
def test_a_page_that_failed_is_sound_when_it_was_forgotten_and_written_again(forgets: bool, left: set[bytes]) -> None:
    """Written again alone it may be in an extent of ext4 that is still marked unwritten."""

    def write(fs: CrashFileSystem) -> None:
        fd = _file(fs, "/f", b"")
        fs.write(fd, [b"abcdefgh"], 0)
        _fails_to_sync(fs, fd)
        if forgets:
            fs.forget(fd, 0, 8)
            assert fs.content("/f") == bytes(8)
        fs.write(fd, [b"abcdefgh"], 0)
        assert fs.durable_content("/f") == b""
        fs.sync(fd)

    assert _survivors(write, page_bytes=8) == left


def test_a_page_that_failed_and_was_cut_off_is_a_new_one() -> None:
    def write(fs: CrashFileSystem) -> None:
        fd = _file(fs, "/f", b"")
        fs.write(fd, [b"lost"], 0)
        _fails_to_sync(fs, fd)
        fs.truncate(fd, 0)
        fs.write(fd, [b"new"], 0)
        fs.sync(fd)

    assert _survivors(write) == {b"new"}


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


def test_a_cut_after_a_failed_sync_is_on_the_device_with_the_next_one() -> None:
    def write(fs: CrashFileSystem) -> None:
        fd = _file(fs, "/f", b"old")
        fs.write(fd, [b"new"], 3)
        _fails_to_sync(fs, fd)
        fs.truncate(fd, 3)
        fs.sync(fd)

    assert _survivors(write) == {b"old"}


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


def test_a_map_shows_later_writes_and_can_be_unpacked_and_sliced() -> None:
    fs = CrashFileSystem()
    fd = _file(fs, "/f", bytes(8))
    view = fs.map(fd, 8)
    fs.write(fd, [struct.pack(">i", 7)], 4)
    assert struct.unpack_from(">i", view, 4) == (7,)
    assert bytes(view[4:]) == struct.pack(">i", 7)
    assert len(view) == 8
    with pytest.raises(TypeError):
        view[0] = 1  # type: ignore[index]


def test_a_map_of_a_cut_file_shows_that_nothing_is_there() -> None:
    fs = CrashFileSystem()
    fd = _file(fs, "/f", b"12345678")
    view = fs.map(fd, 8)
    fs.truncate(fd, 2)
    assert bytes(view) == b"12" + b"\xdb" * 6


def test_a_map_stays_with_a_file_that_was_replaced() -> None:
    fs = CrashFileSystem()
    view = fs.map(_file(fs, "/f", b"old"), 3)
    replace_file(fs, "/f", b"new!")
    assert bytes(view) == b"old"
    assert read_file(fs, "/f", max_bytes=9) == b"new!"


@pytest.mark.parametrize(
    ("path", "flags", "error"),
    [("/none", READ, errno.ENOENT), ("/d", READ, errno.EISDIR), ("/f", CREATE | os.O_EXCL, errno.EEXIST)],
)
def test_opening_fails_as_it_does_on_linux(path: str, flags: int, error: int) -> None:
    fs = CrashFileSystem()
    fs.make_directory("/d")
    _file(fs, "/f", b"")
    with pytest.raises(OSError, match="/") as caught:
        fs.open(path, flags)
    assert caught.value.errno == error


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
