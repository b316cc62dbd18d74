"""Python source that is put together line by line and compiled to a function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs

from .primitives import ELEMENTS_PER_PAUSE


@attrs.define(eq=False, repr=False)
class Source:
    """Lines with their indentation, and the objects that they name. Owner: who writes it."""

    lines: list[str] = attrs.field(factory=list)
    names: dict[str, Any] = attrs.field(factory=dict)
    _depth: int = 0
    _variables: int = 0

    def add(self, *lines: str) -> None:
        self.lines.extend("    " * self._depth + line for line in lines)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Lines below `head`, one step further in."""
        self.add(head)
        self._depth += 1
        yield
        self._depth -= 1

    def pause(self) -> None:
        """Lines that count an element, and pause after ELEMENTS_PER_PAUSE of them."""
        self.add("steps += 1")
        with self.block(f"if steps > {ELEMENTS_PER_PAUSE}:"):
            self.add("steps = 0", "yield")

    def variable(self) -> str:
        """A local name that nothing else has."""
        self._variables += 1
        return f"v{self._variables}"

    def constant(self, value: Any) -> str:
        """A name for an object of ours."""
        name = f"C{len(self.names)}"
        self.names[name] = value
        return name

    def function(self, name: str, file: str) -> Callable[..., Any]:
        """Compile what was written, which defines `name`. `file` stands in tracebacks."""
        exec(compile("\n".join(self.lines), file, "exec"), self.names)
        made: Callable[..., Any] = self.names[name]
        return made
