"""The checker finds every anomaly in a history that has it, and none in the histories that it once misjudged.

Simulated worlds are the other half of this test: each of them is a history without an anomaly.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

import attrs
import pytest
from triolog.protocol.types import TopicPartition

from tests.support.logs import START_MS

from . import history as h
from .checker import check, write_cycles
from .clocks import LONGEST_STEP_MS
from .copies import copy_id

IN: Final = TopicPartition("in", 0)
OTHER: Final = TopicPartition("in", 1)
OUT: Final = TopicPartition("out", 0)
WHO: Final = {"at_ms": 0, "who": "somebody"}
Part = h.Event | list[h.Event]
"""Of a history."""


def stamp(identity: str) -> int:
    """Every record's timestamp: its number behind 1000."""
    return 1000 + int(identity.partition(":")[2].split()[0].partition("#")[0])


def here(kind: type[h.Event], /, **fields: Any) -> Any:
    """An event about the first partition."""
    return kind(**{**WHO, "partition": IN, **fields})


def send(*ids: str, partition: TopicPartition = IN, transaction: str | None = None, producer: str = "p") -> h.Send:
    records = tuple(h.Sent(identity, stamp(identity)) for identity in ids)
    return h.Send(**WHO, partition=partition, producer=producer, records=records, transaction=transaction)


def acknowledged(base_offset: int, *ids: str) -> h.Acknowledged:
    return h.Acknowledged(**WHO, partition=IN, ids=ids, base_offset=base_offset)


def found(base_offset: int, *ids: str) -> tuple[h.Found, ...]:
    return tuple(h.Found(offset, identity, stamp(identity)) for offset, identity in enumerate(ids, base_offset))


def polled(position: int, records: tuple[h.Found, ...], next_position: int, **fields: Any) -> h.Polled:
    fields = {"partition": IN, "is_committed": False, **fields}
    return h.Polled(**WHO, position=position, records=records, next_position=next_position, **fields)


def stored(
    *records: h.Found, partition: TopicPartition = IN, start: int = 0, committed: tuple[h.Found, ...] | None = None
) -> list[h.Event]:
    """For both kinds of readers; `committed` where the second finds something else."""
    end = max((record.offset for record in records), default=start - 1) + 1
    return [
        h.Stored(**WHO, partition=partition, is_committed=is_committed, start_offset=start, end_offset=end, records=there)
        for is_committed, there in ((False, records), (True, records if committed is None else committed))
    ]


def looked_up(timestamp: int, offset: int, found_timestamp: int | None, begun_ms: int = 1) -> h.LookedUp:
    return here(h.LookedUp, timestamp=timestamp, begun_ms=begun_ms, offset=offset, found_timestamp=found_timestamp)


def kinds(*events: Part) -> set[str]:
    flat = itertools.chain.from_iterable(event if isinstance(event, list) else [event] for event in events)
    return {anomaly.kind for anomaly in check(flat)}


def ended(outcome: bool | None, transaction: str = "t") -> h.Ended:
    return h.Ended(**WHO, transaction=transaction, is_committed=outcome)


def commits(offset: int, transaction: str | None = None, **who: Any) -> h.CommitsOffset:
    return here(h.CommitsOffset, group="g", offset=offset, transaction=transaction, **who)


def committed(offset: int, is_kept: bool | None = True, **who: Any) -> h.OffsetCommitted:
    return here(h.OffsetCommitted, group="g", offset=offset, is_kept=is_kept, **who)


def fetched(offset: int, **more: Any) -> h.OffsetFetched:
    return here(h.OffsetFetched, group="g", offset=offset, **more)


def introduced(producer: str, epoch: int) -> h.Introduced:
    return h.Introduced(**WHO, transactional_id="id", producer=producer, producer_id=7, epoch=epoch)


def out_of_order(identity: str) -> h.GivenUp:
    return h.GivenUp(**WHO, ids=(identity,), error="OUT_OF_ORDER_SEQUENCE_NUMBER")


def with_config(**config: str) -> h.Made:
    return h.Made(**WHO, topic="in", config={key.replace("_", "."): value for key, value in config.items()})


