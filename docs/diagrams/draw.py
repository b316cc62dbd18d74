"""Draws the diagrams of docs/architecture.md and docs/index.md as SVG files beside this one: `python docs/diagrams/draw.py`.

A diagram is said in words below, as layers or as messages between lanes; the two functions that draw know nothing of triolog. A
test compares the files with what this module gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final, NamedTuple

FOLDER: Final = Path(__file__).resolve().parent
LANE: Final = 170
ROW: Final = 34
MARGIN: Final = 12
INK, PAPER, BOX, EDGE, FAINT = "#1f2d3a", "#ffffff", "#e8eef4", "#5b7186", "#b6c3cf"


class Message(NamedTuple):
    """A step from one lane to another; within one lane it is what happens there."""

    source: int
    target: int
    text: str


class Layer(NamedTuple):
    """Packages of one height, and what all of them leave alone."""

    boxes: Sequence[str]
    note: str


TREE: Final = (
    Layer(("tools/cli", "tools/demo", "tools/bench", "tools/spark", "pytest plug-in"), "programs"),
    Layer(("server/app", "server/embedded", "tools/client"), "a server, a broker in a program, a client"),
    Layer(("server/fake",), "what tests do with a running broker"),
    Layer(("listeners/kafka", "listeners/native", "listeners/http"), "sockets and requests; they see only the broker"),
    Layer(("server/broker",), "the one door"),
    Layer(("partitions", "logs", "offsets", "transactions", "stages"), "trio: owners of state"),
    Layer(("server/storage", "server/groups", "server/access", "server/fake/faults"), "decisions: no trio, no sockets"),
    Layer(
        ("protocol/native", "protocol/kafka", "protocol/coordinator", "protocol/records"),
        "bytes and values: no files, no clock",
    ),
)

PRODUCE_LANES: Final = ("client", "listener's turn", "broker", "partition actor", "log", "disk")
PRODUCE: Final = (
    Message(0, 1, "produce: record batch"),
    Message(1, 2, "the same bytes"),
    Message(2, 2, "prepare: size, CRC, every record"),
    Message(2, 3, "append, in request order"),
    Message(1, 3, "end of the turn: all that waits"),
    Message(3, 4, "plan_append: in memory"),
    Message(4, 3, "offsets, operations"),
    Message(3, 5, "write; in a thread with fdatasync"),
    Message(5, 3, "done"),
    Message(3, 4, "commit: in memory"),
    Message(3, 1, "answer; long polls are woken"),
    Message(1, 0, "base offsets, in one send"),
)

LOOKUP_LANES: Final = ("reader", "snapshot", "time index", "offset index", "log")
LOOKUP: Final = (
    Message(0, 1, "first record >= t?"),
    Message(1, 1, "first segment whose max_timestamp is >= t"),
    Message(1, 2, "greatest entry <= t"),
    Message(2, 3, "greatest entry <= offset"),
    Message(3, 4, "headers from position"),
    Message(4, 4, "first batch to reach t"),
    Message(4, 4, "first record >= t in it"),
    Message(4, 0, "offset and timestamp; or the next segment"),
)

TRANSACTION_LANES: Final = ("producer", "coordinator", "__transaction_state", "partition A", "partition B")
TRANSACTION: Final = (
    Message(0, 1, "init_producer(id)"),
    Message(1, 2, "id, producer id, epoch + 1"),
    Message(1, 0, "producer id, epoch"),
    Message(0, 1, "first batch for A"),
    Message(1, 2, "Ongoing: A"),
    Message(1, 3, "batch"),
    Message(0, 1, "first batch for B"),
    Message(1, 2, "Ongoing: A, B"),
    Message(1, 4, "batch"),
    Message(0, 1, "end_transaction(commit)"),
    Message(1, 2, "PrepareCommit: it stands"),
    Message(1, 3, "COMMIT marker"),
    Message(1, 4, "COMMIT marker"),
    Message(1, 2, "CompleteCommit"),
    Message(1, 0, "done"),
)


WRITERS: Final = ("your Python program", "a test and its client", "a device, any Kafka client")
READERS: Final = ("Kafka clients, groups", "Spark, SQL, Arrow", "a Kafka upstream")
THE_LOG: Final = ("triolog", "one process, one directory", "segments | offset index | time index", "the files are Kafka's")


def around(title: str, left: Sequence[str], centre: Sequence[str], right: Sequence[str]) -> str:
    """Boxes at both sides of one in the middle; arrows go from left to right."""
    side, middle, gap, step = 210, 280, 60, 56
    height = 2 * MARGIN + step * max(len(left), len(right))
    inner, outer = MARGIN + side + gap, MARGIN + side + 2 * gap + middle

    def parts() -> Iterator[str]:
        frame = f'x="{inner}" y="{MARGIN}" width="{middle}" height="{height - 2 * MARGIN}"'
        yield f'<rect {frame} rx="4" fill="{BOX}" stroke="{EDGE}"/>'
        for row, line in enumerate(centre, 1):
            yield _text(inner + middle // 2, MARGIN + 36 * row, line, "middle", size=16 if row == 1 else 12)
        for names, x, start in ((left, MARGIN, MARGIN + side), (right, outer, inner + middle)):
            for row, name in enumerate(names):
                y = MARGIN + step * row + 9
                yield _box(x, y, side, 38, name)
                ends = f'x1="{start}" y1="{y + 19}" x2="{start + gap - 2}" y2="{y + 19}"'
                yield f'<line {ends} stroke="{EDGE}" marker-end="url(#tip)"/>'

    return _picture(title, outer + side + MARGIN, height, parts())


def sequence(title: str, lanes: Sequence[str], messages: Sequence[Message]) -> str:
    """Lanes from left to right, time downwards."""
    last = len(lanes) - 1
    beside = 60 if any(message[:2] == (last, last) for message in messages) else 0  # words beside the last lane
    width = LANE * len(lanes) + 2 * MARGIN + beside
    top = MARGIN + 30
    height = top + ROW * (len(messages) + 1)
    centres = [MARGIN + LANE * number + LANE // 2 for number in range(len(lanes))]

    def parts() -> Iterator[str]:
        for centre, lane in zip(centres, lanes, strict=True):
            yield f'<line x1="{centre}" y1="{top}" x2="{centre}" y2="{height - MARGIN}" stroke="{FAINT}"/>'
            yield _box(centre - LANE // 2 + 5, MARGIN, LANE - 10, 30, lane)
        for row, (source, target, text) in enumerate(messages, 1):
            y = top + ROW * row
            if source == target:
                yield f'<circle cx="{centres[source]}" cy="{y - 5}" r="4" fill="{EDGE}"/>'
                yield _text(centres[source] + 9, y - 1, text, "start")
            else:
                start, end = centres[source], centres[target]
                yield f'<line x1="{start}" y1="{y}" x2="{end}" y2="{y}" stroke="{EDGE}" marker-end="url(#tip)"/>'
                yield _text((start + end) // 2, y - 5, text, "middle")

    return _picture(title, width, height, parts())


def layers(title: str, rows: Sequence[Layer]) -> str:
    """Rows from the top down; each uses what is below it."""
    width, notes = 920, 300
    height = 2 * MARGIN + 46 * len(rows)

    def parts() -> Iterator[str]:
        for number, (boxes, note) in enumerate(rows):
            y = MARGIN + 46 * number
            each = (width - notes - MARGIN) // len(boxes)
            for place, name in enumerate(boxes):
                yield _box(MARGIN + each * place, y, each - 6, 38, name, size=11 if len(boxes) > 4 else 12)
            yield _text(width - notes + 8, y + 23, note, "start")

    return _picture(title, width, height, parts())


def _picture(title: str, width: int, height: int, parts: Iterator[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" font-family="sans-serif">'
    tip = '<marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    lines = [
        head,
        f"<title>{escape(title)}</title>",
        f'<defs>{tip}<path d="M0 0L8 4L0 8z" fill="{EDGE}"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="{PAPER}"/>',
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _box(x: int, y: int, width: int, height: int, text: str, *, size: int = 12) -> str:
    shape = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="4" fill="{BOX}" stroke="{EDGE}"/>'
    return shape + "\n" + _text(x + width // 2, y + height // 2 + 4, text, "middle", size=size)


def _text(x: int, y: int, text: str, anchor: str, *, size: int = 12) -> str:
    # A halo of paper keeps words readable where they cross the line of a lane.
    halo = f'stroke="{PAPER}" stroke-width="3" paint-order="stroke"' if size == 12 else ""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}" fill="{INK}" {halo}>{escape(text)}</text>'


def drawn() -> dict[str, str]:
    """Every diagram by the name of its file."""
    return {
        "overview.svg": around(
            "Programs, tests and devices write; clients, tables and an upstream read", WRITERS, THE_LOG, READERS
        ),
        "tree.svg": layers("The packages, each above what it uses", TREE),
        "produce.svg": sequence("One produce request", PRODUCE_LANES, PRODUCE),
        "lookup.svg": sequence("One lookup by time", LOOKUP_LANES, LOOKUP),
        "transaction.svg": sequence("One transaction over two partitions", TRANSACTION_LANES, TRANSACTION),
    }


if __name__ == "__main__":
    for name, picture in drawn().items():
        (FOLDER / name).write_text(picture, encoding="utf-8")
