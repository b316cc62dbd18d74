r"""Regular expressions of Java, as `subscribePattern` has them, for names of topics.

Spark's Kafka source searches for the pattern inside names (java.util.regex.Pattern). This module parses Java's syntax and
writes an equal expression for Python's `re`. A class of characters becomes the set of legal characters of topic names that it
contains, so unions, intersections and negations are computed here: `[a-z&&[^x]]`. A construct without an equal is refused.

*Invariant*: for every name of a topic, `compile_java(pattern).search(name)` finds something exactly if Java does.
"""

from __future__ import annotations

import functools
import re
import string
from typing import Final

LEGAL: Final = frozenset(string.ascii_letters + string.digits + "._-")
"""Characters of topic names (Kafka: Topic.LEGAL_CHARS)."""

_WORD: Final = frozenset(string.ascii_letters + string.digits + "_")
_DIGITS: Final = frozenset(string.digits)
_NO_CHARACTERS: Final = frozenset[str]()
_SETS: Final = {"d": _DIGITS, "w": _WORD, "s": _NO_CHARACTERS, "h": _NO_CHARACTERS, "v": _NO_CHARACTERS}
_LETTERS: Final = frozenset(string.ascii_letters)
_UPPER: Final = frozenset(string.ascii_uppercase)
_LOWER: Final = frozenset(string.ascii_lowercase)
_PROPERTIES: Final = {
    "ASCII": LEGAL,
    "Alnum": _LETTERS | _DIGITS,
    "Alpha": _LETTERS,
    "Blank": _NO_CHARACTERS,
    "Cntrl": _NO_CHARACTERS,
    "Digit": _DIGITS,
    "Graph": LEGAL,
    "IsAlphabetic": _LETTERS,
    "IsDigit": _DIGITS,
    "L": _LETTERS,
    "Ll": _LOWER,
    "Lower": _LOWER,
    "Lu": _UPPER,
    "N": _DIGITS,
    "Nd": _DIGITS,
    "Print": LEGAL,
    "Punct": LEGAL - _LETTERS - _DIGITS,
    "Space": _NO_CHARACTERS,
    "Upper": _UPPER,
    "XDigit": frozenset(string.hexdigits),
}
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_ASSERTIONS: Final = {"A": r"\A", "z": r"\Z", "Z": r"\Z", "b": r"\b", "B": r"\B"}
_GROUPS: Final = ("?:", "?=", "?!", "?>", "?<=", "?<!")
_QUANTIFIER: Final = re.compile(r"(?:[*+?]|\{\d+(?:,\d*)?\})[?+]?")
_FLAGS: Final = re.compile(r"\?([a-zA-Z]*)(?:-([a-zA-Z]+))?([):])")
_NAME: Final = re.compile(r"\?<[a-zA-Z][a-zA-Z0-9]*>")
_QUOTED: Final = re.compile(r"\\\\|\\Q(.*?)(?:\\E|\Z)", re.DOTALL)
_MAX_CHARS: Final = 1000


class PatternError(ValueError):
    """A pattern that Java refuses, or that has no equal here."""


@functools.lru_cache(maxsize=64)
def compile_java(pattern: str) -> re.Pattern[str]:
    """Return an expression whose `search` finds in names of topics what Java's does. PatternError."""
    if len(pattern) > _MAX_CHARS:
        raise PatternError(f"it has {len(pattern)} characters, expected at most {_MAX_CHARS}")
    try:
        return re.compile(_Parser(_unquoted(pattern)).parse())
    except (re.error, RecursionError, OverflowError) as exc:
        raise PatternError(f"this source cannot search with this regular expression: {exc}") from exc


def _unquoted(pattern: str) -> str:
    r"""Replace `\Q...\E` by escaped characters, as Java does first."""

    def escaped(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0]
        return "".join(char if char.isascii() and char.isalnum() else "\\" + char for char in found[1])

    return _QUOTED.sub(escaped, pattern)


