"""Docstrings are sentences: what a reader meets first says what the thing is or does."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
CLAUSES: Final = {"What", "Whether", "Who", "Whoever", "How", "Where", "When", "Whose", "Which", "That", "One"}
"""First words of a clause that stands for a sentence."""
DOCUMENTED: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def test_no_docstring_begins_with_a_clause() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.body[0].lineno}: {text.splitlines()[0]}"
        for folder in ("protocol", "server", "tools")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)) and text.split()[0].rstrip(".,:;") in CLAUSES
    ]
    assert found == []
