from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.tools.pictures.canvas import WIDTH, Canvas, fitted, fitting_size, merged, text_width

from tests.support.drawings import Drawing

HOSTILE = '</text><script>alert("1")</script>&\x00\x1b[31m\ud800\ufffe\u202egpj.exe'


def hostile_canvas(words: str) -> Canvas:
    canvas = Canvas(words)
    canvas.say(words)
    canvas.rect(0, 0, 10, 10, "log", title=words)
    canvas.text(0, 10, words)
    return canvas


def test_words_from_outside_are_words_also_in_a_part_of_a_page() -> None:
    drawing = Drawing(hostile_canvas(HOSTILE).markup())
    expected = '</text><script>alert("1")</script>&\\x00\\x1b[31m\\ud800\\ufffe\\u202egpj.exe'
    assert [drawing.title, drawing.description, *drawing.hints, *drawing.texts] == [expected] * 4
    canvas = hostile_canvas("a")
    assert "<style>" in canvas.markup()
    assert "<style>" not in canvas.markup(is_alone=False)


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_any_words_make_a_document(words: str) -> None:
    Drawing(hostile_canvas(f"a{words}").markup())


@given(st.text(), st.floats(0, 1000), st.sampled_from((10, 12, 16)))
def test_words_keep_to_their_room(words: str, width: float, size: int) -> None:
    said = fitted(words, width, size)
    assert text_width(said, size) <= max(width, text_width("…", size))


def test_words_are_whole_in_the_largest_size_that_has_room_or_end_with_dots() -> None:
    assert fitted("flights-0", 200) == "flights-0"
    assert fitted("flights-0" * 50, 100).endswith("…")
    assert len(fitted("x" * 1_000_000, 1e9)) < 1_100
    assert fitted("flights", 3) == ""
    assert fitting_size("short", WIDTH, (14, 12, 10)) == 14
    assert fitting_size("x" * 100, 750, (14, 12, 10)) == 12
    assert fitting_size("x" * 1000, 750, (14, 12, 10)) == 10


@pytest.mark.parametrize(
    ("spans", "most", "expected"),
    [
        ([], 3, []),
        ([(5, 6), (0, 2), (1, 3)], 3, [(0, 3), (5, 6)]),
        ([(0, 1), (10, 11), (12, 13), (30, 31)], 3, [(0, 1), (10, 13), (30, 31)]),
        ([(0, 1), (10, 11), (12, 13), (30, 31)], 1, [(0, 31)]),
    ],
)
def test_close_spans_become_one_among_many(
    spans: list[tuple[float, float]], most: int, expected: list[tuple[float, float]]
) -> None:
    assert merged(spans, most) == expected