class _Parser:
    """A pattern, and the position in it. Owner: `compile_java`."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._ignores_case = False

    def parse(self) -> str:
        written = self._alternatives()
        if self._at < len(self._text):
            raise self._error("the ) has no (")
        return written

    def _peek(self, ahead: int = 0) -> str:
        """Return a character, or an empty string after the end."""
        return self._text[self._at + ahead : self._at + ahead + 1]

    def _accept(self, text: str) -> bool:
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _error(self, what: str) -> PatternError:
        return PatternError(f"{what} at character {self._at}")

    # ---- sequences -----------------------------------------------------------------------------------------------------

    def _alternatives(self) -> str:
        """Parse up to the end or a `)`. A flag that is set inside ends with the group."""
        ignored_case = self._ignores_case
        parts = []
        while (char := self._peek()) and char != ")":
            parts.append("|" if self._accept("|") else self._quantified())
        self._ignores_case = ignored_case
        return "".join(parts)

    def _quantified(self) -> str:
        atom = self._atom()
        if (found := _QUANTIFIER.match(self._text, self._at)) is None:
            return atom
        self._at = found.end()
        return f"(?:{atom}){found[0]}"

    def _atom(self) -> str:
        char = self._peek()
        self._at += 1
        if char in ("*", "+", "?", "{"):
            raise self._error(f"the {char} repeats nothing")
        match char:
            case "^":
                return r"\A"
            case "$":
                return r"\Z"
            case ".":
                return "."
            case "(":
                return self._group()
            case "[":
                return _written(self._class())
            case "\\":
                return self._escaped()
        return self._literal(char)

    def _literal(self, char: str) -> str:
        return _written(self._with_case(frozenset(char))) if self._ignores_case and char in _LETTERS else re.escape(char)

    def _with_case(self, characters: frozenset[str]) -> frozenset[str]:
        return characters | {char.swapcase() for char in characters} if self._ignores_case else characters

    def _group(self) -> str:
        opened = next((kind for kind in _GROUPS if self._accept(kind)), None)
        if opened is None and self._peek() == "?":
            if (named := _NAME.match(self._text, self._at)) is not None:
                self._at = named.end()
            else:
                return self._flags()
        return self._closed(opened or "?:")

    def _closed(self, opened: str) -> str:
        inner = self._alternatives()
        if not self._accept(")"):
            raise self._error("a ( is not closed")
        return f"({opened}{inner})"

    def _flags(self) -> str:
        found = _FLAGS.match(self._text, self._at)
        if found is None:
            raise self._error("a group of this kind is not supported")
        on, off, end = found[1], found[2] or "", found[3]
        if surplus := sorted(set(on + off) - {"i", "s"}):
            raise self._error(f"the flag {surplus[0]} is not supported")
        self._at = found.end()
        ignored_case = self._ignores_case
        self._ignores_case = (ignored_case or "i" in on) and "i" not in off
        if end == ")":
            return ""
        written = self._closed("?:")
        self._ignores_case = ignored_case
        return written

    def _escaped(self) -> str:
        r"""Parse what follows a `\` outside of a class."""
        char = self._peek()
        if char in _ASSERTIONS:
            self._at += 1
            if char == "b" and self._peek() == "{":
                raise self._error(r"\b{...} is not supported")
            return _ASSERTIONS[char]
        if char == "R":
            self._at += 1
            return "(?!)"
        found = self._escape()
        return self._literal(found) if isinstance(found, str) else _written(found)

    def _escape(self) -> str | frozenset[str]:
        r"""Parse what follows a `\` anywhere: a character, or a set of them."""
        char = self._peek()
        self._at += 1
        if char.lower() in _SETS:
            found = _SETS[char.lower()]
            return found if char.islower() else LEGAL - found
        if char in ("p", "P"):
            found = self._property()
            return found if char == "p" else LEGAL - found
        if char in ("x", "u"):
            digits = self._text[self._at : self._at + (2 if char == "x" else 4)]
            if not re.fullmatch(r"[0-9a-fA-F]{2}|[0-9a-fA-F]{4}", digits) or len(digits) != (2 if char == "x" else 4):
                raise self._error(f"\\{char} needs hexadecimal digits")
            self._at += len(digits)
            return chr(int(digits, 16))
        if char in _CONTROLS:
            return _CONTROLS[char]
        if not char or (char.isascii() and char.isalnum()):
            raise self._error(f"\\{char} is not supported")
        return char

    def _property(self) -> frozenset[str]:
        found = re.compile(r"\{(\w+)\}|(\w)").match(self._text, self._at)
        name = found and (found[1] or found[2])
        if found is None or name not in _PROPERTIES or self._ignores_case:
            raise self._error(rf"the class \p{{{name}}} is not supported{' with the flag i' if self._ignores_case else ''}")
        self._at = found.end()
        return _PROPERTIES[name]

    # ---- classes (Java: Pattern.clazz, Pattern.range) ------------------------------------------------------------------

    def _class(self) -> frozenset[str]:
        """Parse a class after its `[`, up to and with its `]`."""
        is_negated = self._accept("^")
        found = self._members()
        self._at += 1
        return LEGAL - found if is_negated else found

    def _members(self) -> frozenset[str]:
        """Parse the members of a class up to its `]`."""
        found: frozenset[str] | None = None
        while True:
            char = self._peek()
            if not char:
                raise self._error("a [ is not closed")
            if char == "]" and found is not None:
                return found
            if self._accept("&&"):
                right = self._right_operand()
                found = right if found is None else found & right
                continue
            members = self._class() if self._accept("[") else self._range()
            found = members if found is None else found | members

    def _right_operand(self) -> frozenset[str]:
        """Parse the classes, or the members, between `&&` and another `&&` or `]`."""
        right = _NO_CHARACTERS
        if self._peek() in ("]", "&", ""):
            raise self._error("&& has no right side")
        if self._peek() != "[":
            return self._members()  # up to the ], further && included
        while self._accept("["):
            right |= self._class()
        if self._peek() != "]" and not self._text.startswith("&&", self._at):
            raise self._error("a class beside single characters after && is not supported")
        return right

    def _range(self) -> frozenset[str]:
        first = self._member()
        if not isinstance(first, str):
            return first
        if self._peek() != "-" or self._peek(1) in ("[", "]", ""):
            return self._with_case(frozenset(first))
        self._at += 1
        last = self._member()
        if not isinstance(last, str) or last < first:
            raise self._error("the range of characters is illegal")
        return frozenset(char for char in LEGAL if any(first <= each <= last for each in self._with_case(frozenset(char))))

    def _member(self) -> str | frozenset[str]:
        char = self._peek()
        if not char:
            raise self._error("a [ is not closed")
        self._at += 1
        return self._escape() if char == "\\" else char


def _written(characters: frozenset[str]) -> str:
    """Return an expression for one of these characters."""
    legal = sorted(characters & LEGAL)
    return f"[{''.join(map(re.escape, legal))}]" if legal else "(?!)"
