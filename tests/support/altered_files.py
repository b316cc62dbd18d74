"""Derived files with another content: each field of an entry with each class of value, and wrong files.

Files of a partition, and the checkpoints of a log directory. Those of recovery points and log starts are evidence too: offsets
above the right ones are promises, which are not among the alterations.
"""

from __future__ import annotations

import json
import os
import random
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from triolog.server.offline.findings import Finding
from triolog.server.storage.disk.checkpoints import (
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
)
from triolog.server.storage.disk.filesystem import FileSystem, opened, read_at
from triolog.server.storage.disk.paths import SNAPSHOT_SUFFIXES

from tests.support import crash_fs

INDEX: Final = ">ii"
TIME_INDEX: Final = ">qi"
TRANSACTION_INDEX: Final = ">hqqqq"
ENTRIES: Final = {".index": INDEX, ".timeindex": TIME_INDEX, ".txnindex": TRANSACTION_INDEX}
LOOKUPS: Final = (".index", ".timeindex")
EPOCHS: Final = "leader-epoch-checkpoint"
FACTS: Final = "derived.json"
WIDTHS: Final = {"h": 16, "i": 32, "q": 64}
CHECKPOINTS: Final = {
    CLEANER_OFFSET_FILE: True,
    HIGH_WATERMARK_FILE: True,
    RECOVERY_POINT_FILE: False,
    LOG_START_FILE: False,
}
"""Those of a log directory -> whether any offset may be in it."""
MOST_BYTES: Final = 32_768
"""Of a file that `one_of` alters."""


