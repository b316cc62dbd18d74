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


class Place(NamedTuple):
    """A batch that can be damaged: everything else in its log stays."""

    path: str
    position: int
    header: BatchHeader


def choose(places: list[str], share: float) -> str | None:
    """One of them; the same share is about the same place."""
    return places[int(share * len(places))] if places else None


def flip_in_batch(
    fs: CrashFileSystem, directory: str, where: TopicPartition, share: float, byte: float, bit: int
) -> BatchHeader | None:
    """Flip a bit of a batch that has good ones behind it, or lies below what the server knows to be synced; answers which."""
    places = list(_batches(fs, directory, where))
    if not places:
        return None
    place = places[int(share * len(places))]
    at = BASE_OFFSET_BYTES + int(byte * (place.header.size_bytes - BASE_OFFSET_BYTES))
    change(fs, place.path, lambda data: _flipped(data, place.position + at, bit))
    return place.header


def _batches(fs: CrashFileSystem, directory: str, where: TopicPartition) -> list[Place]:
    folder = f"{directory}/{where}"
    logs = [f"{folder}/{name}" for name in fs.list_directory(folder) if name.endswith(".log")]
    found: list[Place] = []
    for path in logs:
        position = 0
        try:
            for header, batch in iter_batches(fs.content(path)):
                check_batch(batch, header)
                found.append(Place(path, position, header))
                position += header.size_bytes
        except TriologError:
            continue  # damaged before, or torn: what lies behind it is left alone
    last = max((place.header.base_offset for place in found), default=-1)
    synced = _recovery_point(fs, directory, where)
    return [
        place
        for place in found
        if not place.header.is_control and (place.header.base_offset < last or place.header.next_offset <= synced)
    ]


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
