"""Docstrings are sentences, and pages are in plain English (`tests/support/sentences.py` has the definitions)."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

from tests.support import sentences

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


def test_pages_are_in_plain_english() -> None:
    """`python -m tests.support.sentences` lists the sentences."""
    assert sentences.excess(sentences.prose_of(sentences.pages())) == []


def test_an_odd_sentence_is_counted(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# What a heading is\n\nWhat was asked is answered; it ends. What is it?\n\n| What | a table |\n\n"
        "```\nWhat code says;\n```\n\n- " + "word " * 26 + "ends.\n"
    )
    found = sentences.prose_of([page])
    assert (found.sentences, len(found.clauses), found.semicolons, len(found.long)) == (3, 1, 1, 1)
    assert len(sentences.excess(found)) == 2