def configured(**config: str) -> list[h.Event]:
    said = {"topic": "in", "config": {key.replace("_", "."): value for key, value in config.items()}}
    return [h.Configures(**WHO, **said), h.Configured(**WHO, **said)]


def damaged(first: int, **more: Any) -> h.Damaged:
    return here(h.Damaged, first_offset=first, next_offset=first + 1, **more)


def lost(at_ms: int, window_ms: float | None = None, *, synced: int = 0, oldest_ms: float = 10_000.0) -> h.Lost:
    return h.Lost(at_ms=at_ms, who="operator", window_ms=window_ms, synced={IN: synced}, oldest_ms={IN: oldest_ms})


def survived(*records: h.Found, **more: Any) -> h.Survived:
    return here(h.Survived, records={record.offset: record.id for record in records}, **more)


SENT: Final = [send("a:0", "a:1", "a:2"), acknowledged(0, "a:0", "a:1", "a:2")]
A, B, C = found(0, "a:0", "a:1", "a:2")
TRANSACTION: Final = [send("t:0", "t:1", transaction="t"), acknowledged(0, "t:0", "t:1")]
T, U = found(0, "t:0", "t:1")
TWO: Final = [send("t:0", transaction="t"), send("u:1", transaction="u"), acknowledged(0, "t:0", "u:1")]
V, W = found(0, "t:0", "u:1")
READ_EACH_OTHER: Final = [polled(0, (V,), 1, transaction="u"), polled(1, (W,), 2, transaction="t")]
COPIES_OF_EACH_OTHER: Final = (copy_id("t:0", "u"), copy_id("u:1", "t"))
COPIES: Final = [copy_id(each, "t") for each in ("a:0", "a:1")]
PIPED: Final = [
    *SENT,
    polled(0, (A, B), 2, transaction="t", is_committed=True),
    send(*COPIES, partition=OUT, transaction="t"),
    ended(True),
    *stored(A, B, C),
]
COPIED_AGAIN: Final = copy_id("a:0", "u")
X, Y = found(0, *COPIES)
CONFIG: Final = {"cleanup_policy": "compact", "delete_retention_ms": "1000"}
KEYED: Final = [with_config(**CONFIG), send("a:0#k1", "a:1#k2", "a:2#k1"), acknowledged(0, "a:0#k1", "a:1#k2", "a:2#k1")]
K, L, M = found(0, "a:0#k1", "a:1#k2", "a:2#k1")
TOMBSTONE: Final = [*KEYED, send("b:0#k1!"), acknowledged(3, "b:0#k1!")]
BY_KEY: Final = [
    here(
        h.Send,
        producer="p",
        records=tuple(h.Sent(each, stamp(each), key) for each, key in (("a:0", "k"), ("a:1", "k"), ("a:2", "l"))),
    ),
    acknowledged(0, "a:0", "a:1", "a:2"),
    here(h.Compacts),
]
TRIMS, TRIMMED = (here(kind, before_offset=2) for kind in (h.Trims, h.Trimmed))
BEGINS: Final = here(h.Moved, position=2, is_start=True)
ANOTHER: Final = [send("b:0"), acknowledged(1, "b:0"), *stored(A, *found(1, "b:0"))]
"""What is given the offset of one that is not there."""
AFTER: Final = [survived(A), *ANOTHER]
TORN: Final = [*TRANSACTION, ended(True)]
OFFSETS: Final = [*(kind(offset, at_ms=at_ms) for offset, at_ms in ((1, 0), (2, 60), (3, 90)) for kind in (commits, committed))]
OVERLAPPING: Final = [commits(1, who="x"), commits(2, who="y"), committed(2, who="y"), committed(1, who="x")]
LATE: Final = [send("a:0", producer="old"), acknowledged(0, "a:0")]
KILLED: Final = h.Happened(**WHO, what="kill {}")
JUMP: Final = h.ClockMoved(**WHO, ms=LONGEST_STEP_MS + 1)
THREE: Final = [send("c:0", "c:1", "c:2"), acknowledged(0, "c:0"), out_of_order("c:1")]
ELSEWHERE: Final = [send("c:0"), send("c:2", partition=OTHER), damaged(0)]
MOMENTS: Final = [*OVERLAPPING, commits(3), committed(3)]


