"""The texts that users read outside of the documentation, taken out of the code: help, errors and log formats.

- *help*: `help=`, `short_help=` and `epilog=` of any call, docstrings of functions that a `command` or `group` decorates, and
  texts in the arguments of `int_key(...)` and its siblings, which describe configuration keys, and of metrics.
- *error*: texts in the arguments of an exception, or of a function that returns or raises one by its annotation.
- *log*: texts in the arguments of `logger.info(...)` and its siblings.

A value in a text (`{...}`, `%s`) becomes the word `x`. Texts without two words are left out: keys, names, codes.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import attrs

from .sentences import ROOT

FOLDERS: Final = ("protocol", "server", "tools")
CLAUSES: Final = {"What", "Whether", "Who", "Whoever", "How", "Where", "When", "Whose", "Which", "That", "One"}
"""First words of a clause that stands for a sentence."""
KINDS: Final = ("help", "error", "log")
_HELP: Final = frozenset({"help", "short_help", "epilog"})
_LOG: Final = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})
_DESCRIBED: Final = re.compile(r"_key$|^_(gauge|counter)$")
_DECORATED: Final = re.compile(r"command|group")
_ERROR: Final = re.compile(r"(Error|Exception|Exit)$|^BadParameter$")
_PLACEHOLDER: Final = re.compile(r"%(?:\(\w+\))?[-+ #0-9.]*[a-zA-Z]")


@attrs.frozen
class Message:
    """A text in the code."""

    kind: str
    place: str
    """`path:line`."""
    text: str


def code() -> list[Path]:
    """Return the modules of the folders."""
    return sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def clauses(paths: Iterable[Path]) -> list[str]:
    """Return `path:line: docstring` of the docstrings that begin with a clause."""
    return [
        f"{path}:{node.body[0].lineno}: {text.splitlines()[0]}"
        for path in paths
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and (text := ast.get_docstring(node))
        and text.split()[0].rstrip(".,:;") in CLAUSES
    ]


def messages(sources: Mapping[str, str] | None = None) -> list[Message]:
    """Return the messages of `sources`, path -> Python, by default of the folders."""
    if sources is None:
        sources = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in code()}
    trees = {path: ast.parse(source) for path, source in sources.items()}
    errors = _error_makers(trees.values())
    return [message for path, tree in trees.items() for message in _Reader(path, errors).read(tree)]


def _error_makers(trees: Iterable[ast.AST]) -> frozenset[str]:
    """Names of exceptions, and of functions that return or raise one."""
    bases: dict[str, set[str]] = defaultdict(set)
    returns: dict[str, str] = {}
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.ClassDef):
            bases[node.name] |= {_last_name(base) for base in node.bases}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            returns[node.name] = ast.unparse(node.returns).strip("'\"")
    found = {name for name in bases if _ERROR.search(name)}
    while more := {
        name for name, its in bases.items() if name not in found and any(_ERROR.search(b) or b in found for b in its)
    }:
        found |= more
    makers = {
        name
        for name, kind in returns.items()
        if kind in ("NoReturn", "Never")
        or any(_ERROR.search(last) or last in found for last in (each.split(".")[-1] for each in kind.split(" | ")))
    }
    return frozenset(found | makers)


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _text(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(str(each.value) if isinstance(each, ast.Constant) else "x" for each in node.values)
    return None


@attrs.define
class _Reader:
    """Reads one module."""

    path: str
    errors: frozenset[str]
    found: list[Message] = attrs.field(factory=list)

    def read(self, tree: ast.AST) -> list[Message]:
        self._visit(tree, "")
        return self.found

    def _visit(self, node: ast.AST, kind: str) -> None:
        text = _text(node)
        if text is not None:
            if kind:
                self._add(kind, node, text)
            kind = kind if kind == "log" else ""  # a value of an f-string is no text of its own
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(
            _DECORATED.search(ast.unparse(each)) for each in node.decorator_list
        ):
            self._add("help", node, ast.get_docstring(node) or "")
        for child in ast.iter_child_nodes(node):
            self._visit(child, self._kind_below(node, child, kind))

    def _kind_below(self, node: ast.AST, child: ast.AST, kind: str) -> str:
        if isinstance(node, ast.keyword):
            return "help" if node.arg in _HELP else kind
        if isinstance(node, ast.Call):
            name = _last_name(node.func)
            if isinstance(node.func, ast.Attribute) and name in _LOG:
                return "log"
            if _DESCRIBED.search(name):
                return "help"
            return "error" if name in self.errors or _ERROR.search(name) else kind
        return kind if isinstance(child, ast.expr | ast.keyword | ast.FormattedValue) else ""

    def _add(self, kind: str, node: ast.AST, text: str) -> None:
        text = inspect.cleandoc(text) if kind == "help" else text
        text = _PLACEHOLDER.sub("x", text) if kind == "log" else text
        if " " in text and len(re.findall(r"[A-Za-z]{2,}", text)) > 1:
            self.found.append(Message(kind, f"{self.path}:{getattr(node, 'lineno', 0)}", text))
