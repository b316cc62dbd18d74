"""The sentences of Markdown pages and messages, and the limits of plain English for them.

Tables, code, headings, HTML comments and front matter are left out. Inline code counts as one word, a link as its text. A
sentence ends with `.`, `!`, `?` or `:` before a capital, a backquote, or the end of its paragraph or list item.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import attrs

ROOT: Final = Path(__file__).resolve().parents[2]
LONG_WORDS: Final = 25
CLAUSES: Final = frozenset(
    {"What", "Whatever", "Who", "Whoever", "Whom", "Whose", "Whether", "How", "Where", "Wherever", "Whichever"}
)
"""First words of a clause that stands for a noun. Questions are left out."""

BANNED: Final = re.compile(
    r"\b(?:"
    r"whoever|anew|nobody|everybody|somebody|anybody"
    r"|(?:go|goes|going|went) on|all the same|for ever|without a word|once more|has it so|met a bug"
    r"|(?:takes|took|taken) out|pass(?:es|ed)? over|asks? for|asked for|(?:is|are) tried again"
    r"|(?:is|are|was|were|be) (?:told|asked)"
    r"|(?<!there )(?:is|are) (?:no (?!longer\b|more\b)|none of)"
    r"|(?:lies|lay|lie) (?:behind|before|in|after)|behind (?:it|them|this|that|the|what)"
    r"|what (?:is|was|were|are|has|had)"
    r")\b",
    re.IGNORECASE,
)
"""Idioms that read like a translation. Questions are left out."""

_NO_PROSE: Final = (
    re.compile(r"\A---\n.*?\n---\n", re.DOTALL),
    re.compile(r"<!--.*?-->", re.DOTALL),
    re.compile(r"^([ \t]*)(```|~~~).*?^\1\2[^\n]*$", re.DOTALL | re.MULTILINE),
    re.compile(r"^\s*\|.*$", re.MULTILINE),
    re.compile(r"^#+ .*$", re.MULTILINE),
    re.compile(r"^(?: {4}|\t)(?![-*] |\d+\. ).*$", re.MULTILINE),
    re.compile(r"^\s*(?::::|!!!|\?\?\?|===).*$", re.MULTILINE),
)
_ITEM: Final = re.compile(r"^\s*(?:[-*+]|\d+\.)\s+", re.MULTILINE)
_END: Final = re.compile(r"(?<=[.!?:])[)\"*_]*\s+(?=[A-Z`\"(*_\[])")


@attrs.frozen
class Prose:
    """Counts of some pages."""

    sentences: int
    words: int
    clauses: list[str]
    """`page: sentence`, of sentences that begin with a noun clause."""
    long: list[str]
    """The same, of sentences with more than LONG_WORDS words."""
    semicolons: int
    banned: list[str]
    """`page: phrase: sentence`, of phrases in BANNED."""

    @property
    def clause_share(self) -> float:
        return len(self.clauses) / max(1, self.sentences)

    @property
    def semicolons_per_1000(self) -> float:
        return 1000 * self.semicolons / max(1, self.words)

    @property
    def long_share(self) -> float:
        return len(self.long) / max(1, self.sentences)


def sentences_of(page: str) -> Iterator[str]:
    """The sentences of a page's prose, each on one line."""
    for pattern in _NO_PROSE:
        page = pattern.sub("", page)
    page = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", page)
    page = re.sub(r"`+[^`]*`+", "`code`", page)
    page = _ITEM.sub("\n\n", page)
    for paragraph in re.split(r"\n\s*\n", page):
        text = " ".join(paragraph.split())
        yield from (each.strip() for each in _END.split(text) if re.search(r"\w", each))


def prose_of(pages: Iterable[Path]) -> Prose:
    """Count the prose of pages."""
    return prose_in((_name_of(path), path.read_text(encoding="utf-8")) for path in pages)


def _name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name


def prose_in(texts: Iterable[tuple[str, str]]) -> Prose:
    """Count the prose of texts, each with its place. Messages begin with a small letter: it counts as a capital."""
    count, words, semicolons = 0, 0, 0
    clauses: list[str] = []
    long: list[str] = []
    banned: list[str] = []
    for name, text in texts:
        for sentence in sentences_of(text):
            size = len(re.findall(r"[\w`'-]*\w[\w`'-]*", sentence))
            count, words, semicolons = count + 1, words + size, semicolons + sentence.count(";")
            first = re.sub(r"^\W+", "", sentence).partition(" ")[0].rstrip(",").capitalize()
            if first in CLAUSES and not sentence.endswith("?"):
                clauses.append(f"{name}: {sentence}")
            if (phrase := BANNED.search(sentence)) and not sentence.endswith("?"):
                banned.append(f"{name}: {phrase[0]!r}: {sentence}")
            if size > LONG_WORDS:
                long.append(f"{name}: {size} words: {sentence}")
    return Prose(count, words, clauses, long, semicolons, banned)


def excess(prose: Prose) -> list[str]:
    """Return the counts of the texts that are above their limits, each with its limit."""
    limits = (
        ("sentences that begin with a noun clause, %", 100 * prose.clause_share, 0.5),
        ("semicolons per 1,000 words", prose.semicolons_per_1000, 4.0),
        (f"sentences with more than {LONG_WORDS} words, %", 100 * prose.long_share, 5.0),
        ("banned phrases", len(prose.banned), 0),
    )
    return [f"{name}: {found:.1f}, at most {most}" for name, found, most in limits if found > most]


def pages() -> list[Path]:
    """README and the pages of the site. Dated benchmarks are records of their day and stay as they were written."""
    docs = ROOT / "docs"
    dated = re.compile(r"benchmarks/20\d\d-")
    return [ROOT / "README.md", *(path for path in sorted(docs.rglob("*.md")) if not dated.search(path.as_posix()))]
