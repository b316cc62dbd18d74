"""The last offset of every key, in memory of a fixed size (Kafka: SkimpyOffsetMap).

A key stands in the map as 128 bits of its BLAKE2b hash, so an entry has 24 bytes whatever the key's length: offset + 1, then
both halves of the hash, 0 for an empty slot. Collisions are found by open addressing with double hashing in a prime number of
slots. Two keys of one hash would be taken for the same key: the hash is salted for every map, so nobody can prepare such keys.

A dict from hash to offset puts a key in 0.8 us instead of 1.3 us (CPython 3.11, half a million keys), but an entry of it has
64 (hash) + 32 (offset) + 40 to 110 (its share of the table) bytes, and growing doubles the table: for the same memory it holds
a sixth of the keys, and every key that does not fit costs another round over the whole log.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from hashlib import blake2b
from struct import Struct
from typing import Final

from ....protocol.types import Bytes

ENTRY_BYTES: Final = 24
LOAD_FACTOR: Final = 0.9
"""How full the map may get (Kafka: log.cleaner.io.buffer.load.factor)."""

_WORDS: Final = 3
_HALVES: Final = Struct("<QQ")
_HASH_BYTES: Final = 16


class OffsetMap:
    """Offset by key. Owner: one round of the cleaner."""

    __slots__ = ("_hash", "_slots", "_table", "entries", "latest_offset", "max_entries")

    def __init__(self, memory_bytes: int, load_factor: float = LOAD_FACTOR) -> None:
        """A map of at most `memory_bytes`. Raises ValueError when not one entry would fit."""
        self._slots = _largest_prime(memory_bytes // ENTRY_BYTES)
        self.max_entries = int(self._slots * load_factor)
        if self.max_entries < 1:
            raise ValueError(f"an offset map of {memory_bytes} bytes holds no entry; {3 * ENTRY_BYTES} bytes hold one")
        # Zeroed lazily by the system: pages that no key falls on take no memory.
        self._table = memoryview(bytearray(self._slots * ENTRY_BYTES)).cast("Q")
        self._hash = blake2b(digest_size=_HASH_BYTES, key=secrets.token_bytes(_HASH_BYTES))
        self.entries = 0
        self.latest_offset = -1
        """Every record up to here is in the map, if it has a key and was not aborted."""

    def has_room(self, entries: int) -> bool:
        return self.entries + entries <= self.max_entries

    def put_all(self, offsets: Iterable[tuple[Bytes, int]]) -> None:
        """Let these keys have these offsets; later ones replace earlier ones. The caller has asked `has_room`."""
        table, slots, copy, halves = self._table, self._slots, self._hash.copy, _HALVES.unpack
        words = slots * _WORDS
        added = 0
        for key, offset in offsets:
            digest = copy()
            digest.update(key)
            high, low = halves(digest.digest())
            at = high % slots * _WORDS
            if table[at]:
                step = (1 + low % (slots - 1)) * _WORDS
                while table[at] and (table[at + 1] != high or table[at + 2] != low):
                    at += step
                    if at >= words:
                        at -= words
            if not table[at]:
                added += 1
                table[at + 1], table[at + 2] = high, low
            table[at] = offset + 1
        self.entries += added
        assert self.entries <= self.max_entries, f"{self.entries} entries in a map of {self.max_entries}"

    def get(self, key: Bytes) -> int:
        """The key's last offset, -1 when it is not in the map."""
        table, slots = self._table, self._slots
        digest = self._hash.copy()
        digest.update(key)
        high, low = _HALVES.unpack(digest.digest())
        at = high % slots * _WORDS
        found: int
        if not (found := table[at]) or (table[at + 1] == high and table[at + 2] == low):
            return found - 1
        step = (1 + low % (slots - 1)) * _WORDS
        words = slots * _WORDS
        while True:
            at += step
            if at >= words:
                at -= words
            if not (found := table[at]) or (table[at + 1] == high and table[at + 2] == low):
                return found - 1


def _largest_prime(limit: int) -> int:
    """The largest prime <= `limit`, 0 below 3: a step of any size then visits every slot."""
    number = limit - 1 + limit % 2
    while number >= 3 and any(number % divisor == 0 for divisor in range(3, int(number**0.5) + 1, 2)):
        number -= 2
    return max(0, number)
