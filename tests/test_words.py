"""`make lint` finds odd sentences: in docstrings, pages, help, errors and log formats (`tests/support/plain_english.py`)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.support import messages, sentences


@pytest.mark.parametrize(("docstring", "is_clause"), [("Whether it is.", True), ("What: it is.", True), ("It is.", False)])
def test_a_docstring_that_begins_with_a_clause_is_found(docstring: str, is_clause: bool, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(f'class It:\n    async def is_it(self):\n        """{docstring}"""\n')
    assert len(messages.clauses([tmp_path / "module.py"])) == is_clause


@pytest.mark.parametrize(
    "sentence",
    [
        "Nobody reads it",
        "the reader goes on after it",
        "indexes are made anew",
        "'x' is no number",
        "the gap is passed over",
        "a token is asked for",
        "the client is told",
        "records lie behind the cut",
        "a session met a bug",
        "it has what was committed",
    ],
)
def test_an_idiom_is_found(sentence: str) -> None:
    assert sentences.excess(sentences.prose_in([("place", sentence)])) == ["banned phrases: 1.0, at most 0"]


def test_plain_sentences_and_questions_have_no_banned_phrase() -> None:
    plain = "there is no topic 'x'. The topic is no longer served. Records are offline. Is `triolog serve` running there?"
    assert sentences.prose_in([("place", f"{plain} What is asked for?")]).banned == []


MODULE: Final = '''
class OddError(Exception):
    """It has no texts of its own."""


class VeryOdd(OddError):
    """By its base."""


def _refusal(name: str) -> OddError:
    return OddError(f"no {name} found")


@click.command(short_help="Show it all")
@click.option("--to", help=f"Send {x} there", metavar="NOT HELP")
def command(to: str) -> None:
    """Say it.

    Say more.
    """
    LOGGER.warning("%s failed after %.1f s" if to else "it failed at once", to, "a value of one")
    raise VeryOdd("first part " f"and {to!r}") from _refusal("plain text")


def silent() -> str:
    """No help here."""
    return "no message here"
'''


def test_messages_are_found_in_code() -> None:
    found = {(each.kind, each.text) for each in messages.messages({"module.py": MODULE})}
    assert found == {
        ("help", "Show it all"),
        ("help", "Send x there"),
        ("help", "Say it.\n\nSay more."),
        ("log", "x failed after x s"),
        ("log", "it failed at once"),
        ("log", "a value of one"),
        ("error", "no x found"),
        ("error", "first part and x"),
        ("error", "plain text"),
    }


def test_an_odd_sentence_is_counted(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# What a heading is\n\nWhat was asked is answered; it ends. What is it?\n\n| What | a table |\n\n"
        "```\nWhat code says;\n```\n\n- " + "word " * 26 + "ends.\n"
    )
    found = sentences.prose_of([page])
    assert (found.sentences, len(found.clauses), found.semicolons, len(found.long)) == (3, 1, 1, 1)
    assert len(sentences.excess(found)) == 4
