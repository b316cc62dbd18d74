"""What somebody damages in the files of a server that does not run, and what of it may be missing afterwards."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, NamedTuple

from triolog.protocol.errors import TriologError
from triolog.protocol.records.batch import BatchHeader, check_batch, iter_batches
from triolog.protocol.types import TopicPartition
from triolog.server.storage.disk.checkpoints import RECOVERY_POINT_FILE, decode_offsets

from tests.support.crash_fs import CrashFileSystem

BASE_OFFSET_BYTES: Final = 8
DERIVED: Final = {
    "index": (".index", ".timeindex"),
    "aborted": (".txnindex",),
    "producers": (".snapshot", ".batches"),
    "epochs": ("leader-epoch-checkpoint",),
    "evidence": ("derived.json",),
}
CHECKPOINTS: Final = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
)


class Hit(NamedTuple):
    """A batch that can be damaged, or is: everything else in its log stays."""

    path: str
    position: int
    header: BatchHeader
    is_scanned: bool = False
    """Whether a start that follows no orderly stop reads it."""
    is_contiguous: bool = False
    """Whether its neighbours say what its base offset is, which no checksum covers."""


def choose(places: list[str], share: float) -> str | None:
    """One of them; the same share is about the same place."""
    return places[int(share * len(places))] if places else None


def flip_in_batch(
    fs: CrashFileSystem, directory: str, where: TopicPartition, share: float, byte: float, bit: int
) -> Hit | None:
    """Flip a bit of a batch that has good ones behind it, or lies below what the server knows to be synced; answers which."""
    places = _batches(fs, directory, where)
    if not places:
        return None
    hit = places[int(share * len(places))]
    first = 0 if hit.is_contiguous else BASE_OFFSET_BYTES
    at = first + int(byte * (hit.header.size_bytes - first))
    change(fs, hit.path, lambda data: _flipped(data, hit.position + at, bit))
    return hit


def damage_in(fs: CrashFileSystem, path: str) -> str:
    """What is wrong with the first batch of a file that is not good, or nothing."""
    if fs.file_size(path) is None:
        return ""
    try:
        for header, batch in iter_batches(fs.content(path)):
            check_batch(batch, header)
    except TriologError as exc:
        return str(exc)
    return ""


def _batches(fs: CrashFileSystem, directory: str, where: TopicPartition) -> list[Hit]:
    folder = f"{directory}/{where}"
    found: list[Hit] = []
    for path in [f"{folder}/{name}" for name in fs.list_directory(folder) if name.endswith(".log")]:
        position = 0
        try:
            for header, batch in iter_batches(fs.content(path)):
                check_batch(batch, header)
                found.append(Hit(path, position, header))
                position += header.size_bytes
        except TriologError:
            continue  # damaged before, or torn: what lies behind it is left alone
    synced = _recovery_point(fs, directory, where)
    last = max((hit.header.base_offset for hit in found), default=-1)
    return [
        hit._replace(is_scanned=hit.header.base_offset >= synced, is_contiguous=_is_contiguous(found, number))
        for number, hit in enumerate(found)
        if not hit.header.is_control and (hit.header.base_offset < last or hit.header.next_offset <= synced)
    ]


def _is_contiguous(found: list[Hit], number: int) -> bool:
    if not 0 < number < len(found) - 1:
        return False
    before, hit, behind = (each.header for each in found[number - 1 : number + 2])
    return before.next_offset == hit.base_offset and hit.next_offset == behind.base_offset


def _recovery_point(fs: CrashFileSystem, directory: str, where: TopicPartition) -> int:
    path = f"{directory}/{RECOVERY_POINT_FILE}"
    if fs.file_size(path) is None:
        return 0
    try:
        return decode_offsets(path, fs.content(path)).get(where, 0)
    except TriologError:
        return 0


def damage_derived(fs: CrashFileSystem, directory: str, kind: str, share: float, how: str) -> str | None:
    """Damage or delete one derived file of a directory; answers its path. An index is never garbled: it may be believed."""
    if kind == "checkpoint":
        paths = [f"{directory}/{name}" for name in CHECKPOINTS if fs.file_size(f"{directory}/{name}") is not None]
    else:
        folders = [f"{directory}/{name}" for name in fs.list_directory(directory) if not name.startswith("__")]
        paths = [
            f"{folder}/{name}"
            for folder in folders
            if fs.is_directory(folder) and not folder.endswith("-delete")
            for name in fs.list_directory(folder)
            if name.endswith(DERIVED[kind])
        ]
    path = choose(paths, share)
    if path is None:
        return None
    match how:
        case "lose":
            fs.unlink(path)
            fs.sync_directory(os.path.dirname(path))
        case "cut":
            change(fs, path, lambda data: data[: int(len(data) * share) | 1])
        case "garble":
            change(fs, path, lambda data: bytes((byte * 7 + 13) & 0xFF for byte in data))
    return path


def _flipped(data: bytes, at: int, bit: int) -> bytes:
    return data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]


def change(fs: CrashFileSystem, path: str, how: Callable[[bytes], bytes]) -> None:
    """On the device, under the cache."""
    content = how(fs.content(path))
    fd = fs.open(path, os.O_RDWR)
    try:
        fs.truncate(fd, len(content))
        fs.write(fd, [content], 0)
        fs.sync(fd)
    finally:
        fs.close(fd)
