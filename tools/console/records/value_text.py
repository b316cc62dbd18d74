"""Values as text in lines: JSON as it was written, with numbers of any length and keys that come twice; MessagePack like JSON,
where what JSON lacks is `bin(00ff)`, `ext(5, 00)`, `nan`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]

TOKENS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
INDENT: Final = "  "
MAX_DEPTH: Final = 40
"""Lines are not indented any more from there on."""


def indented(text: str) -> str:
    """A text that is valid JSON, each member on a line of its own."""
    pieces: list[str] = []
    depth = 0
    before = ""
    for match in TOKENS.finditer(text):
        token = match[0]
        if token in "}]":
            depth -= 1
            if before not in "{[":
                pieces.append(_line(depth))
        elif before and before in "{[":
            pieces.append(_line(depth))
        pieces.append(token)
        if token in "{[":
            depth += 1
        elif token == ",":
            pieces.append(_line(depth))
        elif token == ":":
            pieces.append(" ")
        before = token
    return "".join(pieces)


def _line(depth: int) -> str:
    return "\n" + INDENT * min(depth, MAX_DEPTH)


MAX_BIN_BYTES: Final = 1024
"""Of a binary value that are shown."""


class NotMsgpackError(Exception):
    """The bytes are not one value of MessagePack, or nested too deeply."""


class _Pairs(list[tuple[Any, Any]]):
    """A map: keys need not be hashable, and may come twice."""


def msgpack_text(data: bytes, most: int, *, is_indented: bool = False) -> str:
    """About the first `most` characters. Raises NotMsgpackError."""
    try:
        value = msgpack.unpackb(
            data, raw=False, strict_map_key=False, object_pairs_hook=_Pairs, unicode_errors="backslashreplace"
        )
    except (ValueError, RecursionError, msgpack.UnpackException, msgpack.ExtraData) as exc:
        raise NotMsgpackError(str(exc)) from exc
    pieces: list[str] = []
    size = 0
    try:
        for piece in _pieces(value, "\n" if is_indented else None):
            pieces.append(piece)
            size += len(piece)
            if size > most:
                break
    except RecursionError as exc:
        raise NotMsgpackError("nested too deeply") from exc
    return "".join(pieces)


def _pieces(value: Any, line: str | None) -> Iterator[str]:
    if isinstance(value, list):
        is_map = isinstance(value, _Pairs)
        yield "{" if is_map else "["
        inner = None if line is None else line + INDENT
        for index, each in enumerate(value):
            yield ("," if index else "") + (inner or (" " if index else ""))
            if is_map:
                yield from _pieces(each[0], None)
                yield ": "
                yield from _pieces(each[1], inner)
            else:
                yield from _pieces(each, inner)
        if value and line is not None:
            yield line
        yield "}" if is_map else "]"
    else:
        yield _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, bytes):
        rest = f", {len(value):,} bytes" if len(value) > MAX_BIN_BYTES else ""
        return f"bin({value[:MAX_BIN_BYTES].hex()}{rest})"
    if isinstance(value, msgpack.ExtType):
        return f"ext({value.code}, {value.data[:MAX_BIN_BYTES].hex()})"
    if isinstance(value, msgpack.Timestamp):
        return f"timestamp({value.seconds}.{value.nanoseconds:09d})"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return repr(value)
