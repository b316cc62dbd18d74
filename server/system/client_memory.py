"""A ledger of the memory that the server keeps on behalf of clients, in bytes.

Each owner of what clients leave behind (members, committed offsets, transactional ids, sessions, ...)
has an `Account` and names an entry by a key. It calls `check` before it accepts something, `put` when an entry has another
size, `drop` when the entry is gone. A replay of a log calls `put` only: a start never fails, and what was accepted counts.

An entry is charged to the client that let it grow last. A connection may hold half of the ledger that others leave, a principal
(without a login: a host) three quarters. So something is left for the next client. The same holds for the number of entries of
an account that has a limit of them. Callers without a connection, a program with an embedded broker for example, have no share.

*Invariants*: `used_bytes` is the sum of all entries; a refused request changes nothing; produce and fetch never come here.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import operator
import sys
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, NamedTuple

import attrs

from ...protocol.errors import ErrorCode, RequestError

LOGGER: Final = logging.getLogger(__name__)

ACCOUNTS: Final = {
    "classic groups": "members of groups of the classic protocol, their subscriptions and assignments",
    "client instances": "clients that send metrics (KIP-714), as they describe themselves",
    "client metrics": "the metrics that they send",
    "commits of staged tasks": "the last commit of each application that stages records",
    "committed offsets": "committed offsets with their metadata, those of open transactions too, and names of groups",
    "configurations of groups": "keys that groups override",
    "consumer groups": "members of consumer groups (KIP-848), their subscriptions and assignments",
    "fetch sessions": "partitions of fetch sessions",
    "keys of the server": "keys of brokers that were set while the server runs",
    "registered schemas": "versions of subjects in the schema registry, and settings of subjects",
    "segment leases": "leases of segment files",
    "share groups": "members of share groups, their subscriptions and assignments",
    "share sessions": "share sessions and their partitions",
    "share states": "partitions that share groups have begun, and their stored batches",
    "staged tasks": "files of staged records, of tasks that have not committed",
    "streams groups": "members of Streams groups, their topologies and tasks",
    "subscriptions": "subscriptions to metrics of clients",
    "topic configurations": "names of topics and the keys that they override",
    "transactional ids": "transactional ids, and partitions of their open transactions",
    "users, ACLs and quotas": "SCRAM users, ACLs, and quotas with the names that they are for",
}
"""Every owner of what clients leave behind."""
CONNECTION_PART: Final = (1, 2)
PRINCIPAL_PART: Final = (3, 4)
"""Of what others leave."""
FREE_ITEMS: Final = 64
"""Entries of an account that a payer may have whatever others have, as long as the account is not full."""
ENTRY_BYTES: Final = 200
"""What the ledger itself keeps of an entry."""
MAX_NAME_CHARS: Final = 200
LOG_INTERVAL_S: Final = 60.0
"""An account logs refusals at most this often."""
_NUMBERS: Final = itertools.count()


class Payer(NamedTuple):
    """The client that pays for an entry."""

    principal: str
    connection: int
    """A number that no other connection has."""


class _Entry(NamedTuple):
    size: int
    payer: Payer | None


PAYER: Final[ContextVar[Payer | None]] = ContextVar("payer", default=None)
"""The client whose request is being served. The doors set it for each request but produce and fetch."""


def shortened(name: str) -> str:
    """Return a name as tables remember it whose number of entries is limited: names that differ stay different, and none is
    longer than MAX_NAME_CHARS."""
    return name if len(name) <= MAX_NAME_CHARS else hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()


def new_payer(principal: str) -> Payer:
    return Payer(principal, next(_NUMBERS))


def deep_bytes(value: Any) -> int:
    """Return the bytes that a value takes with everything in it: texts, bytes, numbers, collections, attrs objects. None and
    booleans are shared and cost their reference only."""
    size, stack, getsizeof = 0, [value], sys.getsizeof
    while stack:
        each = stack.pop()
        if each is None or each is True or each is False:
            continue
        size += getsizeof(each)
        if (parts := _PARTS[type(each)]) is not None:
            stack += parts(each)
    return size


class _Parts(dict[type, Callable[[Any], Iterable[Any]] | None]):
    """By class, what answers the parts of a value; None where it has none. Found once: a topology has thousands of values."""

    def __missing__(self, cls: type) -> Callable[[Any], Iterable[Any]] | None:
        parts: Callable[[Any], Iterable[Any]] | None = None
        if issubclass(cls, Mapping):
            parts = _parts_of_mapping
        elif issubclass(cls, list | tuple | set | frozenset):
            parts = iter
        elif attrs.has(cls) and (names := [field.name for field in attrs.fields(cls)]):
            parts = operator.attrgetter(*names) if len(names) > 1 else partial(_only_part, names[0])
        self[cls] = parts
        return parts


def _parts_of_mapping(value: Mapping[Any, Any]) -> Iterable[Any]:
    return itertools.chain(value.keys(), value.values())


def _only_part(name: str, value: Any) -> Iterable[Any]:
    return (getattr(value, name),)


_PARTS: Final = _Parts()


@attrs.define(eq=False, repr=False)
class Holding:
    """The memory and the items of a principal or a connection."""

    used_bytes: int = 0
    items: Counter[str] = attrs.field(factory=Counter)
    """By account."""


@attrs.define(eq=False, repr=False)
class ClientMemory:
    """See the module. Owner: the log manager; called from any task of the trio thread."""

    limit_bytes: int = sys.maxsize
    used_bytes: int = 0
    accounts: dict[str, Account] = attrs.field(factory=dict)
    _holdings: dict[Hashable, Holding] = attrs.field(factory=dict)
    """By principal and by number of connection, of those that hold something."""

    def account(self, name: str, max_items: int | None = None) -> Account:
        """The account of that name, one of ACCOUNTS. `max_items`: so many entries at most, whatever their size."""
        assert name in ACCOUNTS, name
        found = self.accounts.get(name)
        if found is None:
            found = self.accounts[name] = Account(self, name)
        found.max_items = max_items
        return found

    def _parts(self, payer: Payer | None) -> tuple[tuple[Hashable, str, tuple[int, int]], ...]:
        if payer is None:
            return ()
        return (payer.connection, "connection", CONNECTION_PART), (payer.principal, "principal", PRINCIPAL_PART)

    def _why_not(self, account: Account, old: _Entry | None, more: int, payer: Payer | None) -> str | None:
        """Why an entry may not grow; None: it may."""
        used, limit, items = self.used_bytes, self.limit_bytes, account.max_items
        if used + more > limit:
            return f"{used} bytes are kept for clients, {more} more would be above max_client_memory_bytes={limit}"
        if old is None and items is not None and len(account) >= items:
            return f"{len(account)} entries exist, the maximum"
        for key, who, (part, of) in self._parts(payer):
            mine = self._holdings.get(key) or Holding()
            taken = 0 if old is None or (old.payer is not None and key in old.payer) else old.size
            others = used - mine.used_bytes - taken
            if mine.used_bytes + taken + more > (limit - others) * part // of:
                return f"this {who} holds {mine.used_bytes} of {used} bytes, {taken + more} more would be above its share"
            count = mine.items[account.name]
            if old is None and items is not None and FREE_ITEMS <= count >= (items - len(account) + count) * part // of:
                return f"this {who} has {count} of {len(account)} entries, as many as its share"
        return None

    def _move(self, account: Account, entry: _Entry, sign: int) -> None:
        self.used_bytes += sign * entry.size
        account.used_bytes += sign * entry.size
        for key in entry.payer or ():
            holding = self._holdings.setdefault(key, Holding())
            holding.used_bytes += sign * entry.size
            holding.items[account.name] += sign
            if sign < 0 and not holding.used_bytes and not holding.items[account.name]:
                del self._holdings[key]


@attrs.define(eq=False, repr=False)
class Account:
    """The account of one owner. Created by `ClientMemory.account`."""

    memory: ClientMemory
    name: str
    max_items: int | None = None
    used_bytes: int = 0
    refused: int = 0
    """Since the start."""
    _entries: dict[Hashable, _Entry] = attrs.field(factory=dict)
    _logged_s: float = float("-inf")
    _unlogged: int = 0

    def __len__(self) -> int:
        return len(self._entries)

    def size_of(self, key: Hashable) -> int:
        """Bytes that are charged for an entry; 0 where it is not known."""
        entry = self._entries.get(key)
        return 0 if entry is None else entry.size - ENTRY_BYTES

    def check(self, key: Hashable, more: int, code: ErrorCode = ErrorCode.POLICY_VIOLATION) -> None:
        """Raises RequestError with `code` where the entry may not grow by so much. One that does not grow always may."""
        old = self._entries.get(key)
        if old is not None and more <= 0:
            return
        why = self.memory._why_not(self, old, more + (ENTRY_BYTES if old is None else 0), PAYER.get())
        if why is not None:
            self._refuse(why)
            raise RequestError(f"no memory is left for {self.name}: {why}. Use less, or raise max_client_memory_bytes", code)

    def fits(self, key: Hashable, more: int) -> bool:
        """`check` as a question."""
        try:
            self.check(key, more)
        except RequestError:
            return False
        return True

    def _refuse(self, why: str) -> None:
        self.refused += 1
        self._unlogged += 1
        now_s, payer = time.monotonic(), PAYER.get()
        if now_s >= self._logged_s + LOG_INTERVAL_S:
            principal = "-" if payer is None else payer.principal
            LOGGER.warning(
                "client memory refused: account=%r principal=%r refused=%d reason=%r",
                self.name,
                principal[:100],
                self._unlogged,
                why,
            )
            self._logged_s, self._unlogged = now_s, 0

    def put(self, key: Hashable, size: int) -> None:
        """An entry has this size from now on; never refused. Where it grows, the client that is being served pays for it."""
        old = self._entries.get(key)
        size += ENTRY_BYTES
        if old is not None:
            if old.size == size:
                return
            self.memory._move(self, old, -1)
        payer = old.payer if old is not None and size < old.size else PAYER.get() or (None if old is None else old.payer)
        entry = self._entries[key] = _Entry(size, payer)
        self.memory._move(self, entry, 1)

    def take(self, key: Hashable, size: int, code: ErrorCode = ErrorCode.POLICY_VIOLATION) -> None:
        """`check` and `put` in one."""
        self.check(key, size - self.size_of(key), code)
        self.put(key, size)

    def drop(self, key: Hashable) -> None:
        """An entry is gone; one that is not known is fine."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.memory._move(self, entry, -1)

    def clear(self) -> None:
        """All entries are gone."""
        for key in list(self._entries):
            self.drop(key)
