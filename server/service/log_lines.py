"""Log lines on standard error, and how many of one kind there may be.

A kind is a logger, a level and a text without its values; of lines with a traceback also the class of the error and where it
was raised. Of each kind `log_lines_per_minute` go through in a minute that begins with the first; of what is left out the
number is said when the minute is over. DEBUG lines, for who asks for them, and CRITICAL ones always go through.

Clients choose names, and how long these are. So a value in a line is cut, and a long line counts as several: bytes a minute are
limited.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, Final, TextIO

import attrs
import trio

from ..config.broker_config import BrokerConfig
from ..config.values import DEFAULT_LINES_PER_MINUTE

MINUTE_S: Final = 60.0
MAX_VALUE_CHARS: Final = 1000
MAX_MESSAGE_CHARS: Final = 4096
"""For texts that were put together elsewhere, such as those of errors."""
MAX_EXCEPTION_CHARS: Final = 64 * 1024
CHARS_PER_LINE: Final = 256
"""A line counts once for each of them."""
MAX_KINDS: Final = 1000
"""That are counted at a time. Further ones are counted as one of their logger and level: their texts have values in them."""

_Kind = tuple[Any, ...]


class LogLineFormatter(logging.Formatter):
    """Formats each event as one line, as `time=... level=... logger=... message="..."` or as a JSON object."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        if record.exc_info:
            fields["exception"] = _cut(self.formatException(record.exc_info), MAX_EXCEPTION_CHARS)
        if self._as_json:
            return json.dumps(fields)
        return " ".join(f"{key}={_quoted(value)}" for key, value in fields.items())


def _message(record: logging.LogRecord) -> str:
    """The message with its values cut, and cut itself."""
    text = str(record.msg)
    if isinstance(record.args, tuple) and record.args:
        text %= tuple(_cut(each, MAX_VALUE_CHARS) if isinstance(each, str) else each for each in record.args)
    elif record.args:
        text %= record.args
    return _cut(text, MAX_MESSAGE_CHARS)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"


def _quoted(value: str) -> str:
    return value if value.isprintable() and not any(character in value for character in ' "\\=') else json.dumps(value)


@attrs.define
class _Minute:
    ends_s: float
    name: str
    level: int
    text: str
    used: int = 0
    """Lines, each as often as it counts."""
    left_out: int = 0


@attrs.define(eq=False, repr=False)
class LineLimit:
    """Counts the lines of each kind. Owner: the handler, which calls it under its lock."""

    per_minute: int = DEFAULT_LINES_PER_MINUTE
    """0: everything goes through."""
    _now_s: Callable[[], float] = time.monotonic
    _minutes: dict[_Kind, _Minute] = attrs.field(factory=dict)
    """By kind, in the order in which they end."""

    def passes(self, record: logging.LogRecord) -> bool:
        """Return whether a line passes the limit."""
        if not self.per_minute or not logging.INFO <= record.levelno < logging.CRITICAL:
            return True
        text, kind = str(record.msg), _kind_of(record)
        if len(self._minutes) >= MAX_KINDS and kind not in self._minutes:
            text, kind = "lines of many kinds", (record.name, record.levelno)
        minute = self._minutes.get(kind)
        if minute is None:
            minute = self._minutes[kind] = _Minute(self._now_s() + MINUTE_S, record.name, record.levelno, text)
        if minute.used >= self.per_minute:
            minute.left_out += 1
            return False
        minute.used += 1 + len(_message(record)) // CHARS_PER_LINE
        return True

    def over(self, *, at_once: bool = False) -> list[logging.LogRecord]:
        """Return the summary lines of minutes that are over, or of all minutes, and forget these minutes."""
        now_s, told = self._now_s(), []
        for kind, minute in list(self._minutes.items()) if at_once else self._ended(now_s):
            del self._minutes[kind]
            if minute.left_out and self.per_minute:
                said = "%d lines of this kind were left out within a minute: %s"
                told.append(logging.LogRecord(minute.name, minute.level, "", 0, said, (minute.left_out, minute.text), None))
        return told

    def _ended(self, now_s: float) -> list[tuple[_Kind, _Minute]]:
        return list(itertools.takewhile(lambda each: each[1].ends_s <= now_s, self._minutes.items()))


def _kind_of(record: logging.LogRecord) -> _Kind:
    error = record.exc_info[1] if record.exc_info else None
    if error is None:
        return record.name, record.levelno, str(record.msg)
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    place = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        place = frame.f_code.co_filename, line
    return record.name, record.levelno, str(record.msg), type(error), place


class _StandardErrorHandler(logging.StreamHandler[TextIO]):
    """Writes to what standard error is at the moment: a progress bar takes its place to keep lines apart from itself."""

    def __init__(self, limit: LineLimit) -> None:
        super().__init__()
        self.limit = limit

    def emit(self, record: logging.LogRecord) -> None:
        self._say_left_out()
        if self.limit.passes(record):
            self._write(record)

    def tell_left_out(self, *, at_once: bool) -> None:
        with self.lock or contextlib.nullcontext():
            self._say_left_out(at_once=at_once)

    def _say_left_out(self, *, at_once: bool = False) -> None:
        for record in self.limit.over(at_once=at_once):
            self._write(record)

    def _write(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


@attrs.frozen(eq=False, repr=False)
class LogLines:
    """The process's log. Use `configure_logging`."""

    _handler: _StandardErrorHandler

    def set(self, config: BrokerConfig) -> None:
        """The level and the limit that a configuration asks for hold from now on."""
        logging.getLogger().setLevel(config.log_level.value.upper())
        self._handler.limit.per_minute = config.log_lines_per_minute

    async def tell_regularly(self) -> None:
        """Say what was left out although nothing else is said, until cancelled; then all of it."""
        try:
            while True:
                await trio.sleep(MINUTE_S)
                self._handler.tell_left_out(at_once=False)
        finally:
            self._handler.tell_left_out(at_once=True)


def configure_logging(level: str, *, as_json: bool) -> LogLines:
    """Send log lines to standard error."""
    handler = _StandardErrorHandler(LineLimit())
    handler.setFormatter(LogLineFormatter(as_json=as_json))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    return LogLines(handler)
