"""Row 15: what a quota costs a client that stays below it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..measuring.measure import Line, RowResult, at_most, ratio
from .brokers import KAFKA, KFAKE, TRIOLOG, Broker, Brokers
from .comparing import figures, in_turn

RECORDS: Final = 50_000
VALUE_BYTES: Final = 100
DEARER: Final = 1.02


def quota(brokers: Brokers) -> RowResult:
    """Processor time of the server for a record, by turns with a byte rate for the client's id and with no quota at all."""
    count = brokers.bench.scale.count(RECORDS, least=20)

    def send(broker: Broker) -> Mapping[str, Any]:
        with brokers.topic(broker) as topic:
            return brokers.run(broker, "quota", topic, records=count, bytes=VALUE_BYTES, pid=broker.pid)

    answers = in_turn(brokers, send, without=[KFAKE])
    lines = []
    for name in (TRIOLOG, KAFKA):
        without, with_quota = (figures(answers, name, key) for key in ("without_us", "with_us"))
        if without:
            target = at_most(DEARER, "x") if name == TRIOLOG else None
            lines.append(Line(f"without a quota, {name}", "us", without))
            lines.append(Line(f"with one, {name}", "us", with_quota))
            lines.append(ratio(f"with / without, {name}", with_quota, without, target))
    note = f"{count:,} records of {VALUE_BYTES} bytes one by one on one connection, in 20 turns; processor time of all threads"
    return RowResult(15, "produce under a quota that is not reached", lines, [note])
