"""Every field of a native request is read by the code that serves it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from triolog.protocol.native import messages
from triolog.protocol.native.structs import RequestMessage, Struct, fields_of

ROOT: Final = Path(__file__).resolve().parents[4]
READERS: Final = ("server/listeners/native", "protocol/native/calls", "protocol/native/structs.py")
"""The handlers, and what messages answer of themselves."""


def read_names() -> set[str]:
    """Every attribute that is read."""
    paths = [path for each in READERS for path in ((ROOT / each).rglob("*.py") if (ROOT / each).is_dir() else [ROOT / each])]
    nodes = (node for path in paths for node in ast.walk(ast.parse(path.read_text())))
    return {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)}


def structs_in(shape: Any) -> Iterator[type[Struct]]:
    inner = shape if isinstance(shape, list) else list(shape.values()) if isinstance(shape, dict) else [shape]
    return (each for each in inner if isinstance(each, type) and issubclass(each, Struct))


def request_fields() -> Iterator[tuple[str, str]]:
    """(structure, field) of every request."""
    classes = [each for each in vars(messages).values() if isinstance(each, type)]
    left = [each for each in classes if issubclass(each, RequestMessage) and each is not RequestMessage]
    while left:
        cls: type[Struct] = left.pop()
        for field in fields_of(cls):
            yield cls.__name__, field.name
            left.extend(structs_in(field.shape))


def test_every_field_of_every_request_is_read() -> None:
    fields, read = set(request_fields()), read_names()
    assert len(fields) > 100
    assert sorted((cls, name) for cls, name in fields if name not in read) == []
