"""Derived files of a partition with another content: each field of an entry with each class of value, and wrong files."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Final

INDEX: Final = ">ii"
TIME_INDEX: Final = ">qi"
TRANSACTION_INDEX: Final = ">hqqqq"
ENTRIES: Final = {".index": INDEX, ".timeindex": TIME_INDEX, ".txnindex": TRANSACTION_INDEX}
EPOCHS: Final = "leader-epoch-checkpoint"
FACTS: Final = "derived.json"
WIDTHS: Final = {"h": 16, "i": 32, "q": 64}


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
    elif name == FACTS:
        yield from _altered_facts(content)
    else:
        for position in range(0, len(content), 7):
            yield f"byte {position}", content[:position] + bytes([content[position] ^ 0x55]) + content[position + 1 :]


def _altered_entries(layout: str, content: bytes) -> Iterator[tuple[str, bytes]]:
    size = struct.calcsize(layout)
    entries = [struct.unpack_from(layout, content, at) for at in range(0, len(content), size)]

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


def _altered_numbers(content: bytes) -> Iterator[tuple[str, bytes]]:
    """A text checkpoint: lines without its end, each number another one."""
    head, count, *lines = content.decode().splitlines()
    for kept in range(len(lines)):
        yield f"its first {kept} lines", "\n".join([head, str(kept), *lines[:kept], ""]).encode()
        yield f"its last {kept} lines", "\n".join([head, str(kept), *lines[len(lines) - kept :], ""]).encode()
    rows = [list(map(int, line.split())) for line in lines]
    for slot, row in enumerate(rows):
        for field, old in enumerate(row):
            for value in sorted({0, 1, old + 1, old + 3, abs(old - 1), 2**31 - 1, 2**63 - 1} - {old}):
                changed = [*rows[:slot], [*row[:field], value, *row[field + 1 :]], *rows[slot + 1 :]]
                text = "\n".join([head, count, *(f"{epoch} {start}" for epoch, start in changed), ""])
                yield f"line {slot}, field {field}: {value}", text.encode()


def _altered_facts(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Numbers of index files, as a person would change them: with and without the checksum."""
    for key in ("transaction_indexes", "lookup_indexes"):
        rows = json.loads(content).get(key, [])
        for slot, row in enumerate(rows):
            for field, old in enumerate(row):
                for value in sorted({0, 1, -1, old + 1, 2 * old, 2**31 - 1, 2**63 - 1} - {old}):
                    document = json.loads(content)
                    document[key][slot][field] = value
                    yield f"{key} {slot}, field {field}: {value}", json.dumps(document).encode()
                    del document["crc32c"]
                    yield f"{key} {slot}, field {field}: {value}, without checksum", json.dumps(document).encode()