def altered(name: str, content: bytes) -> Iterator[tuple[str, bytes | None]]:
    """What was done to the file and its new content; None: it is deleted."""
    yield "deleted", None
    yield "empty", b""
    yield "zeros", bytes(len(content))
    yield "cut in the middle", content[: len(content) // 2]
    yield "cut by a byte", content[:-1]
    yield "a byte more", content + b"\0"
    suffix = name[name.rindex(".") :] if "." in name else name
    if suffix in ENTRIES:
        yield from _altered_entries(ENTRIES[suffix], content)
    elif name == EPOCHS:
        yield from _altered_numbers(content)
    elif name in CHECKPOINTS:
        yield from _altered_numbers(content, first=2, may_grow=CHECKPOINTS[name])
    elif name == FACTS:
        yield from _altered_facts(content)
    else:
        for position in range(0, len(content), 7):
            yield f"byte {position}", content[:position] + bytes([content[position] ^ 0x55]) + content[position + 1 :]


def _altered_entries(layout: str, content: bytes) -> Iterator[tuple[str, bytes]]:
    size = struct.calcsize(layout)
    entries = [struct.unpack_from(layout, content, at) for at in range(0, len(content) - size + 1, size)]
    if not entries:
        return

    def packed(changed: list[tuple[int, ...]]) -> bytes:
        return b"".join(struct.pack(layout, *entry) for entry in changed)

    yield "its first entry only", packed(entries[:1])
    yield "without its first entry", packed(entries[1:])
    yield "without its last entry", packed(entries[:-1])
    yield "its last entry twice", packed([*entries, *entries[-1:]])
    yield "the last entry is the one before", packed([*entries[:-1], *entries[-2:-1]])
    yield "reversed", packed(entries[::-1])
    yield "zeros behind it", content + bytes(3 * size)
    yield "zeros before it", bytes(size) + content
    for slot in sorted({0, len(entries) // 2, len(entries) - 1}):
        for field, width in enumerate(WIDTHS[kind] for kind in layout[1:]):
            old = entries[slot][field]
            most = 2 ** (width - 1) - 1
            others = {entry[field] for entry in entries[max(0, slot - 1) : slot + 2]}
            for value in sorted({0, 1, -1, most, -most - 1, most // 2, old + 1, old - 1, old * 2, old // 2, *others} - {old}):
                if -most - 1 <= value <= most:
                    entry = (*entries[slot][:field], value, *entries[slot][field + 1 :])
                    yield f"entry {slot}, field {field}: {value}", packed([*entries[:slot], entry, *entries[slot + 1 :]])


def _altered_numbers(content: bytes, first: int = 0, *, may_grow: bool = True) -> Iterator[tuple[str, bytes]]:
    """A text checkpoint: lines without its end, each number from the column `first` on another one. Nothing of another file."""
    try:
        head, count, *lines = content.decode().splitlines()
        assert [int(count), *(int(number) for line in lines for number in line.split()[first:])]
    except ValueError:
        return
    for kept in range(len(lines)):
        yield f"its first {kept} lines", "\n".join([head, str(kept), *lines[:kept], ""]).encode()
        yield f"its last {kept} lines", "\n".join([head, str(kept), *lines[len(lines) - kept :], ""]).encode()
    for slot, row in enumerate(line.split() for line in lines):
        for field, old in ((field, int(row[field])) for field in range(first, len(row))):
            for value in sorted({-1, 0, 1, old + 1, old + 3, abs(old - 1), 2**31 - 1, 2**63 - 1} - {old}):
                if may_grow or value < old:
                    line = " ".join([*row[:field], str(value), *row[field + 1 :]])
                    text = "\n".join([head, count, *lines[:slot], line, *lines[slot + 1 :], ""])
                    yield f"line {slot}, field {field}: {value}", text.encode()


def _altered_facts(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Numbers of index files, as a person would change them: with and without the checksum. A power cut may leave no JSON. The
    log start offset is no derived number: another one counts where its checksum is right or missing, so it is not altered where
    an earlier alteration took the checksum."""
    if not _is_json(content):
        return
    keys = {"format_version", "log_start_offset", "crc32c"} if "crc32c" in json.loads(content) else {"format_version"}
    for key in sorted(keys & json.loads(content).keys()):
        old = json.loads(content)[key]
        for value in sorted({-1, 0, 1, old + 1, old // 2, 2**63 - 1} - {old}):
            yield f"{key}: {value}", json.dumps({**json.loads(content), key: value}).encode()
    for key in ("transaction_indexes", "lookup_indexes"):
        rows = json.loads(content).get(key, [])
        for slot, row in enumerate(rows):
            for field, old in enumerate(row):
                for value in sorted({0, 1, -1, old + 1, 2 * old, 2**31 - 1, 2**63 - 1} - {old}):
                    document = json.loads(content)
                    document[key][slot][field] = value
                    yield f"{key} {slot}, field {field}: {value}", json.dumps(document).encode()
                    document.pop("crc32c", None)  # it may be gone already
                    yield f"{key} {slot}, field {field}: {value}, without checksum", json.dumps(document).encode()


def one_of(files: Mapping[str, bytes], rng: random.Random) -> tuple[str, str, bytes | None] | None:
    """An alteration of one of these files: path, what was done, new content. None: none of them is derived, or all are empty. A
    folder whose FACTS are lost is left alone: that is the one loss that it survives."""
    lost = {path.rpartition("/")[0] for path, content in files.items() if path.endswith(f"/{FACTS}") and not _is_json(content)}
    whole = {path: content for path, content in sorted(files.items()) if path.rpartition("/")[0] not in lost}
    paths = [path for path, content in whole.items() if 0 < len(content) <= MOST_BYTES and _is_derived(path)]
    if not paths:
        return None
    path = rng.choice(paths)
    what, content = rng.choice(list(altered(path.rpartition("/")[2], files[path])))
    folder, _, name = path.rpartition("/")
    indexes = [each for each in files if each.startswith(f"{folder}/") and each.endswith(".index")]
    if name == FACTS and content is None and not any(files[each] for each in indexes):
        return None  # nothing says that the file existed: docs/operations/failures.md
    return path, what, content


def _is_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except ValueError:
        return False
    return True


def _is_derived(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.endswith((*ENTRIES, *SNAPSHOT_SUFFIXES)) or name in {EPOCHS, FACTS, *CHECKPOINTS}


def alter_folders(folder: Path, rng: random.Random, share: float, *, are_lookups_checked: bool = False) -> dict[str, str]:
    """Alter a checkpoint of a log directory, or a file of each folder in it with a chance of `share`; by path, what was done.
    Not both: a log start offset is in the checkpoint and in FACTS, and one of them has to be right.

    `are_lookups_checked`: alter half of the time all indexes of a folder that FACTS knows, and never another one: nothing
    contradicts an index that a kill has left without its checksum."""
    done = {}
    is_checkpoint = rng.random() < 0.3
    for each in [folder] if is_checkpoint else sorted(path for path in folder.iterdir() if path.is_dir()):
        if is_checkpoint or rng.random() < share:
            paths = [path for path in each.iterdir() if path.is_file() and _is_derived(str(path))]
            files = {str(path): path.read_bytes() for path in paths if path.stat().st_size <= MOST_BYTES}
            chosen = []
            if are_lookups_checked:
                known = _known_indexes(each)
                files = {path: content for path, content in files.items() if not path.endswith(LOOKUPS) or path in known}
                if rng.random() < 0.5:
                    chosen = [one_of({path: files[path]}, rng) for path in sorted(known & files.keys())]
            for one in chosen or [one_of(files, rng)]:
                if one is not None:
                    path, what, content = one
                    Path(path).unlink() if content is None else Path(path).write_bytes(content)
                    done[str(Path(path).relative_to(folder))] = what
    return done


def _known_indexes(folder: Path) -> set[str]:
    """Return the paths of offset and time indexes with a checksum in FACTS, for a log of the size that it has."""
    with suppress(FileNotFoundError, ValueError):
        rows = json.loads((folder / FACTS).read_bytes()).get("lookup_indexes", [])
        logs = {folder / f"{base_offset:020d}.log": size for base_offset, size, *_ in rows}
        known = [path for path, size in logs.items() if path.exists() and path.stat().st_size == size]
        return {str(path.with_suffix(suffix)) for path in known for suffix in LOOKUPS}
    return set()


def damages_elsewhere(damages: Iterable[Finding], root: str, names: Iterable[str]) -> list[Finding]:
    """Leave out those in folders of which a file was altered, and in altered checkpoints; names are below the root. What nobody
    had to read stays as it is, and what a server found wrong it takes out for the next start."""
    touched = {os.path.dirname(name) or name for name in names}
    found = [(each, os.path.relpath(each.file, root)) for each in damages]
    return [each for each, name in found if (os.path.dirname(name) or name) not in touched]


def alter_one(fs: FileSystem, folder: str, rng: random.Random, may: Callable[[str], bool] = bool) -> str:
    """The same for one file below a folder that `may` be altered, by its path and what was done. The new content is on the
    device."""
    sizes = {path: fs.file_size(path) or 0 for path in _files_below(fs, folder) if _is_derived(path) and may(path)}
    chosen = one_of({path: read_at(fs, path, 0, size) for path, size in sizes.items() if size <= MOST_BYTES}, rng)
    if chosen is None:
        return "nothing"
    path, what, content = chosen
    if content is None:
        fs.unlink(path)
    else:
        crash_fs.put(fs, path, content)
        with opened(fs, path) as fd:
            fs.sync(fd)
    return f"{path}: {what}"


def _files_below(fs: FileSystem, folder: str) -> Iterator[str]:
    for path in (f"{folder}/{name}" for name in fs.list_directory(folder)):
        if fs.is_directory(path):
            yield from _files_below(fs, path)
        else:
            yield path
