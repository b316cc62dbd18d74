"""The walk of a lookup (docs/native-protocol.md, `explain`) as a picture: the log over time, then what was done in each segment
that was looked into, then the answer. Keys it does not know are skipped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ..cli.terminal.output import count_text, size_text
from ..cli.terminal.times import Zone
from ..cli.terminal.walk_words import answer_text, question, reads_text
from .canvas import INNER, MARGIN, Canvas, fitting_size
from .log_panel import draw_log, stretches
from .log_panel import panel_height as log_height
from .segment_panel import draw_compact, draw_segment

MOST_WALKS: Final = 12
"""Partitions that are drawn; the others are counted."""
MOST_SEGMENTS: Final = 8
"""Of one walk that are drawn; the others are summed."""

Walk = dict[str, Any]


def walk_picture(walks: Sequence[tuple[str, Walk]], zone: Zone) -> Canvas:
    """A picture of walks, each with the name of its partition."""
    canvas = Canvas(
        "; ".join(f"{name}: {question(walk.get('asked', {}), zone)}" for name, walk in walks[:MOST_WALKS]) or "nothing"
    )
    for name, walk in walks[:MOST_WALKS]:
        _draw_walk(canvas, name, walk, zone)
    if len(walks) > MOST_WALKS:
        rest = [walk for _, walk in walks[MOST_WALKS:]]
        found = sum(walk.get("answer", {}).get("offset", -1) >= 0 for walk in rest)
        words = f"others: {count_text(len(rest), 'partition')}, {found:,} of them with an answer"
        canvas.text(MARGIN, canvas.bottom + 34, words, "quiet")
        canvas.say(words)
    _draw_legend(canvas)
    return canvas


def _draw_walk(canvas: Canvas, name: str, walk: Walk, zone: Zone) -> None:
    asked, answer, steps = walk.get("asked", {}), walk.get("answer", {}), walk.get("segments", ())
    boxes = stretches(walk)
    y = canvas.bottom + 20 if canvas.bottom else MARGIN
    canvas.text(MARGIN, y + 14, name, "ink strong", size=16, width=INNER)
    words = question(asked, zone)
    canvas.text(MARGIN, y + 34, words, "asked", size=fitting_size(words, INNER, (13, 12, 11)), width=INNER)
    count, start, end = walk.get("segment_count", 0), walk.get("log_start_offset", 0), walk.get("high_watermark", 0)
    log = (
        f"{count_text(count, 'segment')}, {size_text(sum(box.size_bytes for box in boxes))}, "
        if walk.get("log_segments")
        else ""
    )
    log = f"{log or count_text(count, 'segment') + ', '}offsets {start:,} up to {end:,} (exclusive)"
    canvas.text(MARGIN, y + 52, log, "quiet", width=INNER)
    y += 60
    said = answer_text(answer, asked, zone)
    canvas.say(f"{name}: {words} {log}. {said}.")
    if boxes:
        below = y + 14 + log_height(boxes) + 38
        y = draw_log(canvas, y, walk, boxes, zone, below if steps else None)
        y = below if steps else y
    y = _draw_steps(canvas, y, walk, zone)
    kind = "found" if answer.get("offset", -1) >= 0 else "quiet"
    canvas.dot(MARGIN + 6, y + 20, 5, kind)
    size = fitting_size(said, (INNER - 18) / 1.16, (14, 13, 12))
    canvas.text(MARGIN + 18, y + 25, said, f"{kind} strong", size=size, width=INNER - 18)


def _draw_steps(canvas: Canvas, y: float, walk: Walk, zone: Zone) -> float:
    steps = walk.get("segments", ())
    if not steps:
        words = f"log: scanned{reads_text(walk)}" if walk.get("reads") else "no segment had to be read"
        canvas.text(MARGIN, y + 16, words, "quiet")
        return y + 20
    shown = [step for step in steps[:MOST_SEGMENTS] if "runs" not in step or "time_index" in step]
    for step in shown:
        y = draw_segment(canvas, y, step, walk, zone) + 10
        canvas.say(_said(step))
    others = [step for step in steps if not any(step is each for each in shown)]
    most = max((step.get("size_bytes", 0) for step in others), default=0)
    for step in others[:MOST_SEGMENTS]:
        y = draw_compact(canvas, y, step, most)
    if rest := others[MOST_SEGMENTS:]:
        size = sum(step.get("run_bytes", step.get("bytes_scanned", 0)) for step in rest)
        words = f"others: {count_text(len(rest), 'segment')}, {size_text(size)}"
        canvas.text(MARGIN + 12, y + 14, words, "quiet")
        y += 20
    if skipped := walk.get("segments_skipped"):
        words = f"{count_text(skipped, 'segment')} skipped: no timestamp of theirs is in the range"
        canvas.text(MARGIN + 12, y + 14, words, "quiet")
        y += 20
    return y


def _said(step: Walk) -> str:
    slots = [
        f"{label}: slot {step[name].get('slot')} of {step[name].get('entries')}"
        for name, label in (("time_index", "time index"), ("offset_index", "offset index"))
        if name in step
    ]
    return f"Segment {step.get('segment', 0)}: {', '.join([*slots, f'log: scanned{reads_text(step)}'])}."


def _draw_legend(canvas: Canvas) -> None:
    y, x = canvas.bottom + 26, float(MARGIN)
    for kind, words in (
        ("segment", "segment"),
        ("chosen", "looked into"),
        ("slot", "slot that was used"),
        ("read", "read, cached"),
        ("cold", "read from the device"),
        ("found", "answer"),
    ):
        canvas.rect(x, y - 9, 10, 10, kind, radius=2)
        x = canvas.text(x + 15, y, words, "quiet", size=11) + 14
    canvas.text(x, y, "dashed: may begin earlier", "quiet", size=11)