def in_time(*events: h.Event) -> list[h.Event]:
    return [attrs.evolve(event, at_ms=float(number)) for number, event in enumerate(events)]


def refuses(*offsets: int) -> list[h.Event]:
    return [here(h.Refused, is_committed=False, offset=offset) for offset in offsets]


Row = tuple[str, list[Part]]
"""Kinds of anomalies, and a history."""

RECORDS: Final[list[Row]] = [
    ("lost", [SENT, stored(A, B)]),
    ("lost", [SENT, stored(C, start=2)]),
    ("lost", [SENT[0], acknowledged(-1, "a:0"), stored(B, C)]),
    ("lost", [SENT[0], acknowledged(-1, "a:0", "a:1"), stored(*found(0, "a:0"), *found(1, "a:2"))]),
    ("lost", [SENT, here(h.Expires, before_timestamp=1001), stored(C, start=2)]),
    ("lost", [SENT, here(h.Expires, before_timestamp=1002), stored(A, C)]),
    ("", [SENT, here(h.Expires, before_timestamp=1002), stored(C, start=2)]),
    ("unsent", [SENT, stored(A, B, C, *found(3, "z:0"))]),
    ("unsent", [SENT, stored(A, B, C._replace(timestamp=1))]),
    (
        "unsent",
        [
            SENT,
            send("b:0"),
            h.GivenUp(**WHO, ids=("b:0",), error="refused", is_refused=True),
            stored(A, B, C, *found(3, "b:0")),
        ],
    ),
    ("", [SENT, send("b:0"), h.GivenUp(**WHO, ids=("b:0",), error="no answer"), stored(A, B, C, *found(3, "b:0"))]),
    ("duplicate", [SENT, stored(A, B, C, *found(3, "a:2"))]),
    ("divergent", [SENT, send("b:0"), polled(2, found(2, "b:0"), 3), stored(A, B, C)]),
    ("reordered", [send("a:0"), send("a:1"), acknowledged(1, "a:0"), acknowledged(0, "a:1"), stored(*found(0, "a:1", "a:0"))]),
    ("stuck", [h.Wrong(**WHO, kind="stuck", detail="at 5")]),
]
READERS: Final[list[Row]] = [
    ("", [SENT, polled(0, (A, B), 2), polled(2, (C,), 3), looked_up(1001, 1, 1001), looked_up(5000, -1, -1), stored(A, B, C)]),
    ("nonmonotonic poll", [SENT, polled(0, (A, B), 2), polled(1, (B, C), 3), stored(A, B, C)]),
    ("nonmonotonic poll", [SENT, polled(0, (B, A), 2), stored(A, B, C)]),
    ("nonmonotonic poll, skipped", [SENT, polled(1, (A,), 2), stored(A, B, C)]),
    ("nonmonotonic poll", [SENT, polled(0, (A, B), 2), polled(3, (), 3), stored(A, B, C)]),
    ("", [SENT, polled(0, (A, B), 2), here(h.Moved, position=0), polled(0, (A,), 1), stored(A, B, C)]),
    ("skipped", [SENT, polled(0, (A, C), 3), stored(A, B, C)]),
    ("wrong time", [SENT, looked_up(1001, 2, 1002), stored(A, B, C)]),
    ("wrong time", [SENT, looked_up(1001, 0, 1000), stored(A, B, C)]),
    ("wrong time", [SENT, looked_up(1002, -1, -1), stored(A, B, C)]),
    ("wrong time", [SENT, looked_up(1001, 1, 1002), stored(A, B, C)]),
    ("wrong time", [SENT, looked_up(5000, 2, 1002), stored(A, B, C)]),
    ("wrong time", [SENT, looked_up(1001, 2, None), stored(A, B, C)]),
    ("", [SENT, looked_up(1001, 1, None), looked_up(1002, -1, -1, begun_ms=0), stored(A, B, C)]),
]
TRANSACTIONS: Final[list[Row]] = [
    ("", [TRANSACTION, ended(False), stored(T, U, committed=())]),
    ("aborted read", [TRANSACTION, polled(0, (T,), 1, is_committed=True), ended(False), stored(T, U, committed=())]),
    ("aborted read", [TRANSACTION, ended(False), stored(T, U)]),
    ("intermediate read, lost", [TRANSACTION, ended(True), stored(T, U, committed=(T,))]),
    ("intermediate read", [TRANSACTION, ended(None), stored(T, U, committed=(T,))]),
    ("", [TRANSACTION, ended(None), stored(T, U)]),
    ("lost", [TRANSACTION, ended(True), stored(T, U, committed=())]),
    (
        "circular information flow",
        [
            *(TWO, READ_EACH_OTHER, ended(True), ended(True, "u"), stored(V, W)),
            *(send(*COPIES_OF_EACH_OTHER, partition=OUT), stored(*found(0, *COPIES_OF_EACH_OTHER), partition=OUT)),
        ],
    ),
    ("inexact pipe", [TWO, READ_EACH_OTHER[:1], ended(True), ended(True, "u"), stored(V, W)]),
    ("", [PIPED, stored(X, Y, partition=OUT)]),
    ("inexact pipe", [PIPED, stored(X, partition=OUT)]),
    (
        "inexact pipe",
        [
            *(PIPED, send(COPIED_AGAIN, partition=OUT, transaction="u"), ended(True, "u"), polled(0, (A,), 1, transaction="u")),
            stored(X, Y, *found(2, COPIED_AGAIN), partition=OUT),
        ],
    ),
    ("zombie", [introduced("old", 0), introduced("new", 1), LATE, stored(A)]),
    ("zombie", [introduced("new", 1), introduced("old", 0), LATE, stored(A)]),
    ("", [introduced("old", 0), LATE, introduced("new", 1), stored(A)]),
    ("", [introduced("old", 0), introduced("new", 1), introduced("old", 2), LATE, stored(A)]),
    # seed 60342: it is taken by a server that has forgotten the new one
    ("", [introduced("old", 0), introduced("new", 1), LATE[0], lost(0), LATE[1], stored(A)]),
]
SEQUENCES: Final[list[Row]] = [
    ("out of sequence", [send("c:0"), out_of_order("c:0"), stored()]),
    ("out of sequence", [send("c:0"), damaged(0, partition=OTHER), out_of_order("c:0"), stored()]),
    (
        "divergent, lost, out of sequence",
        [send("c:0", "c:1"), acknowledged(0, "c:0"), out_of_order("c:0"), stored(*found(0, "c:1"))],
    ),
    ("out of sequence", [THREE, stored(*found(0, "c:0"))]),
    ("out of sequence", [THREE, stored(*found(0, "c:0", "c:1", "c:2"))]),
    ("out of sequence", [ELSEWHERE, out_of_order("c:2"), stored()]),
    ("", [ELSEWHERE, out_of_order("c:0"), out_of_order("c:2"), stored()]),
    # seed 2217325324: compaction has left the last batch only, and a start after a kill knows no other
    ("", [with_config(cleanup_policy="compact"), send("c:0"), KILLED, out_of_order("c:0"), stored()]),
    ("out of sequence", [with_config(cleanup_policy="compact"), KILLED, send("c:0"), out_of_order("c:0"), stored()]),
    ("out of sequence", [send("c:0"), KILLED, out_of_order("c:0"), stored()]),
    # its first batch was not taken, and the next one was
    ("", [send("c:0", "c:1"), out_of_order("c:0"), stored(*found(0, "c:1"))]),
    # a power cut has taken the second and left the third
    ("", [THREE, stored(*found(0, "c:0"), *found(2, "c:2"))]),
    ("", [send("c:0"), lost(0), out_of_order("c:0"), stored()]),
    # seed 307: a start after a power cut finds nothing but the marker of what was trimmed
    *(
        (
            kind,
            [send("c:0", "c:1", "c:2"), acknowledged(0, "c:0", "c:1"), out_of_order("c:2"), trims, stored(*left, start=start)],
        )
        for kind, start, left in (("out of sequence", 1, found(1, "c:1")), ("", 2, ()))
        for trims in [here(h.Trims, before_offset=start)]
    ),
]
GROUPS: Final[list[Row]] = [
    ("", [fetched(-1), commits(1), committed(1), fetched(1)]),
    ("offset went back", [commits(1), committed(1), commits(2), committed(2), fetched(1)]),
    ("offset went back", [commits(1), committed(1), fetched(-1)]),
    ("offset went back", [commits(3, "t"), ended(False), fetched(3)]),
    ("offset went back", [commits(3, "t"), ended(True), fetched(-1)]),
    ("", [commits(1), committed(1), commits(2), committed(2, None), fetched(1), fetched(2)]),
    ("", [OVERLAPPING, fetched(1), fetched(2)]),
    ("offset went back", [OVERLAPPING, fetched(-1)]),
    ("offset went back", [MOMENTS, fetched(2)]),
    ("", in_time(*MOMENTS, fetched(2, begun_ms=3.5))),
    ("offset went back", in_time(*MOMENTS, fetched(2, begun_ms=5.5))),
    (
        "",
        [
            SENT,
            polled(0, (A,), 1, group="g"),
            polled(1, (B, C), 3, group="g"),
            commits(3),
            committed(3),
            fetched(3),
            stored(A, B, C),
        ],
    ),
    ("passed over", [SENT, polled(1, (B, C), 3, group="g"), commits(3), committed(3), fetched(3), stored(A, B, C)]),
    (
        "passed over",
        [
            *(SENT, polled(0, (A, B, C), 3, group="g", transaction="t"), ended(False)),
            *(commits(3), committed(3), fetched(3), stored(A, B, C)),
        ],
    ),
]
DELETED: Final = h.Deleted(**WHO, topic="in")
ADMINISTERED: Final[list[Row]] = [
    ("", [KEYED, configured(cleanup_policy="delete"), stored(L, M)]),
    ("lost", [KEYED[0], configured(cleanup_policy="delete"), KEYED[1:], stored(L, M)]),
    ("", [KEYED[0], configured(cleanup_policy="delete")[:1], KEYED[1:], stored(L, M)]),
    ("", [with_config(cleanup_policy="delete"), configured(**CONFIG), KEYED[1:], stored(L, M)]),
    ("", [with_config(retention_ms="1"), SENT, configured(retention_ms="-1"), stored(C, start=2)]),
    ("lost", [with_config(retention_ms="1"), configured(retention_ms="-1"), SENT, stored(C, start=2)]),
    ("", [SENT, h.Seen(**WHO, topic="in", begun_ms=0), DELETED, h.Seen(**WHO, topic="in", begun_ms=0), stored(A, B, C)]),
    ("not deleted", [SENT, DELETED, h.Seen(**WHO, topic="in", begun_ms=1), stored(A, B, C)]),
    ("not deleted", [SENT[0], DELETED, send("b:0"), acknowledged(3, "b:0"), stored(A, B, C, *found(3, "b:0"))]),
    ("", [SENT[0], DELETED, SENT[1], stored(A, B, C)]),
]
KEPT: Final[list[Row]] = [
    ("", [BY_KEY, stored(B, C)]),
    ("lost", [BY_KEY, stored(A, C)]),
    ("lost", [BY_KEY, stored(A, B)]),
    ("", [KEYED, stored(L, M)]),
    ("lost", [KEYED, stored(K, L)]),
    ("lost, skipped", [KEYED, polled(0, (K,), 3), stored(L, M)]),
    ("", [KEYED, send("b:0#k1", transaction="t"), acknowledged(3, "b:0#k1"), ended(False), stored(L, M)]),
    ("lost", [KEYED, send("b:0#k1", transaction="t"), acknowledged(3, "b:0#k1"), ended(False), stored(L)]),
    ("lost", [TOMBSTONE, stored(L)]),
    ("", [TOMBSTONE, h.ClockMoved(**WHO, ms=1000), stored(L)]),
    ("lost", [with_config(), SENT, stored(C, start=2)]),
    ("lost", [with_config(retention_ms=str(START_MS)), SENT, stored(C, start=2)]),
    ("", [with_config(retention_ms="1"), SENT, stored(C, start=2)]),
    ("lost", [with_config(retention_bytes="1"), SENT, stored(C, start=2)]),
    ("", [with_config(retention_bytes="0"), SENT, stored(C, start=2)]),
    # seed 2610
    ("", [with_config(retention_bytes="1"), SENT, damaged(3), stored(C, start=2)]),
    # seed 2217325554: it was under way when the clock jumped from 1970 to the present
    ("", [h.ClockChecked(**WHO), SENT[0], JUMP, SENT[1], stored(C, start=2)]),
    ("lost", [h.ClockChecked(**WHO), SENT, JUMP, stored(C, start=2)]),
    ("lost", [h.ClockChecked(**WHO), JUMP, SENT, stored(C, start=2)]),
    ("lost", [SENT[0], JUMP, SENT[1], stored(C, start=2)]),
    # seed 2217325539: repeated over HTTP after damage, to a server that does not say where it is
    ("", [SENT[0], damaged(0), acknowledged(-1, "a:0"), stored(B, C)]),
    ("", [SENT, TRIMS, TRIMMED, stored(C, start=2)]),
    ("came back", [SENT, TRIMS, TRIMMED, stored(A, B, C)]),
    # seed 60490: somebody took away the file that says where the log begins
    ("", [SENT, TRIMS, TRIMMED, here(h.StartForgotten), stored(A, B, C)]),
    ("came back", [SENT, TRIMS, TRIMMED, here(h.StartForgotten), TRIMS, TRIMMED, stored(A, B, C)]),
    # seed 50270: the power was cut while the checkpoint was written, before the deletion was answered
    ("", [SENT, TRIMS, BEGINS, stored(A, B, C)]),
    ("", [SENT, TRIMS, BEGINS, stored(C, start=2)]),
    ("came back", [SENT, TRIMS, BEGINS, TRIMMED, stored(A, B, C)]),
    ("came back", [SENT, BEGINS, stored(A, B, C)]),
    ("", [SENT, damaged(1), refuses(1), stored(A, C)]),
    ("lost", [SENT, damaged(1), stored(A)]),
    ("refused", [SENT, damaged(1), refuses(1, 2), stored(A, C)]),
]
AFTER_A_LOSS: Final[list[Row]] = [
    ("", [SENT, lost(100), AFTER]),
    ("divergent, lost", [SENT, ANOTHER]),
    ("", [SENT, lost(100, 101.0), AFTER]),
    ("lost", [SENT, lost(100, 100.0), AFTER]),
    ("lost", [SENT, lost(100, oldest_ms=50.0), AFTER]),
    ("divergent, lost", [SENT, lost(100, synced=2), AFTER]),
    ("lost", [with_config(flush_messages="1"), SENT, lost(100), AFTER]),
    # seed 111787: a lookup found the marker of a transaction, whose offset a record has now
    *(
        (
            kind,
            [
                SENT,
                looked_up(2000, 3, 2100),
                then,
                send("b:1500"),
                acknowledged(3, "b:1500"),
                stored(A, B, C, *found(3, "b:1500")),
            ],
        )
        for kind, then in (
            ("", [lost(100, synced=3), survived(A, B, C)]),
            ("wrong time", [lost(100, synced=3), survived(A, B, C, markers=(3,), end_offset=4)]),
            ("wrong time", []),
        )
    ),
    # seed 555: a directory failed, and was out of service when the power was cut later
    ("", [SENT, lost(1, 10.0), lost(1000, 10.0), survived(A), stored(A)]),
    ("lost", [SENT, attrs.evolve(lost(1, 10.0), partitions=(OTHER,)), lost(1000, 10.0), survived(A), stored(A)]),
    ("lost", [SENT, lost(1, 10.0), survived(A, B, C), lost(1000, 10.0), survived(A), stored(A)]),
    # a marker that nobody was told of
    ("", [send("a:0", "a:1"), acknowledged(0, "a:0"), polled(0, (A, *found(2, "a:1")), 3), lost(100), AFTER]),
    ("skipped", [send("a:0", "a:1"), acknowledged(0, "a:0"), polled(0, (A, *found(2, "a:1")), 3), ANOTHER]),
    ("", [send("a:0"), polled(0, (A,), 2), lost(100), AFTER]),
    ("skipped", [send("a:0"), polled(0, (A,), 2), ANOTHER]),
    # seed 90164: compaction before anybody looked
    ("", [KEYED, lost(100), survived(K, M, markers=(1,), end_offset=3), stored(K, M)]),
    ("lost", [KEYED, lost(100), survived(K, M, end_offset=3), stored(K, M)]),
    ("", [lost(0), with_config(**CONFIG, flush_messages="1"), KEYED[1:], survived(L, M), stored(L, M)]),
    ("lost", [lost(0), with_config(**CONFIG, flush_messages="1"), KEYED[1:], survived(L), stored(L)]),
    ("lost", [lost(0), with_config(**CONFIG, flush_messages="1"), KEYED[1:], survived(M), stored(M)]),
    # seed "short 228": a hole in a compacted log has taken a record, which comes again
    *(
        (
            kind,
            [
                *(with_config(**CONFIG), send("a:0#k1"), polled(0, (K,), 1)),
                *(send("b:0#k2", producer="q"), acknowledged(1, "b:0#k2"), lost(100)),
                survived(*found(1, "b:0#k2"), gaps=gaps, end_offset=2),
                *(acknowledged(2, "a:0#k1"), *stored(*found(1, "b:0#k2", "a:0#k1"))),
            ],
        )
        for kind, gaps in (("", (range(1),)), ("duplicate", ()))
    ),
    # what was about to be deleted need not be synced
    *(
        (kind, [SENT, then, survived(), send("b:0"), acknowledged(0, "b:0"), stored(*found(0, "b:0"))])
        for kind, then in (
            ("", [here(h.Trims, before_offset=3), lost(5, synced=3)]),
            ("", [here(h.Trims, before_offset=3), lost(5, synced=3, oldest_ms=0.0)]),
            ("divergent, lost", [lost(5, synced=3)]),
            (
                "came back, divergent, lost",
                [here(h.Trims, before_offset=3), here(h.Trimmed, before_offset=3), lost(5, synced=3)],
            ),
        )
    ),
    # a marker may stand at its offset after the first loss, and be gone after the second
    *(
        (
            kind,
            [
                with_config(**CONFIG),
                send("a:0#k1"),
                acknowledged(0, "a:0#k1"),
                then,
                lost(100, oldest_ms=10.0),
                survived(),
                stored(),
            ],
        )
        for kind, then in (("", [lost(5, oldest_ms=10.0), survived(end_offset=1)]), ("lost", []))
    ),
    ("intermediate read, lost", [TORN, stored(T, U, committed=(T,))]),
    ("", [TORN, lost(100), survived(T, U), stored(T, U, committed=(T,))]),
    ("intermediate read, lost", [TORN, lost(100, 50.0), survived(T, U), stored(T, U, committed=(T,))]),
    ("offset went back", [OFFSETS, fetched(2)]),
    ("", [OFFSETS, lost(100, 20.0), fetched(2), fetched(3)]),
    ("offset went back", [OFFSETS, lost(100, 20.0), fetched(1)]),
    ("", [OFFSETS, lost(100), fetched(-1)]),
    # two who share an identity may be told of what the other one sent
    *(
        (
            kind,
            [
                *(introduced("p", 1), SENT, lost(100), survived(A, B, C), introduced("q", epoch)),
                *(send("b:0", producer="q"), acknowledged(0, "b:0"), stored(A, B, C)),
            ],
        )
        for kind, epoch in (("", 1), ("divergent, lost", 2))
    ),
]


@pytest.mark.parametrize(
    ("expected", "events"), [*RECORDS, *READERS, *TRANSACTIONS, *SEQUENCES, *GROUPS, *ADMINISTERED, *KEPT, *AFTER_A_LOSS]
)
def test_a_history_has_the_anomalies_that_were_planted_in_it_and_no_other(expected: str, events: list[Part]) -> None:
    assert ", ".join(sorted(kinds(*events))) == expected


def test_write_cycles_are_counted() -> None:
    sent = [
        send(f"{name}:{number}", transaction=name, partition=where) for number, where in ((0, IN), (1, OTHER)) for name in "tuv"
    ]

    def cycles(first: str, second: str) -> int:
        one, other = (found(0, *(f"{name}:{number}" for name in names)) for number, names in ((0, first), (1, second)))
        return write_cycles([*sent, *stored(*one), *stored(*other, partition=OTHER)])

    assert cycles("tu", "ut") == 1
    assert cycles("tu", "tu") == 0
    assert cycles("tuv", "vut") == 3
