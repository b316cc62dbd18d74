"""What the stories of both demos share: who is told, and how claims and figures are kept."""

from __future__ import annotations

from typing import Any

import attrs

from .checks import Check
from .ending import DemoFindings


class Narrator:
    """Is told what happens while it happens; each demo has more to tell. Without a terminal it keeps everything to itself."""

    def checked(self, check: Check) -> None:
        """A claim was judged."""


@attrs.define(eq=False, repr=False)
class Telling:
    """What one run has told so far. Owner: its story."""

    narrator: Narrator
    findings: DemoFindings = attrs.field(factory=DemoFindings)

    def note(self, **figures: Any) -> None:
        """Keep figures for the JSON."""
        self.findings.figures.update(figures)

    def check(self, check: Check) -> None:
        """Keep a claim, and tell of it."""
        self.findings.checks.append(check)
        self.narrator.checked(check)
