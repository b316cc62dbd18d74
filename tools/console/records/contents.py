"""Keys, values and headers as people read them: JSON as it was written, text, hex, or MessagePack like JSON, where what JSON
lacks is `bin(00ff)`, `ext(5, 00)`, `nan`. What is shown is cut, with the true size beside it.

Nothing here escapes anything: the result is text, which the page puts in as text with control characters made visible.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import msgpack  # type: ignore[import-untyped]

from ..routes import exact

if TYPE_CHECKING:
    from .schemas import Schemas

KINDS: Final = ("auto", "json", "text", "msgpack", "hex")
PREVIEW_CHARS: Final = 400
"""Of a value in a list."""
DETAIL_CHARS: Final = 100_000
"""Of a value that is opened."""
MAX_PARSED_PREVIEW: Final = 16 * 1024
MAX_PARSED: Final = 256 * 1024
"""Bytes of a value that are taken apart: a MessagePack map takes up to 90 times its size in memory."""
KEY_CHARS: Final = 200
MAX_HEADERS: Final = 100
NAME_CHARS: Final = 200
HEX_LINE: Final = 16
MOST_CONTROLS: Final = 0.1
"""A larger share of control characters is not text."""

Content = dict[str, Any]


def content(
    data: bytes | None,
    kind: str = "auto",
    *,
    most: int = PREVIEW_CHARS,
    is_detail: bool = False,
    schemas: Schemas | None = None,
) -> Content | None:
    """`{"size", "kind", "text", "is_cut", "note"}`; None for null. `size` counts all bytes, `text` is cut. `schemas` decodes
    what begins with the id of a schema, where `kind` is auto."""
    if data is None:
        return None
    if schemas is not None and kind == "auto" and len(data) <= _parsed(is_detail):
        found = schemas.shown(data, is_indented=is_detail)
        if found is not None:
            decoded, note = found
            shown, text, is_whole, _ = _as_hex(data, most, is_detail) if decoded is None else ("schema", decoded, True, "")
            is_cut = not is_whole or len(text) > most
            return {"size": len(data), "kind": shown, "text": text[:most], "is_cut": is_cut, "note": note}
    reader = {"json": _as_json, "text": _as_text, "msgpack": _as_msgpack, "hex": _as_hex}.get(kind, _guessed)
    shown, text, is_whole, note = reader(data, most, is_detail)
    told: Content = {"size": len(data), "kind": shown, "text": text[:most], "is_cut": not is_whole or len(text) > most}
    return told | {"note": note} if note else told


def shown_record(
    partition: int, record: Any, kind: str = "auto", *, is_detail: bool = False, schemas: Schemas | None = None
) -> dict[str, Any]:
    """A record for JSON: in a list, or opened. `schemas` is prepared for it."""
    most = DETAIL_CHARS if is_detail else PREVIEW_CHARS
    offset, timestamp, key, value, headers = record
    return {
        "partition": partition,
        "offset": exact(offset),
        "timestamp": exact(timestamp),
        "key": content(
            key,
            "hex" if kind == "hex" else "auto",
            most=most if is_detail else KEY_CHARS,
            is_detail=is_detail,
            schemas=schemas,
        ),
        "value": content(value, kind, most=most, is_detail=is_detail, schemas=schemas),
        "headers": [[name[:NAME_CHARS], content(each, most=KEY_CHARS)] for name, each in headers[:MAX_HEADERS]],
        "header_count": len(headers),
    }


Read = tuple[str, str, bool, str]
"""The kind that it was, a text, whether that is all of it, and what has to be said."""


def _guessed(data: bytes, most: int, is_detail: bool) -> Read:
    if data[:64].lstrip()[:1] in (b"{", b"[") and (read := _json_of(data, most, is_detail)) is not None:
        return read
    head = _decoded(data, most)
    if head is not None and _is_readable(head):
        return "text", head, len(data) <= most, ""
    if len(data) <= _parsed(is_detail) and _looks_like_msgpack(data[0]):
        read = _as_msgpack(data, most, is_detail)
        if read[0] == "msgpack":
            return read
    return _as_hex(data, most, is_detail)


def _as_json(data: bytes, most: int, is_detail: bool) -> Read:
    read = _json_of(data, most, is_detail)
    if read is not None:
        return read
    _, text, is_whole, wrong = _as_text(data, most, is_detail)
    return "text", text, is_whole, wrong or ("not JSON" if len(data) <= _parsed(is_detail) else "too large to be read as JSON")


def _json_of(data: bytes, most: int, is_detail: bool) -> Read | None:
    if len(data) > _parsed(is_detail):
        return None
    try:
        text = data.decode()
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    return "json", indented(text) if is_detail else text, True, ""


def _as_text(data: bytes, most: int, is_detail: bool) -> Read:
    head = _decoded(data, most)
    if head is not None:
        return "text", head, len(data) <= most, ""
    return "text", data[:most].decode(errors="replace"), len(data) <= most, "not UTF-8: � stands for bytes that cannot be read"


def _as_msgpack(data: bytes, most: int, is_detail: bool) -> Read:
    if len(data) > _parsed(is_detail):
        return (*_as_hex(data, most, is_detail)[:3], "too large to be read as MessagePack")
    try:
        return "msgpack", msgpack_text(data, most + 1, is_indented=is_detail), True, ""
    except NotMsgpackError:
        return (*_as_hex(data, most, is_detail)[:3], "not MessagePack")


def _as_hex(data: bytes, most: int, is_detail: bool) -> Read:
    if not is_detail:
        head = data[: most // 3]
        return "hex", head.hex(" "), len(head) == len(data), ""
    lines = most // 80
    text = "\n".join(_hex_line(data, at) for at in range(0, min(len(data), lines * HEX_LINE), HEX_LINE))
    return "hex", text, len(data) <= lines * HEX_LINE, ""


def _hex_line(data: bytes, at: int) -> str:
    line = data[at : at + HEX_LINE]
    letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in line)
    return f"{at:08x}  {line.hex(' '):<47}  {letters}"


def _parsed(is_detail: bool) -> int:
    return MAX_PARSED if is_detail else MAX_PARSED_PREVIEW


def _decoded(data: bytes, most: int) -> str | None:
    """The first `most` bytes as UTF-8, without a last character that is cut; None when they are not."""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(data[:most], final=len(data) <= most)
    except UnicodeDecodeError:
        return None


def _is_readable(text: str) -> bool:
    controls = sum(1 for char in text if char < " " and char not in "\t\n\r")
    return controls <= MOST_CONTROLS * len(text)


def _looks_like_msgpack(first: int) -> bool:
    """A map or an array: most other bytes begin a valid value, too, and mean nothing."""
    return 0x80 <= first <= 0x9F or 0xDC <= first <= 0xDF


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
