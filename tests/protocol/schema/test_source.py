from __future__ import annotations

import traceback

import pytest
from triolog.protocol.schema.source import Source


def test_lines_in_blocks_become_a_function_that_knows_its_constants() -> None:
    source = Source(names={"twice": lambda number: 2 * number})
    least = source.constant(10)
    with source.block("def made(number):"):
        local = source.variable()
        source.add(f"{local} = twice(number)")
        with source.block(f"if {local} < {least}:"):
            source.add(f"return {least}")
        source.add(f"return {local}")
    made = source.function("made", "<made>")
    assert (made(3), made(6)) == (10, 12)


def test_variables_and_constants_have_names_of_their_own() -> None:
    source = Source()
    names = [source.variable(), source.variable(), source.constant(1), source.constant(1)]
    assert len(set(names)) == 4


def test_a_traceback_says_what_was_made() -> None:
    source = Source()
    with source.block("def made():"):
        source.add("raise ValueError('planted')")
    with pytest.raises(ValueError, match="planted") as caught:
        source.function("made", "<reader of X v1>")()
    assert "<reader of X v1>" in "".join(traceback.format_exception(caught.value))
