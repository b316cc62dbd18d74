"""The meaning of an option of Spark's Kafka source or sink here, and the check of a user's options against it.

The table decides alone: an option is accepted, refused by name with its reason, or unused. An unused option is refused, too,
unless `strictOptions` is false; then one warning names all of them. No option is ignored silently.
"""

from __future__ import annotations

import difflib
import enum
import warnings
from collections.abc import Iterable, Mapping, Set
from typing import Final

import attrs

STRICT: Final = "strictOptions"


class OptionError(ValueError):
    """An option of a read or write that is unknown, wrong, missing, or contradicts another one."""


class Meaning(enum.Enum):
    """The relation of an option to the option of Spark's Kafka source or sink with the same name."""

    SAME = "same"
    DIFFERENT = "different"
    OWN = "triolog's own"
    UNUSED = "unused"
    REFUSED = "refused"

    @property
    def is_accepted(self) -> bool:
        """Return whether the option has an effect."""
        return self in (Meaning.SAME, Meaning.DIFFERENT, Meaning.OWN)


@attrs.frozen
class Option:
    """An option's name, its meaning, and a text: the effect of an accepted option, or the reason of a refusal."""

    name: str
    meaning: Meaning
    text: str
    default: str = ""
    difference: str = ""
    """The difference, for a DIFFERENT option."""


@attrs.frozen(kw_only=True)
class OptionTable:
    """The options of reads or of writes; `what` names them in messages."""

    what: str
    options: Mapping[str, Option]
    """By name in lower case, as Spark passes names."""
    silent: Set[str] = frozenset()
    """Options that Spark passes to a source or sink and that are Spark's own, in lower case."""

    @classmethod
    def of(cls, what: str, options: Iterable[Option], silent: Iterable[str] = ()) -> OptionTable:
        """Build a table. ValueError for a name that occurs twice."""
        found: dict[str, Option] = {}
        for option in options:
            if found.setdefault(option.name.lower(), option) is not option:
                raise ValueError(f"option {option.name} is in the table of {what} twice")
        return cls(what=what, options=found, silent=frozenset(silent))

    @property
    def names(self) -> tuple[str, ...]:
        """The accepted options."""
        return tuple(option.name for option in self.options.values() if option.meaning.is_accepted)

    def check(self, given: Mapping[str, str]) -> None:
        """OptionError for an option that is refused, unknown or unused; a warning if `strictOptions` is false.

        Names in `given` are in lower case.
        """
        is_strict = self._is_strict(given)
        unused = []
        for name in given.keys() - self.silent:
            option = self.options.get(name)
            if option is not None and option.meaning is Meaning.REFUSED:
                raise OptionError(f"option {option.name} is refused: {option.text}")
            if option is None or option.meaning is Meaning.UNUSED:
                unused.append(name)
        if not unused:
            return
        unused.sort()
        if is_strict:
            raise OptionError(self._refusal(unused[0]))
        named = ", ".join(self.options[name].name if name in self.options else name for name in unused)
        warnings.warn(f"{STRICT} is false, so these options have no effect: {named}", stacklevel=4)

    def _is_strict(self, given: Mapping[str, str]) -> bool:
        text = given.get(STRICT.lower(), "true")
        if text.lower() not in ("true", "false"):
            raise OptionError(f"option {STRICT} is {text!r}, expected one of true, false")
        return text.lower() == "true"

    def _refusal(self, name: str) -> str:
        if (option := self.options.get(name)) is not None:
            return f"option {option.name} is refused: {option.text}. Leave it out, or set {STRICT} to false to ignore it"
        near = difflib.get_close_matches(name, [known.lower() for known in self.names], n=1)
        hint = (
            f"Did you mean {self.options[near[0]].name}?" if near else f"{self.what.capitalize()} takes {', '.join(self.names)}"
        )
        return f"unknown option {name}. {hint}"
