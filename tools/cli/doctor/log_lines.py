"""The last lines of a server's log: only lines that triolog wrote, in both formats, also with the prefix of a journal.

A log can have lines of other programs. They are not read: their form is not known, so neither are the secrets in them.
"""

from __future__ import annotations

import json
import re
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

from .redaction import Redaction
from .symptoms import Symptom, symptom_of

MAX_LOG_BYTES: Final = 4 * 1024 * 1024
"""The last bytes of a log that are read."""
MAX_LINE_BYTES: Final = 256 * 1024
"""A longer line is not one of triolog: `service/log_lines` cuts its texts."""
MAX_LOG_LINES: Final = 5_000
_TEXT: Final = r'("(?:[^"\\]|\\.)*"|\S*)'
_LINE: Final = re.compile(rf"\btime=(\S+) level=(\w+) logger=(triolog[\w.]*) message={_TEXT}(?: exception={_TEXT})?")


def read_log(path: str, redaction: Redaction) -> tuple[list[str], list[tuple[Symptom, str]]]:
    """Return the last lines without secrets, and the symptoms among them with their lines. Raises OSError."""
    if path == "-":
        data = _tail(sys.stdin.buffer)
    else:
        with Path(path).open("rb") as stream:
            stream.seek(max(0, stream.seek(0, 2) - MAX_LOG_BYTES) if stream.seekable() else 0)
            data = _tail(stream)
    kept: deque[str] = deque(maxlen=MAX_LOG_LINES)
    found: list[tuple[Symptom, str]] = []
    for line in data.splitlines():
        event = None if len(line) > MAX_LINE_BYTES else _event(line.decode("utf-8", "replace"))
        if event is None:
            continue
        head, message, error = event
        shown = redaction.text(message)
        if (symptom := symptom_of(message)) is not None:
            found.append((symptom, f"{head} {shown}".strip()))
        elif not head:
            continue  # no line of a log, and no error that is known
        kept.append(f"{head} {shown}".strip())
        if error:
            kept.extend(f"    {each}" for each in redaction.traceback(error).splitlines())
    return list(kept), found


def _tail(stream: IO[bytes]) -> bytes:
    """The last bytes of a stream, which may have no end that can be sought."""
    data = b""
    while piece := stream.read(MAX_LOG_BYTES):
        data = (data + piece)[-MAX_LOG_BYTES:]
    return data


def _event(line: str) -> tuple[str, str, str] | None:
    """Time, level and logger in one text; message; traceback. Without the first for an error of a command. None: not ours."""
    if match := _LINE.search(line):
        time, level, logger, message, error = match.groups()
        return f"{time} {level} {logger}", _unquoted(message), _unquoted(error or "")
    if (start := line.find('{"time": ')) >= 0:
        try:
            fields: Any = json.loads(line[start:])
            head = [str(fields[name]) for name in ("time", "level", "logger")]
            is_ours = head[2].partition(".")[0] == "triolog"
            return (" ".join(head), str(fields["message"]), str(fields.get("exception", ""))) if is_ours else None
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
    _, found, message = line.partition("Error: ")
    return ("", message, "") if found else None


def _unquoted(text: str) -> str:
    if not text.startswith('"'):
        return text
    try:
        return str(json.loads(text))
    except ValueError:
        return text


def grouped(found: list[tuple[Symptom, str]]) -> Iterator[tuple[Symptom, str]]:
    """Each symptom once, with the number of its lines and the last one."""
    lines: dict[str, list[tuple[Symptom, str]]] = {}
    for each in found:
        lines.setdefault(each[0].name, []).append(each)
    for rows in lines.values():
        symptom, last = rows[-1]
        yield symptom, last if len(rows) == 1 else f"{len(rows):,} lines, the last: {last}"
