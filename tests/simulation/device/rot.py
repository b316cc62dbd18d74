"""What somebody damages in the files of a server that does not run, and what of it may be missing afterwards."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import Any, Final, NamedTuple

from triolog.protocol.errors import TriologError
from triolog.protocol.records.batch import BatchHeader, check_batch, iter_batches
from triolog.protocol.types import TopicPartition
from triolog.server.storage.directory.topics_file import TOPICS_FILE
from triolog.server.storage.disk.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    decode_offsets,
    encode_offsets,
)
from triolog.server.storage.disk.paths import DELETED_SUFFIX
from triolog.server.storage.indexes.transaction_index import ENTRY_BYTES

from tests.support.crash_fs import CrashFileSystem, put

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
    return places[_index(share, len(places))] if places else None


def _index(share: float, count: int) -> int:
    """`share`: 0 to 1, both inclusive."""
    return min(int(share * count), count - 1)


def flip_in_batch(
    fs: CrashFileSystem, directory: str, where: TopicPartition, share: float, byte: float, bit: int, *, power_may_go: bool
) -> Hit | None:
    """Flip a bit of a batch that has good ones behind it, or lies below what the server knows to be synced; answers which.
    `power_may_go`: before a start has seen it, so that those behind it have to be on the device."""
    places = _batches(fs, directory, where, power_may_go=power_may_go)
    if not places:
        return None
    hit = places[_index(share, len(places))]
    first = 0 if hit.is_contiguous else BASE_OFFSET_BYTES
    at = first + int(byte * (hit.header.size_bytes - first))
    change(fs, hit.path, lambda data: _flipped(data, hit.position + at, bit))
    return hit


def cut_end(fs: CrashFileSystem, directory: str, where: TopicPartition, batches: int) -> range | None:
    """Take the last batches out of a log of which a clean stop has promised all; answers their offsets."""
    folder = f"{directory}/{where}"
    paths = sorted(f"{folder}/{name}" for name in fs.list_directory(folder) if name.endswith(".log"))
    if not paths or fs.file_size(f"{directory}/{CLEAN_SHUTDOWN_FILE}") is None:
        return None
    path = next((path for path in reversed(paths) if fs.file_size(path)), paths[-1])
    places, is_whole = _places(path, fs.content(path))
    if not is_whole or not places or places[-1].header.next_offset != _recovery_point(fs, directory, where):
        return None
    cut = list(takewhile(lambda hit: not hit.header.is_control, reversed(places[-batches:])))
    if not cut:
        return None
    change(fs, path, lambda data: data[: cut[-1].position])
    return range(cut[-1].header.base_offset, places[-1].header.next_offset)


def raise_start(fs: CrashFileSystem, directory: str, where: TopicPartition, by: int) -> tuple[int, list[bytes]]:
    """Let the checkpoint say that a log starts `by` offsets after its end. Answers that offset, and the batches of the log."""
    folder, path = f"{directory}/{where}", f"{directory}/{LOG_START_FILE}"
    found = [
        (hit.header, fs.content(hit.path)[hit.position : hit.position + hit.header.size_bytes])
        for name in fs.list_directory(folder)
        if name.endswith(".log")
        for hit in _places(f"{folder}/{name}", fs.content(f"{folder}/{name}"))[0]
    ]
    start = by + max([_recovery_point(fs, directory, where), *(header.next_offset for header, _ in found)])
    put(fs, path, encode_offsets({**decode_offsets(path, _content(fs, path)), where: start}))
    fs.sync_all()
    return start, [batch for _, batch in found]


def _content(fs: CrashFileSystem, path: str) -> bytes:
    return encode_offsets({}) if fs.file_size(path) is None else fs.content(path)


def has_batches(fs: CrashFileSystem, folders: Sequence[str], batches: Iterable[bytes]) -> bool:
    """Whether each is in some file that stays, under whatever name."""
    files = [
        fs.content(f"{folder}/{name}")
        for folder in folders
        if fs.is_directory(folder)
        for name in fs.list_directory(folder)
        if not name.endswith(DELETED_SUFFIX)
    ]
    return all(any(batch in content for content in files) for batch in batches)


def flip_in_topics(fs: CrashFileSystem, directory: str, share: float, bit: int) -> bytes:
    """Flip a bit of the file that says which topics there are; answers what it was."""
    path = f"{directory}/{TOPICS_FILE}"
    whole = fs.content(path)
    change(fs, path, lambda data: _flipped(data, _index(share, len(data)), bit))
    return whole


def put_topics_back(fs: CrashFileSystem, directory: str, whole: bytes) -> None:
    change(fs, f"{directory}/{TOPICS_FILE}", lambda _: whole)


def stored_topics(fs: CrashFileSystem, directories: Sequence[str]) -> dict[str, Any]:
    """Partitions and configuration of every topic, as the newest of the files says."""
    paths = [f"{directory}/{TOPICS_FILE}" for directory in directories]
    documents = [json.loads(fs.content(path)) for path in paths if fs.file_size(path) is not None]
    newest = max(documents, key=lambda document: document["generation"], default={"topics": []})
    return {topic["name"]: (topic["partitions"], topic["configs"]) for topic in newest["topics"]}


def forget_topics(fs: CrashFileSystem, directories: Sequence[str]) -> None:
    """Take the files away that Kafka does not write: topics are known by the directories of their partitions only."""
    for directory in directories:
        for name in fs.list_directory(directory):
            if name.startswith(TOPICS_FILE):
                fs.unlink(f"{directory}/{name}")
        fs.sync_directory(directory)


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


def _batches(fs: CrashFileSystem, directory: str, where: TopicPartition, *, power_may_go: bool) -> list[Hit]:
    folder = f"{directory}/{where}"
    found: list[Hit] = []
    staying: list[Hit] = []
    for path in [f"{folder}/{name}" for name in fs.list_directory(folder) if name.endswith(".log")]:
        found += _places(path, fs.content(path))[0]
        staying += _places(path, (fs.durable_content(path) or b"") if power_may_go else fs.content(path))[0]
    synced = _recovery_point(fs, directory, where)
    last = max((hit.header.base_offset for hit in staying), default=-1)
    return [
        hit._replace(is_scanned=hit.header.base_offset >= synced, is_contiguous=_is_contiguous(found, number))
        for number, hit in enumerate(found)
        if not hit.header.is_control and (hit.header.base_offset < last or hit.header.next_offset <= synced)
    ]


def _places(path: str, content: bytes) -> tuple[list[Hit], bool]:
    """The batches of a file before the first that is damaged or torn, and whether there is none."""
    found: list[Hit] = []
    position = 0
    try:
        for header, batch in iter_batches(content):
            check_batch(batch, header)
            found.append(Hit(path, position, header))
            position += header.size_bytes
    except TriologError:
        return found, False
    return found, position == len(content)


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
    """Damage or delete one derived file of a directory; answers its path. An index is cut, or its last entry is another one: an
    entry in its middle would be believed where the evidence is gone too."""
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
            if kind == "index" and int(share * 1000) % 2:
                change(fs, path, lambda data: _flipped(data, len(data) - 1 - int(share * 1000) % 8, 3) if data else data)
            elif kind == "aborted":  # between two entries, where the file alone does not tell
                change(fs, path, lambda data: data[: int(len(data) * share) // ENTRY_BYTES * ENTRY_BYTES])
            else:
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
