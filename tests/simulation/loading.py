"""A history out of what processes have noted, in lines of JSON (`tests.soak.clients.worker`).

`at` and `begun` are CLOCK_MONOTONIC in ns, which all processes of one machine share; the lines of each file ascend, and those
of all files, merged, are what happened. What has no answer stays open: a call that a kill or a lost connection has cut off
may have had its effect or not, or have it later. Only a transaction that nobody has asked to commit is aborted.
"""

from __future__ import annotations

import heapq
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs
from triolog.protocol.types import TopicPartition

from . import history as h

Line = dict[str, Any]


def load(paths: Iterable[Path]) -> list[h.Event]:
    """The events of all files, in order."""
    return list(events_of(heapq.merge(*map(lines_of, paths), key=lambda line: line["at"])))


def lines_of(path: Path) -> Iterator[Line]:
    """The lines of a file. A last one that a kill has cut off is left out."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield json.loads(line)


def events_of(lines: Iterable[Line]) -> Iterator[h.Event]:
    """The events that lines mean, which come in the order of their times."""
    reading = _Reading()
    for line in lines:
        yield from reading.take(line)
    yield from reading.rest()


@attrs.define(eq=False)
class _Epochs:
    """Who was introduced after whom. Those whose introductions overlap have one epoch: nobody knows who came first."""

    begun: dict[str, int] = attrs.field(factory=dict)
    epoch: int = 0
    latest_end: int = -1

    def introduce(self, producer: str, ended: int) -> int:
        if self.begun[producer] > self.latest_end:
            self.epoch += 1
        self.latest_end = max(self.latest_end, ended)
        return self.epoch


@attrs.define(eq=False)
class _Reading:
    """What has to be known of lines before: owner of one pass over all of them."""

    origin: int | None = None
    at_ms: float = 0.0
    ends: dict[tuple[str, TopicPartition], int | None] = attrs.field(factory=dict)
    """Where each reader goes on; None: anywhere."""
    epochs: dict[str, _Epochs] = attrs.field(factory=dict)
    transactions: dict[str, str] = attrs.field(factory=dict)
    """Those of which nobody knows what became, and which nobody has asked to commit; by whom."""
    asked: set[str] = attrs.field(factory=set)

    def take(self, line: Line) -> Iterator[h.Event]:
        if self.origin is None:
            self.origin = line["at"]
        self.at_ms = self._ms(line["at"])
        said = {"at_ms": self.at_ms, "who": line["who"]}
        match line["do"]:
            case "sends":
                transaction = self._transaction(line)
                records = tuple(h.Sent(_interned(each[0]), *each[1:]) for each in line["records"])
                yield h.Send(
                    **said, partition=_of(line["to"]), producer=line["producer"], records=records, transaction=transaction
                )
            case "acknowledged":
                ids = tuple(map(_interned, line["ids"]))
                yield h.Acknowledged(**said, partition=_of(line["to"]), ids=ids, base_offset=line["offset"])
            case "given up":
                yield h.GivenUp(**said, ids=tuple(line["ids"]), error=line["error"])
            case "introduces":
                self.epochs.setdefault(line["transactional_id"], _Epochs()).begun[line["producer"]] = line["at"]
            case "introduced":
                name, producer = line["transactional_id"], line["producer"]
                epoch = self.epochs[name].introduce(producer, line["at"])
                yield h.Introduced(**said, transactional_id=name, producer=producer, producer_id=0, epoch=epoch)
            case "ends":
                if line["commit"]:
                    self.transactions.pop(line["transaction"], None)
                    self.asked.add(line["transaction"])
            case "ended":
                is_committed = line["committed"]
                if is_committed is None and line["transaction"] not in self.asked:
                    return
                self.transactions.pop(line["transaction"], None)
                yield h.Ended(**said, transaction=line["transaction"], is_committed=is_committed)
            case "moved" | "polled" | "stored" | "looked up":
                yield from self._read(line, said)
            case "commits" | "offset committed" | "offset fetched":
                yield from self._group(line, said)
            case "expires":
                yield h.Expires(**said, partition=_of(line["of"]), before_timestamp=line["before"])
            case "compacts":
                yield h.Compacts(**said, partition=_of(line["of"]))
            case what:
                yield h.Happened(**said, what=what)

    def rest(self) -> Iterator[h.Event]:
        """What nobody has asked to commit is aborted, be it by the server."""
        for transaction, who in self.transactions.items():
            yield h.Ended(at_ms=self.at_ms, who=who, transaction=transaction, is_committed=False)

    def _transaction(self, line: Line) -> str | None:
        transaction = _interned(line["transaction"]) or None
        if transaction is not None and transaction not in self.asked:
            self.transactions.setdefault(transaction, line["who"])
        return transaction

    def _read(self, line: Line, said: dict[str, Any]) -> Iterator[h.Event]:
        partition = _of(line["of"])
        match line["do"]:
            case "moved":
                self.ends[line["who"], partition] = line["position"]
                if line["position"] is not None:
                    yield h.Moved(**said, partition=partition, position=line["position"])
            case "polled":
                yield from self._polled(line, said, partition)
            case "stored":
                yield h.Stored(
                    **said,
                    partition=partition,
                    is_committed=line["committed"],
                    start_offset=line["start"],
                    end_offset=line["end"],
                    records=_found(line["records"]),
                    markers=tuple((offset, timestamp) for offset, timestamp in line["markers"]),
                )
            case "looked up":
                yield h.LookedUp(
                    **said,
                    partition=partition,
                    timestamp=line["timestamp"],
                    begun_ms=self._ms(line["begun"]),
                    offset=line["offset"],
                    found_timestamp=line["found"],
                )

    def _polled(self, line: Line, said: dict[str, Any], partition: TopicPartition) -> Iterator[h.Event]:
        records = _found(line["records"])
        position = self.ends.get((line["who"], partition))
        if position is None:
            if not records:
                return
            position = records[0].offset
            yield h.Moved(**said, partition=partition, position=position)
        behind = records[-1].offset + 1 if records else position
        next_position = behind if line["next"] is None else line["next"]
        self.ends[line["who"], partition] = next_position
        yield h.Polled(
            **said,
            partition=partition,
            is_committed=line["committed"],
            position=position,
            records=records,
            next_position=next_position,
            transaction=self._transaction(line),
            group=line["group"] or None,
        )

    def _group(self, line: Line, said: dict[str, Any]) -> Iterator[h.Event]:
        said |= {"group": line["group"], "partition": _of(line["of"]), "offset": line["offset"]}
        match line["do"]:
            case "commits":
                yield h.CommitsOffset(**said, transaction=self._transaction(line))
            case "offset committed":
                if line[
                    "kept"
                ]:  # else it may still come, even behind the next one: a request waits in a server that is stopped
                    yield h.OffsetCommitted(**said, is_kept=True)
            case "offset fetched":
                yield h.OffsetFetched(**said, begun_ms=self._ms(line["begun"]))

    def _ms(self, at: int) -> float:
        assert self.origin is not None
        return (at - self.origin) / 1_000_000


def _interned(text: str) -> str:
    """The same object for the same text: an id stands in many events."""
    return sys.intern(text)


def _of(where: list[Any]) -> TopicPartition:
    return TopicPartition(sys.intern(where[0]), where[1])


def _found(records: Iterable[list[Any]]) -> tuple[h.Found, ...]:
    return tuple(h.Found(offset, _interned(identity), timestamp) for offset, identity, timestamp in records)
