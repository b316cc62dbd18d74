"""All texts that users read, by kind, with their counts: `python -m tests.support.plain_english` lists the odd sentences, and
docstrings that begin with a clause.

`sentences` has the definitions and limits, `messages` takes help, errors and log formats out of the code.
"""

from __future__ import annotations

import sys
from typing import Final

from . import messages, sentences
from .sentences import ROOT, Prose

LEAST_SENTENCES: Final = 200
"""With fewer of a kind, this reads the wrong places."""
REPOSITORY_PAGES: Final = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")


def counted() -> dict[str, Prose]:
    """Return kind -> its counts."""
    found = messages.messages()
    return {
        "documentation": sentences.prose_of(sentences.pages()),
        "changelog and rules": sentences.prose_of(ROOT / name for name in REPOSITORY_PAGES),
        **{
            kind: sentences.prose_in((message.place, message.text) for message in found if message.kind == kind)
            for kind in messages.KINDS
        },
    }


def report(kind: str, prose: Prose) -> str:
    """Return one line with the counts of a kind."""
    return (
        f"{kind}: {prose.sentences} sentences, {prose.words} words, {prose.clause_share:.1%} begin with a noun clause, "
        f"{prose.semicolons_per_1000:.1f} semicolons per 1,000 words, {prose.long_share:.1%} have more than "
        f"{sentences.LONG_WORDS} words, {len(prose.banned)} banned phrases"
    )


if __name__ == "__main__":
    faults = [f"{place}: begins with a clause" for place in messages.clauses(messages.code())]
    for kind, prose in counted().items():
        print(*prose.banned, *prose.clauses, *prose.long, report(kind, prose), sep="\n")  # noqa: T201 - a command
        faults += [f"{kind}: {fault}" for fault in sentences.excess(prose)]
        if prose.sentences < LEAST_SENTENCES:
            faults.append(f"{kind}: {prose.sentences} sentences found, at least {LEAST_SENTENCES} expected")
    sys.exit("\n".join(faults) or None)
